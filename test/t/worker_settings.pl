# Settings of the background workers, pausing them, and a server that has no room for
# them.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('settings', { background => 1 }, 'max_worker_processes = 12', 'durable.workers = 2');
$node->safe_psql('postgres', q{
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_advisory_xact_lock_shared(1);
		RETURN i;
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('act', i); END $$;
	SELECT durable.register_workflow('w', 'body')});

my $keeper = DurableTest::Session->new($node);
sub close_gate { $keeper->query('SELECT pg_advisory_lock(1)'); return; }
sub open_gate { $keeper->query('SELECT pg_advisory_unlock(1)'); return; }
my $runs = 0;
sub start
{
	my ($n) = @_;
	$node->safe_psql('postgres', "SELECT durable.start_many('w', array_fill('1'::jsonb, '{$n}'))");
	$runs += $n;
	return;
}
sub all_done { return $node->poll_query_until('postgres', "SELECT count(*) = $runs FROM durable.run WHERE status = 'completed'"); }
sub executors
{
	my ($n, $what) = @_;
	return ok($node->poll_query_until('postgres', "SELECT count(*) = $n FROM durable.workers() WHERE kind = 'executor' AND state = 'busy'"), $what);
}

# as many as there is work for, and no more than the setting
close_gate();
start(1);
executors(1, 'one for one');
start(5);
executors(2, 'two for six');
$node->safe_psql('postgres', 'ALTER SYSTEM SET durable.workers = 3');
$node->reload;
executors(3, 'a reload: three');
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.workers = 5');
executors(5, 'ALTER DATABASE: five');
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.workers = 1');
open_gate();
ok(all_done(), 'all runs end');
close_gate();
start(3);
executors(1, 'lowered: one');
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.workers = 0');
open_gate();
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'zero: none, what was begun is ended');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE status = 'pending'}), 2, 'the rest waits');
$node->safe_psql('postgres', q{SELECT durable.dispatch('outside', '1', task_id => 'later', run_at => clock_timestamp() + interval '300 ms')});
ok($node->poll_query_until('postgres', q{SELECT status = 'ready' FROM durable.task_status('later')}), 'time goes on without executors');
$node->safe_psql('postgres', q{CALL durable.work(duration => '0')});
ok(all_done(), 'and a session can execute');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET durable.workers');

# settings of somebody else disturb nobody, those of the owner are heard of
start(1);
ok(all_done(), 'there is an executor');
my $pids = $node->safe_psql('postgres', 'SELECT array_agg(pid) FROM durable.workers()');
my $there = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ('$pids')";
my $all = $node->safe_psql('postgres', $there);
$node->safe_psql('postgres', 'CREATE ROLE bystander');
$node->safe_psql('postgres', q{ALTER ROLE bystander SET work_mem = '5MB'; ALTER DATABASE template1 SET work_mem = '5MB'});
$node->safe_psql('postgres', 'ALTER ROLE bystander RESET ALL; DROP ROLE bystander; ALTER DATABASE template1 RESET work_mem');
start(1);
ok(all_done(), 'settings of another role and another database');
is($node->safe_psql('postgres', $there), $all, 'disturb nobody');
$node->safe_psql('postgres', q{ALTER ROLE ALL SET work_mem = '5MB'; ALTER ROLE ALL RESET work_mem});
ok($node->poll_query_until('postgres', "SELECT ($there) = 0"), 'with settings for all the workers leave');
start(1);
ok(all_done(), 'and others come');

# paused and resumed, as a transaction
my $session = DurableTest::Session->new($node);
$session->query('BEGIN; SELECT durable.pause()');
start(1);
ok(all_done(), 'a pause that is not committed does not count');
$session->query('ROLLBACK');
start(1);
ok(all_done(), 'nor does one that is rolled back');
close_gate();
start(4);
executors(3, 'three are busy');
is($node->safe_psql('postgres', 'SELECT durable.pause()'), 't', 'paused');
is($node->safe_psql('postgres', 'SELECT durable.pause()'), 'f', 'it was so already');
open_gate();
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'executors leave when they have ended what they had begun');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE status = 'pending'}), 1, 'the rest waits');
$node->restart;
$keeper = DurableTest::Session->new($node);
$session = DurableTest::Session->new($node);
$node->poll_query_until('postgres', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE kind = 'scheduler')});
start(1);
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE status = 'pending'}), 2, 'a pause outlasts a restart');
is($node->safe_psql('postgres', 'SELECT paused_by FROM durable.worker_pause'), $node->safe_psql('postgres', 'SELECT current_user'), 'it is known by whom');
$session->query('BEGIN; SELECT durable.resume(); ROLLBACK');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE status = 'pending'}), 2, 'a resume that is rolled back does not count');
is($node->safe_psql('postgres', 'SELECT durable.resume()'), 't', 'resumed');
is($node->safe_psql('postgres', 'SELECT durable.resume()'), 'f', 'it was so already');
ok(all_done(), 'the rest is done');

# off, and on for one database only
my $here = q{SELECT count(*) FROM pg_stat_activity WHERE datname IS NOT NULL AND backend_type LIKE 'durable %'};
$node->safe_psql('postgres', 'ALTER SYSTEM SET durable.workers = 0');
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'only the scheduler is there');
# it has just looked at everything, which it does every 30 s in any case
$node->safe_psql('postgres', q{SELECT durable.dispatch('outside', '1', task_id => 'soon', run_at => clock_timestamp() + interval '300 ms')});
ok($node->poll_query_until('postgres', q{SELECT status = 'ready' FROM durable.task_status('soon')}), 'it looks after time');
$node->safe_psql('postgres', $_) for 'ALTER SYSTEM SET durable.background = off', 'ALTER SYSTEM SET durable.workers = 3';
my $begin = time;
$node->reload;
ok($node->poll_query_until('postgres', "SELECT ($here) = 0"), 'off: nobody is there');
cmp_ok(time - $begin, '<', 25, 'at once');
start(1);
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.background = on');
ok(all_done(), 'on for one database: it goes on');
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET durable.background = off; ALTER SYSTEM RESET durable.background');
$node->reload;
ok($node->poll_query_until('postgres', "SELECT ($here) = 0"), 'off for one database');
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET durable.background');
start(1);
ok(all_done(), 'and on again');

# idle ones leave, or stay
$node->safe_psql('postgres', q{ALTER SYSTEM SET durable.worker_idle_timeout = '100 ms'});
$node->reload;
ok($node->poll_query_until('postgres', q{SELECT NOT EXISTS (SELECT FROM durable.workers() WHERE kind = 'executor')}), 'idle executors leave');
for (1 .. 10)
{
	start(1);
	ok(all_done(), "and come back ($_)");
	$node->safe_psql('postgres', 'SELECT pg_sleep(0.09)');
}
$node->safe_psql('postgres', q{ALTER SYSTEM SET durable.worker_idle_timeout = -1});
$node->reload;

# no room: one warning, and it goes on by itself
$node->append_conf('postgresql.conf', 'max_worker_processes = 4');
my $log = -s $node->logfile;
$node->restart;
$keeper = DurableTest::Session->new($node);
close_gate();
start(4);
executors(1, 'with room for one executor there is one');
ok($node->wait_for_log(qr/WARNING:  durable cannot start a background worker: all of them are in use\n.*DETAIL.*\n.*HINT:  Increase max_worker_processes/, $log), 'a warning says why');
$node->safe_psql('postgres', 'CREATE DATABASE crowded');
$node->safe_psql('crowded', 'CREATE EXTENSION durable');
$node->safe_psql('postgres', 'SELECT pg_sleep(6)');
my $warned = () = PostgreSQL::Test::Utils::slurp_file($node->logfile, $log) =~ /all of them are in use/g;
cmp_ok($warned, '<=', 2, 'once by each who noticed it');
open_gate();
ok(all_done(), 'the work is done all the same');
$node->safe_psql('postgres', q{ALTER SYSTEM SET durable.worker_idle_timeout = '100 ms'});
$node->reload;
ok($node->poll_query_until('crowded', q{SELECT EXISTS (SELECT FROM durable.workers() WHERE kind = 'scheduler')}), 'where there was no room somebody comes when there is');

# without preload the functions are there and say what there is
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.workers()'), 0, 'without preload there are no workers');
is($node->safe_psql('postgres', 'SELECT durable.pause(), durable.resume()'), 't|t', 'and pausing them is no error');
start(1);
$node->safe_psql('postgres', q{CALL durable.work(duration => '0')});
ok(all_done(), 'a session executes');

unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|snapshot .* still active|there is no transaction/, 'the log is clean');
$node->stop;
done_testing();
