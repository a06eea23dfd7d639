# While one transaction holds a snapshot, dead rows pile up at the head of every
# list. With scan hints a claim does not read them. Counted in index entries and
# buffers, not in time.

use strict;
use warnings;

use List::Util 'min';
use Test::More;

use DurableTest;

my $CYCLES = 5000;

my $node = durable_node('pinned', {}, 'durable.max_reclaims = 1000000');
my $worker = DurableTest::Session->new($node, name => 'worker');
my $pin = DurableTest::Session->new($node, name => 'pin');

my @lists = qw(task_ready_order task_delayed_due lease_until_idx);

# Entries that the session has read from each list's index so far.
sub entries
{
	my $columns = join ', ', map { "pg_stat_get_xact_tuples_returned('durable.$_'::regclass)" } @lists;
	my @counts = split /\|/, $worker->query("SELECT $columns");
	return map { $lists[$_] => $counts[$_] } 0 .. $#lists;
}

# Index entries and buffers that a statement reads.
sub cost
{
	my ($statement) = @_;
	$worker->query('BEGIN');
	my %before = entries();
	my $plan = $worker->query("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF, COSTS OFF) $statement");
	my %cost = entries();
	$worker->query('COMMIT');
	$cost{$_} -= $before{$_} for @lists;
	# The first line with buffers is the whole statement's.
	my ($buffers) = $plan =~ /Buffers: shared([^\n]*)/;
	$cost{buffers} += $_ for $buffers =~ /(?:hit|read)=(\d+)/g;
	($cost{rows}) = $plan =~ /actual rows=(\d+)/;
	return \%cost;
}

my $claim = "SELECT task_id, token FROM durable.claim('{%s}', 1, '1 h')";

# Every 10 seconds a claim also checks a stretch before the hint; not three in a row.
sub is_bounded
{
	my ($what, $statement, $rows) = @_;
	my @costs = map { cost($statement // sprintf $claim, 'q') } 1 .. 3;
	note explain @costs;
	is($_->{rows}, $rows // 1, "$what: rows") for @costs;
	for my $list (@lists)
	{
		cmp_ok(min(map { $_->{$list} } @costs), '<=', 20, "$what: few entries of $list are read");
	}
	cmp_ok(min(map { $_->{buffers} } @costs), '<=', 200, "$what: and few buffers");
	return;
}

$node->safe_psql('postgres', q{
	-- the leases end at once, so that they are in the past
	CREATE PROCEDURE cycle(n int, queue text) LANGUAGE plpgsql AS $$
	DECLARE
		c record;
	BEGIN
		FOR i IN 1 .. n LOOP
			PERFORM durable.dispatch(queue, priority => i % 3);
			COMMIT;
			FOR c IN SELECT * FROM durable.claim(ARRAY[queue], 1, '10 us') LOOP
				PERFORM durable.complete(c.task_id, c.token);
			END LOOP;
			COMMIT;
		END LOOP;
	END $$;
	-- delayed tasks that become due at once, and claims that lapse at once
	CREATE PROCEDURE cycle_due(n int, queue text) LANGUAGE plpgsql AS $$
	DECLARE
		c record;
	BEGIN
		FOR i IN 1 .. n LOOP
			PERFORM durable.dispatch(queue, run_at => durable.engine_now() + '300 us');
			COMMIT;
			PERFORM count(*) FROM durable.claim(ARRAY[queue], 1, '10 us');
			COMMIT;
			FOR c IN SELECT * FROM durable.claim(ARRAY[queue], 10) LOOP
				PERFORM durable.complete(c.task_id, c.token);
			END LOOP;
			COMMIT;
		END LOOP;
	END $$});

$worker->query("SELECT count(durable.dispatch('q', priority => n % 3)) FROM generate_series(1, 60) n");
is_bounded('fresh');

$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ');
$pin->query('SELECT count(*) FROM durable.task');
$worker->query("CALL cycle($CYCLES, 'q')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.task'), 60, 'as many tasks as before are left');
is_bounded("$CYCLES cycled under a snapshot");

$worker->query("CALL cycle_due(500, 'due')");
wait_for(
	sub { $worker->query("SELECT count(durable.complete(task_id, token)) FROM durable.claim('{due}', 100)");
		$worker->query("SELECT NOT EXISTS (SELECT FROM durable.task WHERE queue = 'due')") eq 't' },
	'the delayed tasks to be settled');
is_bounded('and 500 that were delayed and taken over');

# The dead rows are really there.
$worker->query('SET durable.scan_hints = off');
my $without = cost(sprintf $claim, 'due,q');
cmp_ok($without->{task_ready_order}, '>=', $CYCLES, 'without hints a claim reads every dead entry of its queues');
cmp_ok($without->{lease_until_idx}, '>=', $CYCLES, 'every dead entry of the leases');
cmp_ok($without->{task_delayed_due}, '>=', 400, 'every dead entry of the delayed tasks');
$worker->query('RESET durable.scan_hints');

# A higher priority comes, tasks go back, there are other queues: still no reading.
$worker->query("SELECT durable.dispatch('q', priority => 9)");
is_bounded('a higher priority arrived');
$worker->query("CREATE TABLE hand AS SELECT DISTINCT token FROM durable.claim('{q}', 10, '1 h')");
$worker->query('SELECT durable.release(token) FROM hand');
is_bounded('ten tasks were released');
is_bounded('an empty queue', sprintf($claim, 'empty'), 0);
is_bounded('a queue that was cycled empty', sprintf($claim, 'due'), 0);
is_bounded('two queues', sprintf $claim, 'due,q');

# Everything is drained in a few calls, without the pass that reads the whole list.
my $left = $worker->query('SELECT count(*) FROM durable.task_ready');
is($worker->query("SELECT count(*) FROM durable.claim('{q}', 1000)"), $left, 'one claim drains the queue');
is($worker->query('SELECT count(*) FROM durable.task_ready'), 0, 'nothing is left');
is($worker->query('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is($pin->query('SELECT count(*) FROM durable.task'), 60, 'the old snapshot still sees what it saw');
$_->quit for $pin, $worker;

$node->stop;
done_testing();
