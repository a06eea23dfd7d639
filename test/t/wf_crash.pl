# The server is killed again and again while sessions start, execute, signal and
# settle runs of a workflow with every kind of step, and the tables are rewritten. At
# the end every run has ended and every step's effect is there exactly once.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $CRASHES = $ENV{DURABLE_CRASHES} // 5;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('crash', {}, 'durable.max_reclaims = 1000000');
my $offset = 0;

$node->safe_psql('postgres', q{
	CREATE TABLE effect (run text, step text, n int);
	CREATE TABLE started (run text PRIMARY KEY);
	CREATE TABLE to_signal (run text);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), i ->> 'step', (i ->> 'n')::int);
		RETURN to_jsonb((i ->> 'n')::int + 1);
	END $$;
	CREATE FUNCTION flaky(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'flaky', (i ->> 'n')::int);
		IF random() < 0.5 THEN
			RAISE EXCEPTION 'this time not';
		END IF;
		RETURN i;
	END $$;
	CREATE FUNCTION sub(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable.local_step('act', '{"step": "child", "n": 0}');
	END $$;
	CREATE FUNCTION job(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		n jsonb := '0';
		h int[] := '{}';
		s jsonb;
	BEGIN
		FOR k IN 1..3 LOOP
			n := durable.local_step('act', jsonb_build_object('step', 'first', 'n', n), 'first ' || k);
		END LOOP;
		FOR k IN 1..3 LOOP
			h := h || durable.step_async('outside', jsonb_build_object('k', k));
		END LOOP;
		h := h || durable.step_async('inside', '{"step": "inside", "n": 0}');
		s := durable.wait_for_signal('go ' || durable.run_id());
		PERFORM durable.await_all(h);
		PERFORM durable.sleep('10 ms');
		PERFORM durable.local_step('flaky', '{"n": 0}', retries => 100);
		PERFORM durable.child('sub');
		n := durable.local_step('act', jsonb_build_object('step', 'last', 'n', n));
		RETURN jsonb_build_object('n', n, 's', s);
	END $$;
	SELECT durable.register_workflow('job', 'job'), durable.register_workflow('job', 'job', '2', atomic => true),
		durable.register_workflow('sub', 'sub'), durable.register_handler('inside', 'act');
});

my %scripts = (
	'start' => [ 2, q{
\set id random(1, 1000000000000)
\set version random(1, 2)
BEGIN;
INSERT INTO started SELECT durable.start('job', NULL, 'r' || :id, version => :version::text);
INSERT INTO to_signal VALUES ('r' || :id);
END;
} ],
	'start, rolled back' => [ 1, q{
\set id random(1, 1000000000000)
BEGIN;
INSERT INTO started SELECT durable.start('job', NULL, 'rolled back ' || :id);
ROLLBACK;
} ],
	'signal' => [ 3, q{
DELETE FROM to_signal WHERE ctid = ANY (ARRAY(SELECT ctid FROM to_signal LIMIT 1 FOR UPDATE SKIP LOCKED))
	RETURNING durable.signal('go ' || run, to_jsonb(run));
} ],
	'outside' => [ 8, q{
SELECT count(*) > 0 AS found, coalesce(max(task_id), '') AS task_id, coalesce(max(token::text), '') AS token,
	coalesce(max(run_id), '') AS run, coalesce(max((input ->> 'k')::int), 0) AS k FROM durable.claim('{outside}', 1, '30 s') \gset
\if :found
BEGIN;
SELECT durable.complete(:task_id, :token::uuid, :k::text::jsonb) AS done \gset
\if :done
INSERT INTO effect VALUES (:run, 'outside', :k);
END;
\else
ROLLBACK;
\endif
\endif
} ]);

my @files = pgbench_scripts(\%scripts);

# Clients with or without starting more, and sessions that execute.
sub start_load
{
	my (@only) = @_;
	my $load = { out => '', clients => undef, workers => [] };
	$load->{clients} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', 3, '-T', 600, '--rate', 150,
			'--random-seed', int(rand 1e9), @only ? @only : @files, $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	for (1 .. 3)
	{
		my $worker = { out => '' };
		$worker->{run} = IPC::Run::start(
			[ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
				'-c', q{CALL durable.work(duration => '600 s')} ],
			'<', \undef, '>&', \$worker->{out});
		push @{ $load->{workers} }, $worker;
	}
	return $load;
}

sub end_load
{
	my ($load) = @_;
	$load->{clients}->kill_kill(grace => 1) if $load->{clients}->pumpable && $_[1];
	$load->{clients}->finish;
	for my $worker (@{ $load->{workers} })
	{
		$worker->{run}->finish;
		$load->{out} .= $worker->{out};
	}
	return $load->{out};
}

# Whoever had a claim is gone: its lease may as well have ended.
sub skip_leases
{
	$offset += 100;
	$node->append_conf('postgresql.conf', "durable.clock_offset = $offset");
	return;
}

my $done = 0;
for my $crash (1 .. $CRASHES)
{
	my $load = start_load();
	my $goal = $done + 5 + int rand 40;
	ok( $node->poll_query_until('postgres',
			"SELECT count(*) >= $goal FROM durable.run WHERE status = 'completed' AND workflow = 'job'"),
		"crash $crash: reached $goal completed runs");
	my $upkeep = DurableTest::Session->new($node, name => 'upkeep');
	my @upkeep = map { ("VACUUM FULL durable.$_", "REINDEX TABLE CONCURRENTLY durable.$_") }
		qw(run checkpoint waiter signal_buffer run_log task lease);
	for my $statement (map { splice @upkeep, int rand @upkeep, 1 } 1 .. 6)
	{
		is($upkeep->query($statement), '', "crash $crash: $statement");
	}
	usleep(int rand 100_000);
	crash($node);
	$upkeep->quit;
	is_undisturbed(end_load($load), "crash $crash: nothing failed before");
	skip_leases();
	$node->start;
	$done = $node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE status = 'completed' AND workflow = 'job'});
	cmp_ok($done, '>=', $goal, "crash $crash: nothing that was committed is lost");
	is( $node->safe_psql('postgres', q{
			SELECT count(*) FROM (SELECT run, step, n FROM effect GROUP BY 1, 2, 3 HAVING count(*) > 1) d}),
		0, "crash $crash: no effect is there twice");
}

# Everything ends.
my $outside = (grep { /outside/ } @files)[0];
my $signal = (grep { /signal/ } @files)[0];
my $load = start_load('-f', $outside, '-f', $signal);
ok( $node->poll_query_until('postgres',
		q{SELECT NOT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL) AND NOT EXISTS (SELECT FROM to_signal)}),
	'every run ends') or note $node->safe_psql('postgres', q{
		SELECT run_id, status, turn_state, wake_at, wakes, awaited_left FROM durable.run WHERE finished_at IS NULL LIMIT 20});
$node->safe_psql('postgres', q{
	SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'});
is_undisturbed(end_load($load, 1), 'nothing failed at the end');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM started s FULL JOIN (SELECT * FROM durable.run WHERE workflow = 'job') r ON s.run = r.run_id
		 WHERE s.run IS NULL OR r.run_id IS NULL}),
	0, 'there is a run for each start that was committed, and no other');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM durable.run r WHERE r.workflow = 'job'
		   AND (status, output) IS DISTINCT FROM ('completed', jsonb_build_object('n', 4, 's', r.run_id))}),
	0, 'each has its right result');
is( $node->safe_psql('postgres', q{
		SELECT step, n, count(*) = (SELECT count(*) FROM started), count(DISTINCT run) = count(*) FROM effect GROUP BY 1, 2 ORDER BY 1, 2}),
	join("\n", 'child|0|t|t', 'first|0|t|t', 'first|1|t|t', 'first|2|t|t', 'flaky|0|t|t', 'inside|0|t|t', 'last|3|t|t',
		'outside|1|t|t', 'outside|2|t|t', 'outside|3|t|t'),
	'every effect of every run is there exactly once');
is( $node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.task_delayed),
			(SELECT count(*) FROM durable.waiter), (SELECT count(*) FROM durable.signal_buffer)}),
	'0|0|0|0|0', 'nothing is left over');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
note $node->safe_psql('postgres', 'SELECT status, count(*) FROM durable.run GROUP BY 1');

$node->stop;
done_testing();
