# Background workers execute what many sessions start, while executors and the server
# are killed and workers are terminated, at random moments. At the end every run has
# ended, and every step's effect is there exactly once.

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $CRASHES = $ENV{DURABLE_CRASHES} || 6;
my $seed = $ENV{DURABLE_SEED} // time;
srand $seed;
note "DURABLE_SEED=$seed";

my $node = durable_node('crash', { background => 1 }, 'durable.max_reclaims = 1000000', 'durable.workers = 3');
$node->safe_psql('postgres', q{
	CREATE TABLE effect (run text, step text, n int);
	CREATE TABLE started (run text PRIMARY KEY);
	CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO effect VALUES (durable.run_id(), i ->> 'step', (i ->> 'n')::int);
		RETURN to_jsonb((i ->> 'n')::int + 1);
	END $$;
	CREATE FUNCTION job(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		n jsonb := '0';
		h int[] := '{}';
	BEGIN
		FOR k IN 1..3 LOOP
			n := durable.local_step('act', jsonb_build_object('step', 'first', 'n', n), 'first ' || k);
		END LOOP;
		FOR k IN 1..2 LOOP
			h := h || durable.step_async('inside', jsonb_build_object('step', 'inside', 'n', k));
		END LOOP;
		PERFORM durable.sleep('20 ms');
		PERFORM durable.await_all(h);
		RETURN durable.local_step('act', jsonb_build_object('step', 'last', 'n', n));
	END $$;
	SELECT durable.register_workflow('job', 'job'), durable.register_workflow('job', 'job', '2', atomic => true),
		durable.register_handler('inside', 'act');
});

my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/start.sql", q{
\set id random(1, 1000000000000)
\set version random(1, 2)
BEGIN;
INSERT INTO started SELECT durable.start('job', NULL, 'r' || :id, version => :version::text);
END;
});

sub start_load
{
	my $load = { out => '' };
	$load->{run} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-c', 3, '-T', 600, '--rate', 100, '--random-seed', int(rand 1e9),
			'-f', "$dir/start.sql", $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	return $load;
}

sub end_load
{
	my ($load) = @_;
	$load->{run}->kill_kill(grace => 1) if $load->{run}->pumpable;
	$load->{run}->finish;
	return join '; ', grep { /ERROR/ && !/terminating|server closed|connection/ } split /\n/, $load->{out};
}

my $done = 0;
my %how = (
	'kill -9 of an executor' => sub {
		my $pid = $node->safe_psql('postgres', q{SELECT pid FROM durable.workers() WHERE kind = 'executor' AND pid IS NOT NULL ORDER BY random() LIMIT 1});
		my $log = -s $node->logfile;
		return unless $pid && kill 'KILL', $pid;
		$node->wait_for_log(qr/all server processes terminated; reinitializing/, $log);
		server_is_back($node);
	},
	'kill -9 of the server' => sub { crash($node); $node->start; },
	'workers terminated' => sub {
		$node->safe_psql('postgres', q{
			SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'durable %' AND random() < 0.7});
	});
for my $crash (1 .. $CRASHES)
{
	my $kind = (sort keys %how)[ $crash % 3 ];
	my $load = start_load();
	my $goal = $done + 5 + int rand 60;
	ok($node->poll_query_until('postgres', "SELECT count(*) >= $goal FROM durable.run WHERE status = 'completed'"),
		"$crash, $kind: reached $goal completed runs");
	usleep(int rand 100_000);
	$how{$kind}->();
	is(end_load($load), '', "$crash, $kind: nothing failed before");
	$done = $node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE status = 'completed'});
	cmp_ok($done, '>=', $goal, "$crash, $kind: nothing that was committed is lost");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT run, step, n FROM effect GROUP BY 1, 2, 3 HAVING count(*) > 1) d'),
		0, "$crash, $kind: no effect is there twice");
}

ok($node->poll_query_until('postgres', 'SELECT NOT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL)'), 'every run ends')
	or note $node->safe_psql('postgres', q{
		SELECT run_id, status, turn_state, wake_at FROM durable.run WHERE finished_at IS NULL LIMIT 20; SELECT * FROM durable.workers()});
is($node->safe_psql('postgres', 'SELECT count(*) FROM started s FULL JOIN durable.run r ON s.run = r.run_id WHERE s.run IS NULL OR r.run_id IS NULL'),
	0, 'there is a run for each start that was committed, and no other');
is($node->safe_psql('postgres', q{SELECT count(*) FROM durable.run WHERE (status, output) IS DISTINCT FROM ('completed', '4'::jsonb)}),
	0, 'each has its right result');
is($node->safe_psql('postgres', q{
		SELECT step, n, count(*) = (SELECT count(*) FROM started), count(DISTINCT run) = count(*) FROM effect GROUP BY 1, 2 ORDER BY 1, 2}),
	join("\n", 'first|0|t|t', 'first|1|t|t', 'first|2|t|t', 'inside|1|t|t', 'inside|2|t|t', 'last|3|t|t'),
	'every effect of every run is there exactly once');
is($node->safe_psql('postgres', q{
		SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.task_delayed)}),
	'0|0|0', 'nothing is left over');
is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'tables and indexes are whole');
note $node->safe_psql('postgres', 'SELECT status, count(*) FROM durable.run GROUP BY 1');
unlike(PostgreSQL::Test::Utils::slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal (?!9)|snapshot .* still active|there is no transaction/, 'the log is clean');

$node->stop;
done_testing();
