# A worker's backend dies with claims in hand: terminated in the middle of a
# transaction, terminated after its claim committed, killed by a signal that
# takes the whole server down with it.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('death');
my $hours = 0;

sub dispatch
{
	my ($queue) = @_;
	return $node->safe_psql('postgres', "SELECT durable.dispatch('$queue')");
}

sub status
{
	my ($id) = @_;
	return $node->safe_psql('postgres',
		"SELECT status, attempt, reclaims FROM durable.task_status('$id')");
}

# Move the engine's clock for every session that starts from now on.
sub skip_hours
{
	my ($n) = @_;
	$hours += $n;
	$node->safe_psql('postgres', 'ALTER SYSTEM SET durable.clock_offset = ' . $hours * 3600);
	$node->reload;
	ok( $node->poll_query_until('postgres',
			"SELECT durable.engine_now() > clock_timestamp() + interval '" . ($hours * 60 - 1) . " minutes'"),
		"$n hours later");
	return;
}

# Its worker and all other processes die, the postmaster does not.
sub kill_worker
{
	my ($session) = @_;
	my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	kill9_backend($node, $session);
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server is back, under the same postmaster');
	return;
}

# In the middle of the claiming transaction.
my $id = dispatch('mid');
my $worker = DurableTest::Session->new($node);
$worker->query('BEGIN');
is($worker->query("SELECT task_id FROM durable.claim('{mid}', 1, '1 h')"), $id, 'claimed in an open transaction');
is($node->safe_psql('postgres', "SELECT count(*) FROM durable.claim('{mid}')"), 0,
	'nobody else gets it, nor waits for it');
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $worker->pid . ', 60000)');
is(status($id), 'ready|1|0', 'terminated: the task is back at once, nothing is counted');
is($node->safe_psql('postgres', "SELECT task_id, attempt, reclaims FROM durable.claim('{mid}', 1, '1 h')"),
	"$id|1|0", 'and can be claimed');
$worker->quit;

# In the middle of the settling transaction.
$id = dispatch('settling');
$worker = DurableTest::Session->new($node);
my $token = $worker->query("SELECT token FROM durable.claim('{settling}', 1, '1 h')");
$node->safe_psql('postgres', 'CREATE TABLE ledger (task_id text)');
$worker->query("BEGIN; INSERT INTO ledger VALUES ('$id'); SELECT durable.complete('$id', '$token')");
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $worker->pid . ', 60000)');
is(status($id), 'claimed|1|0', 'terminated before the commit of complete: still claimed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM ledger'), 0, 'and the work is undone');
is($node->safe_psql('postgres', "SELECT durable.complete('$id', '$token')"), 't',
	'whoever has the token can still settle it');
$worker->quit;

# After the claim committed: only the lease ends it, and that is counted.
$id = dispatch('after');
$worker = DurableTest::Session->new($node);
$token = $worker->query("SELECT token FROM durable.claim('{after}', 1, '1 h')");
$node->safe_psql('postgres', 'SELECT pg_terminate_backend(' . $worker->pid . ', 60000)');
$worker->quit;
is(status($id), 'claimed|1|0', 'terminated with a claim in hand: claimed until the lease ends');
is($node->safe_psql('postgres', "SELECT count(*) FROM durable.claim('{after}')"), 0, 'not to be had before');
skip_hours(2);
is($node->safe_psql('postgres', "SELECT task_id, attempt, reclaims FROM durable.claim('{after}', 1, '1 h')"),
	"$id|1|1", 'the lapsed claim is taken over and counted');
is($node->safe_psql('postgres', "SELECT durable.complete('$id', '$token')"), 'f', 'the old token is refused');
is($node->safe_psql('postgres', "SELECT durable.renew('$token')"), 0, 'and cannot be renewed');

# SIGKILL with a batch in hand, part of it settled, and with an open transaction.
$node->safe_psql('postgres', "SELECT durable.dispatch_many('batch', array_fill('1'::jsonb, '{10}'))");
$worker = DurableTest::Session->new($node);
$worker->query('SET durable.async_claim = off');
$worker->query("CREATE TEMP TABLE mine AS SELECT task_id, token FROM durable.claim('{batch}', 6, '1 h')");
is($worker->query('SELECT count(durable.complete(task_id, token)) FROM (SELECT * FROM mine LIMIT 2) m'), 2,
	'claimed 6 of 10, settled 2 of them');
$worker->query("BEGIN; SELECT count(*) FROM durable.claim('{batch}', 2, '1 h')");
kill_worker($worker);
is($node->safe_psql('postgres', "SELECT ready, claimed FROM durable.queue_depth('batch')"), '4|4',
	'the claim that had not committed is gone, the other one holds');
is($node->safe_psql('postgres', "SELECT count(*), max(reclaims) FROM durable.claim('{batch}', 100, '1 h')"),
	'4|0', 'what was not claimed is claimed, uncounted');
skip_hours(2);
is($node->safe_psql('postgres', "SELECT count(*), min(reclaims), max(reclaims) FROM durable.claim('{batch}', 100, '1 h')"),
	'8|1|1', 'after the lease all of it comes back, counted once');

# Work that takes the server down each time: counted each time, and it ends.
# (The server has just started uncleanly, so each claim is flushed.)
$id = dispatch('poison');
for my $n (0 .. 3)
{
	$worker = DurableTest::Session->new($node);
	is($worker->query("SELECT task_id, reclaims FROM durable.claim('{poison}', 1, '1 h')"), "$id|$n",
		"claimed with $n reclaims");
	kill_worker($worker);
	is(status($id), "claimed|1|$n", 'the claim survived its worker');
	skip_hours(2);
}
is($node->safe_psql('postgres', "SELECT count(*) FROM durable.claim('{poison}')"), 0, 'then it is not handed out again');
is( $node->safe_psql('postgres',
		"SELECT status, reclaims, error ->> 'message', error -> 'retryable' FROM durable.task_status('$id')"),
	'failed|4|claim lapsed more than 3 times|true', 'but has failed');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');

$node->stop;
done_testing();
