# The server is killed again and again while sessions dispatch, claim, settle,
# release, fail and cancel tasks and fetch results, and the tables are vacuumed and
# reindexed. At the end every task is settled exactly once, and so is the row that
# its worker wrote in the settling transaction; every result is fetched once.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $CRASHES = 4;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('load', {}, 'durable.max_reclaims = 1000000');
$node->safe_psql('postgres', q{
	CREATE TABLE dispatched (task_id text, name text);
	CREATE TABLE ledger (task_id text, how text);
	CREATE TABLE fetched (task_id text, status text);
});

# In every script: a claim commits alone, with the session dead in between at
# times, and the settle shares its transaction with the ledger row.
my $claim_one = q{
SELECT count(*) > 0 AS found, coalesce(max(task_id), '') AS task_id,
	coalesce(max(token::text), '') AS token FROM durable.claim('{load,fetch}', 1, '1 h') \gset
};
my %scripts = (
	'dispatch' => [ 4, q{
\set priority random(0, 2)
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('load', '{"x": 1}', priority => :priority, max_attempts => 1000), 'load'
	FROM generate_series(1, 2);
INSERT INTO dispatched SELECT durable.dispatch('fetch', max_attempts => 1000), 'fetch';
END;
} ],
	'dispatch, rolled back' => [ 1, q{
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('load', priority => 1), 'load';
ROLLBACK;
} ],
	'dispatch by id' => [ 1, q{
\set id random(1, 1000000000)
INSERT INTO dispatched SELECT durable.dispatch('load', task_id => 'mine ' || :id, max_attempts => 1000), 'load';
} ],
	'dispatch for later' => [ 1, q{
\set ms random(0, 50)
INSERT INTO dispatched SELECT durable.dispatch('load', run_at => durable.engine_now() + :ms * interval '1 ms', max_attempts => 1000), 'load';
} ],
	'cancel' => [ 1, q{
WITH gone AS (DELETE FROM dispatched WHERE ctid = (SELECT max(ctid) FROM dispatched) AND name = 'load' RETURNING task_id),
	tried AS (SELECT task_id, durable.cancel_task(task_id) AS cancelled FROM gone)
INSERT INTO dispatched SELECT task_id, 'load' FROM tried WHERE NOT cancelled;
} ],
	'fetch results' => [ 2, q{
SELECT coalesce(array_agg(task_id)::text, '{}') AS ids, coalesce(max(token::text), '') AS token, count(*) > 0 AS found
	FROM durable.claim_results('{fetch}', 5, '1 h') \gset
\if :found
BEGIN;
INSERT INTO fetched SELECT id, 'completed' FROM unnest(:ids::text[]) id WHERE durable.ack_results(:token::uuid, ARRAY[id]) = 1;
END;
\endif
} ],
	'complete' => [ 8, $claim_one . q{
\if :found
BEGIN;
SELECT durable.complete(:task_id, :token::uuid) AS done \gset
\if :done
INSERT INTO ledger VALUES (:task_id, 'complete');
END;
\else
ROLLBACK;
\endif
\endif
} ],
	'complete, rolled back, then really' => [ 2, $claim_one . q{
\if :found
BEGIN;
INSERT INTO ledger VALUES (:task_id, 'rolled back');
SELECT durable.complete(:task_id, :token::uuid);
ROLLBACK;
INSERT INTO ledger SELECT :task_id, 'second try' WHERE durable.complete(:task_id, :token::uuid);
\endif
} ],
	'many' => [ 3, q{
SELECT coalesce(array_agg(task_id)::text, '{}') AS ids, coalesce(max(token::text), '') AS token, count(*) > 0 AS found
	FROM durable.claim('{load,fetch}', 7, '1 h') \gset
\if :found
INSERT INTO ledger SELECT durable.complete_many(:token::uuid, :ids::text[]), 'many';
\endif
} ],
	'release' => [ 1, $claim_one . q{
\if :found
SELECT durable.release(:token::uuid);
\endif
} ],
	'fail and retry' => [ 1, $claim_one . q{
\if :found
SELECT durable.fail(:task_id, :token::uuid, '{"message": "again"}');
\endif
} ],
	'settle and claim' => [ 3, $claim_one . q{
\if :found
BEGIN;
INSERT INTO ledger VALUES (:task_id, 'settle and claim');
SELECT coalesce(max(task_id), '') AS task_id, coalesce(max(token::text), '') AS token, count(*) > 0 AS found
	FROM durable.settle_and_claim(:task_id, :token::uuid, NULL, '{load,fetch}', 1, '1 h', strict => true) \gset
END;
\if :found
INSERT INTO ledger SELECT :task_id, 'after settle and claim' WHERE durable.complete(:task_id, :token::uuid);
\endif
\endif
} ],
	'wait and claim' => [ 1, q{
CALL durable.wait_and_claim('{load,fetch}', 3, '1 h', '5 ms') \gset
INSERT INTO ledger SELECT x ->> 'task_id', 'wait and claim' FROM jsonb_array_elements(nullif(:tasks, '')::jsonb) x
	WHERE durable.complete(x ->> 'task_id', (x ->> 'token')::uuid);
} ]);

my @files = pgbench_scripts(\%scripts);

sub start_load
{
	my $load = { out => '' };
	# A client ends at its first error, and the crash is to be the only one.
	$load->{run} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', 6, '-j', 2,
			'-T', 600, '--random-seed', int(rand 1e9), @files, $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	return $load;
}

my $ledger = 0;
for my $crash (1 .. $CRASHES)
{
	my $load = start_load();
	my $goal = $ledger + 100 + int rand 1500;
	ok( $node->poll_query_until('postgres',
			"SELECT count(*) >= $goal FROM ledger"),
		"crash $crash: reached $goal settled tasks");
	is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0,
		"crash $crash: no row was found behind a hint");
	my $upkeep = DurableTest::Session->new($node, name => 'upkeep');
	my @upkeep = map { ("VACUUM (FREEZE) durable.$_", "VACUUM FULL durable.$_", "REINDEX TABLE CONCURRENTLY durable.$_") }
		qw(task task_ready task_delayed lease task_result);
	for my $statement (map { splice @upkeep, int rand @upkeep, 1 } 1 .. 4)
	{
		is($upkeep->query($statement), '', "crash $crash: $statement");
	}
	usleep(int rand 100_000);
	crash($node);
	$upkeep->quit;
	$load->{run}->finish;
	is_undisturbed($load->{out}, "crash $crash: no client failed before");
	$node->start;
	$ledger = $node->safe_psql('postgres', 'SELECT count(*) FROM ledger');
	cmp_ok($ledger, '>=', $goal, "crash $crash: nothing that was committed is lost");
	is(damage($node), '', "crash $crash: no damage");
	is( $node->safe_psql('postgres', q{
			SELECT count(*) FROM ledger l FULL JOIN durable.task_result r USING (task_id)
			 WHERE 'completed' IS DISTINCT FROM r.status AND l.task_id NOT LIKE '~%'}),
		0, "crash $crash: settled by id exactly when the ledger says so");
}

# Claims that a crash left behind lapse an hour later; then everything drains.
my $in_hand = $node->safe_psql('postgres', 'SELECT count(*) FROM durable.lease');
note "$in_hand claim rounds were left behind";
$node->append_conf('postgresql.conf', 'durable.clock_offset = 7200');
$node->reload;
ok( $node->poll_query_until('postgres', q{
		WITH swept AS MATERIALIZED (SELECT durable.sweep(10000) AS s),
			taken AS MATERIALIZED (SELECT task_id, token FROM swept, durable.claim('{load,fetch}', 1000)),
			ended AS MATERIALIZED (
				INSERT INTO ledger SELECT task_id, 'drain' FROM taken WHERE durable.complete(task_id, token)
				RETURNING 1)
		SELECT (SELECT count(*) FROM ended) = 0 AND NOT EXISTS (SELECT FROM durable.task)}),
	'the rest drains');

# A round of many keeps its lease until that lapses.
$node->safe_psql('postgres', 'SET durable.clock_offset = 14400; SELECT durable.sweep()');

is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT task_id FROM ledger GROUP BY 1 HAVING count(*) > 1) d'),
	0, 'no task was settled twice');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FILTER (WHERE l.task_id IS NULL), count(*) FILTER (WHERE d.task_id IS NULL)
		  FROM (SELECT DISTINCT task_id FROM dispatched) d FULL JOIN ledger l USING (task_id)}),
	'0|0', 'every task that was dispatched was settled, and no other');
# The last results are fetched: those that sessions had in hand came back with their leases.
$node->safe_psql('postgres', q{
	INSERT INTO fetched SELECT task_id, status FROM durable.claim_results('{fetch}', 10000)
	 WHERE durable.ack_results(token, ARRAY[task_id]) = 1;
	SET durable.clock_offset = 20000;
	SELECT durable.sweep()});
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT task_id) FROM fetched'), 0, 'no result was fetched twice');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM fetched f FULL JOIN (SELECT task_id FROM dispatched WHERE name = 'fetch') d USING (task_id)
		 WHERE f.status IS NULL OR d.task_id IS NULL}),
	0, 'every result of its name was');
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM (SELECT coalesce(task_id, '~' || id) AS task_id, status FROM durable.task_result
			UNION ALL SELECT * FROM fetched) r
		  FULL JOIN ledger l USING (task_id)
		 WHERE (l.how IS NULL) <> (r.status = 'cancelled') OR r.status IS NULL OR r.status NOT IN ('completed', 'cancelled')}),
	0, 'the results say the same as the ledger');
is( $node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready),
			(SELECT count(*) FROM durable.task_delayed), (SELECT count(*) FROM durable.lease)}),
	'0|0|0|0', 'nothing is left over');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no damage');
note $node->safe_psql('postgres', 'SELECT how, count(*) FROM ledger GROUP BY 1 ORDER BY 1');

$node->stop;
done_testing();
