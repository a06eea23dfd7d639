# A fan whose steps are executed by several sessions, in a window: sessions are terminated
# and killed in the middle of it, and the server crashes. Each step is there once, the window
# is never exceeded, and the run ends. And a session whose step took too long: what it did
# in the end counts for nothing.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $SIZE = 400;
my $WINDOW = 12;
my $node = durable_node('fan');
my $offset = 0;

$node->safe_psql('postgres', q{
	CREATE TABLE effect (step int, pid int DEFAULT pg_backend_pid());
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (i::int);
		PERFORM pg_sleep(0.02);		-- so that there is a middle of it
		RETURN i;
	END $$;
	CREATE FUNCTION gate(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (-1);
		PERFORM pg_advisory_xact_lock(1);
		RETURN '"done"';
	END $$;
	CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN to_jsonb(durable.step_all('act', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, (i ->> 'n')::int) n),
			max_in_flight => (i ->> 'k')::int));
	END $$;
	CREATE FUNCTION gated(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RETURN durable.step('gate', timeout => '1 min', retries => 2);
	END $$;
	SELECT durable.register_workflow('fan', 'fan'), durable.register_workflow('gated', 'gated'),
		durable.register_handler('act', 'act'), durable.register_handler('gate', 'gate');
});

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

# Steps that are queued or claimed: all that are left but those that wait for their place.
sub in_flight
{
	return $node->safe_psql('postgres', q{
		SELECT count(*) FILTER (WHERE r.fan_next IS NULL OR t.seq < r.fan_next)
		  FROM durable.task t JOIN durable.run r USING (run_id) WHERE t.kind = 'step'});
}

sub effects { return $node->safe_psql('postgres', 'SELECT count(*) FROM effect'); }

my @workers;

sub begin_workers
{
	@workers = map { DurableTest::Session->new($node) } 1 .. 3;
	$_->send(q{CALL durable.work(duration => '10 min')}) for @workers;
	return;
}

$node->safe_psql('postgres', qq{SELECT durable.start('fan', '{"n": $SIZE, "k": $WINDOW}', 'fan')});
begin_workers();
my $most = 0;
my $victim = 0;

# one after the other in the middle of their work: terminated, then killed, then the power goes
for my $how (qw(terminate kill crash))
{
	my $goal = effects() + 40;
	# on a busy machine the rest may be done while we look
	$goal = $SIZE if $goal > $SIZE;
	wait_for(sub {
		my $now = in_flight();
		$most = $now if $now > $most;
		return effects() >= $goal;
	}, 'the fan to go on');
	my $log = -s $node->logfile;
	if ($how eq 'terminate')
	{
		my $pid = $workers[$victim++]->pid;
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
		wait_for(sub { $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' },
			'the session to end');
	}
	elsif ($how eq 'kill')
	{
		kill 'KILL', $workers[$victim++]->pid;
		$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
		ok(server_is_back($node), 'the server is back');
		$_->quit for @workers;
		begin_workers();
	}
	else
	{
		crash($node);
		$_->quit for @workers;
		$node->start;
	}
	my $now = in_flight();
	$most = $now if $now > $most;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT step FROM effect GROUP BY step HAVING count(*) > 1) twice'), '0',
		"$how: nothing was done twice");
	is( $node->safe_psql('postgres', q{
			SELECT count(*) FROM durable.history('fan') c
			 WHERE (c.status = 'completed') <> EXISTS (SELECT FROM effect WHERE step = c.input::int)}), '0',
		"$how: what is done is recorded, and what is recorded is done");
}

# claims of the dead sessions lapse
while ($node->safe_psql('postgres', q{SELECT status FROM durable.get_run('fan')}) eq 'suspended')
{
	skip_time(15);
	$node->safe_psql('postgres', q{CALL durable.work(duration => '0')});
	my $now = in_flight();
	$most = $now if $now > $most;
}
is( $node->safe_psql('postgres', q{SELECT durable.result('fan') = (SELECT jsonb_agg(n) FROM generate_series(1, } . $SIZE . ') n)'),
	't', 'all results, in their order');
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT step) FROM effect'), "$SIZE|$SIZE", 'each step once');
cmp_ok($most, '<=', $WINDOW, 'never more in flight than may be');
is( $node->safe_psql('postgres', q{SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready)}),
	'0|0', 'nothing is left over');

# a step of a session that lives takes too long: another attempt does it, and this one's work is undone
$node->safe_psql('postgres', 'TRUNCATE effect');
$node->safe_psql('postgres', q{SELECT durable.start('gated', NULL, 'gated')});
my $keeper = DurableTest::Session->new($node);
$keeper->query('SELECT pg_advisory_lock(1)');
my $slow = DurableTest::Session->new($node);
$slow->send(q{CALL durable.work(duration => '0', max_tasks => 2)});
ok( $node->poll_query_until('postgres',
		'SELECT EXISTS (SELECT FROM pg_locks WHERE pid = ' . $slow->pid . q{ AND locktype = 'advisory' AND NOT granted)}),
	'a session is in the middle of the step');
skip_time(50);
is($node->safe_psql('postgres', q{SELECT durable.sweep() -> 'timed_out'}), '0', 'its time is not up yet');
skip_time(15);
is($node->safe_psql('postgres', q{SELECT durable.sweep() -> 'timed_out'}), '1', 'its time is up, although it lives');
$keeper->query('SELECT pg_advisory_unlock(1)');
$slow->answer;
is($slow->sqlstate, '', 'it ends its step and goes on');
is(effects(), '0', 'but nothing of that is left');
$node->safe_psql('postgres', q{CALL durable.work(duration => '0')});
is($node->safe_psql('postgres', q{SELECT status, output FROM durable.get_run('gated')}), 'completed|"done"', 'the second attempt counts');
is(effects(), '1', 'and is there once');
is($node->safe_psql('postgres', 'SELECT (durable.scan_hints()).rescued'), '0', 'no hint was wrong');
is(damage($node), '', 'tables and indexes are sound');
$_->quit for $keeper, $slow;

$node->stop;
done_testing();
