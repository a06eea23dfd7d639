# The extension is dropped and made again while other sessions have used it, wait
# in it or hold its locks; databases that have it are dropped.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('lifecycle');
my $admin = DurableTest::Session->new($node, name => 'admin');
my $cycle = q{
	SELECT durable.dispatch('q', '{"n": 1}', task_id => 'mine') AS id \gset
	SELECT task_id, token FROM durable.claim('{q}') \gset
	SELECT durable.complete(:'task_id', :'token', '2') AS done \gset
	SELECT :'id', :'task_id', :'done', status FROM durable.task_status('mine')};

# Every session has plans, OIDs and rights of the old extension cached.
$admin->query('CREATE ROLE worker LOGIN');
$admin->query("SELECT durable.grant_usage('worker')");
my $user = DurableTest::Session->new($node, name => 'user', user => 'worker');
my $super = DurableTest::Session->new($node, name => 'super');
for my $session ($user, $super)
{
	$session->query("SET durable.namespace = 'super'") if $session == $super;
	is($session->query($cycle), 'mine|mine|t|completed', 'a task is dispatched, claimed and settled');
}
$super->query("SELECT durable.pause_queue('q')");

$admin->query('DROP EXTENSION durable');
for my $call ("durable.dispatch('q')", "durable.claim('{q}')", "durable.complete('~1', gen_random_uuid())")
{
	$super->try("SELECT $call");
	is($super->sqlstate, '3F000', "after DROP EXTENSION: $call is not there");
}
$admin->query('CREATE EXTENSION durable');
is($super->query($cycle), 'mine|mine|t|completed', 'made again: a session that used the old one uses the new one');
$user->try($cycle);
is($user->sqlstate, '42501', 'what the old one had granted is gone');
$admin->query("SELECT durable.grant_usage('worker')");
is($user->query($cycle), 'mine|mine|t|completed', 'and works once it is granted again');

# Dropped in one transaction with its successor; taken back.
$admin->query('BEGIN; DROP EXTENSION durable; CREATE EXTENSION durable; ROLLBACK');
is($super->query("SELECT durable.dispatch('q', task_id => 'mine')"), 'mine', 'a drop that is rolled back');
is($super->query("SELECT status FROM durable.task_status('mine')"), 'completed', 'leaves all as it was');
$admin->query('BEGIN; DROP EXTENSION durable; CREATE EXTENSION durable; COMMIT');
is($super->query($cycle), 'mine|mine|t|completed', 'a drop and a new one in one transaction');

# In the session that drops.
$admin->query("BEGIN; SELECT durable.dispatch('q'); SELECT count(*) FROM durable.claim('{q}')");
$admin->query('DROP EXTENSION durable; CREATE EXTENSION durable; COMMIT');
is($admin->query($cycle), 'mine|mine|t|completed', 'the session that dropped it goes on with the new one');

# A waiter is in nobody's way.
my @waiters = map { DurableTest::Session->new($node, name => "waiter $_") } 1 .. 2;
my $asleep = q{SELECT count(*) = 2 FROM pg_stat_activity
	WHERE wait_event IN ('Extension', 'DurableWaitForWork') AND application_name LIKE 'waiter%'};
$_->send("CALL durable.wait_for_work('{w}', '1 h')") for @waiters;
$admin->poll($asleep);
$admin->query('DROP EXTENSION durable');
for my $waiter (@waiters)
{
	$waiter->answer;
	is($waiter->sqlstate, '55000', 'a waiter whose extension is dropped gets an error');
	is($waiter->query('SELECT 1'), 1, 'and its session lives');
}
$admin->query('CREATE EXTENSION durable');
$_->send("CALL durable.wait_for_work('{w}', '1 h')") for @waiters;
$admin->poll($asleep);
$admin->query('BEGIN; DROP EXTENSION durable; CREATE EXTENSION durable; COMMIT');
$admin->query("SELECT durable.dispatch('w')");
is($_->answer . $_->error, 't', 'a waiter that slept through a drop and a new one finds the new work') for @waiters;

# Who comes to a table that is being replaced waits for its lock, and then goes on with the successor.
$_->query("SET durable.poll_interval = '10ms'") for @waiters;
$_->send("CALL durable.wait_for_work('{v}', '1 h')") for @waiters;
$admin->query('BEGIN; DROP EXTENSION durable; CREATE EXTENSION durable');
my %late = (
	"SELECT durable.dispatch('x', task_id => 'late')" => 'late',
	"SELECT count(*) FROM durable.claim('{y}')" => 0,
	"SELECT durable.complete('~1', gen_random_uuid())" => 'f',
	"SELECT durable.cancel_task('~1')" => 'f',
	"SELECT durable.heartbeat('~1', gen_random_uuid())" => 'f',
	"SELECT durable.renew(gen_random_uuid())" => 0,
	"SELECT count(*) FROM durable.claim_results('{y}')" => 0);
my %session = map { $_ => DurableTest::Session->new($node, name => 'late') } keys %late;
$session{$_}->send($_) for keys %late;
$super->poll('SELECT count(*) = ' . (@waiters + keys %late) . q{ FROM pg_stat_activity
	WHERE wait_event_type = 'Lock' AND (application_name LIKE 'waiter%' OR application_name = 'late')});
$admin->query('COMMIT');
for my $call (sort keys %late)
{
	is($session{$call}->answer . $session{$call}->error, $late{$call}, "while the extension is replaced: $call");
	$session{$call}->quit;
}
$admin->query("SELECT durable.dispatch('v')");
is($_->answer . $_->error, 't', 'a waiter that looked while the extension was replaced finds the new work') for @waiters;

# Who holds a claim in an open transaction is waited for, and nothing deadlocks.
$super->query("BEGIN; SELECT durable.dispatch('q'); SELECT count(*) FROM durable.claim('{w}')");
$admin->send('DROP EXTENSION durable');
$waiters[0]->poll("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $admin->pid);
$super->query('COMMIT');
$admin->answer;
is($admin->error, '', 'DROP EXTENSION waits for a transaction that uses it');
$_->quit for $super, $user, @waiters, $admin;

# Databases.
$node->safe_psql('postgres', "CREATE DATABASE other$_") for 1 .. 2;
for my $db ('other1', 'other2')
{
	is($node->safe_psql($db, "CREATE EXTENSION durable; $cycle"), 'mine|mine|t|completed', "a task in $db");
}
$node->safe_psql('postgres', 'DROP DATABASE other1');
is($node->safe_psql('other2', "SELECT status FROM durable.task_status('mine')"), 'completed',
	'a database that was used is dropped; the other one has its tasks');
my $waiter = DurableTest::Session->new($node, dbname => 'other2', name => 'waiter 1');
$waiter->send("CALL durable.wait_for_work('{w}', '1 h')");
my $look = DurableTest::Session->new($node);
$look->poll($asleep =~ s/= 2/= 1/r);
$look->query('DROP DATABASE other2 WITH (FORCE)');
$waiter->answer;
is($waiter->sqlstate, '57P01', 'a waiter does not survive DROP DATABASE ... FORCE');
$waiter->quit;

# The same name again is another database.
$look->query('CREATE DATABASE other2');
is($node->safe_psql('other2', "CREATE EXTENSION durable; $cycle"), 'mine|mine|t|completed',
	'a new database of that name starts empty');
$look->query('CREATE DATABASE other3');
$node->safe_psql('other3', "CREATE EXTENSION durable; SELECT durable.dispatch('q', task_id => 'mine')");
$look->query('ALTER DATABASE other3 RENAME TO other4');
is($node->safe_psql('other4', "SELECT task_id FROM durable.claim('{q}')"), 'mine',
	'a database that is renamed is still the same');
is($look->query('CREATE EXTENSION durable; SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
$look->quit;

$node->stop;
done_testing();
