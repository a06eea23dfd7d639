# On a physical standby everything that writes is refused with 25006 and
# everything that reads works; promoted, it goes on where the primary stopped.

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use Test::More;

use DurableTest;

my $primary = durable_node('primary', { init => { allows_streaming => 1 } }, 'max_connections = 20');
$primary->safe_psql('postgres', q{
	CREATE ROLE worker LOGIN;
	SELECT durable.grant_usage('worker', privileges => '{start,work,read,manage}');
	SELECT durable.dispatch_many('q', '{1,2,3}', task_ids => '{t1,t2,t3}');
	SELECT durable.dispatch('later', task_id => 'later', run_at => durable.engine_now() + '1 day');
	SELECT durable.dispatch('done', task_id => 'done');
	SELECT durable.complete(task_id, token, '{"ok": true}') FROM durable.claim('{done}');
	SET durable.async_claim = off;
	CREATE TABLE hand AS SELECT task_id, token FROM durable.claim('{q}', 1, '1 h');
});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
my ($id, $token) = split /\|/, $standby->safe_psql('postgres', 'SELECT * FROM hand');

my @writing = (
	"SELECT durable.dispatch('q')",
	"SELECT durable.dispatch('q', task_id => 't1')",
	"SELECT durable.dispatch_many('q', '{1}')",
	"SELECT * FROM durable.claim('{q}')",
	"SELECT * FROM durable.claim('{nothing here}')",
	"SELECT * FROM durable.settle_and_claim('$id', '$token', NULL, '{q}')",
	"SELECT * FROM durable.settle_and_claim(NULL, NULL, NULL, '{q}')",
	"SELECT durable.renew('$token')",
	"SELECT durable.release('$token')",
	"SELECT durable.complete('$id', '$token')",
	"SELECT durable.complete('$id', gen_random_uuid())",
	"SELECT durable.complete_many('$token', '{$id}')",
	"SELECT durable.fail('$id', '$token', '{\"message\": \"x\"}')",
	"SELECT durable.heartbeat('$id', '$token')",
	"SELECT durable.cancel_task('t2')",
	"SELECT * FROM durable.claim_results('{done}')",
	"SELECT durable.ack_results('$token')",
	"SELECT durable.pause_queue('q')",
	"SELECT durable.resume_queue('q')",
	"SELECT durable.sweep()",
	"CALL durable.wait_for_work('{q}', '1 h')",
	"CALL durable.wait_and_claim('{q}', 1, '1 h')");
my @owner_only = (
	"SELECT durable.activate()",
	"SELECT durable.grant_usage('worker')",
	"SELECT durable.revoke_usage('worker')");
my @reading = (
	[ "SELECT status, attempt FROM durable.task_status('t1')", 'claimed|1' ],
	[ "SELECT status FROM durable.task_status('t2')", 'ready' ],
	[ "SELECT status FROM durable.task_status('later')", 'delayed' ],
	[ "SELECT status, output FROM durable.task_status('done')", 'completed|{"ok": true}' ],
	[ "SELECT ready, claimed, delayed FROM durable.queue_depth('q')", '2|1|0' ],
	[ "SELECT durable.has_access('default', 'work'), durable.has_access('default', 'signal')", 't|f' ],
	[ "SELECT durable.require_access(NULL, 'read')", 'default' ],
	[ "SELECT durable.engine_now() - clock_timestamp() < interval '1 minute'", 't' ],
	[ "SELECT count(*) FROM durable.task", 4 ],
	[ "SELECT count(*) FROM durable.task_result", 1 ],
	[ "SELECT count(*) FROM durable.lease", 1 ]);

# A read-only transaction of the primary is refused in the same way.
for my $case ([ $primary, 'in a read-only transaction', 'BEGIN READ ONLY; ' ], [ $standby, 'on a standby', '' ])
{
	my ($server, $where, $begin) = @$case;
	is(sqlstate($server, "$begin$_"), '25006', "$where: $_") for @writing, @owner_only;
	for (grep { !/sweep/ } @writing)
	{
		is(sqlstate($server, "$begin$_", { user => 'worker' }), '25006', "$where, as a worker: $_");
	}
	for my $read (@reading)
	{
		is($server->safe_psql('postgres', $read->[0], extra_params => [ '-U', 'worker' ]), $read->[1],
			"$where, as a worker: $read->[0]");
	}
}
is($standby->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'scan_hints answers');

# What sessions of the standby have cached follows the primary.
my $reader = DurableTest::Session->new($standby, user => 'worker');
is($reader->query("SELECT durable.has_access('default', 'read')"), 't', 'the standby knows the right');
$primary->safe_psql('postgres', "SELECT durable.revoke_usage('worker', privileges => '{manage}')");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
is($reader->query("SELECT durable.has_access('default', 'manage')"), 'f', 'and that it was taken back');

# Promotion, in a session that was open before. The copy is the same database.
$primary->stop('immediate');
$standby->promote;
$reader->poll('SELECT NOT pg_is_in_recovery()');
is($reader->query("SELECT task_id FROM durable.claim('{q}', 10, '1 h')"), "t2\nt3", 'promoted: what was ready is claimed');
is($reader->query("SELECT status FROM durable.task_status('t1')"), 'claimed', 'what was claimed still is');
is($reader->query("SELECT durable.complete('$id', '$token')"), 't', 'and its worker can settle it');
is($reader->query("SELECT durable.dispatch('q', task_id => 't4')"), 't4', 'new tasks are queued');
is($reader->query("CALL durable.wait_for_work('{q}', '1 h')"), 't', 'waited for');
is($reader->query("SELECT task_id FROM durable.claim('{q}')"), 't4', 'and claimed');
$reader->quit;
is($standby->safe_psql('postgres', "SET durable.clock_offset = 172800; SELECT task_id FROM durable.claim('{later}')"), 'later',
	'the delayed task comes in its time');
is($standby->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');

$standby->stop;
done_testing();
