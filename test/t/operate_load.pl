# Runs are started, executed, handed over, blocked, cancelled, requeued, deleted and retained by
# the dozen while workers come and go, and the server is killed again and again. After
# each crash everything fits together; at the end every run that is left comes to its end.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $CRASHES = $ENV{DURABLE_CRASHES} // 3;
my $EFFECTS = $ENV{DURABLE_EFFECTS} // 60;    # before each crash
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('opload', {}, 'durable.max_reclaims = 1000000', "durable.blocked_poll = '300ms'", 'deadlock_timeout = 50ms');

sub sql { return $node->safe_psql('postgres', $_[0]); }

sql(q{
	CREATE TABLE effect (run text, n int);
	CREATE TABLE calm (is_calm boolean);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO effect VALUES (durable.run_id(), (i ->> 'n')::int) RETURNING to_jsonb(n) $$;
	CREATE FUNCTION flaky(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', i);
		IF NOT EXISTS (SELECT FROM calm) AND hashtext(durable.run_id() || clock_timestamp()) % 2 = 0 THEN
			PERFORM durable.fail_run('broken', 'broken');
		END IF;
		RETURN i;
	END $$;
	CREATE FUNCTION family(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('flaky', i); END $$;
	CREATE FUNCTION busy(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.step_async('outside');
		RETURN durable.wait_for_signal('go ' || (i ->> 'n'), timeout => '200 ms');
	END $$;
	CREATE FUNCTION rendered(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('render', i, requires => '{gpu}'); END $$;
	CREATE FUNCTION mend(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.sleep('5 ms');
		IF NOT EXISTS (SELECT FROM calm) AND hashtext(durable.run_id()) % 2 = 0 THEN
			PERFORM durable.fail_run('not mended', 'broken');
		END IF;
		RETURN '"mended"';
	END $$;
	SELECT durable.register_workflow('flaky', 'flaky', on_error => '[{"workflow": "mend"}]', singleton_key => '$.s', singleton_limit => 2),
		durable.register_workflow('family', 'family', concurrency_key => '$.s', concurrency_limit => 30), durable.register_workflow('busy', 'busy'),
		durable.register_workflow('rendered', 'rendered'), durable.register_workflow('mend', 'mend');
	SELECT durable.announce_worker('cpu', '{render}', capabilities => '{}', ttl => '1 h');

	-- what does not fit together
	CREATE VIEW wrong AS
	WITH live AS (SELECT r.*, EXISTS (SELECT FROM durable.task t WHERE t.id = r.id AND t.kind = 'turn') AS has_turn,
			EXISTS (SELECT FROM durable.task_ready x WHERE x.id = r.id) AS listed, EXISTS (SELECT FROM durable.task_delayed x WHERE x.id = r.id) AS later,
			EXISTS (SELECT FROM durable.singleton s WHERE s.run = r.id AND s.parked) AS parked,
			EXISTS (SELECT FROM durable.lease l JOIN durable.task t ON t.id = r.id WHERE r.id = ANY (l.ids) AND l.id > coalesce(t.last_lease, 0)) AS claimed
		  FROM durable.run r WHERE r.finished_at IS NULL)
	SELECT 'lives without a turn' AS what, run_id FROM live WHERE NOT has_turn
	UNION ALL SELECT 'in no list: ' || turn_state, run_id FROM live WHERE turn_state <> 'parked' AND NOT listed AND NOT later AND NOT parked AND NOT claimed
	UNION ALL SELECT 'in two lists', run_id FROM live WHERE listed::int + later::int + parked::int > 1
	UNION ALL SELECT 'parked, but in a list', run_id FROM live WHERE turn_state = 'parked' AND (listed OR later OR parked)
	UNION ALL SELECT 'waits for nothing', run_id FROM live WHERE turn_state = 'parked' AND NOT EXISTS (SELECT FROM durable.checkpoint c WHERE c.run = live.id AND c.status = 'pending')
	UNION ALL SELECT 'blocked, but not known', run_id FROM live WHERE status = 'blocked' AND NOT EXISTS (SELECT FROM durable.run_blocked b WHERE b.run = live.id)
	UNION ALL SELECT 'known, but not blocked', b.run::text FROM durable.run_blocked b WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = b.run AND r.status = 'blocked')
	UNION ALL SELECT 'step without a task', run_id FROM live JOIN durable.checkpoint c ON c.run = live.id WHERE c.kind = 'step' AND c.status = 'pending' AND c.task IS NOT NULL AND NOT EXISTS (SELECT FROM durable.task t WHERE t.id = c.task)
	UNION ALL SELECT 'ended with a turn', r.run_id FROM durable.run r JOIN durable.task t USING (id) WHERE r.finished_at IS NOT NULL
	UNION ALL SELECT 'handler without its run', h.run_id FROM durable.run h WHERE h.run_id LIKE 'onerror:%' AND h.finished_at IS NULL AND NOT EXISTS (
		SELECT FROM durable.run r JOIN durable.checkpoint c ON c.run = r.id WHERE r.id = h.parent AND r.finished_at IS NULL AND c.name = 'handoff:' || h.run_id AND c.status = 'pending')
	UNION ALL SELECT 'child without its parent', c.run_id FROM durable.run c WHERE c.parent IS NOT NULL AND NOT EXISTS (SELECT FROM durable.run p WHERE p.id = c.parent)
	UNION ALL SELECT 'checkpoint without a run', c.run::text FROM durable.checkpoint c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'log without a run', c.run::text FROM durable.run_log c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'waiter without a run', w.run::text FROM durable.waiter w WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = w.run)
	UNION ALL SELECT 'singleton without a run', s.run::text FROM durable.singleton s WHERE NOT EXISTS (SELECT FROM live r WHERE r.id = s.run)
	UNION ALL SELECT 'counted without a run', s.run::text FROM durable.quota s WHERE NOT EXISTS (SELECT FROM live r WHERE r.id = s.run)
	UNION ALL SELECT 'too many hold a slot', s.key FROM durable.singleton s WHERE s.state = 'held' GROUP BY 2 HAVING count(*) > 2
	UNION ALL SELECT 'list without a task', x.id::text FROM (SELECT id FROM durable.task_ready UNION ALL SELECT id FROM durable.task_delayed) x WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = x.id)
	UNION ALL SELECT 'step of no run', t.run_id FROM durable.task t WHERE t.kind IN ('step', 'turn') AND NOT EXISTS (SELECT FROM durable.run r WHERE r.run_id = t.run_id)
	UNION ALL SELECT 'done twice', run FROM effect GROUP BY 2, n HAVING count(*) > 1
	UNION ALL SELECT 'queue of no worker', q.worker FROM durable.worker_queue q WHERE NOT EXISTS (SELECT FROM durable.worker w WHERE (w.namespace, w.worker) = (q.namespace, q.worker) AND q.queue = ANY (w.queues));
});

my %scripts = (
	'start' => [ 6, q{
\set n random(1, 1000000000)
\set w random(0, 3)
SELECT count(durable.start((ARRAY['flaky', 'family', 'busy', 'rendered'])[:w + 1], jsonb_build_object('n', :n + i, 's', 1 + i % 5), 'r' || :n || '-' || i, on_conflict => 'return'))
	FROM generate_series(1, 4) i WHERE (SELECT count(*) FROM durable.run) < 150;
} ],
	'signal' => [ 2, q{
SELECT durable.signal(token, '1') FROM durable.waiter WHERE token LIKE 'go %' ORDER BY random() LIMIT 1;
} ],
	'work' => [ 12, q{CALL durable.work(duration => '0', max_tasks => 20);} ],
	# (claimed and settled in one transaction, a step that its run does not wait for would be a deadlock with who ends the run)
	'steps' => [ 3, q{
SELECT count(*) > 0 AS found, coalesce(max(task_id), '') AS task_id, coalesce(max(token::text), '') AS token FROM durable.claim('{outside,render}', lease => '1 s', worker => 'gpu') \gset
\if :found
SELECT durable.complete(:task_id, :token::uuid, '1');
\endif
} ],
	'announce' => [ 1, q{SELECT durable.announce_worker('gpu', '{render}', capabilities => '{gpu}');} ],
	'withdraw' => [ 1, q{SELECT durable.withdraw_worker('gpu');} ],
	'redrive' => [ 2, q{
\set rate random(50, 1000)
SELECT count(*) FROM durable.redrive('{"namespace": "default"}', 20, rate => :rate);
} ],
	'requeue' => [ 2, q{SELECT durable.requeue(run_id) FROM durable.run WHERE turn_state = 'parked' ORDER BY random() LIMIT 1;} ],
	'cancel' => [ 1, q{SELECT count(*) FROM durable.cancel_where('{"namespace": "default"}', max_runs => 5);} ],
	'cancel, rolled back' => [ 1, q{
BEGIN;
SELECT count(*) FROM durable.cancel_where('{"namespace": "default"}', max_runs => 20);
ROLLBACK;
} ],
	'delete' => [ 1, q{SELECT durable.delete_run(run_id) FROM durable.run WHERE finished_at IS NOT NULL AND parent IS NULL AND status <> 'failed' ORDER BY random() LIMIT 1;} ],
	'purge' => [ 1, q{SELECT durable.purge_runs('{"namespace": "default"}', force => true, max_runs => 8);} ],
	'purge, rolled back' => [ 1, q{
BEGIN;
SELECT durable.purge_runs('{"status": ["completed", "cancelled"]}', max_runs => 8);
ROLLBACK;
} ],
	'set retention' => [ 1, q{
\set n random(1, 40)
SELECT durable.set_retention('{completed,cancelled}', max_count => :n);
} ],
	'drop retention' => [ 1, q{SELECT durable.drop_retention(id) FROM durable.retention;} ],
	'sweep' => [ 3, 'SELECT durable.sweep();' ]);
# what loses a race is told so, and the load goes on
for (values %scripts)
{
	next if $_->[1] =~ /BEGIN|\\gset|CALL/;
	my ($set, $call) = $_->[1] =~ /^(\s*(?:\\set [^\n]*\n)*)(.*?);?\s*$/s;
	$_->[1] = $set . "CALL attempt(\$\$$call\$\$);\n" unless $call =~ /:[a-z]/;
}
sql(q{
	CREATE TABLE failure (code text, what text, message text);
	CREATE PROCEDURE attempt(what text) LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE what;
	EXCEPTION WHEN OTHERS THEN
		INSERT INTO failure VALUES (sqlstate, what, sqlerrm);
	END $$;
});

my @files = pgbench_scripts(\%scripts);
for my $crash (1 .. $CRASHES)
{
	my $before = sql('SELECT count(*) FROM effect');
	my $load = { out => '' };
	$load->{run} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', 8, '-j', 2, '-T', 600, '--max-tries=100', '--random-seed', int(rand 1e9), @files, $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	wait_for(sub { die $load->{out} unless $load->{run}->pumpable; $load->{run}->pump_nb; sql('SELECT count(*) FROM effect') > $before + $EFFECTS }, 'some work to be done');
	usleep(int rand 100_000);
	crash($node);
	$load->{run}->finish;
	is_undisturbed($load->{out}, "crash $crash: nothing failed before");
	$node->start;
	is(sql('SELECT what, count(*), min(run_id) FROM wrong GROUP BY 1'), '', "crash $crash: everything fits together") or last;
}
note sql('SELECT code, count(*), min(what), min(message) FROM failure GROUP BY 1');
note sql('SELECT workflow, status, count(*) FROM durable.run GROUP BY 1, 2 ORDER BY 1, 2');
is(sql(q{SELECT code, what, message FROM failure WHERE code NOT IN ('40P01', '55000') LIMIT 5}), '', 'nobody was refused but for a race');

# what is left comes to its end
sql(q{INSERT INTO calm VALUES (true); SELECT durable.announce_worker('gpu', '{render}', capabilities => '{gpu}', ttl => '1 h'); ALTER DATABASE postgres SET durable.clock_offset = 60});
wait_for(
	sub {
		sql(q{SELECT durable.sweep(); CALL durable.work(duration => '0'); SELECT count(durable.complete(task_id, token, '1')) FROM durable.claim('{outside,render}', 100, worker => 'gpu')});
		sql('SELECT count(*) FROM durable.run WHERE finished_at IS NULL') == 0;
	}, 'every run to end');
pass('every run ends');
is(sql('SELECT what, count(*), min(run_id) FROM wrong GROUP BY 1'), '', 'and everything fits together');
is(sql('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
