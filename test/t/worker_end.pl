# Background workers are terminated, cancelled, killed and shut down in the middle of
# a step. What it did is undone or recorded, never both or neither. Who is told to go
# hands its work back uncounted; work that kills its worker is counted.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time);

use DurableTest;

my $node = durable_node('end', { background => 1 }, 'durable.workers = 3');
my $setup = q{
	CREATE TABLE effect (run text, step text);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), i #>> '{}');
		RETURN i;
	END $$;
	CREATE FUNCTION gate(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'gate');
		PERFORM pg_advisory_xact_lock(1);
		RETURN i;
	END $$;
	CREATE FUNCTION sleeper(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'gate');
		PERFORM pg_sleep(1000);
		RETURN i;
	END $$;
	CREATE FUNCTION suicide(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'suicide');
		PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(100);
		RETURN i;
	END $$;
	CREATE FUNCTION interrupts(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), 'interrupts');
		PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(100);
		RETURN i;
	END $$;
	CREATE FUNCTION interrupting(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(100);
		RETURN i;
	END $$;
	CREATE FUNCTION pretends(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'not a cancel' USING ERRCODE = i #>> '{}';
	END $$;
	CREATE FUNCTION gated(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM durable.local_step('act', '"before"');
		IF i ->> 'how' = 'dispatched' THEN
			PERFORM durable.step(i ->> 'step');
		ELSE
			PERFORM durable.local_step(i ->> 'step');
		END IF;
		RETURN durable.local_step('act', '"after"');
	END $$;
	CREATE FUNCTION pretending(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('pretends', i); END $$;
	SELECT durable.register_workflow('gated', 'gated'), durable.register_workflow('pretending', 'pretending'),
		durable.register_handler('gate', 'gate'), durable.register_handler('sleeper', 'sleeper'), durable.register_handler('suicide', 'suicide'),
		durable.register_handler('interrupts', 'interrupts'), durable.register_workflow('interrupting', 'interrupting')};
$node->safe_psql('postgres', $setup);

my $keeper;
sub close_gate { $keeper = DurableTest::Session->new($node); $keeper->query('SELECT pg_advisory_lock(1)'); return; }
sub open_gate { $keeper->quit; return; }

sub start
{
	my ($run, $how, $step) = @_;
	$node->safe_psql('postgres', qq{SELECT durable.start('gated', '{"how": "$how", "step": "$step"}', '$run')});
	return;
}

# The pid of the executor that is in the middle of the step.
sub busy
{
	my ($run, $step) = @_;
	my $here = "FROM durable.workers() WHERE run_id = '$run' AND step = '$step' AND state = 'busy'";
	ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT $here)"), "$run: an executor is in the middle of the step");
	return $node->safe_psql('postgres', "SELECT pid $here");
}
sub gone { return $node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $_[0])"); }
sub ended { return $node->poll_query_until('postgres', "SELECT finished_at IS NOT NULL FROM durable.get_run('$_[0]')"); }
sub reclaims { return $node->safe_psql('postgres', 'SELECT coalesce(max(reclaims), 0) FROM durable.task'); }

sub look
{
	my ($run) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT status, (SELECT string_agg(step, ',' ORDER BY step) FROM effect WHERE run = run_id) FROM durable.get_run('$run')});
}

for my $how ('local', 'dispatched')
{
	# terminated and cancelled
	for my $by ('terminate', 'cancel')
	{
		my $run = "$by $how";
		close_gate();
		start($run, $how, 'gate');
		my $pid = busy($run, 'gate');
		my $log = -s $node->logfile;
		$node->safe_psql('postgres', "SELECT pg_${by}_backend($pid)");
		if ($by eq 'terminate')
		{
			ok(gone($pid), "$run: the executor is gone");
			isnt(busy($run, 'gate'), $pid, "$run: another one is at it at once");
		}
		else
		{
			ok($node->wait_for_log(qr/WARNING:.*canceling statement due to user request/, $log), "$run: it is logged");
			busy($run, 'gate');
			is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid"), 1, "$run: the executor lives");
		}
		is(reclaims(), 0, "$run: nothing was counted");
		is(look($run), ($how eq 'local' ? 'running' : 'suspended') . '|before', "$run: nothing of the step is there");
		open_gate();
		ok(ended($run), "$run: goes on");
		is(look($run), 'completed|after,before,gate', "$run: each step is there once");
	}

	# work that ends or cancels its worker each time
	for my $step ('suicide', 'interrupts')
	{
		my $run = "$step $how";
		start($run, $how, $step);
		ok(ended($run), "$run: does not go on for ever");
		is(look($run), ($how eq 'local' ? 'dead' : 'failed') . '|before', "$run: without a trace of the step");
		like($node->safe_psql('postgres', "SELECT error ->> 'message' FROM durable.get_run('$run')"), qr/^claim lapsed more than 3 times/, "$run: and says why");
	}
}
$node->safe_psql('postgres', q{SELECT durable.start('interrupting', '1', 'body')});
ok(ended('body'), 'a body that cancels its worker does not go on for ever');
is(look('body'), 'dead|', 'its run is dead');

# errors that look like a cancel or a shutdown
for my $code ('57014', '57P01')
{
	my $run = "pretends $code";
	$node->safe_psql('postgres', qq{SELECT durable.start('pretending', '"$code"', '$run')});
	ok(ended($run), "$run: does not go on for ever");
	like(look($run), qr/^(failed|dead)\|$/, "$run: it has failed");
}

# the scheduler and the launcher
for my $kind ('scheduler', 'launcher')
{
	my $find = "FROM pg_stat_activity WHERE backend_type = 'durable $kind'";
	my $pid = $node->safe_psql('postgres', "SELECT pid $find");
	close_gate();
	start("$kind terminated", 'local', 'gate');
	my $executor = busy("$kind terminated", 'gate');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT $find AND pid <> $pid)"), "the $kind is terminated: there is another one");
	is(busy("$kind terminated", 'gate'), $executor, "$kind: the executor is not disturbed");
	is($node->safe_psql('postgres', "SELECT count(*) $find"), 1, "$kind: there is one of it");
	open_gate();
	ok(ended("$kind terminated"), "$kind: the run ends");
	is(look("$kind terminated"), 'completed|after,before,gate', "$kind: each step is there once");
	$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) $find");
	start("$kind cancelled", 'local', 'act');
	ok(ended("$kind cancelled"), "the $kind is cancelled: nothing happens");
}
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION durable; $setup");
$node->safe_psql('other', q{SELECT durable.start('gated', '{"step": "act"}', 'x')});
ok($node->poll_query_until('other', q{SELECT status = 'completed' FROM durable.get_run('x')}), 'the new launcher finds databases as the old one did');

# a session that works is terminated: somebody else goes on at once
my $session = DurableTest::Session->new($node);
$node->safe_psql('postgres', 'SELECT durable.pause()');
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'paused');
for my $how ('terminated', 'cancelled')
{
	my $run = "session $how";
	close_gate();
	start($run, 'local', 'gate');
	my $worker = DurableTest::Session->new($node);
	$worker->send(q{CALL durable.work(duration => '0')});
	ok($node->poll_query_until('postgres',
			'SELECT EXISTS (SELECT FROM pg_locks WHERE pid = ' . $worker->pid . q{ AND locktype = 'advisory' AND NOT granted)}),
		"$run: it is in the middle of the step");
	$node->safe_psql('postgres', 'SELECT pg_' . ($how eq 'terminated' ? 'terminate' : 'cancel') . '_backend(' . $worker->pid . ')');
	my $counted = $how eq 'terminated' ? 1 : 0;
	ok($node->poll_query_until('postgres', qq{SELECT reclaims = $counted AND EXISTS (SELECT FROM durable.task_ready r WHERE r.id = t.id)
		FROM durable.task t WHERE run_id = '$run'}), "$run: its claim has gone back, counted $counted times");
	is($node->safe_psql('postgres', qq{SELECT l.lease_until < clock_timestamp() FROM durable.lease l, durable.task t WHERE t.id = ANY (l.ids) AND t.last_lease IS NULL}), '',
		"$run: though its lease would have lasted");
	open_gate();
	$worker->answer;
	$worker->quit;
	$session->query(q{CALL durable.work(duration => '0')});
	is(look($run), 'completed|after,before,gate', "$run: somebody else goes on, each step is there once");
}
# nor does it end a session that works
start('session interrupted', 'local', 'interrupts');
start('session goes on', 'local', 'act');
$session->query(q{CALL durable.work(duration => '0')});
is(look('session interrupted'), 'dead|before', 'a step that cancels the session that works: given up');
is(look('session goes on'), 'completed|after,before', 'the session goes on with other work');
$node->safe_psql('postgres', 'SELECT durable.resume()');

# SIGKILL of an executor: the server restarts, and nothing waits for a lease
for my $how ('local', 'dispatched')
{
	my $run = "killed $how";
	close_gate();
	start($run, $how, 'gate');
	my $pid = busy($run, 'gate');
	my $log = -s $node->logfile;
	kill 'KILL', $pid;
	$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
	open_gate();
	ok(server_is_back($node), "$run: the server is back");
	ok(ended($run), "$run: the run goes on");
	is(look($run), 'completed|after,before,gate', "$run: each step is there once");
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM durable.lease}), 0, "$run: no claim is left over");
}

# SIGKILL of the server
close_gate();
start('crash', 'local', 'gate');
busy('crash', 'gate');
my $claimed = time;
crash($node);
open_gate();
$node->start;
ok(ended('crash'), 'crash: the run goes on');
is(look('crash'), 'completed|after,before,gate', 'crash: each step is there once');
note 'crash: done ' . (time - $claimed) . ' s later';

# fast shutdown in the middle of steps that take for ever
start("shutdown $_", $_, 'sleeper') for 'local', 'dispatched';
busy("shutdown $_", 'sleeper') for 'local', 'dispatched';
my $begin = time;
$node->stop('fast');
my $took = time - $begin;
note "fast shutdown took $took s";
cmp_ok($took, '<', 60, 'a fast shutdown does not wait for steps');
$node->append_conf('postgresql.conf', 'durable.background = off');
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*), coalesce(max(reclaims), 0) FROM durable.task_ready JOIN durable.task USING (id)'), '2|0',
	'both are back in their queue, uncounted');
is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.lease'), 0, 'and no claim is left over');
is(look("shutdown $_"), ($_ eq 'local' ? 'running' : 'suspended') . '|before', "$_: nothing of the step is there") for 'local', 'dispatched';

is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal (?!9)|snapshot .* still active|there is no transaction/, 'the log is clean');
$session->quit;
$node->stop;
done_testing();
