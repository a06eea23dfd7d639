# Tasks are dispatched anew under their ids, one by one and in batches, held open and
# rolled back, while others claim them, settle them in every way, let claims lapse,
# cancel, and rewrite the tables. Each request has a number that grows with its id. No
# request is executed after a newer one, none twice, never half of one and half of another,
# and the last one that was committed is executed.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

use DurableTest;

my $ROUNDS = 2;
my $KEYS = 12;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('conflict', {}, 'durable.max_reclaims = 1000000');
$node->safe_psql('postgres', qq{
	CREATE FUNCTION rnd(a int, b int) RETURNS int RETURN a + floor(random() * (b - a + 1))::int;
	CREATE TABLE asked (key int PRIMARY KEY, n int NOT NULL DEFAULT 0);
	INSERT INTO asked SELECT generate_series(0, $KEYS - 1);
	CREATE TABLE ledger (at bigserial, key int, n int, half boolean);
	-- The newest request of each key. Those of one key come one after the other, as their
	-- numbers do; those of different keys as they like.
	CREATE PROCEDURE ask(first int, many int, policy int, fate int) LANGUAGE plpgsql AS \$\$
	DECLARE
		ids text[];
		inputs jsonb[];
		delay interval := CASE WHEN policy >= 2 THEN make_interval(secs => 0.001 * rnd(0, 20)) END;
	BEGIN
		PERFORM FROM asked WHERE key BETWEEN first AND first + many - 1 ORDER BY key FOR UPDATE;
		UPDATE asked SET n = n + 1 WHERE key BETWEEN first AND first + many - 1;
		SELECT array_agg('k' || key ORDER BY key DESC), array_agg(jsonb_build_object('key', key, 'n', n) ORDER BY key DESC)
		  INTO ids, inputs FROM asked WHERE key BETWEEN first AND first + many - 1;
		IF many = 1 THEN
			PERFORM durable.dispatch('x', inputs[1], ids[1], queue => 'q' || rnd(1, 2), priority => rnd(0, 1), max_attempts => 1000000,
				headers => inputs[1], on_conflict => CASE policy WHEN 0 THEN 'replace' WHEN 1 THEN 'replace_keep_time' WHEN 2 THEN 'debounce' ELSE 'throttle' END,
				debounce => CASE policy WHEN 2 THEN delay + '1 ms' END, debounce_max => CASE policy WHEN 2 THEN delay + '10 ms' END,
				throttle => CASE policy WHEN 3 THEN delay + '1 ms' END);
		ELSE
			PERFORM durable.dispatch_many('x', inputs, task_ids => ids, queue => 'q' || rnd(1, 2), max_attempts => 1000000, on_conflict => 'replace');
		END IF;
		IF fate >= 2 THEN
			PERFORM pg_sleep(0.001 * rnd(0, 5));
		END IF;
		IF fate = 3 THEN
			ROLLBACK;
		END IF;
	END \$\$;
	CREATE PROCEDURE work(many int, fate int) LANGUAGE plpgsql AS \$\$
	DECLARE
		c record;
	BEGIN
		CREATE TEMP TABLE IF NOT EXISTS hand (task_id text, token uuid, input jsonb, headers jsonb);
		TRUNCATE hand;
		INSERT INTO hand SELECT task_id, token, input, headers FROM durable.claim('{q1,q2}', many, '1 h');
		IF fate = 1 THEN
			ROLLBACK;
			RETURN;
		END IF;
		IF fate <> 2 THEN
			COMMIT;
		END IF;
		PERFORM pg_sleep(0.001 * rnd(0, 3));
		FOR c IN SELECT * FROM hand LOOP
			IF fate <= 6 THEN
				INSERT INTO ledger (key, n, half)
				SELECT (c.input ->> 'key')::int, (c.input ->> 'n')::int, c.headers <> c.input WHERE durable.complete(c.task_id, c.token);
			ELSIF fate = 7 THEN
				PERFORM durable.release(c.token);
			ELSIF fate = 8 THEN
				PERFORM durable.fail(c.task_id, c.token, '{"message": "again"}');
			ELSIF fate = 9 THEN
				PERFORM durable.renew(c.token, '1 ms');
			END IF;
		END LOOP;
	END \$\$;
});

my %scripts = (
	'ask' => [ 6, qq{
\\set key random(0, $KEYS - 1)
\\set policy random(0, 3)
\\set fate random(0, 3)
CALL ask(:key, 1, :policy, :fate);
} ],
	'ask for many' => [ 2, qq{
\\set key random(0, $KEYS - 4)
\\set many random(2, 4)
\\set fate random(0, 3)
CALL ask(:key, :many, 0, :fate);
} ],
	'work' => [ 8, q{
\set many random(1, 3)
\set fate random(1, 9)
CALL work(:many, :fate);
} ],
	# under the same id, not numbered: only for being there
	'others' => [ 2, q{
\set id random(1, 5)
SELECT durable.dispatch('y', task_id => 'other ' || :id, on_conflict => 'replace');
} ],
	'work for others' => [ 1, q{
SELECT count(*) FROM durable.claim('{y}') c WHERE durable.complete(c.task_id, c.token);
} ],
	'cancel others' => [ 1, q{
\set id random(1, 5)
SELECT durable.cancel_task('other ' || :id);
} ],
	'sweep' => [ 1, 'SELECT durable.sweep(20);' ],
);
my @files;
for my $name (sort keys %scripts)
{
	my $file = "$PostgreSQL::Test::Utils::tmp_check/" . ($name =~ tr/ /_/r) . '.pgb';
	append_to_file($file, $scripts{$name}[1]);
	push @files, '-f', "$file\@$scripts{$name}[0]";
}

my $look = DurableTest::Session->new($node, name => 'look');
$look->query("SET deadlock_timeout = '10ms'");
for my $round (1 .. $ROUNDS)
{
	my $out;
	my $load = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-c', 8, '-j', 2, '-t', 300, '--random-seed', int(rand 1e9),
			@files, $node->connstr('postgres') ], '<', \undef, '>&', \$out);
	my $rewritten = 0;
	while ($load->pumpable)
	{
		$load->pump_nb;
		# it is the victim of any deadlock
		$look->try('VACUUM FULL durable.' . (qw(task task_ready task_delayed lease task_result))[ int rand 5 ]);
		$rewritten++ if $look->error !~ /ERROR/;
		$look->query('SELECT pg_sleep(0.05)');
	}
	ok($load->finish, "round $round: the load ends well") or diag $out;
	cmp_ok($rewritten, '>', 0, 'the tables were rewritten meanwhile');
}

# Claims that nobody settles any more come back when they lapse.
$look->query('SET durable.clock_offset = 7200');
wait_for(
	sub {
		$look->query('SELECT durable.sweep(10000)');
		$look->query(q{WITH c AS MATERIALIZED (SELECT task_id, token, input, headers FROM durable.claim('{q1,q2,y}', 100, '1 h'))
			INSERT INTO ledger (key, n, half) SELECT (input ->> 'key')::int, (input ->> 'n')::int, headers <> input
			  FROM c WHERE durable.complete(task_id, token)});
		$look->query('SELECT NOT EXISTS (SELECT FROM durable.task)') eq 't';
	},
	'all to be executed');
is($look->query('SELECT count(*) FROM durable.task_ready') + $look->query('SELECT count(*) FROM durable.task_delayed'), 0, 'nothing is listed without a task');
is($look->query('SELECT count(*) > 300 FROM asked, generate_series(1, n)'), 't', 'there were many requests');
is($look->query('SELECT string_agg(format($$%s: %s asked, %s done$$, key, a.n, done), $$, $$)
	FROM asked a LEFT JOIN (SELECT key, max(n) AS done FROM ledger GROUP BY key) l USING (key) WHERE a.n <> coalesce(done, 0)') // '', '',
	'the last request of each id was executed');
is($look->query('SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY key ORDER BY at) AS before FROM ledger WHERE key IS NOT NULL) l WHERE n <= before'),
	0, 'none twice, and none after a newer one');
is($look->query('SELECT count(*) FROM ledger WHERE half'), 0, 'none half');
is($look->query('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
$look->quit;
done_testing();
