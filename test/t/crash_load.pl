# The server is killed again and again while sessions dispatch, claim, settle,
# release and fail tasks. At the end every task is settled exactly once, and so
# is the row that its worker wrote in the settling transaction.

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
	CREATE TABLE dispatched (task_id text);
	CREATE TABLE ledger (task_id text, how text);
});

# In every script: a claim commits alone, with the session dead in between at
# times, and the settle shares its transaction with the ledger row.
my $claim_one = q{
SELECT count(*) > 0 AS found, coalesce(max(task_id), '') AS task_id,
	coalesce(max(token::text), '') AS token FROM durable.claim('{load}', 1, '1 h') \gset
};
my %scripts = (
	'dispatch' => [ 4, q{
\set priority random(0, 2)
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('load', '{"x": 1}', priority => :priority, max_attempts => 1000)
	FROM generate_series(1, 3);
END;
} ],
	'dispatch, rolled back' => [ 1, q{
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('load', priority => 1);
ROLLBACK;
} ],
	'dispatch by id' => [ 1, q{
\set id random(1, 1000000000)
BEGIN;
INSERT INTO dispatched SELECT durable.dispatch('load', task_id => 'mine ' || :id, max_attempts => 1000);
END;
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
	FROM durable.claim('{load}', 7, '1 h') \gset
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
	FROM durable.settle_and_claim(:task_id, :token::uuid, NULL, '{load}', 1, '1 h', strict => true) \gset
END;
\if :found
INSERT INTO ledger SELECT :task_id, 'after settle and claim' WHERE durable.complete(:task_id, :token::uuid);
\endif
\endif
} ],
	'wait and claim' => [ 1, q{
CALL durable.wait_and_claim('{load}', 3, '1 h', '5 ms') \gset
INSERT INTO ledger SELECT x ->> 'task_id', 'wait and claim' FROM jsonb_array_elements(nullif(:tasks, '')::jsonb) x
	WHERE durable.complete(x ->> 'task_id', (x ->> 'token')::uuid);
} ]);

my $dir = PostgreSQL::Test::Utils::tempdir();
my @files;
for my $name (sort keys %scripts)
{
	my ($weight, $text) = @{ $scripts{$name} };
	(my $file = "$dir/$name.sql") =~ s/[ ,]+/_/g;
	append_to_file($file, $text);
	push @files, '-f', "$file\@$weight";
}

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
	usleep(int rand 100_000);
	crash($node);
	$load->{run}->finish;
	my @unexpected = grep { /ERROR/ && !/terminating|server closed|connection/ } split /\n/, $load->{out};
	is("@unexpected", '', "crash $crash: no client failed before");
	$node->start;
	$ledger = $node->safe_psql('postgres', 'SELECT count(*) FROM ledger');
	cmp_ok($ledger, '>=', $goal, "crash $crash: nothing that was committed is lost");
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
			taken AS MATERIALIZED (SELECT task_id, token FROM swept, durable.claim('{load}', 1000)),
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
is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM durable.task_result r
		  FULL JOIN ledger l ON l.task_id = coalesce(r.task_id, '~' || r.id)
		 WHERE r.id IS NULL OR l.task_id IS NULL OR r.status <> 'completed'}),
	0, 'the results say the same as the ledger');
is( $node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready),
			(SELECT count(*) FROM durable.task_delayed), (SELECT count(*) FROM durable.lease)}),
	'0|0|0|0', 'nothing is left over');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
note $node->safe_psql('postgres', 'SELECT how, count(*) FROM ledger GROUP BY 1 ORDER BY 1');

$node->stop;
done_testing();
