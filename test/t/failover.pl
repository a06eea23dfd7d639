# The primary dies under load and its standby is promoted in the middle of that load.
# What was committed but had not arrived is lost as a whole: tasks and what workers
# wrote with them agree, and the new primary goes on from there.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $primary = durable_node('primary', { init => { allows_streaming => 1 } },
	'max_connections = 30', 'durable.max_reclaims = 1000000');
$primary->safe_psql('postgres', q{
	CREATE TABLE dispatched (task_id text);
	CREATE TABLE ledger (task_id text);
});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/dispatch.sql", q{
\set priority random(0, 1)
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('load', priority => :priority) FROM generate_series(1, 2);
END;
});
append_to_file("$dir/work.sql", q{
SELECT count(*) > 0 AS found, coalesce(max(task_id), '') AS task_id,
	coalesce(max(token::text), '') AS token FROM durable.claim('{load}', 1, '1 h') \gset
\if :found
INSERT INTO ledger SELECT :task_id WHERE durable.complete(:task_id, :token::uuid);
\endif
});
append_to_file("$dir/release.sql", q{
SELECT count(durable.release(token)) FROM durable.claim('{load}', 1, '1 h');
});

sub start_load
{
	my ($node) = @_;
	my $load = { out => '' };
	$load->{run} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', 4, '-T', 600,
			'-f', "$dir/dispatch.sql\@2", '-f', "$dir/work.sql\@5", '-f', "$dir/release.sql\@1", $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	return $load;
}

my $load = start_load($primary);
ok($standby->poll_query_until('postgres', 'SELECT count(*) > 500 FROM ledger'), 'load, and the standby follows');
crash($primary);
$load->{run}->finish;
is_undisturbed($load->{out}, 'no client failed before');
$standby->promote;
ok($standby->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()'), 'the standby is promoted');
my $settled = $standby->safe_psql('postgres', 'SELECT count(*) FROM ledger');
note "$settled settled, in hand: " . $standby->safe_psql('postgres', 'SELECT count(*) FROM durable.lease');
is(damage($standby), '', 'no damage');

my $agree = q{SELECT count(*) FROM ledger l FULL JOIN durable.task_result r ON l.task_id = '~' || r.id
	WHERE l.task_id IS NULL OR r.status IS DISTINCT FROM 'completed'};
is($standby->safe_psql('postgres', $agree), 0, 'the results agree with what the workers wrote');
is( $standby->safe_psql('postgres', q{
		SELECT count(*) FROM (SELECT '~' || id AS task_id FROM durable.task UNION ALL SELECT task_id FROM ledger) t
		  FULL JOIN dispatched d USING (task_id) WHERE d.task_id IS NULL OR t.task_id IS NULL}),
	0, 'every task is waiting, claimed or settled');

$load = start_load($standby);
ok($standby->poll_query_until('postgres', "SELECT count(*) > $settled + 500 FROM ledger"), 'the load goes on there');
crash($standby);
$load->{run}->finish;
is_undisturbed($load->{out}, 'no client failed before the second crash');
$standby->start;

# Claims of both primaries lapse, and all of it drains.
$standby->append_conf('postgresql.conf', 'durable.clock_offset = 7200');
$standby->reload;
ok( $standby->poll_query_until('postgres', q{
		WITH swept AS MATERIALIZED (SELECT durable.sweep(10000) AS s),
			taken AS MATERIALIZED (SELECT task_id, token FROM swept, durable.claim('{load}', 1000)),
			ended AS MATERIALIZED (
				INSERT INTO ledger SELECT task_id FROM taken WHERE durable.complete(task_id, token) RETURNING 1)
		SELECT (SELECT count(*) FROM ended) = 0 AND NOT EXISTS (SELECT FROM durable.task)}),
	'the rest drains');
is($standby->safe_psql('postgres', $agree), 0, 'the results agree with what the workers wrote');
is( $standby->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM dispatched) - count(*), count(*) - count(DISTINCT task_id) FROM ledger}),
	'0|0', 'every task is settled, once');
is($standby->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($standby), '', 'no damage');

$standby->stop;
done_testing();
