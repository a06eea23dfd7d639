# Background workers: databases with the extension are found by themselves, and are
# left when they lose it. Commands on databases never fail because of the workers.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('discovery', { background => 1 }, 'max_worker_processes = 40');

my $setup = q{
	CREATE TABLE effect (run text);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id());
		PERFORM pg_sleep(coalesce((i ->> 'sleep')::int, 0));
		RETURN i;
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('act', i); END $$;
	SELECT durable.register_workflow('w', 'body')};

# The database's workers run what is started there.
sub runs
{
	my ($db, $run) = @_;
	$node->safe_psql($db, "SELECT durable.start('w', '{}', '$run')");
	return $node->poll_query_until($db, "SELECT status = 'completed' FROM durable.get_run('$run')");
}

sub workers
{
	my ($db) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'durable %'");
}

sub nobody_in
{
	my ($db) = @_;
	return $node->poll_query_until('postgres',
		"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = '$db' AND backend_type LIKE 'durable %')");
}

# A run in the middle of a step that takes for ever.
sub busy
{
	my ($db, $run) = @_;
	$node->safe_psql($db, "SELECT durable.start('w', '{\"sleep\": 1000}', '$run')");
	return $node->poll_query_until($db, "SELECT EXISTS (SELECT FROM durable.workers() WHERE run_id = '$run' AND step = 'act')");
}

$node->safe_psql('postgres', $setup);
ok(runs('postgres', 'first'), 'what is started runs by itself');
is($node->safe_psql('postgres', q{SELECT string_agg(kind || ' ' || coalesce(role::text, '-'), ', ' ORDER BY started_at) FROM durable.workers()}),
	'scheduler -, executor ' . $node->safe_psql('postgres', 'SELECT current_user::regrole'), 'by a scheduler and an executor');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'durable launcher' AND datid IS NULL}),
	1, 'and there is one launcher, in no database');

# several databases, without a restart
for my $db (qw(one two three))
{
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->safe_psql($db, "CREATE EXTENSION durable; $setup");
	ok(runs($db, 'first'), "$db: found");
}

# the extension comes with its commit, and not without
my $session = DurableTest::Session->new($node, dbname => 'postgres');
$node->safe_psql('postgres', 'CREATE DATABASE late');
my $late = DurableTest::Session->new($node, dbname => 'late');
$late->query("BEGIN; CREATE EXTENSION durable; $setup; SELECT durable.start('w', '{}', 'early'); ROLLBACK");
$late->query("BEGIN; CREATE EXTENSION durable; $setup; SELECT durable.start('w', '{}', 'early')");
is(workers('late'), 0, 'nobody comes before the commit');
$late->query('COMMIT');
$late->poll(q{SELECT status = 'completed' FROM durable.get_run('early')});
pass('what was started in the same transaction runs after its commit');
$late->quit;
$node->safe_psql('postgres', 'CREATE DATABASE prepared');
$node->safe_psql('prepared', "BEGIN; CREATE EXTENSION durable; $setup; SELECT durable.start('w', '{}', 'early'); PREPARE TRANSACTION 'late'");
is(workers('prepared'), 0, 'nobody comes when it is prepared');
$node->safe_psql('prepared', "COMMIT PREPARED 'late'");
ok($node->poll_query_until('prepared', q{SELECT status = 'completed' FROM durable.get_run('early')}), 'but when that is committed');

# a database that has it from the beginning: it is a copy, until somebody says
# otherwise
my $log = -s $node->logfile;
$node->safe_psql('postgres', 'CREATE DATABASE clone TEMPLATE one');
pass('a database is copied although workers are connected to it');
ok(runs('one', 'after the copy'), 'which come back');
ok($node->wait_for_log(qr/durable executes nothing in this database, because it is a copy/, $log), 'the copy says so');
ok(nobody_in('clone'), 'and nobody stays there');
$node->safe_psql('clone', q{SELECT durable.start('w', '{}', 'in the copy')});
is($node->safe_psql('clone', q{SELECT status FROM durable.get_run('in the copy')}), 'pending', 'nothing runs in it');
$node->safe_psql('clone', 'SELECT durable.activate()');
ok($node->poll_query_until('clone', q{SELECT status = 'completed' FROM durable.get_run('in the copy')}), 'but once it is activated');
my $said = () = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /because it is a copy/g;
is($said, 1, 'it was said once');

# commands that want the database for themselves, also in the middle of a step
for my $state ('idle', 'busy')
{
	my $start = sub { busy('two', "$_[0] $state") if $state eq 'busy' };
	$start->('copy');
	is(sqlstate($node, "CREATE DATABASE clone_$state TEMPLATE two"), '', "$state: CREATE DATABASE ... TEMPLATE");
	is($node->safe_psql('two', q{SELECT count(*) FROM durable.task WHERE reclaims > 0}), 0, "$state: nothing was counted");
	$start->('rename');
	is(sqlstate($node, 'ALTER DATABASE two RENAME TO zwei'), '', "$state: ALTER DATABASE ... RENAME");
	ok(runs('zwei', "renamed $state"), "$state: found under its new name");
	is(sqlstate($node, 'ALTER DATABASE zwei RENAME TO two'), '', "$state: and back");
	ok(runs('two', "renamed back $state"), "$state: found again");
	my $dir = $node->basedir . "/space_$state";
	mkdir $dir;
	$node->safe_psql('postgres', "CREATE TABLESPACE space_$state LOCATION '$dir'");
	$start->('move');
	is(sqlstate($node, "ALTER DATABASE two SET TABLESPACE space_$state"), '', "$state: ALTER DATABASE ... SET TABLESPACE");
	ok(runs('two', "moved $state"), "$state: found in its new place");
	is(sqlstate($node, "DROP DATABASE clone_$state"), '', "$state: DROP DATABASE of a copy");
}
is(sqlstate($node, 'DROP DATABASE two'), '', 'DROP DATABASE in the middle of steps');
ok(busy('three', 'b'), 'the next');
is(sqlstate($node, 'DROP DATABASE three WITH (FORCE)'), '', 'DROP DATABASE WITH (FORCE)');

# a rename that is rolled back
$session->query('BEGIN; ALTER DATABASE one RENAME TO uno; ROLLBACK');
ok(runs('one', 'not renamed'), 'a renaming that is rolled back');

# who may not, disturbs nobody
$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN CREATEDB');
ok(busy('one', 'undisturbed'), 'a step is under way');
for my $command ('DROP DATABASE one', 'ALTER DATABASE one RENAME TO uno', 'CREATE DATABASE mine TEMPLATE one')
{
	is(sqlstate($node, $command, { user => 'stranger' }), '42501', "$command is refused");
}
is(sqlstate($node, 'DROP EXTENSION durable', { user => 'stranger', dbname => 'one' }), '42501', 'DROP EXTENSION is refused');
is($node->safe_psql('one', q{SELECT count(*) FROM durable.workers() WHERE run_id = 'undisturbed' AND state = 'busy'}), 1,
	'and the step is still under way');

# DROP EXTENSION, in the middle of a step, rolled back and committed
my $one = DurableTest::Session->new($node, dbname => 'one');
$one->query('BEGIN; DROP EXTENSION durable CASCADE');
is(workers('one'), 0, 'DROP EXTENSION sends the workers away');
$one->query('ROLLBACK');
ok($node->poll_query_until('one', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE run_id = 'undisturbed' AND state = 'busy')}),
	'rolled back: they come back and go on');
is($node->safe_psql('one', q{SELECT max(reclaims) FROM durable.task}), 0, 'nothing was counted');
$one->query('DROP EXTENSION durable CASCADE');
ok(nobody_in('one'), 'committed: they are gone');
$one->query("DROP FUNCTION act, body; DROP TABLE effect; CREATE EXTENSION durable; $setup");
ok(runs('one', 'again'), 'created again: they are back');
$one->quit;

# no connections, templates
$node->safe_psql('postgres', 'ALTER DATABASE one ALLOW_CONNECTIONS false');
ok(nobody_in('one'), 'a database that allows no connections is left');
$node->safe_psql('postgres', 'ALTER DATABASE one ALLOW_CONNECTIONS true');
ok(runs('one', 'allowed again'), 'and found again');
$node->safe_psql('postgres', 'ALTER DATABASE one IS_TEMPLATE true');
ok(nobody_in('one'), 'a template is left');
$node->safe_psql('postgres', 'ALTER DATABASE one IS_TEMPLATE false');
ok(runs('one', 'no template'), 'and found again');

# all of them after a restart
$session->quit;
$node->restart;
for my $db (qw(postgres one late clone))
{
	ok(runs($db, 'after the restart'), "$db: found after a restart");
}
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|snapshot .* still active|WARNING:/, 'the log is clean');

$node->stop;
done_testing();
