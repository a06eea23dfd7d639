# An executor is one session for many runs. None of them finds what another one has left
# in it, and nobody outside waits for what one of them has locked.

use strict;
use warnings;

use Test::More;

use DurableTest;

my $node = durable_node('session', { background => 1 }, 'durable.workers = 1', 'durable.worker_idle_timeout = -1');
$node->safe_psql('postgres', q{
	CREATE SEQUENCE numbers;
	CREATE TABLE patience (ms int);
	INSERT INTO patience VALUES (0);
	CREATE FUNCTION leaves(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		CREATE TEMP TABLE things (n int);
		CREATE FUNCTION pg_temp.trap() RETURNS int LANGUAGE sql AS 'SELECT 1';
		PREPARE prepared AS SELECT 1;
		EXECUTE 'DECLARE held CURSOR WITH HOLD FOR SELECT 1';
		SET work_mem = '77MB';
		PERFORM pg_advisory_lock(7) FROM patience WHERE ms >= 0;
		PERFORM nextval('numbers'), pg_sleep(ms / 1000.0) FROM patience;
		RETURN to_jsonb(pg_backend_pid());
	END $$;
	CREATE FUNCTION finds(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		last text;
	BEGIN
		BEGIN
			last := currval('numbers');
		EXCEPTION WHEN object_not_in_prerequisite_state THEN
			last := 'none';
		END;
		RETURN jsonb_build_array(pg_backend_pid(), to_regclass('pg_temp.things'), to_regprocedure('pg_temp.trap()'),
			(SELECT count(*) FROM pg_prepared_statements), (SELECT count(*) FROM pg_cursors), current_setting('work_mem') = '77MB',
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' AND objid = 7), last);
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step(i #>> '{}'); END $$;
	SELECT durable.register_workflow('w', 'body')});

sub result
{
	my ($run) = @_;
	$node->poll_query_until('postgres', "SELECT finished_at IS NOT NULL FROM durable.get_run('$run')") or die;
	return $node->safe_psql('postgres', "SELECT durable.result('$run')");
}
sub start { return $node->safe_psql('postgres', qq{SELECT durable.start('w', '"$_[1]"', '$_[0]')}); }

start('first', 'leaves');
my $pid = result('first');
for my $run ('second', 'third')
{
	start($run, 'finds');
	is(result($run), "[$pid, null, null, 0, 0, false, 0, \"none\"]", "$run: another run in the same session finds nothing");
}
start('fourth', 'leaves');
is(result('fourth'), $pid, 'what the first one has made can be made again');

# cancelled in the middle: the lock is not the transaction's
$node->safe_psql('postgres', 'UPDATE patience SET ms = 1000000');
start('cancelled', 'leaves');
my $lock = "FROM pg_locks WHERE pid = $pid AND locktype = 'advisory' AND objid = 7";
ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT $lock)"), 'a step holds a lock of its session');
$node->safe_psql('postgres', q{UPDATE patience SET ms = 0; SELECT durable.cancel('cancelled')});
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT $lock)"), 'its run is cancelled: the lock is gone');
$node->safe_psql('postgres', 'UPDATE patience SET ms = 1000000');
start('again', 'leaves');
ok($node->poll_query_until('postgres', "SELECT EXISTS (SELECT $lock)"), 'a step holds it again');
$node->safe_psql('postgres', 'UPDATE patience SET ms = -1');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
ok($node->poll_query_until('postgres', "SELECT NOT EXISTS (SELECT $lock)"), 'its session is cancelled: the lock is gone');
is(result('again'), $pid, 'the run ends');

$node->stop;
done_testing();
