# No background worker of ours: pg_cron alone executes the orders of examples/orders,
# sweeps, and fires a schedule. Beside it a second server where background workers and
# pg_cron do the same work at once. Every order ends exactly once in both.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $config = $ENV{PG_CONFIG} // 'pg_config';
chomp(my $share = `$config --sharedir`);
plan skip_all => 'pg_cron is not installed for this PostgreSQL' unless -e "$share/extension/pg_cron.control";

my $ORDERS = 60;
my ($example) = grep { -e "$_/schema.sql" } 'examples/orders', '../../../examples/orders';

# A server with a shop, and a role that sweeps.
sub open_shop
{
	my ($name, $background, @conf) = @_;
	my $node = durable_node($name, { start => 0, background => $background },
		"shared_preload_libraries = 'durable, pg_cron'", 'max_worker_processes = 24', 'durable.workers = 2', @conf);
	$node->append_conf('postgresql.conf', "cron.host = '" . $node->host . "'");
	$node->start;
	$node->safe_psql('postgres', q{
		CREATE EXTENSION durable;
		CREATE EXTENSION pg_cron;
		CREATE ROLE shop LOGIN;
		CREATE ROLE janitor LOGIN;
		SELECT durable.grant_usage('shop', privileges => '{start,signal,work,read,manage}');
		GRANT USAGE ON SCHEMA durable TO janitor;
		GRANT EXECUTE ON ROUTINE durable.sweep, durable.keep_sweeping, durable.schedule_sweeps, durable.unschedule_sweeps,
			durable.cron_jobs, durable.cron_function, durable.cron_database, durable.cron_place, durable.cron_kinds, durable.cron_lock TO janitor;
		GRANT CREATE ON DATABASE postgres TO shop});
	is(sqlstate($node, 'SELECT durable.schedule_sweeps()', { user => 'shop' }), '42501', "$name: not without USAGE on pg_cron's schema");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM cron.job'), 0, "$name: and nothing was scheduled");
	$node->safe_psql('postgres', 'GRANT USAGE ON SCHEMA cron TO shop, janitor');
	sql($node, join "\n", map { slurp_file("$example/$_.sql") } 'schema', 'handlers', 'workflow');
	sql($node, q{
		INSERT INTO shop.product SELECT p, s, s FROM (VALUES ('book', 100000), ('lamp', 100000), ('rare', 5)) v (p, s);
		CREATE FUNCTION shop.tick(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
		SELECT durable.register_workflow('tick', 'shop.tick')});
	return $node;
}

sub sql { return $_[0]->safe_psql('postgres', $_[1], extra_params => [ '-U', 'shop' ]); }

sub place
{
	my ($node) = @_;
	return sql($node, qq{
		BEGIN;
		INSERT INTO shop.orders
		SELECT n, CASE WHEN n % 10 = 1 THEN 'rare' WHEN n % 2 = 0 THEN 'book' ELSE 'lamp' END,
			   1 + n % 3, 10 + n, CASE WHEN n % 15 = 2 THEN 'expired' ELSE 'good' END,
			   CASE WHEN n % 25 = 3 THEN 'nowhere' ELSE 'here' END
		  FROM generate_series(1, $ORDERS) n;
		SELECT count(*) FROM (
			SELECT durable.start_many('fulfil', array_agg(jsonb_build_object('order', n)), array_agg('order-' || n))
			  FROM generate_series(1, $ORDERS) n) s;
		SELECT count(durable.signal('paid:' || n)) FROM generate_series(1, $ORDERS) n WHERE n % 20 <> 4;
		COMMIT;
		-- which only sweeps start
		SELECT durable.create_schedule('ticks', 'tick', every => '1 s', catchup => 'all', max_catchup => 3)});
}

sub schedule
{
	my ($node, $name) = @_;
	is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.schedule_sweeps()', extra_params => [ '-U', 'shop' ]), 1, "$name: the shop has one job, for its work");
	is($node->safe_psql('postgres', "SELECT count(*) FROM durable.schedule_sweeps('2 s')", extra_params => [ '-U', 'janitor' ]), 1, "$name: the janitor one for sweeps");
	my $jobs = 'SELECT jobid, jobname, schedule, command, username FROM cron.job ORDER BY jobid';
	my $before = $node->safe_psql('postgres', $jobs);
	$node->safe_psql('postgres', 'SELECT durable.schedule_sweeps()', extra_params => [ '-U', 'shop' ]);
	is($node->safe_psql('postgres', $jobs), $before, "$name: calling it again changes nothing");
	note $before;
	return;
}

sub is_exact
{
	my ($node, $name) = @_;
	is($node->safe_psql('postgres', "SELECT count(*), count(*) FILTER (WHERE status = 'completed') FROM durable.run WHERE workflow = 'fulfil'"), "$ORDERS|$ORDERS", "$name: each order's run has completed");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM shop.orders o LEFT JOIN durable.run r ON r.run_id = 'order-' || o.id WHERE o.state IS DISTINCT FROM r.output ->> 'state'}), 0, "$name: with the state that the order has");
	is($node->safe_psql('postgres', 'SELECT count(DISTINCT state) FROM shop.orders'), 4, "$name: some were shipped, some rejected, some failed, some not confirmed");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM shop.product p WHERE stocked - stock IS DISTINCT FROM (
		SELECT coalesce(sum(quantity), 0) FROM shop.orders o WHERE o.product = p.product AND o.state = 'shipped')}), 0, "$name: what is missing in stock was shipped");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM shop.orders o WHERE
		(SELECT coalesce(sum(amount), 0) FROM shop.ledger l WHERE l.order_id = o.id) <> CASE o.state WHEN 'shipped' THEN o.amount ELSE 0 END
		OR (SELECT count(*) FROM shop.shipment s WHERE s.order_id = o.id) <> (o.state = 'shipped')::int
		OR EXISTS (SELECT FROM shop.ledger l WHERE l.order_id = o.id GROUP BY kind HAVING count(*) > 1)}), 0, "$name: charged, refunded and sent once");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE workflow = 'tick' AND (recovery_attempts > 0 OR status NOT IN ('pending', 'running', 'completed'))}), 0, "$name: no run of the schedule was lost");
	return;
}

my $alone = open_shop('alone', 0);
my $both = open_shop('both', 1, 'cron.use_background_workers = on');

# a second database, for which pg_cron has to be told in the first
$alone->safe_psql('postgres', 'CREATE DATABASE other');
$alone->safe_psql('other', q{
	CREATE EXTENSION durable;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
	SELECT durable.register_workflow('w', 'body');
	SELECT durable.start('w', '1', 'run')});
my ($status, $out, $err) = $alone->psql('other', "\\set VERBOSITY verbose\nSELECT durable.schedule_sweeps('1 s')");
like($err, qr/0A000: pg_cron lives in another database.*HINT:\s+There, as a superuser: (SELECT .*;)/s, 'from another database: what to execute in that of pg_cron');
my ($hint) = $err =~ /There, as a superuser: (SELECT [^\n]*;)/;
$alone->safe_psql('postgres', $hint);
is($alone->safe_psql('postgres', q{SELECT count(*) FROM cron.job WHERE database = 'other'}), 2, 'which does it');
is(sqlstate($alone, 'SELECT durable.unschedule_sweeps()', { dbname => 'other' }), '0A000', 'removing them likewise');

for my $node ($alone, $both)
{
	schedule($node, $node->name);
	place($node);
}
for my $node ($alone, $both)
{
	ok($node->poll_query_until('postgres', q{SELECT count(*) = 0 FROM durable.run WHERE workflow = 'fulfil' AND finished_at IS NULL}), $node->name . ': every order has come to an end');
	ok($node->poll_query_until('postgres', q{SELECT count(*) >= 5 FROM durable.run WHERE workflow = 'tick' AND status = 'completed'}), $node->name . ': the schedule fires, and its runs are executed');
	is_exact($node, $node->name);
}
is($alone->safe_psql('postgres', 'SELECT count(*) FROM durable.workers()'), 0, 'alone: there was no background worker of ours');
is($both->safe_psql('postgres', q{SELECT count(*) FROM durable.workers() WHERE kind = 'scheduler'}), 1, 'both: there is one');
ok($alone->poll_query_until('other', q{SELECT status = 'completed' FROM durable.run}), 'the run in the other database, too');
is($alone->safe_psql('postgres', q{SELECT username, count(*) > 0 FROM cron.job_run_details WHERE status = 'failed' GROUP BY 1}), '', 'no job has failed');

is($alone->safe_psql('postgres', q{SELECT string_agg(name, ' ') FROM durable.health() WHERE level <> 'ok'}), '', 'alone: health() has nothing to complain about');
like($alone->safe_psql('postgres', q{SELECT detail FROM durable.health() WHERE name = 'pg_cron'}), qr/durable work in database/, 'and knows the jobs');

# While they wait, neither the jobs nor pg_cron hold a snapshot.
for my $node ($alone, $both)
{
	ok($node->poll_query_until('postgres', q{
		SELECT count(*) FILTER (WHERE query LIKE 'CALL durable.work%') >= 1 AND bool_and(backend_xmin IS NULL AND backend_xid IS NULL)
		  FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND (query LIKE 'CALL durable.%' OR backend_type LIKE 'pg_cron%')
		   AND (state = 'active' OR backend_type LIKE 'pg_cron%')}), $node->name . ': no snapshot is held while a job waits');
}

# Two more sweep at the same time, and nothing is counted twice.
is($alone->safe_psql('postgres', q{SELECT count(*) = count(DISTINCT run_id) AND max(fires) = count(*) FROM durable.run r JOIN durable.schedule s ON s.schedule_id = 'ticks' WHERE r.workflow = 'tick'}), 't', 'each window has one run');

# what is in the way of a job does not last: a plain DROP DATABASE meets the session of a job
$alone->safe_psql('postgres', q{SELECT cron.unschedule(jobid) FROM cron.job WHERE database = 'other'});
$alone->safe_psql('postgres', 'DROP DATABASE other WITH (FORCE)');
is($alone->safe_psql('postgres', q{SELECT count(*) FROM pg_database WHERE datname = 'other'}), 0, 'DROP DATABASE WITH (FORCE) ends a job that goes on');

# each removes its own, a superuser those of all
is($alone->safe_psql('postgres', 'SELECT durable.unschedule_sweeps()', extra_params => [ '-U', 'shop' ]), 1, 'the shop removes its job');
is($alone->safe_psql('postgres', 'SELECT durable.unschedule_sweeps()', extra_params => [ '-U', 'shop' ]), 0, 'which is then gone');
is($alone->safe_psql('postgres', 'SELECT durable.unschedule_sweeps()'), 1, 'a superuser that of the janitor');
is($alone->safe_psql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'nothing is left');

# Two at once, the first of which commits or rolls back: there is one job or none, and
# nobody is refused.
my $first = DurableTest::Session->new($alone, user => 'shop');
my $second = DurableTest::Session->new($alone, user => 'shop');
my %do = (
	schedule => q{SELECT count(*) FROM durable.schedule_sweeps('2 s')},
	again => q{SELECT count(*) FROM durable.schedule_sweeps('3 minutes')},
	unschedule => 'SELECT durable.unschedule_sweeps()');
for my $case (
	# before, first, second; the answer to the second, and the jobs, when the first commits; when it does not
	[ 'unschedule', 'schedule', 'again', '1: */3', '1: */3' ],
	[ 'schedule', 'schedule', 'again', '1: */3', '1: */3' ],
	[ 'schedule', 'unschedule', 'again', '1: */3', '1: */3' ],
	[ 'schedule', 'unschedule', 'unschedule', '0: ', '1: ' ],
	[ 'schedule', 'again', 'unschedule', '1: ', '1: ' ],
	[ 'unschedule', 'schedule', 'unschedule', '1: ', '0: ' ])
{
	my ($before, @race) = @$case;
	for my $end ('COMMIT', 'ROLLBACK')
	{
		my $name = "$before, then $race[0] ($end) and $race[1] at once";
		$first->query($do{$before});
		$first->query('BEGIN');
		$first->query($do{ $race[0] });
		$second->send($do{ $race[1] });
		wait_for(sub { $second->answered || $alone->safe_psql('postgres', q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = } . $second->pid) eq 't' },
			"$name: the second to wait or to be done");
		$first->query($end);
		my $answer = $second->answer;
		is($second->error, '', "$name: no error");
		my ($jobs) = map { (split / /)[0] // '' } $first->query('SELECT schedule FROM cron.job');
		is("$answer: $jobs", $race[ $end eq 'COMMIT' ? 2 : 3 ], "$name: the last one counts");
	}
}
$first->query($do{unschedule});
is($alone->safe_psql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'nothing is left of that');
$_->quit for $first, $second;

# DROP EXTENSION while a job is in the middle of its loop: nobody hangs, and nothing dies
$both->safe_psql('postgres', 'DROP EXTENSION durable CASCADE');
ok($both->poll_query_until('postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'CALL durable.%'}), 'DROP EXTENSION: the jobs that were running end');
$both->safe_psql('postgres', 'CREATE EXTENSION durable');
is($both->safe_psql('postgres', 'SELECT durable.unschedule_sweeps()'), 2, 'and can be removed');
unlike(slurp_file($_->logfile), qr/PANIC|was terminated by signal/, $_->name . ': the server is well') for $alone, $both;
$_->stop for $alone, $both;
done_testing();
