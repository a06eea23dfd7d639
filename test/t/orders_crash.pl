# The shop of examples/orders, executed by background workers, while the server is
# killed at random moments, and single executors are. At the end stock, money and
# parcels are exact, and nothing was logged that should not be.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $CRASHES = $ENV{DURABLE_CRASHES} // 100;
my $BATCH = 15;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

# A run may be in hand at many of the crashes, for no fault of its own.
my $node = durable_node('orders', { background => 1 }, 'durable.workers = 4', 'durable.max_recovery_attempts = 1000000');
my $example = '../../../examples/orders';
($example) = grep { -e "$_/schema.sql" } 'examples/orders', "$ENV{DURABLE_SRC}/examples/orders", $example;

sub sql { return $node->safe_psql('postgres', "SET ROLE shop;\n$_[0]"); }

$node->safe_psql('postgres', q{
	CREATE ROLE shop LOGIN;
	SELECT durable.grant_usage('shop');
	GRANT CREATE ON DATABASE postgres TO shop});
sql(join "\n", map { slurp_file("$example/$_.sql") } 'schema', 'handlers', 'workflow');
sql(q{INSERT INTO shop.product SELECT p, s, s FROM (VALUES ('book', 100000), ('lamp', 100000), ('rare', 40)) v (p, s)});

# Orders and their runs in one transaction; the bank has confirmed most of them
# before anybody waits, and confirms some later. One batch is rolled back.
my $orders = 0;
sub place
{
	my ($end) = @_;
	my ($from, $to) = ($orders + 1, $orders + $BATCH);
	$orders = $to if $end eq 'COMMIT';
	return sql(qq{
		BEGIN;
		INSERT INTO shop.orders
		SELECT n, CASE WHEN n % 10 = 1 THEN 'rare' WHEN n % 2 = 0 THEN 'book' ELSE 'lamp' END,
			   1 + n % 3, 10 + n, CASE WHEN n % 15 = 2 THEN 'expired' ELSE 'good' END,
			   CASE WHEN n % 25 = 3 THEN 'nowhere' ELSE 'here' END
		  FROM generate_series($from, $to) n;
		SELECT count(*) FROM (
			SELECT durable.start_many('fulfil', array_agg(jsonb_build_object('order', n)), array_agg('order-' || n))
			  FROM generate_series($from, $to) n) s;
		SELECT count(durable.signal('paid:' || n)) FROM generate_series($from, $to) n WHERE n % 20 <> 4 AND n % 3 <> 0;
		$end});
}

sub confirm_rest
{
	my ($from, $to) = @_;
	return sql("SELECT count(durable.signal('paid:' || n)) FROM generate_series($from, $to) n WHERE n % 20 <> 4 AND n % 3 = 0");
}

sub executor
{
	return $node->safe_psql('postgres', q{
		SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'durable executor%' ORDER BY random() LIMIT 1});
}

my ($lost, $confirmed, %kills) = (0, 0, server => 0, executor => 0);
for my $crash (1 .. $CRASHES)
{
	place('ROLLBACK') if $crash % 10 == 5;
	place('COMMIT');
	confirm_rest($confirmed + 1, $orders) if $crash % 2;
	$confirmed = $orders if $crash % 2;
	usleep(int rand 150_000);
	my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM durable.run WHERE finished_at IS NOT NULL');
	my $pid = $crash % 5 == 0 ? executor() : '';
	if ($pid ne '')
	{
		# the postmaster ends all others and starts anew
		kill 'KILL', $pid;
		wait_for(sub { !pid_state($pid) }, "executor $pid to die");
		server_is_back($node) or die 'the server does not come back';
		$kills{executor}++;
	}
	else
	{
		crash($node);
		$node->start;
		$kills{server}++;
	}
	$lost++ if $node->safe_psql('postgres', 'SELECT count(*) FROM durable.run WHERE finished_at IS NOT NULL') < $before;
}
note "killed the server $kills{server} times, an executor $kills{executor} times; $orders orders";
is($lost, 0, 'no end of a run that was committed is lost');

confirm_rest($confirmed + 1, $orders);
ok( $node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL)'),
	'every run ends') or note $node->safe_psql('postgres', q{
		SELECT run_id, status, turn_state, wake_at, wakes FROM durable.run WHERE finished_at IS NULL LIMIT 20});
is(sql(q{SELECT count(*), count(*) FILTER (WHERE status = 'completed') FROM durable.run}), "$orders|$orders",
	'there is a run for each order that was committed, and all have completed');
is( sql(q{SELECT count(*) FROM shop.orders o LEFT JOIN durable.run r ON r.run_id = 'order-' || o.id
		WHERE o.state IS DISTINCT FROM r.output ->> 'state'}),
	0, 'each order has the state that its run returned');
is( sql(q{SELECT string_agg(DISTINCT state, ' ' ORDER BY state) FROM shop.orders}),
	'failed not confirmed rejected shipped', 'some were shipped, some rejected, some failed, some not confirmed');
is( sql(q{SELECT count(*) FROM shop.product p WHERE stocked - stock IS DISTINCT FROM (
		SELECT coalesce(sum(quantity), 0) FROM shop.orders o WHERE o.product = p.product AND o.state = 'shipped')}),
	0, 'what is missing in stock was shipped');
is( sql(q{SELECT count(*) FROM shop.orders o LEFT JOIN (
			SELECT order_id, sum(amount), count(*) FILTER (WHERE kind = 'charge') AS charges, count(*) FILTER (WHERE kind = 'refund') AS refunds
			  FROM shop.ledger GROUP BY 1) l ON l.order_id = o.id
		WHERE coalesce(l.sum, 0) <> CASE o.state WHEN 'shipped' THEN o.amount ELSE 0 END OR l.charges > 1 OR l.refunds > 1}),
	0, 'each order was charged at most once, and has its money back unless it was shipped');
is( sql(q{SELECT count(*), count(DISTINCT order_id), count(*) FILTER (WHERE run_id = 'order-' || order_id) FROM shop.shipment}),
	sql(q{SELECT count(*), count(*), count(*) FROM shop.orders WHERE state = 'shipped'}), 'each parcel was sent once, by its run');
is( $node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.task_delayed),
			(SELECT count(*) FROM durable.waiter)}),
	'0|0|0|0', 'nothing waits any more');
is(damage($node), '', 'no damage');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');

# What the server says by itself when it and its processes are killed.
my @unexpected = grep { /(?:WARNING|ERROR|FATAL|PANIC):/ && !/
	the\ database\ system\ is\ (?:starting\ up|in\ recovery\ mode|not\ yet\ accepting\ connections)
	| terminating\ connection\ because\ of\ crash\ of\ another\ server\ process
	| terminating\ (?:background|connection)
	/x } split /\n/, slurp_file($node->logfile);
is(join("\n", @unexpected), '', 'nothing was logged above the expected');

$node->stop;
done_testing();
