# A session that executes workflows dies, is cancelled or lives long in the middle
# of a step. What it did is undone or recorded, never both or neither; somebody else
# goes on; and while it lives nobody else takes its run.

use strict;
use warnings;

use PostgreSQL::Test::Utils qw(slurp_file);
use Test::More;

use DurableTest;

my $node = durable_node('death');
my $offset = 0;

$node->safe_psql('postgres', q{
	CREATE TABLE effect (run text, step text);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), i #>> '{}');
		RETURN i;
	END $$;
	CREATE FUNCTION gate(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'gate');
		-- the engine's own locks are not for user code to let go of
		PERFORM pg_advisory_unlock_all();
		PERFORM pg_advisory_xact_lock(1);
		RETURN i;
	END $$;
	CREATE FUNCTION suicide(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'suicide');
		PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(100);
		RETURN i;
	END $$;
	CREATE FUNCTION gated(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		PERFORM pg_advisory_unlock_all();
		IF i = '"dispatched"' THEN
			PERFORM durable.step('gate');
		ELSE
			PERFORM durable.local_step('gate');
		END IF;
		RETURN durable.local_step('act', '"after"');
	END $$;
	CREATE FUNCTION poison(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		RETURN CASE WHEN i = '"dispatched"' THEN durable.step('suicide') ELSE durable.local_step('suicide') END;
	END $$;
	SELECT durable.register_workflow('gated', 'gated'), durable.register_workflow('poison', 'poison'),
		durable.register_workflow('together', 'gated', atomic => true),
		durable.register_handler('gate', 'gate'), durable.register_handler('suicide', 'suicide');
});

# Move the engine's clock for every session that starts from now on.
sub skip_time
{
	my ($seconds) = @_;
	$offset += $seconds;
	$node->safe_psql('postgres', "ALTER SYSTEM SET durable.clock_offset = $offset");
	$node->reload;
	ok( $node->poll_query_until('postgres',
			"SELECT durable.engine_now() > clock_timestamp() + interval '" . ($offset - 1) . " s'"),
		"$seconds s later");
	return;
}

sub work { return $node->safe_psql('postgres', q{CALL durable.work(duration => '0')}); }

sub look
{
	my ($run) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT status, (SELECT string_agg(step, ',' ORDER BY step) FROM effect WHERE run = run_id)
		  FROM durable.get_run('$run')});
}

# A session in the middle of the gate of a new run.
my $keeper = DurableTest::Session->new($node);
$keeper->query('SELECT pg_advisory_lock(1)');

sub begin
{
	my ($run, $workflow, $input) = @_;
	$node->safe_psql('postgres', "SELECT durable.start('$workflow', '$input', '$run')");
	my $worker = DurableTest::Session->new($node);
	$worker->send(q{CALL durable.work(duration => '0')});
	ok( $node->poll_query_until('postgres',
			'SELECT EXISTS (SELECT FROM pg_locks WHERE pid = ' . $worker->pid . q{ AND locktype = 'advisory' AND NOT granted)}),
		"$run: a session is in the middle of the step");
	return $worker;
}

sub open_gate { return $keeper->query('SELECT pg_advisory_unlock(1)'); }
sub close_gate { return $keeper->query('SELECT pg_advisory_lock(1)'); }

for my $case ([ 'local', 'gated', '1' ], [ 'dispatched', 'gated', '"dispatched"' ], [ 'atomic', 'together', '1' ])
{
	my ($name, @definition) = @$case;
	my $before = $name eq 'atomic' ? '' : 'before';

	# a long step in a session that lives
	my $worker = begin("long $name", @definition);
	is(look("long $name"), ($name eq 'atomic' ? 'pending' : $name eq 'local' ? 'running' : 'suspended') . "|$before",
		"$name: what is done so far");
	skip_time(1000);
	work();
	$node->safe_psql('postgres', 'SELECT durable.sweep()') for 1 .. 2;
	work();
	is(look("long $name"), ($name eq 'atomic' ? 'pending' : $name eq 'local' ? 'running' : 'suspended') . "|$before",
		"$name: nobody takes the run over while its session lives");
	open_gate();
	$worker->answer;
	is($worker->sqlstate, '', "$name: the session ends its work");
	work();
	is(look("long $name"), 'completed|after,before,gate', "$name: and the run is done, each step once");
	close_gate();
	$worker->quit;

	# terminated: the claim holds until its lease ends; cancelled: the session that lives
	# on hands it back at once, uncounted
	for my $how (qw(terminate cancel))
	{
		my $run = "$how $name";
		$worker = begin($run, @definition);
		$node->safe_psql('postgres', "SELECT pg_${how}_backend(" . $worker->pid . ')');
		$worker->answer;
		is($worker->sqlstate, $how eq 'cancel' ? '57014' : '57P01', "$run: the session got its error");
		ok( $node->poll_query_until('postgres',
				'SELECT NOT EXISTS (SELECT FROM pg_locks WHERE pid = ' . $worker->pid . q{ AND locktype = 'advisory')}),
			"$run: nothing of it is left");
		open_gate();
		if ($how eq 'terminate')
		{
			work();
			is(look($run), ($name eq 'atomic' ? 'pending' : $name eq 'local' ? 'running' : 'suspended') . "|$before",
				"$run: the claim holds until its lease ends");
			skip_time(15);
		}
		work();
		is(look($run), 'completed|after,before,gate', "$run: then somebody else goes on, each step is there once");
		# a dispatched step is not a turn: what dies with it is no recovery of the run
		is($node->safe_psql('postgres', "SELECT recovery_attempts FROM durable.get_run('$run')"),
			$how eq 'terminate' && $name ne 'dispatched' ? 1 : 0, "$run: what was counted");
		close_gate();
		$worker->quit;
	}
}

# a step that sweeps itself does not take itself over
$node->safe_psql('postgres', q{
	CREATE FUNCTION sweeps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'sweeps');
		PERFORM set_config('durable.clock_offset', '1000000', true);
		RETURN durable.sweep() -> 'taken_over';
	END $$;
	CREATE FUNCTION sweeping(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('sweeps'); END $$;
	SELECT durable.register_workflow('sweeping', 'sweeping'), durable.start('sweeping', NULL, 'sweeping');
});
work();
is(look('sweeping'), 'completed|sweeps', 'a step that sweeps is not taken over by itself');
is($node->safe_psql('postgres', q{SELECT durable.result('sweeping')}), '0', 'nor is anything else');

# SIGKILL of the one process: the server restarts
my $worker = begin('killed', 'gated', '1');
my $log = -s $node->logfile;
kill 'KILL', $worker->pid;
$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
ok(server_is_back($node), 'the server is back');
$worker->quit;
$keeper->quit;
is(look('killed'), 'running|before', 'killed: what was committed is there, what was not is not');
skip_time(15);
work();
is(look('killed'), 'completed|after,before,gate', 'killed: and the run goes on');

# a step that ends its session each time does not go on for ever
for my $input ('local', 'dispatched')
{
	my $run = "poison $input";
	my $rounds = 0;
	$node->safe_psql('postgres', "SELECT durable.start('poison', '\"$input\"', '$run')");
	while ($rounds < 12 && look($run) !~ /^(dead|failed)/)
	{
		my $session = DurableTest::Session->new($node);
		$session->try(q{CALL durable.work(duration => '0')});
		$session->quit;
		skip_time(15);
		$rounds++;
	}
	is(look($run), ($input eq 'local' ? 'dead' : 'failed') . '|before', "$run: given up, without a trace of the step");
	like($node->safe_psql('postgres', "SELECT error ->> 'message' FROM durable.get_run('$run')"),
		qr/^claim lapsed more than 3 times/, "$run: and it says why");
	cmp_ok($rounds, '<=', 7, "$run: after a few attempts");
}
is( $node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready)}),
	'0|0', 'nothing is left over');
unlike(slurp_file($node->logfile), qr/you don't own a lock/, 'no lock was released twice');

$node->stop;
done_testing();
