# Sessions dispatch, claim, settle, fail, release and roll back tasks under a limiter of 50
# keys, and the server is killed, as a whole or one of its sessions. Each step tries to
# take a lock for each of the slots there are: if all are taken, one too many was let in.
# At the end everything is settled, once, and no slot is left.
#
# DURABLE_LIMITER_ROUNDS makes it longer: rounds, each with a crash.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $ROUNDS = $ENV{DURABLE_LIMITER_ROUNDS} // 2;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('limiter_load', {}, 'durable.max_reclaims = 1000000');
$node->safe_psql('postgres', q{
	CREATE TABLE dispatched (task_id text);
	CREATE TABLE ledger (task_id text, how text);
	CREATE TABLE violation (task_id text, what text);
});
# One lock of the six, and one of the two of its key.
$node->safe_psql('postgres', q{
	CREATE FUNCTION enter(id text) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		k text := (SELECT limiter_key FROM durable.task WHERE task.id = substr(enter.id, 2)::bigint);
		free boolean;
	BEGIN
		FOR g IN 1 .. 6 LOOP
			free := pg_try_advisory_lock(1, g);
			EXIT WHEN free;
		END LOOP;
		IF NOT free THEN
			INSERT INTO violation VALUES (id, 'more than six');
		END IF;
		FOR g IN 1 .. 2 LOOP
			free := pg_try_advisory_lock(1000 + substr(k, 2)::int, g);
			EXIT WHEN free;
		END LOOP;
		IF NOT free THEN
			INSERT INTO violation VALUES (id, 'more than two of ' || k);
		END IF;
	END $$;
});

my $claim_one = q{
SELECT count(*) > 0 AS found, coalesce(max(task_id), '') AS task_id,
	coalesce(max(token::text), '') AS token FROM durable.claim('{q1,q2}', 1, '1 h') \gset
\if :found
SELECT enter(:task_id);
};
my %scripts = (
	'dispatch' => [ 8, q{
\set k random_zipfian(1, 50, 1.2)
\set p random(0, 2)
\set q random(1, 2)
INSERT INTO dispatched SELECT durable.dispatch('t', queue => 'q' || :q, priority => :p, limiter => 'lim',
	fairness_key => 'k' || :k, max_attempts => 1000000, backoff => '5 ms');
} ],
	'dispatch, rolled back' => [ 1, q{
\set k random(1, 50)
BEGIN;
SELECT durable.dispatch('t', queue => 'q1', limiter => 'lim', fairness_key => 'k' || :k);
\sleep 3 ms
ROLLBACK;
} ],
	'dispatch several, held open' => [ 1, q{
\set k random(1, 50)
\set ms random(0, 20)
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('t', queue => 'q1', limiter => 'lim', fairness_key => 'k' || (:k + i) % 50,
	max_attempts => 1000000) FROM generate_series(1, 3) i;
\sleep :ms ms
END;
} ],
	'dispatch for later' => [ 1, q{
\set k random(1, 50)
\set ms random(0, 30)
INSERT INTO dispatched SELECT durable.dispatch('t', queue => 'q2', limiter => 'lim', fairness_key => 'k' || :k,
	max_attempts => 1000000, run_at => durable.engine_now() + :ms * interval '1 ms');
} ],
	# a cancelled step may go on for a while: these are not watched
	'cancel' => [ 1, q{
SELECT durable.dispatch('u', limiter => 'other', queue => 'q3') AS task_id \gset
SELECT durable.cancel_task(:task_id);
} ],
	'cancel what is claimed' => [ 1, q{
SELECT durable.dispatch('u', limiter => 'other', queue => 'q3');
SELECT durable.cancel_task(task_id) FROM durable.claim('{q3}', 1, '1 h');
} ],
	'complete' => [ 10, $claim_one . q{
\sleep 1 ms
SELECT pg_advisory_unlock_all();
INSERT INTO ledger SELECT :task_id, 'complete' WHERE durable.complete(:task_id, :token::uuid);
\endif
} ],
	'complete, rolled back, then really' => [ 1, $claim_one . q{
BEGIN;
SELECT durable.complete(:task_id, :token::uuid);
\sleep 2 ms
ROLLBACK;
SELECT pg_advisory_unlock_all();
INSERT INTO ledger SELECT :task_id, 'second try' WHERE durable.complete(:task_id, :token::uuid);
\endif
} ],
	'claim, rolled back' => [ 1, q{
BEGIN;
SELECT count(*) FROM durable.claim('{q1,q2}', 3, '1 h');
\sleep 1 ms
ROLLBACK;
} ],
	'release' => [ 1, $claim_one . q{
SELECT pg_advisory_unlock_all();
SELECT durable.release(:token::uuid);
\endif
} ],
	'fail and retry' => [ 1, $claim_one . q{
SELECT pg_advisory_unlock_all();
SELECT durable.fail(:task_id, :token::uuid, '{"message": "again"}');
\endif
} ],
	'settle and claim' => [ 3, $claim_one . q{
SELECT pg_advisory_unlock_all();
BEGIN;
INSERT INTO ledger VALUES (:task_id, 'settle and claim');
SELECT coalesce(max(task_id), '') AS task_id, coalesce(max(token::text), '') AS token, count(*) > 0 AS found
	FROM durable.settle_and_claim(:task_id, :token::uuid, NULL, '{q1,q2}', 1, '1 h', strict => true) \gset
END;
\if :found
SELECT enter(:task_id);
SELECT pg_advisory_unlock_all();
INSERT INTO ledger SELECT :task_id, 'after settle and claim' WHERE durable.complete(:task_id, :token::uuid);
\endif
\endif
} ],
	'many' => [ 2, q{
SELECT coalesce(array_agg(task_id)::text, '{}') AS ids, coalesce(max(token::text), '') AS token, count(*) > 0 AS found
	FROM durable.claim('{q1,q2}', 4, '1 h') \gset
\if :found
SELECT enter(id) FROM unnest(:ids::text[]) id;
SELECT pg_advisory_unlock_all();
INSERT INTO ledger SELECT durable.complete_many(:token::uuid, :ids::text[]), 'many';
\endif
} ]);

my @files = pgbench_scripts(\%scripts);

# Every order.
my @orders = (
	q{fairness => 'key'}, q{ordering => 'lifo'}, q{fairness => 'fifo'},
	q{fairness => 'key', ordering => 'lifo'});
my $ledger = 0;
for my $round (1 .. $ROUNDS)
{
	$node->safe_psql('postgres', "SELECT durable.register_limiter('lim', concurrency => 6, key_concurrency => 2, $orders[$round % 4]),
		durable.register_limiter('other', concurrency => 2)");
	my $load = { out => '' };
	$load->{run} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', 8, '-j', 2,
			'-T', 600, '--random-seed', int(rand 1e9), @files, $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	my $goal = $ledger + 200 + int rand 400;
	ok($node->poll_query_until('postgres', "SELECT count(*) >= $goal FROM ledger"), "round $round: reached $goal settled tasks");
	is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, "round $round: no row was found behind a hint");
	if ($round % 2)
	{
		crash($node);
		$load->{run}->finish;
		$node->start;
	}
	else
	{
		my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1");
		kill 'KILL', $pid;
		$load->{run}->finish;
		server_is_back($node);
	}
	is_undisturbed($load->{out}, "round $round: no client failed before");
	is($node->safe_psql('postgres', q{SELECT coalesce(string_agg(what, ', '), '') FROM violation}), '', "round $round: never too many");
	is($node->safe_psql('postgres', q{
			SELECT (SELECT count(*) FROM durable.limiter_slot WHERE limiter = l.id) = s.running - (SELECT count(*) FROM durable.limiter_freed WHERE limiter = l.id)
			  FROM durable.limiter l JOIN durable.limiter_state s ON s.limiter = l.id WHERE l.name = 'lim'}), 't', "round $round: what is counted is what is held");
	# nobody is alive who holds a claim
	$node->safe_psql('postgres', q{SET durable.clock_offset = 7200; SELECT durable.sweep(10000)});
	is($node->safe_psql('postgres', 'SELECT count(*) FROM durable.limiter_slot'), 0, "round $round: what the dead held is free");
	$ledger = $node->safe_psql('postgres', 'SELECT count(*) FROM ledger');
}

ok( $node->poll_query_until('postgres', q{
		WITH swept AS MATERIALIZED (SELECT durable.sweep(10000) AS s),
			taken AS MATERIALIZED (SELECT task_id, token FROM swept, durable.claim('{q1,q2,q3}', 1000)),
			ended AS MATERIALIZED (
				INSERT INTO ledger SELECT task_id, 'drain' FROM taken WHERE durable.complete(task_id, token)
				RETURNING 1)
		SELECT (SELECT count(*) FROM ended) = 0 AND NOT EXISTS (SELECT FROM durable.task)}),
	'the rest drains');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT task_id) FROM ledger'), 0, 'no task was settled twice');
is( $node->safe_psql('postgres', q{SELECT count(*) FROM dispatched LEFT JOIN ledger l USING (task_id) WHERE l.task_id IS NULL}),
	0, 'every task that was dispatched was settled');
is( $node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM durable.limiter_slot), (SELECT count(*) FROM durable.task_limited), (SELECT count(*) FROM durable.limiter_blocked)}),
	'0|0|0', 'nothing holds a slot or waits');
is($node->safe_psql('postgres', q{SELECT coalesce(string_agg(what, ', '), '') FROM violation}), '', 'never too many');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no damage');

$node->stop;
done_testing();
