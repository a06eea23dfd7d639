# Schedules fired by background workers: in two databases of one server, which is killed
# around the fire times; after a promotion; across steps of the clock; and in a copy of a
# database. Each window has one run, and none is missing.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $origin = durable_node('origin', { background => 1, init => { allows_streaming => 1 } }, 'max_worker_processes = 24', 'durable.workers = 1');

# all windows from the first to the last have one run, and the rows count them right
my $wrong = q{
	SELECT s.schedule_id, s.fires, count(r.run_id), count(DISTINCT r.run_id), min(w), max(w)
	  FROM durable.schedule s
	  LEFT JOIN durable.run r ON r.run_id LIKE 'sched:' || s.schedule_id || ':%'
	  LEFT JOIN LATERAL (SELECT split_part(r.run_id, ':', 3)::bigint) x (w) ON true
	 WHERE s.schedule_id LIKE 'all%'
	 GROUP BY s.schedule_id, s.fires, s.every
	HAVING count(r.run_id) <> s.fires OR count(DISTINCT r.run_id) <> s.fires
	    OR s.fires <> (max(w) - min(w)) / (extract(epoch FROM s.every) * 1000) + 1};

sub prepare
{
	my ($db, $step) = @_;
	return $origin->safe_psql($db, qq{
		CREATE EXTENSION IF NOT EXISTS durable;
		CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
		SELECT durable.register_workflow('w', 'body');
		SELECT durable.create_schedule('all-' || n, 'w', every => '$step', catchup => 'all', jitter => CASE n WHEN 1 THEN '0' ELSE '100 ms' END::interval) FROM generate_series(1, 3) n});
}

sub fires
{
	my ($node, $db) = @_;
	return $node->safe_psql($db, 'SELECT COALESCE(sum(fires), 0) FROM durable.schedule');
}

sub goes_on
{
	my ($node, $db, $when) = @_;
	my $before = fires($node, $db);
	return ok($node->poll_query_until($db, "SELECT sum(fires) > $before + 8 FROM durable.schedule"), "$when: fires in $db");
}

$origin->safe_psql('postgres', 'CREATE DATABASE second');
prepare('postgres', '200 ms');
prepare('second', '300 ms');

for my $round (1 .. 4)
{
	goes_on($origin, $_, "round $round") for qw(postgres second);
	# anywhere between two fire times
	usleep(int rand 300_000);
	crash($origin);
	$origin->start;
}
goes_on($origin, $_, 'after the last crash') for qw(postgres second);
is($origin->safe_psql($_, "BEGIN; LOCK TABLE durable.schedule IN SHARE MODE; $wrong"), '', "$_: each window has one run, whatever was killed") for qw(postgres second);
ok($origin->poll_query_until($_, q{SELECT count(*) > 20 FROM durable.run WHERE status = 'completed'}), "$_: the runs are executed") for qw(postgres second);

# A copy of the database fires nothing, and the original goes on.
$origin->safe_psql('postgres', 'CREATE DATABASE copy TEMPLATE second');
my $copied = fires($origin, 'copy');
goes_on($origin, 'second', 'beside a copy');
is(fires($origin, 'copy'), $copied, 'the copy has fired nothing');
is($origin->safe_psql('copy', q{SELECT level FROM durable.health() WHERE name = 'activation'}), 'critical', 'health() says so');
$origin->safe_psql('copy', 'SELECT durable.activate()');
goes_on($origin, 'copy', 'activated');
is($origin->safe_psql('copy', "BEGIN; LOCK TABLE durable.schedule IN SHARE MODE; $wrong"), '', 'and makes up for what it missed');

# A standby takes over.
$origin->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($origin, 'backup', has_streaming => 1);
$standby->start;
goes_on($origin, 'postgres', 'with a standby');
$origin->wait_for_catchup($standby, 'replay', $origin->lsn('write'));
my $replayed = fires($standby, 'second');
cmp_ok($replayed, '>', 0, 'the standby shows what was fired');
is($standby->safe_psql('second', q{SELECT string_agg(name, ' ') FROM durable.health() WHERE level <> 'ok' AND name NOT IN ('last_sweep', 'worker_slots')}), '', 'and health() works there');
is($standby->safe_psql('second', q{SELECT count(*) >= 0 FROM durable.queues}), 't', 'so do the queues');
crash($origin);
$standby->promote;
goes_on($standby, $_, 'promoted') for qw(postgres second);
is($standby->safe_psql($_, "BEGIN; LOCK TABLE durable.schedule IN SHARE MODE; $wrong"), '', "$_: no window is missing or came twice") for qw(postgres second);

# The clock steps forward by two weeks: no flood, but what max_catchup says. Then it is put back.
$standby->safe_psql('postgres', q{
	SELECT count(durable.delete_schedule(schedule_id)) FROM durable.schedule;
	SELECT durable.create_schedule('some', 'w', every => '1 s', catchup => 'all', max_catchup => 5);
	SELECT durable.create_schedule('one', 'w', every => '1 s')});
ok($standby->poll_query_until('postgres', 'SELECT min(fires) > 1 FROM durable.schedule'), 'before the step');
$standby->safe_psql('postgres', $_) for q{ALTER SYSTEM SET durable.clock_offset = '14 d'}, 'SELECT pg_reload_conf()';
my $later = q{SELECT bool_and(n BETWEEN least AND 200) FROM (SELECT s.schedule_id, count(*) FILTER (WHERE to_timestamp(split_part(r.run_id, ':', 3)::bigint / 1000.0) > clock_timestamp() + interval '1 day') AS n,
	CASE s.schedule_id WHEN 'some' THEN 8 ELSE 3 END AS least FROM durable.schedule s JOIN durable.run r ON r.run_id LIKE 'sched:' || s.schedule_id || ':%' GROUP BY 1) x};
ok($standby->poll_query_until('postgres', $later), 'two weeks later they go on, without the 1,209,600 windows between');
is($standby->safe_psql('postgres', q{SELECT count(*) FROM (SELECT to_timestamp(split_part(run_id, ':', 3)::bigint / 1000.0) AS w FROM durable.run WHERE run_id ~ '^sched:(some|one):') x
	WHERE w BETWEEN clock_timestamp() + interval '10 min' AND clock_timestamp() + interval '14 days' - interval '10 min'}), 0, 'nothing in between was started');
my $back = time;
$standby->safe_psql('postgres', $_) for 'ALTER SYSTEM RESET durable.clock_offset', 'SELECT pg_reload_conf()';
ok($standby->poll_query_until('postgres', q{SELECT bool_and(last_window < clock_timestamp() + interval '1 min' AND last_fire_at < clock_timestamp() + interval '1 min') FROM durable.schedule}), 'the clock is put back: they go on');
# the scheduler looks at everything every 30 s in any case
cmp_ok(time - $back, '<', 25, 'at once');
is($standby->safe_psql('postgres', q{SELECT count(*) - count(DISTINCT run_id) FROM durable.run}), 0, 'and no window came twice');

$standby->stop;
done_testing();
