# Scan hints must hide no row, whatever order things commit in: sessions dispatch,
# hold their transactions open, roll back, prepare, release, retry, promote, in few
# or many priorities and in thousands of queues, while others claim and a snapshot
# is pinned. Then whatever is left is found at once, and the checks of what stands before
# a hint have never found a row.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $ROUNDS = 3;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('races', {}, 'durable.max_reclaims = 1000000', 'max_prepared_transactions = 40');
$node->safe_psql('postgres', q{
	CREATE TABLE dispatched (task_id text);
	CREATE TABLE ledger (task_id text);
	CREATE SEQUENCE gid;
	-- claim from a queue, end what was claimed in one of several ways
	CREATE PROCEDURE work(queues text[], many int, fate int) LANGUAGE plpgsql AS $$
	DECLARE
		c record;
	BEGIN
		CREATE TEMP TABLE IF NOT EXISTS hand (task_id text, token uuid);
		TRUNCATE hand;
		INSERT INTO hand SELECT task_id, token FROM durable.claim(queues, many, '1 h');
		COMMIT;
		FOR c IN SELECT * FROM hand LOOP
			IF fate <= 6 THEN
				INSERT INTO ledger SELECT c.task_id WHERE durable.complete(c.task_id, c.token);
			ELSIF fate = 7 THEN
				PERFORM durable.release(c.token);
			ELSIF fate = 8 THEN
				PERFORM durable.fail(c.task_id, c.token, '{"message": "again"}');
			ELSE
				PERFORM durable.release(c.token, ARRAY[c.task_id]);
			END IF;
		END LOOP;
		COMMIT;
	END $$;
	-- a task that is being claimed in an open transaction is let be
	CREATE FUNCTION try_cancel(task_id text) RETURNS boolean LANGUAGE plpgsql
	SET lock_timeout = '100ms' AS $$
	BEGIN
		RETURN durable.cancel_task(task_id);
	EXCEPTION WHEN lock_not_available THEN
		RETURN false;
	END $$});

my %scripts = (
	'dispatch' => [ 8, q{
\set q random(1, 3)
\set p random(-1, 1)
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q' || :q, priority => :p, max_attempts => 1000000);
} ],
	'dispatch, many priorities' => [ 3, q{
\set p random(-30, 30)
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q4', priority => :p, max_attempts => 1000000);
} ],
	'work, many priorities' => [ 2, q{
\set many random(1, 4)
\set fate random(1, 9)
CALL work('{q4}', :many, :fate);
} ],
	'dispatch, hold, end' => [ 4, q{
\set q random(1, 3)
\set p random(-1, 1)
\set n random(1, 3)
\set ms random(0, 30)
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q' || :q, priority => :p, max_attempts => 1000000)
	FROM generate_series(1, :n);
SELECT pg_sleep(:ms * 0.001);
\if :n = 3
ROLLBACK;
\else
END;
\endif
} ],
	'dispatch many' => [ 1, q{
\set q random(1, 3)
INSERT INTO dispatched SELECT durable.dispatch_many('x', array_fill('1'::jsonb, '{40}'), queue => 'q' || :q, max_attempts => 1000000);
} ],
	'subtransactions' => [ 3, q{
\set q random(1, 3)
BEGIN;
SAVEPOINT a;
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q' || :q, max_attempts => 1000000);
ROLLBACK TO a;
SAVEPOINT b;
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q' || :q, max_attempts => 1000000);
RELEASE b;
SAVEPOINT c;
SELECT count(*) FROM durable.claim(ARRAY['q' || :q], 2, '1 h');
SELECT pg_sleep(0.002);
ROLLBACK TO c;
END;
} ],
	'prepare' => [ 2, q{
\set q random(1, 3)
\set p random(-1, 1)
\set n random(1, 3)
SELECT nextval('gid') AS gid \gset
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q' || :q, priority => :p, max_attempts => 1000000);
SELECT count(*) FROM durable.claim(ARRAY['q' || :q], 1, '1 h') WHERE :n = 2;
PREPARE TRANSACTION 'g:gid';
SELECT pg_sleep(0.01);
\if :n = 1
COMMIT PREPARED 'g:gid';
\else
ROLLBACK PREPARED 'g:gid';
\endif
} ],
	'delayed' => [ 2, q{
\set q random(1, 3)
\set ms random(0, 20)
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q' || :q, max_attempts => 1000000,
	run_at => durable.engine_now() + :ms * interval '1 ms');
} ],
	'claim, rolled back' => [ 2, q{
\set q random(1, 3)
BEGIN;
SELECT count(*) FROM durable.claim(ARRAY['q' || :q], 3, '1 h');
SELECT pg_sleep(0.003);
ROLLBACK;
} ],
	'claim under an old snapshot' => [ 2, q{
\set q random(1, 3)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM dispatched;
SELECT count(durable.release(token)) FROM durable.claim(ARRAY['q' || :q], 1, '1 h');
END;
} ],
	'work' => [ 8, q{
\set q random(1, 3)
\set many random(1, 3)
\set fate random(1, 9)
CALL work(ARRAY['q' || :q], :many, :fate);
} ],
	'work on all' => [ 3, q{
\set fate random(1, 9)
CALL work('{q1,q2,q3,q4}', 10, :fate);
} ],
	'many queues' => [ 6, q{
\set m random(1, 3000)
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'm' || :m, max_attempts => 1000000);
CALL work(ARRAY['m' || :m], 1, 1);
} ],
	'many queues, not claimed' => [ 1, q{
\set m random(1, 3000)
INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'm' || :m, max_attempts => 1000000);
} ],
	'cancel' => [ 1, q{
WITH gone AS (DELETE FROM dispatched WHERE ctid = (SELECT max(ctid) FROM dispatched) RETURNING task_id),
	tried AS (SELECT task_id, try_cancel(task_id) AS cancelled FROM gone)
INSERT INTO dispatched SELECT task_id FROM tried WHERE NOT cancelled;
} ]);

# pgbench's \if knows no comparison with a variable that is not set, and no "="
$_->[1] =~ s/\\if :n = (\d)/\\set yes (:n = $1)\n\\if :yes/g for values %scripts;
my @files = pgbench_scripts(\%scripts);

# More transactions that hold rows than a hint has room for holes, some prepared.
my $HOLDERS = 14;
my @holders = map { DurableTest::Session->new($node, name => "holder $_") } 1 .. $HOLDERS;
my $look = DurableTest::Session->new($node, name => 'look');

sub hold
{
	my ($n) = @_;
	my $holder = $holders[$n];
	my $q = 1 + int rand 1.5;
	my $p = int rand 1.5;
	$holder->query("BEGIN; INSERT INTO dispatched SELECT durable.dispatch('x', queue => 'q$q', priority => $p, max_attempts => 1000000) FROM generate_series(1, 3)");
	$holder->query("SELECT count(*) FROM durable.claim('{q$q}', 2, '1 h')") if $n % 2;
	$holder->query("PREPARE TRANSACTION 'holder $n'") if $n >= 10;
	return;
}

sub let_go
{
	my ($n) = @_;
	my $end = rand() < 0.3 ? 'ROLLBACK' : 'COMMIT';
	$holders[$n]->query($n >= 10 ? "$end PREPARED 'holder $n'" : $end);
	return;
}

# Everything that is ready, and that nobody is claiming, must come out now.
sub drain
{
	my ($what) = @_;
	my $free = 'SELECT count(*) FROM (SELECT FROM durable.task_ready FOR UPDATE SKIP LOCKED) r';
	my $ready = $look->query($free);
	my $got = 0;
	# more queues than one call may name
	my @queues = split /\n/, $look->query(
		q{SELECT array_agg(queue)::text FROM (SELECT DISTINCT queue FROM durable.task_ready) q GROUP BY abs(hashtext(queue)) % 40});
	for my $queues (@queues)
	{
		while ((my $n = $look->query("WITH c AS MATERIALIZED (SELECT task_id, token FROM durable.claim('$queues', 500, '1 h')), "
					. 'l AS (INSERT INTO ledger SELECT task_id FROM c WHERE durable.complete(task_id, token)) '
					. 'SELECT count(*) FROM c')) > 0)
		{
			$got += $n;
		}
	}
	cmp_ok($got, '>=', $ready, "$what: all $ready ready tasks were claimed");
	is($look->query($free), 0, "$what: none is left");
	is($look->query('SELECT rescued FROM durable.scan_hints()'), 0, "$what: no row was found behind a hint");
	return;
}

my $pin = DurableTest::Session->new($node, name => 'pin');
for my $round (1 .. $ROUNDS)
{
	$pin->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM durable.task') if $round > 1;
	hold($_) for 0 .. $HOLDERS - 1;
	my $before = $look->query('SELECT count(*) FROM ledger');
	my $out;
	my $load = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-c', 10, '-j', 2, '-t', 400, '--random-seed', int(rand 1e9),
			@files, $node->connstr('postgres') ], '<', \undef, '>&', \$out);
	# Some of those who hold their transactions let go in the middle, and hold others.
	for my $n (map { int rand $HOLDERS } 1 .. 12)
	{
		$before += 1 + int rand 200;
		wait_for(sub { $load->pump_nb; !$load->pumpable || $look->query("SELECT count(*) >= $before FROM ledger") eq 't' },
			'the load to get on');
		let_go($n);
		hold($n);
	}
	ok($load->finish, "round $round: the load ends well") or diag $out;
	drain("round $round");
	let_go($_) for 0 .. $HOLDERS - 1;
	drain("round $round, after the last ones let go");
	$pin->query('COMMIT') if $round > 1;
}

# Claims that nobody settles any more come back when they lapse, and delayed ones are due.
$look->query('SET durable.clock_offset = 7200');
wait_for(
	sub { $look->query('SELECT durable.sweep(10000)'); $look->query(q{
		SELECT NOT EXISTS (SELECT FROM durable.lease) AND NOT EXISTS (SELECT FROM durable.task_delayed)}) eq 't' },
	'all leases to lapse');
drain('after all leases');
is($look->query('SELECT count(*) FROM durable.task'), 0, 'no task is left');
is($look->query('SELECT count(*) - count(DISTINCT task_id) FROM ledger'), 0, 'none was settled twice');
is( $look->query(q{SELECT count(*) FROM dispatched d FULL JOIN ledger l USING (task_id)
		WHERE d.task_id IS NULL OR l.task_id IS NULL}),
	0, 'each one that was dispatched, and not cancelled, was settled');
# A batch that got its numbers before the hint moved past them: it waits for an id
# that another transaction has used, while newer tasks are claimed.
for my $left (0, 1)
{
	my ($first, $second) = @holders;
	my $batch = "batch$left";
	$first->query("BEGIN; SELECT durable.dispatch('x', queue => '$batch', task_id => '$batch m')");
	$second->send("SELECT count(*) FROM durable.dispatch_many('x', array_fill('1'::jsonb, '{5}'), queue => '$batch', "
			. "task_ids => '{$batch a,$batch b,$batch m,$batch x,$batch y}')");
	$look->poll("SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = " . $second->pid);
	$look->query("SELECT count(durable.dispatch('x', queue => '$batch', task_id => '$batch new ' || n)) FROM generate_series(1, 4) n");
	is($look->query("SELECT task_id FROM durable.claim('{$batch}')"), "$batch new $_", 'newer tasks are claimed') for 1 .. 4 - $left;
	is($look->query("CALL durable.wait_for_work('{$batch}', '0')"), $left ? 't' : 'f', 'all, or all but one') for 1 .. 2;
	$first->query('ROLLBACK');
	is($second->answer, 5, 'then the batch comes');
	is($look->query("SELECT string_agg(task_id, ',') FROM durable.claim('{$batch}', 10)"),
		join(',', map { "$batch $_" } qw(a b m x y), $left ? 'new 4' : ()), 'and all of it is found');
}

# Rows that an administrator puts back by hand are found too.
my $id = $look->query("SELECT durable.dispatch('hand', task_id => 'by hand')");
is($look->query("SELECT task_id FROM durable.claim('{hand}')"), $id, 'a queue is claimed empty');
is($look->query("SELECT count(*) FROM durable.claim('{hand}')"), 0, 'and looked at again');
my $put = q{WITH t AS (SELECT id, priority, namespace, queue FROM durable.task WHERE task_id = 'by hand')
	INSERT INTO durable.task_ready (id, priority, namespace, queue) SELECT id, priority, namespace, queue FROM t};
$holders[0]->query("BEGIN; $put");
is($look->query("SELECT count(*) FROM durable.claim('{hand}')"), 0, 'a row put back by hand is not seen before its commit');
$holders[0]->query('COMMIT');
is($look->query("SELECT task_id FROM durable.claim('{hand}')"), $id, 'but at once afterwards');
is($look->query('SELECT rescued FROM durable.scan_hints()'), 0, 'without being rescued');
note 'settled: ' . $look->query('SELECT count(*) FROM ledger') . ', checks: '
	. $look->query('SELECT checks FROM durable.scan_hints()');
$_->quit for @holders, $pin, $look;
is(damage($node), '', 'no damage');

$node->stop;
done_testing();
