# Copies of a database: pg_dump and restore (elsewhere, into the same cluster, over
# the original), CREATE DATABASE ... TEMPLATE. They bring everything along and hand
# out nothing until somebody who may says so.

use strict;
use warnings;

use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $node = durable_node('origin');
$node->safe_psql('postgres', q{
	CREATE DATABASE origin;
	CREATE ROLE worker LOGIN;
	CREATE ROLE stranger LOGIN;
	CREATE ROLE owner LOGIN;
});
$node->safe_psql('origin', q{
	CREATE EXTENSION durable;
	SELECT durable.grant_usage('worker', privileges => '{start,work,read,manage}');
	SELECT durable.dispatch('q', '{"n": 1}', task_id => 'ready', priority => 5, headers => '{"h": 1}');
	SELECT durable.dispatch('q', '{"n": 2}');
	SELECT durable.dispatch('q', '{"n": 3}', task_id => 'later', run_at => '2100-01-01', max_attempts => 3, backoff => '1 min');
	SELECT durable.dispatch('done', task_id => 'done');
	SELECT durable.complete(task_id, token, '{"ok": true}') FROM durable.claim('{done}');
	SELECT durable.dispatch('done', task_id => 'unread');
	SELECT durable.fail(task_id, token, '{"message": "no"}') FROM durable.claim('{done}');
	SELECT count(*) FROM durable.claim_results('{done}', 1, '1 h');
	SELECT durable.dispatch('hand', '{"n": 4}', task_id => 'claimed');
	SET durable.async_claim = off;
	CREATE TABLE hand AS SELECT task_id, token FROM durable.claim('{hand}', 1, '1 h');
	SELECT durable.pause_queue('paused');
	SELECT durable.dispatch('paused', task_id => 'paused');
});
my ($id, $token) = split /\|/, $node->safe_psql('origin', 'SELECT * FROM hand');

my %contents = map { $_ => $node->safe_psql('origin', $_) } (
	q{SELECT task_id, status, attempt, priority, name, queue, created_at, run_at, output, error
		FROM unnest('{ready,later,done,unread,paused}'::text[]) t, LATERAL (SELECT t AS task_id, (durable.task_status(t)).*) s},
	q{SELECT id, input, headers, max_attempts, backoff FROM durable.task ORDER BY id},
	q{SELECT namespace, role, privileges FROM durable.namespace_access ORDER BY 1, 2},
	q{SELECT last_value FROM durable.task_seq});

# What must hold in every copy, before and after activation.
sub check_copy
{
	my ($server, $db, $what) = @_;
	for my $query (sort keys %contents)
	{
		is($server->safe_psql($db, $query), $contents{$query}, "$what: has what the original had");
	}
	my %options = (dbname => $db);
	for my $call ("SELECT * FROM durable.claim('{q}')", "SELECT * FROM durable.settle_and_claim(NULL, NULL, NULL, '{q}')",
		"CALL durable.wait_for_work('{q}', '1 h')", "CALL durable.wait_and_claim('{q}')", 'SELECT durable.sweep()', "SELECT * FROM durable.claim_results('{done}')")
	{
		is(sqlstate($server, $call, \%options), '55000', "$what: refused: $call");
		next if $call =~ /sweep/;
		is(sqlstate($server, $call, { %options, user => 'worker' }), '55000', "$what: refused to a worker: $call");
	}
	is(sqlstate($server, 'SELECT durable.activate()', { %options, user => $_ }), '42501', "$what: $_ cannot activate it")
		for qw(worker stranger);
	is($server->safe_psql($db, "SELECT durable.dispatch('q', task_id => 'new')"), 'new', "$what: tasks can be queued");

	is($server->safe_psql($db, 'SELECT durable.activate()'), 1, "$what: activated: one claimed task goes back");
	is($server->safe_psql($db, 'SELECT durable.activate()'), 0, "$what: nothing to do for a second time");
	is( $server->safe_psql($db, "SELECT task_id, attempt, reclaims, input FROM durable.claim('{hand}', 10)", extra_params => [ '-U', 'worker' ]),
		'claimed|1|0|{"n": 4}', "$what: it comes back uncounted");
	is($server->safe_psql($db, "SELECT durable.complete('$id', '$token')"), 'f', "$what: the original's token is refused");
	is( $server->safe_psql($db, "SELECT task_id, input, headers FROM durable.claim('{q}', 10)"),
		"ready|{\"n\": 1}|{\"h\": 1}\n~2|{\"n\": 2}|\nnew||", "$what: what was ready is claimed in order");
	is($server->safe_psql($db, "SELECT count(*) FROM durable.claim('{paused}', 10)"), 0, "$what: what was paused still is");
	is($server->safe_psql($db, "SELECT string_agg(task_id, ',' ORDER BY task_id) FROM durable.claim_results('{done}')"), 'done,unread',
		"$what: results that somebody had in hand are unread again");
	is($server->safe_psql($db, "SELECT status FROM durable.task_status('later')"), 'delayed', "$what: the delayed task is still delayed");
	is(substr($server->safe_psql($db, "SELECT durable.dispatch('q')"), 0, 1), '~', "$what: new ids do not collide");
	return;
}

my $dir = PostgreSQL::Test::Utils::tempdir();

sub dump_and_restore
{
	my ($server, $db, @options) = @_;
	$node->command_ok([ 'pg_dump', '-Fc', '-f', "$dir/$db.dump", '-d', $node->connstr('origin') ], "pg_dump for $db");
	$server->command_ok([ 'pg_restore', '--exit-on-error', @options, '-d', $server->connstr($db), "$dir/$db.dump" ], "pg_restore to $db");
	return;
}

# Another cluster.
my $other = durable_node('elsewhere', { start => 0 });
$other->start;
$other->safe_psql('postgres', 'CREATE DATABASE copy; CREATE ROLE worker LOGIN; CREATE ROLE stranger LOGIN');
dump_and_restore($other, 'copy');
check_copy($other, 'copy', 'restored in another cluster');
$other->stop;

# The same cluster, and another database of it as a template.
$node->safe_psql('postgres', 'CREATE DATABASE copy');
dump_and_restore($node, 'copy');
check_copy($node, 'copy', 'restored beside the original');
$node->safe_psql('postgres', 'CREATE DATABASE clone TEMPLATE origin');
check_copy($node, 'clone', 'cloned');
is($node->safe_psql('clone', "SELECT count(*) FROM durable.lease WHERE token = '$token'"), 0, 'cloned: the original\'s lease is gone');

# A clone of an activated clone is a copy again.
$node->safe_psql('postgres', 'CREATE DATABASE clone2 TEMPLATE clone');
is(sqlstate($node, "SELECT * FROM durable.claim('{q}')", { dbname => 'clone2' }), '55000', 'a clone of an activated clone is refused');

# The original has not noticed.
is($node->safe_psql('origin', "SELECT durable.renew('$token')"), 1, 'the original still holds its claim');
is($node->safe_psql('origin', "SELECT task_id FROM durable.claim('{q}')"), 'ready', 'and hands out its own work');

# Restored over itself: the leases are not part of the dump, so it is a copy too.
dump_and_restore($node, 'origin', '--clean', '--if-exists');
is(sqlstate($node, "SELECT * FROM durable.claim('{q}')", { dbname => 'origin' }), '55000',
	'restored over the original: refused');
is($node->safe_psql('origin', 'SELECT durable.activate()'), 2, 'activated: the claimed tasks go back');
is($node->safe_psql('origin', "SELECT task_id FROM durable.claim('{hand}')"), 'claimed', 'and are claimed');

# A session that was open meanwhile sees the activation at once.
my $session = DurableTest::Session->new($node, dbname => 'clone2');
$session->try("SELECT * FROM durable.claim('{q}')");
is($session->sqlstate, '55000', 'refused in an open session');
$node->safe_psql('clone2', 'SELECT durable.activate()');
is($session->query("SELECT count(*) > 0 FROM durable.claim('{q}', 10)"), 't', 'not any more when another one has activated it');
$session->quit;

# A copy whose activation is rolled back is still one.
$node->safe_psql('postgres', 'CREATE DATABASE clone3 TEMPLATE clone');
$session = DurableTest::Session->new($node, dbname => 'clone3');
is($session->query("BEGIN; SELECT durable.activate() >= 0; SELECT count(*) FROM durable.claim('{q}')"), "t\n1",
	'in the transaction that activates a copy, work is handed out');
$session->query('ROLLBACK');
$session->try("SELECT * FROM durable.claim('{q}')");
is($session->sqlstate, '55000', 'rolled back, it is a copy as before');
$session->quit;

$node->stop;
done_testing();
