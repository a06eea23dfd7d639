# Schedules under kill -9: several sessions sweep, the server dies around fire
# times, and every window has exactly one run. Two databases; somebody who holds up
# a run id; a restored copy; a standby that is promoted.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $node = durable_node('origin', { init => { allows_streaming => 1 } });

sub prepare
{
	my ($db) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, q{
		CREATE EXTENSION durable;
		CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
		SELECT durable.register_workflow('w', 'body');
		CREATE PROCEDURE sweep_on() LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				PERFORM durable.sweep();
				COMMIT;
			END LOOP;
		END $$;
		-- all windows from the first to the last, and those that have a run
		CREATE VIEW windows AS
		SELECT s.schedule_id, s.fires, count(r.run_id) AS runs, count(DISTINCT r.run_id) AS different,
		       min(w) AS first, max(w) AS last, extract(epoch FROM s.every) * 1000 AS step, extract(epoch FROM s.last_window) * 1000 AS last_window
		  FROM durable.schedule s
		  LEFT JOIN durable.run r ON r.run_id LIKE 'sched:' || s.schedule_id || ':%'
		  LEFT JOIN LATERAL (SELECT split_part(r.run_id, ':', 3)::bigint) x (w) ON true
		 GROUP BY s.schedule_id, s.fires, s.every, s.last_window;
	});
	return;
}

prepare($_) for qw(one two);
$node->safe_psql($_, q{
	SELECT count(durable.create_schedule('all-' || n, 'w', every => '100 ms', catchup => 'all', jitter => CASE WHEN n % 2 = 0 THEN '50 ms' ELSE '0' END::interval)) FROM generate_series(1, 10) n;
	SELECT count(durable.create_schedule('one-' || n, 'w', every => '100 ms')) FROM generate_series(1, 5) n;
}) for qw(one two);

# Only one of the databases is swept all the time; the other waits.
my $rounds = 6;
for my $round (1 .. $rounds)
{
	my $runs = 'SELECT count(*) FROM durable.run';
	my $before = $node->safe_psql('one', $runs);
	my @sessions = map { DurableTest::Session->new($node, dbname => 'one') } 1 .. 3;
	$_->send('CALL sweep_on()') for @sessions;
	wait_for(sub { $node->safe_psql('one', $runs) > $before + 100 }, 'runs to be started');
	if ($round % 3 == 0)
	{
		# one session dies; the server restarts for it
		kill9_backend($node, $sessions[0]);
	}
	else
	{
		crash($node);
		$node->start;
	}
	$_->quit for @sessions;
	is($node->safe_psql('one', 'SELECT * FROM windows WHERE runs <> fires OR runs <> different OR (schedule_id LIKE $$all%$$ AND (runs <> (last - first) / step + 1 OR last <> last_window))'),
		'', "crash $round: each window from the first to the last has one run, and the count is right");
}
is($node->safe_psql('two', 'SELECT count(*) FROM durable.run'), 0, 'the other database has started nothing');
is($node->safe_psql('two', q{SELECT count(*) FILTER (WHERE lag > '0') = count(*) FROM durable.schedules}), 't', 'there everything is late');
$node->safe_psql('two', 'SELECT count(durable.pause_schedule(schedule_id)) FROM durable.schedule WHERE schedule_id <> $$one-1$$; SELECT durable.sweep()');
is($node->safe_psql('two', 'SELECT schedule_id, runs FROM windows WHERE runs > 0'), 'one-1|1', 'and one run makes up for all of it');
is(damage($node, 'one'), '', 'tables and indexes are in order');

# an open transaction has taken the id of a window's run: the others are started
$node->safe_psql('one', q{
	SELECT count(durable.delete_schedule(schedule_id)) FROM durable.schedule;
	SELECT durable.create_schedule('held', 'w', cron => '0 0 1 1 *'), durable.create_schedule('free', 'w', cron => '0 0 1 1 *');
});
my $year = q{SELECT set_config('durable.clock_offset', ceil(extract(epoch FROM max(next_window) - clock_timestamp()))::text, false) FROM durable.schedule};
my $window = $node->safe_psql('one', q{SELECT extract(epoch FROM next_window)::bigint * 1000 FROM durable.schedule LIMIT 1});
my $holder = DurableTest::Session->new($node, dbname => 'one');
my $sweeper = DurableTest::Session->new($node, dbname => 'one');
$sweeper->query($year);
$holder->query('BEGIN');
$holder->query("INSERT INTO durable.run SELECT (jsonb_populate_record(r, jsonb_build_object('id', nextval('durable.task_seq'), 'run_id', 'sched:held:$window'))).* FROM durable.run r LIMIT 1");
is($sweeper->query("SELECT durable.sweep() -> 'fired'"), 1, 'a taken run id holds up its own schedule only');
is($sweeper->query('SELECT schedule_id, paused, last_error FROM durable.schedules WHERE last_window IS NULL'), 'held|f|', 'which is not over with');
is($sweeper->query("SELECT durable.sweep() -> 'fired'"), 0, 'nor in the next sweep');
$holder->query('ROLLBACK');
is($sweeper->query("SELECT durable.sweep() -> 'fired'"), 1, 'but when the id is free');
is($sweeper->query('SELECT schedule_id, fires, last_error FROM durable.schedules ORDER BY 1'), "free|1|\nheld|1|", 'each has fired once');

sub at
{
	my ($time) = @_;
	return "SELECT set_config('durable.clock_offset', ceil(extract(epoch FROM '2060-05-05 $time+00'::timestamptz - clock_timestamp()))::text, false) \\g /dev/null\n";
}

# a restored copy fires nothing before it is activated, and then what is late
$node->safe_psql('one', at('00:30') . q{SELECT count(durable.delete_schedule(schedule_id)) FROM durable.schedule;
	SELECT durable.create_schedule('h', 'w', '{"h": 1}', every => '1 h', catchup => 'all')});
my $dump = $node->basedir . '/one.sql';
$node->command_ok([ 'pg_dump', '-f', $dump, $node->connstr('one') ], 'dump');
$node->safe_psql('postgres', 'CREATE DATABASE copy');
$node->command_ok([ 'psql', '-Xqv', 'ON_ERROR_STOP=1', '-f', $dump, $node->connstr('copy') ], 'restore');
my $all = 'SELECT s::text FROM durable.schedule s ORDER BY schedule_id';
is($node->safe_psql('copy', $all), $node->safe_psql('one', $all), 'the copy has the schedules');
my $later = at('03:30');
is(sqlstate($node, "$later SELECT durable.sweep()", { dbname => 'copy' }), '55000', 'and starts nothing');
is($node->safe_psql('copy', q{SELECT count(*) FROM durable.run WHERE run_id LIKE 'sched:h:%'}), 0, 'nothing');
$node->safe_psql('copy', 'SELECT durable.activate()');
is($node->safe_psql('copy', "$later SELECT durable.sweep() -> 'fired'"), 3, 'activated, it catches up');

# a standby is promoted: schedules are rows
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
is($node->safe_psql('one', "$later SELECT durable.sweep() -> 'fired'"), 3, 'the primary fires');
$node->wait_for_catchup($standby, 'replay', $node->lsn('write'));
is(sqlstate($standby, "$later SELECT durable.sweep()", { dbname => 'one' }), '25006', 'the standby does not');
is($standby->safe_psql('one', q{SELECT fires FROM durable.schedules WHERE schedule_id = 'h'}), 3, 'but shows what was fired');
crash($node);
$standby->promote;
is($standby->safe_psql('one', "$later SELECT durable.sweep() -> 'fired'"), 0, 'promoted, it repeats nothing');
is($standby->safe_psql('one', at('05:30') . "SELECT durable.sweep() -> 'fired'"), 2, 'and goes on');
is($standby->safe_psql('one', q{SELECT runs, different FROM windows WHERE schedule_id = 'h'}), '5|5', 'without a gap');
$standby->stop;
done_testing();
