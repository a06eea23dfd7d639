# Background workers and roles: each role's work is executed by processes that are
# connected as that role. A role that nobody can be connected as holds up no other.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('roles', { background => 1 }, 'max_worker_processes = 20', 'log_connections = off');
my $any_role = $node->safe_psql('postgres', 'SHOW server_version_num') >= 170000;

$node->safe_psql('postgres', q{
	CREATE TABLE effect (run text, session name, now name, extra text);
	CREATE SCHEMA work;
	GRANT USAGE, CREATE ON SCHEMA work TO PUBLIC;
	GRANT INSERT ON effect TO PUBLIC;
	ALTER DATABASE postgres SET durable.worker_idle_timeout = '200 ms'});

# A role with a workflow of its own; its name is the workflow's.
sub owner
{
	my ($role, $how) = @_;
	$node->safe_psql('postgres', "CREATE ROLE $role $how");
	$node->safe_psql('postgres', qq{
		SELECT durable.grant_usage('$role', privileges => '{start,work,read}');
		SET SESSION AUTHORIZATION $role;
		CREATE FUNCTION work.act_$role(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN
			PERFORM pg_sleep((i ->> 'sleep')::float);
			INSERT INTO effect VALUES (durable.run_id(), session_user, current_user, current_setting('work_mem'));
			IF i ? 'escape' THEN
				EXECUTE 'RESET ROLE';
				EXECUTE 'SET SESSION AUTHORIZATION DEFAULT';
				INSERT INTO effect VALUES (durable.run_id() || ' escaped', session_user, current_user);
			END IF;
			RETURN i;
		END \$\$;
		CREATE FUNCTION work.body_$role(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
		BEGIN RETURN durable.local_step('work.act_$role', i); END \$\$;
		SELECT durable.register_workflow('$role', 'work.body_$role')});
	return;
}

sub start { $node->safe_psql('postgres', "SELECT durable.start('$_[0]', '$_[2]', '$_[1]')"); return; }
sub done { return $node->poll_query_until('postgres', "SELECT status = 'completed' FROM durable.get_run('$_[0]')"); }
sub warned
{
	my ($from, $pattern) = @_;
	return scalar(() = PostgreSQL::Test::Utils::slurp_file($node->logfile, $from) =~ /$pattern/g);
}

# two owners
owner('ada', 'LOGIN');
owner('bob', 'LOGIN');
start('ada', 'a', '{"escape": 1}');
start('bob', 'b', '{"escape": 1}');
ok(done('a') && done('b'), 'the work of two roles is executed');
is($node->safe_psql('postgres', 'SELECT run, session, now FROM effect ORDER BY 1'),
	"a|ada|ada\na escaped|ada|ada\nb|bob|bob\nb escaped|bob|bob", 'each as its owner, and nobody can become anyone else');

# what the role or the database sets applies
$node->safe_psql('postgres', q{ALTER ROLE ada SET work_mem = '77 MB'});
start('ada', 'after set', '{}');
ok(done('after set'), 'a setting of the role was changed');
is($node->safe_psql('postgres', q{SELECT extra FROM effect WHERE run = 'after set'}), '77MB', 'and holds at once');
$node->safe_psql('postgres', q{ALTER ROLE ada IN DATABASE postgres SET work_mem = '78 MB'});
start('ada', 'in database', '{}');
ok(done('in database'), 'in this database');
is($node->safe_psql('postgres', q{SELECT extra FROM effect WHERE run = 'in database'}), '78MB', 'which goes first');
$node->safe_psql('postgres', q{
	ALTER DATABASE postgres SET default_transaction_read_only = on;
	ALTER ROLE ada SET default_transaction_isolation = 'serializable'});
$node->safe_psql('postgres', q{SET default_transaction_read_only = off; SELECT durable.start('ada', '{}', 'hardened')});
ok(done('hardened'), 'settings that would be in the way do not count');
$node->safe_psql('postgres', q{SET default_transaction_read_only = off; ALTER DATABASE postgres RESET default_transaction_read_only});

# idle ones leave
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'idle executors leave');

# A role that cannot be used: one warning, nobody else is held up, and it goes on
# by itself.
sub blocked
{
	my ($what, $role, $pattern, $cure, $hint) = @_;
	my $log = -s $node->logfile;
	start($role, "$what blocked", '{}');
	ok($node->wait_for_log($pattern, $log), "$what: a warning says so");
	start('bob', "$what not blocked", '{}');
	ok(done("$what not blocked"), "$what: others go on");
	start($role, "$what blocked too", '{}');
	$node->safe_psql('postgres', 'SELECT pg_sleep(2.5)');
	is(warned($log, qr/cannot execute the work of role/), 1, "$what: there is one warning, in several attempts");
	is(warned($log, qr/FATAL/), 0, "$what: and no other noise");
	is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT status, ',') FROM durable.run WHERE run_id LIKE '$what blocked%'"),
		'pending', "$what: its work waits");
	$node->safe_psql('postgres', $cure);
	ok(done("$what blocked") && done("$what blocked too"), "$what: and is done when it can be");
	return;
}

SKIP:
{
	skip 'from PostgreSQL 17 on, roles that may not log in can be used', 6 if $any_role;
	owner('eve', 'NOLOGIN');
	blocked('no login', 'eve', qr/WARNING:  durable cannot execute the work of role "eve"\n.*DETAIL:  The role is not permitted to log in.*\n.*HINT:  ALTER ROLE/,
		'ALTER ROLE eve LOGIN');
}
$node->safe_psql('postgres', 'REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO bob');
blocked('no connect', 'ada', qr/WARNING:  durable cannot execute the work of role "ada"\n.*DETAIL:  The role does not have the CONNECT privilege/,
	'GRANT CONNECT ON DATABASE postgres TO PUBLIC');

# a role that is gone
owner('zoe', 'LOGIN');
start('zoe', 'z', '{"sleep": 1000}');
ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE run_id = 'z' AND state = 'busy')}), 'a step of zoe is under way');
my $log = -s $node->logfile;
$node->safe_psql('postgres', q{SELECT durable.revoke_usage('zoe'); DROP OWNED BY zoe; DROP ROLE zoe});
my $pid = $node->safe_psql('postgres', q{SELECT pid FROM durable.workers() WHERE run_id = 'z'});
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") if $pid ne '';
ok($node->wait_for_log(qr/WARNING:  durable cannot execute the work of role "\d+"\n.*DETAIL:  The role does not exist any more/, $log),
	'a dropped role: a warning says so');
start('bob', 'not held up', '{}');
ok(done('not held up'), 'others go on');
is($node->safe_psql('postgres', q{SELECT status FROM durable.get_run('z')}), 'pending', 'its work waits');
is($node->safe_psql('postgres', q{SELECT durable.cancel('z')}), 'cancelled', 'and can be cancelled');

# more roles than executors: all have their turn, also beside endless work
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.workers = 1');
owner("many_$_", 'LOGIN') for 1 .. 3;
$node->safe_psql('postgres', q{SELECT durable.start_many('bob', array_fill('{"sleep": 0.05}'::jsonb, '{2000}'))});
for my $i (1 .. 3)
{
	start("many_$i", "turn $i", '{}');
}
ok(done("turn $_"), "many_$_ has its turn beside the endless work of bob") for 1 .. 3;
is($node->safe_psql('postgres', q{SELECT count(*) > 0 FROM durable.run WHERE workflow = 'bob' AND status = 'pending'}), 't', 'which is not done yet');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM durable.workers() WHERE kind = 'executor' AND state <> 'leaving'}), '<=', 1, 'there is one executor at most');
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET durable.workers = 3; SELECT count(durable.cancel(run_id)) FROM durable.run WHERE workflow = 'bob' AND status = 'pending'});

# what the view shows to whom
owner('far', 'LOGIN');
$node->safe_psql('postgres', q{CREATE ROLE nobody LOGIN; CREATE ROLE elsewhere LOGIN; SELECT durable.grant_usage('elsewhere', 'other', '{read}')});
start('far', 'seen', '{"sleep": 1000}');
ok($node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE run_id = 'seen')}), 'a step is under way');
my $look = q{SELECT role, state, namespace, run_id, step FROM durable.workers() WHERE role = 'far'::regrole};
is($node->safe_psql('postgres', "SET ROLE ada; $look"), 'far|busy|default|seen|work.act_far', 'who may read sees what it does');
is($node->safe_psql('postgres', "SET ROLE elsewhere; $look"), 'far|busy|||', 'who may read elsewhere sees that it is busy');
is(sqlstate($node, $look, { user => 'nobody' }), '42501', 'who may not read sees nothing');
for my $function ('pause', 'resume')
{
	is(sqlstate($node, "SELECT durable.$function()", { user => 'ada' }), '42501', "$function() is for the owner");
}
$node->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION durable.pause, durable.resume TO ada');
is($node->safe_psql('postgres', 'SET ROLE ada; SELECT durable.pause(), durable.pause(), durable.resume(), durable.resume()'), 't|f|t|f', 'or whom it was granted to');

unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|snapshot .* still active/, 'the log is clean');
$node->stop;
done_testing();
