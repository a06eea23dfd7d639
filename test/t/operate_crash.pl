# What people do to many runs at once, to definitions, policies, workers and jobs, and the death
# of the server: before the commit, halfway, and after the commit with nobody told. All of
# it is done or nothing; done again it comes to the same; and nothing is lost that waits for it.

use strict;
use warnings;

use JSON::PP;
use Test::More;

use DurableTest;

chomp(my $share = `@{[ $ENV{PG_CONFIG} // 'pg_config' ]} --sharedir`);
my $cron = -e "$share/extension/pg_cron.control";
my $node = durable_node('operate', { unanswered => 1, preload => 0 }, "shared_preload_libraries = 'durable" . ($cron ? ', pg_cron' : '') . q{'},
	"durable.blocked_poll = '1h'", 'durable.max_reclaims = 1000');
my $offset = 0;

my $client;

sub sql { return ($client //= DurableTest::Session->new($node))->query($_[0]); }

sql('CREATE EXTENSION pg_cron') if $cron;
sql(q{
	CREATE TABLE mended (ns text);
	CREATE FUNCTION good(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
	CREATE FUNCTION frail(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF NOT EXISTS (SELECT FROM mended m WHERE m.ns = durable.run_namespace()) THEN
			PERFORM durable.fail_run('broken', 'broken');
		END IF;
		RETURN i;
	END $$;
	CREATE FUNCTION family(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.log('info', 'begins'), durable.local_step('good', i);
		RETURN durable.child(i ->> 'child', i, durable.run_id() || '.kid');
	END $$;
	-- with a step that is out, also when it has ended
	CREATE FUNCTION busy(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.log('info', 'begins'), durable.local_step('good', i), durable.step_async('outside');
		RETURN durable.wait_for_signal('go ' || durable.run_id(), timeout => '30 days');
	END $$;
	-- many runs of all these
	CREATE FUNCTION start_some(ns text, workflow text, n int, child text DEFAULT '') RETURNS bigint LANGUAGE sql AS $$
		SELECT count(durable.start(workflow, jsonb_build_object('child', child), concat_ws('-', ns, workflow, nullif(child, ''), to_char(i, 'FM00')), namespace => ns)) FROM generate_series(1, n) i
	$$;
	CREATE FUNCTION define(ns text) RETURNS void LANGUAGE sql AS $$
		SELECT durable.register_workflow(w, w, namespace => ns) FROM unnest('{good,frail,family,busy}'::text[]) w;
		SELECT durable.register_workflow('outer', namespace => ns), durable.register_workflow('mender', namespace => ns),
			durable.register_workflow('handed', 'frail', namespace => ns, on_error => '[{"workflow": "mender"}]');
	$$;
	CREATE FUNCTION run_number(r text) RETURNS bigint LANGUAGE sql AS 'SELECT id FROM durable.run WHERE run_id = r';
	CREATE FUNCTION decide(ns text, queues text[], worker text, decision jsonb) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(durable.complete_turn(task_id, token, decision)) FROM durable.claim(queues, 100, '1 h', worker, ns)
	$$;
	-- all that there is in a namespace
	CREATE FUNCTION state(ns text) RETURNS text LANGUAGE sql AS $$
		SELECT string_agg(replace(line, ns, 'NS'), E'\n' ORDER BY replace(line, ns, 'NS')) FROM (
			SELECT concat_ws(' ', run_id, workflow, version, status, turn_state, wake_at IS NOT NULL, output, error ->> 'message', recovery_attempts,
				(SELECT string_agg(concat_ws(' ', c.kind, c.name, c.status), ', ' ORDER BY c.seq) FROM durable.checkpoint c WHERE c.run = r.id),
				(SELECT count(*) FROM durable.run_log l WHERE l.run = r.id), (SELECT count(*) FROM durable.retention_due d WHERE d.run = r.id), (SELECT count(*) FROM durable.run_blocked b WHERE b.run = r.id))
			  FROM durable.run r WHERE r.namespace = ns
			UNION ALL SELECT concat_ws(' ', '~', kind, coalesce(run_id, name), (SELECT s.status FROM durable.task_status(coalesce(t.task_id, '~' || t.id), ns) s)) FROM durable.task t WHERE t.namespace = ns
			UNION ALL SELECT concat_ws(' ', 'lists', (SELECT count(*) FROM durable.task_ready WHERE namespace = ns), (SELECT count(*) FROM durable.task_delayed WHERE namespace = ns),
				(SELECT count(*) FROM durable.waiter WHERE namespace = ns), (SELECT count(*) FROM durable.signal_buffer WHERE namespace = ns))
			UNION ALL SELECT concat_ws(' ', 'retention', statuses, max_age, max_count, dropped, (SELECT count(*) FROM durable.retention_member m WHERE m.policy = p.id)) FROM durable.retention_policy p
			 WHERE p.namespace = ns AND (NOT p.dropped OR EXISTS (SELECT FROM durable.retention_member m WHERE m.policy = p.id))
			UNION ALL SELECT concat_ws(' ', 'workflow', name, version) FROM durable.workflow WHERE namespace = ns
			UNION ALL SELECT concat_ws(' ', 'dead letters to', workflow) FROM durable.dead_letter WHERE namespace = ns
			UNION ALL SELECT concat_ws(' ', 'worker', worker, queues, capabilities, (SELECT count(*) FROM durable.worker_queue q WHERE q.namespace = ns AND q.worker = w.worker)) FROM durable.worker w WHERE namespace = ns
			UNION ALL SELECT concat_ws(' ', 'schedule', schedule_id, paused, fires) FROM durable.schedule WHERE namespace = ns
			UNION ALL SELECT concat_ws(' ', 'job', jobs) FROM jobs WHERE ns LIKE 'cron%') l (line)
	$$;
} =~ s/(?=CREATE FUNCTION state)/$cron ? 'CREATE VIEW jobs AS SELECT jobname || command AS jobs FROM cron.job;' : 'CREATE TABLE jobs (jobs text);'/er);

# What is done (act), what has been before (prepare), what somebody holds so that it stops
# halfway (hold), what it says when it is done once more (again), and what comes afterwards (end).
# (CALL durable.work() does the work of all, so what is to be left undone is started at last.)
my %live = (
	prepare => q{SELECT start_some('NS', 'busy', 4), start_some('NS', 'family', 3, 'busy'); CALL durable.work(duration => '0'); SELECT durable.signal('go NS-busy-0' || i, '1') FROM generate_series(1, 2) i},
	last => q{SELECT start_some('NS', 'good', 6), start_some('NS', 'outer', 2), (SELECT count(*) FROM durable.claim('{outer}', 1, '1 h')), durable.signal('go NS-family-busy-01.kid')},
);
my %ops = (
	redrive => {
		prepare => q{SELECT start_some('NS', 'family', 8, 'frail'); CALL durable.work(duration => '0')},
		# the turn's task of one of them is there already
		hold => q{INSERT INTO durable.task SELECT (jsonb_populate_record(t, jsonb_build_object('id', run_number('NS-family-frail-05'), 'task_id', 'held'))).* FROM durable.task t LIMIT 1},
		act => q{SELECT count(*) FROM durable.redrive('{"namespace": "NS"}', rate => 0.1)},
		again => 0,
		end => q{INSERT INTO mended VALUES ('NS')},
	},
	cancel_where => {
		%live,
		hold => q{SELECT FROM durable.task_ready WHERE id = run_number('NS-good-03') FOR UPDATE},
		act => q{SELECT count(*) FROM durable.cancel_where('{"namespace": "NS"}')},
		again => 0,
	},
	delete_run => {
		prepare => q{SELECT start_some('NS', 'family', 1, 'busy'); CALL durable.work(duration => '0'); SELECT durable.signal('go NS-family-busy-01.kid', '1'); CALL durable.work(duration => '0');
			SELECT durable.signal('child:NS-family-busy-01')},
		hold => q{SELECT FROM durable.checkpoint WHERE run = run_number('NS-family-busy-01.kid') AND seq = 1 FOR UPDATE},
		act => q{SELECT durable.delete_run('NS-family-busy-01')},
		again => 0,
	},
	purge_runs => {
		%live,
		hold => q{SELECT FROM durable.checkpoint WHERE run = run_number('NS-busy-02') AND seq = 1 FOR UPDATE},
		act => q{SELECT durable.purge_runs('{"namespace": "NS"}', force => true)},
		again => 0,
	},
	set_retention => {
		prepare => q{SELECT start_some('NS', 'good', 6); CALL durable.work(duration => '0')},
		hold => q{SELECT durable.set_retention('{completed}', max_age => '1 s')},
		act => q{SELECT durable.set_retention('{completed}', max_age => '0') > 0},
	},
	replace_retention => {
		prepare => q{SELECT start_some('NS', 'good', 6), durable.set_retention('{completed}', max_count => 5); CALL durable.work(duration => '0'); SELECT durable.sweep(), durable.sweep()},
		hold => q{SELECT durable.set_retention('{completed}', max_count => 1)},
		act => q{SELECT durable.set_retention('{completed}', max_count => 2) > 0},
	},
	drop_retention => {
		prepare => q{SELECT start_some('NS', 'good', 6), durable.set_retention('{completed}', max_count => 5); CALL durable.work(duration => '0'); SELECT durable.sweep(), durable.sweep()},
		last => q{SELECT start_some('NS', 'good', 2, 'later')},
		hold => q{SELECT durable.drop_retention(id) FROM durable.retention WHERE namespace = 'NS'},
		act => q{SELECT durable.drop_retention(id) FROM durable.retention WHERE namespace = 'NS'},
		again => '',
	},
	# its handler is called off, and its handoff retired
	requeue => {
		prepare => q{SELECT start_some('NS', 'handed', 1); CALL durable.work(duration => '0'); SELECT count(*) FROM durable.claim('{mender}', lease => '1 h')},
		hold => q{SELECT FROM durable.run WHERE run_id = 'onerror:NS-handed-01:1' FOR UPDATE},
		act => q{SELECT durable.requeue('NS-handed-01')},
		end => q{INSERT INTO mended VALUES ('NS')},
	},
	version => {
		prepare => q{SELECT start_some('NS', 'good', 2); CALL durable.work(duration => '0')},
		hold => q{SELECT durable.register_workflow('good', 'good', '2')},
		act => q{SELECT durable.register_workflow('good', 'good', '2'), durable.unregister_workflow('good', '1')},
		again => '|0',
		end => q{SELECT durable.start('good', '"new"', 'NS-new')},
	},
	# those that are blocked are woken with it, or wait for the next one
	announce => {
		prepare => q{SELECT durable.announce_worker('cpu', '{s,outer}', capabilities => '{}', ttl => '1 h'), start_some('NS', 'outer', 5);
			SELECT decide('NS', '{outer}', 'cpu', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s", "requires": ["gpu"]}]}')},
		hold => q{SELECT durable.start('outer', NULL, 'NS-late'), decide('NS', '{outer}', 'cpu', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s", "requires": ["gpu"]}]}')},
		act => q{SELECT durable.announce_worker('gpu', '{s,outer}', capabilities => '{gpu}', ttl => '1 h') ->> 'outcome'},
	},
	withdraw => {
		prepare => q{SELECT durable.announce_worker('gpu', '{s,outer}', capabilities => '{gpu}', ttl => '1 h')},
		hold => q{SELECT durable.announce_worker('gpu', '{s}', capabilities => '{more}', ttl => '1 h')},
		act => q{SELECT durable.withdraw_worker('gpu')},
		again => 'f',
	},
	backfill => {
		prepare => q{SELECT durable.create_schedule('NS', 'good', every => '1 h', paused => true) IS NULL},
		hold => q{SELECT FROM durable.schedule WHERE schedule_id = 'NS' FOR UPDATE},
		act => q{SELECT count(*) FROM durable.backfill_schedule('NS', '2026-01-01', '2026-01-01 10:00', 10)},
		again => 0,
	},
	dead_letter => {
		hold => q{SELECT durable.set_dead_letter_workflow('frail')},
		act => q{SELECT durable.set_dead_letter_workflow('good')},
	},
	start_many => {
		hold => q{SELECT durable.start('good', '"other"', 'NS-11')},
		act => q{SELECT count(*) FROM durable.start_many('good', array_fill('1'::jsonb, '{20}'), (SELECT array_agg('NS-' || i) FROM generate_series(1, 20) i))},
	},
	$cron ? (cron => {
		prepare => q{SELECT durable.unschedule_sweeps() >= 0},
		hold => q{SELECT durable.schedule_sweeps('7 s')},
		act => q{SELECT count(*) FROM durable.schedule_sweeps('1 hour', '{sweep}')},
	}) : (),
);
delete @ops{ grep { !/^(?:$ENV{DURABLE_OPS})$/ } keys %ops } if $ENV{DURABLE_OPS};
my @ops = sort keys %ops;

sub states
{
	my ($round) = @_;
	return decode_json(sql("SELECT json_object_agg(op, state(op || '_$round')) FROM unnest('{" . join(',', @ops) . "}'::text[]) op"));
}

# The statements of one kind of all operations, or of one.
sub text
{
	my ($round, $kind, @of) = @_;
	return join "\n", map { my $ns = "${_}_$round"; "SET durable.namespace = '$ns';\n" . ($ops{$_}{$kind} // '') =~ s/\bNS\b/$ns/gr . ';' } @of ? @of : @ops;
}

# What each says when it is done.
sub act { my ($round) = @_; return { map { $_ => sql(text($round, 'act', $_)) } @ops }; }

sub prepared
{
	my ($round) = @_;
	sql("SELECT define(op || '_$round') FROM unnest('{" . join(',', @ops) . "}'::text[]) op;" . text($round, 'prepare') . text($round, 'last'));
	return states($round);
}

# Everything that is to come, hours later: what is due, external turns and steps, retention.
sub ended
{
	my ($round) = @_;
	$offset += 7200;
	sql("SET durable.clock_offset = $offset");
	sql(text($round, 'end'));
	sql(q{
		SELECT durable.announce_worker('gpu', '{s,outer}', capabilities => '{gpu}', namespace => namespace, ttl => '1 h') FROM durable.worker WHERE worker = 'gpu' AND namespace LIKE '%_ROUND';
		CALL durable.work(duration => '0');
		SELECT decide(ns, '{outer,mender}', 'gpu', '{"status": "completed"}') FROM (SELECT DISTINCT namespace AS ns FROM durable.run WHERE namespace LIKE '%_ROUND') n;
		CALL durable.work(duration => '0');
		SELECT durable.sweep() FROM generate_series(1, 6)} =~ s/ROUND/$round/gr);
	my $states = states($round);
	sql(qq{SELECT durable.purge_runs(jsonb_build_object('namespace', namespace), force => true) FROM (SELECT DISTINCT namespace FROM durable.run) n;
		SELECT durable.drop_retention(id) FROM durable.retention; SELECT durable.sweep() FROM generate_series(1, 6)});
	return $states;
}

# One round in peace tells what is to come of it.
my $before = prepared('peace');
my $answer = act('peace');
my $after = states('peace');
isnt($after->{$_}, $before->{$_}, "$_ does something") for @ops;
my $again = { map { $_ => $ops{$_}{again} // $answer->{$_} } @ops };
is_deeply(act('peace'), $again, 'what they say once more');
is_deeply(states('peace'), $after, 'once more it changes nothing');
my $end = ended('peace');
if ($ENV{DURABLE_SHOW}) { note "=== $_\n--- before\n$before->{$_}\n--- answer\n$answer->{$_}\n--- after\n$after->{$_}\n--- end\n$end->{$_}" for @ops; }

for my $death (['open', 'backend'], ['open', 'power'], ['halfway', 'immediate'], ['halfway', 'backend'], ['unanswered', 'power'], ['unanswered', 'backend'])
{
	my ($moment, $way) = @$death;
	my $name = "$moment, $way";
	my $round = "${moment}_$way";
	sql("ALTER DATABASE postgres SET durable.clock_offset = $offset");
	is_deeply(prepared($round), $before, "$name: all is prepared");
	my %session = map { $_ => DurableTest::Session->new($node, name => $_) } @ops;
	my @holders;
	for my $op (@ops)
	{
		my $held = $moment eq 'halfway' && $ops{$op}{hold};
		if ($held)
		{
			push @holders, DurableTest::Session->new($node, name => "holds $op");
			$holders[-1]->query("BEGIN;\n" . text($round, 'hold', $op));
		}
		bring_to($node, $moment eq 'unanswered' ? $moment : $held ? 'halfway' : 'open', $session{$op}, text($round, 'act', $op));
	}
	die_by($node, $way, values %session, @holders, $client);
	$client = undef;
	if ($moment ne 'unanswered')
	{
		is_deeply(states($round), $before, "$name: nothing has happened");
		is_deeply(act($round), $answer, "$name: the same again");
	}
	is_deeply(states($round), $after, "$name: all is done");
	is_deeply(act($round), $again, "$name: and once more");
	is_deeply(states($round), $after, "$name: which changes nothing");
	is_deeply(ended($round), $end, "$name: all goes on as it should");
}
is(sql(q{SELECT (SELECT count(*) FROM durable.run), (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.task_delayed), (SELECT count(*) FROM durable.checkpoint),
	(SELECT count(*) FROM durable.run_log), (SELECT count(*) FROM durable.waiter), (SELECT count(*) FROM durable.run_blocked), (SELECT count(*) FROM durable.retention_member), (SELECT count(*) FROM durable.retention_policy)}),
	'0|0|0|0|0|0|0|0|0|0', 'what was deleted has left nothing');
is(sql('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
