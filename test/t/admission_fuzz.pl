# Runs of 50 singleton keys are started, cancelled, requeued, signalled and executed, by
# sessions and by clients with transactions that are held open or rolled back, while
# sessions and the server are killed. How many runs of a key are going on is observed
# from inside their steps; it never exceeds the limit. At the end every run has ended
# and no entry is left. Once with background workers, once without preload.
#
# DURABLE_ADMISSION_SECONDS says how long each takes (default 10).

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use DurableTest;

my $SECONDS = $ENV{DURABLE_ADMISSION_SECONDS} // 10;
my $seed = $ENV{DURABLE_SEED} // int time;
srand $seed;
note "DURABLE_SEED=$seed";

# "one" fails now and then, after it has left, and is requeued; "few" has a quota besides;
# "ext" is executed by clients and has a bound on its queue.
my $schema = q{
	CREATE TABLE inside (key text, run_id text PRIMARY KEY);
	CREATE TABLE violation (what text, key text, n int, at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE started (run_id text);
	CREATE SEQUENCE n;
	CREATE FUNCTION limit_of(key text) RETURNS int LANGUAGE sql IMMUTABLE AS $$
		SELECT CASE left(key, 1) WHEN 'o' THEN 1 WHEN 'f' THEN 3 ELSE 2 END $$;
	-- who has begun and not left; one that was cancelled in between is not there any more
	CREATE FUNCTION others(k text, r text) RETURNS bigint LANGUAGE sql AS $$
		SELECT count(*) FROM inside i JOIN durable.run u USING (run_id) WHERE i.key = k AND i.run_id <> r AND u.finished_at IS NULL $$;
	CREATE FUNCTION look(k text, r text, what text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF others(k, r) >= limit_of(k) THEN
			INSERT INTO violation SELECT what, k, others(k, r);
		END IF;
	END $$;
	CREATE FUNCTION enter(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO inside VALUES (i ->> 'k', i ->> 'r');
		PERFORM look(i ->> 'k', i ->> 'r', 'enter');
		RETURN NULL;
	END $$;
	CREATE FUNCTION stay(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM look(i ->> 'k', i ->> 'r', 'stay'), pg_sleep((i ->> 'ms')::float8 / 1000);
		PERFORM look(i ->> 'k', i ->> 'r', 'stayed');
		RETURN NULL;
	END $$;
	CREATE FUNCTION leave(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM look(i ->> 'k', i ->> 'r', 'leave');
		DELETE FROM inside WHERE run_id = i ->> 'r';
		RETURN NULL;
	END $$;
	CREATE FUNCTION maybe(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM look(i ->> 'k', i ->> 'r', 'after');
		IF i ->> 'k' LIKE 'o%' AND random() < 0.3 THEN
			RAISE EXCEPTION 'bad luck' USING ERRCODE = 'PX001';
		END IF;
		RETURN NULL;
	END $$;
	CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		j jsonb := i || jsonb_build_object('r', durable.run_id());
	BEGIN
		PERFORM durable.local_step('enter', j);
		IF (i ->> 'ms')::int % 3 = 0 THEN
			PERFORM durable.sleep('20 ms');
		ELSIF (i ->> 'ms')::int % 3 = 1 THEN
			BEGIN
				PERFORM durable.wait_for_signal('go:' || durable.run_id(), '50 ms');
			EXCEPTION WHEN SQLSTATE 'WF004' THEN
				NULL;
			END;
		END IF;
		PERFORM durable.local_step('stay', j), durable.local_step('leave', j), durable.local_step('maybe', j);
		RETURN i;
	END $$;
	SELECT durable.register_workflow('one', 'body', singleton_key => '$.k'),
		durable.register_workflow('few', 'body', singleton_key => '$.k', singleton_limit => 3, concurrency_key => '$.q', concurrency_limit => 40),
		durable.register_workflow('ext', singleton_key => '$.k', singleton_limit => 2, singleton_max_queued => 3);
	CREATE FUNCTION fuzz_start() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		n int := nextval('n');
		w text := (ARRAY['one', 'few', 'ext'])[1 + n % 3];
		k text := left(w, 1) || (random() * 16)::int;
	BEGIN
		INSERT INTO started SELECT durable.start(w, jsonb_build_object('k', k, 'ms', (random() * 5)::int, 'q', 'q' || n % 2), 'r' || n,
			priority => n % 2, start_at => CASE WHEN random() < 0.1 THEN durable.engine_now() + '50 ms'::interval END);
	EXCEPTION WHEN SQLSTATE 'WF010' OR SQLSTATE 'WF011' THEN
		NULL;
	END $$;
	CREATE FUNCTION some_run(state text) RETURNS text LANGUAGE sql AS $$
		SELECT run_id FROM durable.run WHERE id > (SELECT max(id) FROM durable.run) - 300 AND status = ANY (state::text[]) ORDER BY random() LIMIT 1 $$;
	-- A claim and what follows it are two transactions. Who was claimed has begun.
	CREATE TABLE claimed (task_id text, token uuid, run_id text, history_end int);
	CREATE FUNCTION fuzz_claim() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		t record;
	BEGIN
		FOR t IN SELECT * FROM durable.claim('{ext}', 1 + (random() * 3)::int, '1 s', history => 0)
		LOOP
			INSERT INTO inside VALUES (t.input #>> '{input,k}', t.run_id) ON CONFLICT DO NOTHING;
			PERFORM look(t.input #>> '{input,k}', t.run_id, 'external');
			INSERT INTO claimed VALUES (t.task_id, t.token, t.run_id, (t.input ->> 'history_end')::int);
		END LOOP;
	END $$;
	-- Whoever is neither ended nor cancelled comes again.
	CREATE FUNCTION fuzz_decide() RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		t claimed;
		luck float8 := random();
	BEGIN
		DELETE FROM claimed WHERE ctid = (SELECT min(ctid) FROM claimed) RETURNING * INTO t;
		IF luck < 0.6 THEN
			PERFORM durable.complete_turn(t.task_id, t.token, '{"status": "completed"}') WHERE t IS NOT NULL;
		ELSIF luck < 0.8 THEN
			PERFORM durable.complete_turn(t.task_id, t.token, jsonb_build_object('status', 'continue', 'commands',
				jsonb_build_array(jsonb_build_object('type', 'sleep', 'seq', t.history_end, 'ms', 20)))) WHERE t IS NOT NULL;
		ELSIF luck < 0.9 THEN
			PERFORM durable.release(t.token, ARRAY[t.task_id]) WHERE t IS NOT NULL;
		END IF;
	END $$;
	CREATE FUNCTION fuzz_again(how text, states text) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		r text := some_run(states);
	BEGIN
		IF r IS NULL THEN
			NULL;
		ELSIF how = 'retry' THEN
			PERFORM durable.retry(r);
		ELSE
			PERFORM durable.requeue(r);
		END IF;
	EXCEPTION WHEN SQLSTATE '55000' THEN
		NULL;		-- it has ended meanwhile
	END $$;
	-- what anybody can see at any time
	CREATE FUNCTION observe() RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO violation SELECT 'seen inside', i.key, count(*) FROM inside i JOIN durable.run u USING (run_id)
			WHERE u.finished_at IS NULL GROUP BY 2 HAVING count(*) > limit_of(i.key);
		INSERT INTO violation SELECT 'seen held', s.key, s.running FROM durable.singletons s WHERE s.running > limit_of(s.key);
		INSERT INTO violation SELECT 'queue', s.key, s.running + s.waiting + s.delayed FROM durable.singletons s
			WHERE s.workflow = 'ext' AND s.running + s.waiting + s.delayed > 5;
		INSERT INTO violation SELECT 'quota', q.key, count(*) FROM durable.quota q GROUP BY 2 HAVING count(*) > 40;
	END $$;
};

my %scripts = (
	'start' => [ 10, 'SELECT fuzz_start();' ],
	'start several' => [ 1, "BEGIN;\nSELECT fuzz_start();\nSELECT pg_sleep(0.02);\nEND;" ],
	'start and roll back' => [ 2, "BEGIN;\nSELECT fuzz_start();\nROLLBACK;" ],
	'signal' => [ 4, q{SELECT durable.signal('go:' || coalesce(some_run('{suspended}'), ''));} ],
	'cancel' => [ 1, q{SELECT durable.cancel(coalesce(some_run('{pending,running,suspended}'), ''));} ],
	'cancel and roll back' => [ 1, qq{BEGIN;\nSELECT durable.cancel(coalesce(some_run('{pending,running,suspended}'), ''));\nSELECT pg_sleep(0.01);\nROLLBACK;} ],
	'cancel in a long transaction' => [ 1, qq{BEGIN;\nSELECT durable.cancel(coalesce(some_run('{pending,suspended}'), ''));\nSELECT pg_sleep(0.05);\nEND;} ],
	'go on' => [ 2, q{SELECT fuzz_again('retry', '{failed}');} ],
	'requeue' => [ 1, q{SELECT fuzz_again('requeue', '{pending,suspended}');} ],
	'requeue and roll back' => [ 1, qq{BEGIN;\nSELECT fuzz_again('requeue', '{pending,suspended,failed}');\nROLLBACK;} ],
	'claim' => [ 8, 'SELECT fuzz_claim();' ],
	'claim and roll back' => [ 2, "BEGIN;\nSELECT fuzz_claim();\nROLLBACK;" ],
	'claim in a long transaction' => [ 1, "BEGIN;\nSELECT fuzz_claim();\nSELECT pg_sleep(0.05);\nEND;" ],
	'decide' => [ 16, 'SELECT fuzz_decide();' ],
	'decide and roll back' => [ 2, "BEGIN;\nSELECT fuzz_decide();\nROLLBACK;" ],
	'decide in a long transaction' => [ 1, "BEGIN;\nSELECT fuzz_decide();\nSELECT pg_sleep(0.05);\nEND;" ],
	'observe' => [ 3, 'SELECT observe();' ],
	'register' => [ 1, q{SELECT durable.register_workflow('one', 'body', singleton_key => '$.k', queue => NULL);} ],
);
my $work = q{CALL durable.work(duration => '1 s');};

my $dir = PostgreSQL::Test::Utils::tempdir();
my @files;
for my $name (sort keys %scripts)
{
	my ($weight, $text) = @{ $scripts{$name} };
	(my $file = "$dir/$name.sql") =~ s/[ ,]+/_/g;
	append_to_file($file, "$text\n");
	push @files, '-f', "$file\@$weight";
}
append_to_file("$dir/work.sql", "$work\n");

sub start_load
{
	my ($node, $clients, @what) = @_;
	my $load = { out => '' };
	$load->{run} = IPC::Run::start(
		[ $node->installed_command('pgbench'), '-n', '-c', $clients, '-j', 1, '-T', 1000, '--random-seed', int(rand 1e9),
			@what, $node->connstr('postgres') ],
		'<', \undef, '>&', \$load->{out});
	return $load;
}

sub end_load
{
	my ($load) = @_;
	eval { $load->{run}->kill_kill(grace => 1) };
	eval { $load->{run}->finish };
	return $load->{out};
}

# What went wrong, but for what a kill explains.
sub unexpected
{
	my ($out) = @_;
	return join "\n", grep {
		/(?:ERROR|PANIC):/ && !/terminating|server closed|connection/
	} split /\n/, $out;
}

# Work until the query says so.
sub drains
{
	my ($node, $done) = @_;
	my $session = DurableTest::Session->new($node, name => 'drain');
	my $drained = eval {
		wait_for(sub {
			$session->query("CALL durable.work(duration => '0')");
			$session->query('SELECT fuzz_claim()');
			$session->query('SELECT count(fuzz_decide()) FROM generate_series(1, 10)');
			return $session->query($done) eq 't';
		}, $done);
	};
	note $@ unless $drained;
	$session->quit;
	return $drained;
}

my $begin;
sub rounds
{
	my ($node, $title, $workers) = @_;
	my ($n, $errors, %kills) = (0, '', server => 0, session => 0);
	$begin = time;
	do
	{
		my @load = start_load($node, 8, @files);
		push @load, start_load($node, $workers, '-f', "$dir/work.sql") if $workers;
		usleep(1_000_000 + int rand 1_500_000);
		if ($n++ % 2)
		{
			my $pid = $node->safe_psql('postgres', q{
				SELECT pid FROM pg_stat_activity WHERE (application_name = 'pgbench' OR backend_type LIKE 'durable executor%') AND state <> 'idle'
				 ORDER BY random() LIMIT 1});
			kill 'KILL', $pid if $pid;
			wait_for(sub { !pid_state($pid) }, "session $pid to die") if $pid;
			$kills{session}++;
		}
		else
		{
			crash($node);
			$node->start;
			$kills{server}++;
		}
		$errors .= unexpected(end_load($_)) for @load;
		server_is_back($node) or die 'the server does not come back';
	} while (time - $begin < $SECONDS);
	note "$title: killed the server $kills{server} times, a session $kills{session} times";
	is($errors, '', "$title: no session met anything else");
	return;
}

sub check
{
	my ($node, $title) = @_;
	is($node->safe_psql('postgres', 'SELECT what, key, n FROM violation LIMIT 20'), '', "$title: never more than the limit");
	ok( drains($node, q{
			SELECT NOT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL)}),
		"$title: every run ends") or note $node->safe_psql('postgres', q{
			SELECT r.id, r.run_id, r.workflow, r.status, r.turn_state, r.wake_at, s.state, s.parked, s.key, (SELECT count(*) FROM durable.task_ready t WHERE t.id = r.id) AS ready,
				(SELECT count(*) FROM durable.task_delayed t WHERE t.id = r.id) AS delayed, (SELECT count(*) FROM durable.lease t WHERE r.id = ANY (t.ids)) AS leases
			  FROM durable.run r LEFT JOIN durable.singleton s ON s.run = r.id WHERE r.finished_at IS NULL LIMIT 40;
			SELECT * FROM durable.task WHERE kind = 'look' LIMIT 5;});
	is($node->safe_psql('postgres', 'SELECT count(*) FROM started s LEFT JOIN durable.run r USING (run_id) WHERE r.run_id IS NULL'), 0, "$title: nobody's start was lost");
	is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM durable.singleton), (SELECT count(*) FROM durable.quota)'), '0|0', "$title: no entry is left");
	ok( drains($node, q{
			SELECT (SELECT count(*) FROM durable.task) + (SELECT count(*) FROM durable.task_ready) + (SELECT count(*) FROM durable.task_delayed) = 0}),
		"$title: no task is left") or note $node->safe_psql('postgres', 'SELECT * FROM durable.task LIMIT 10');
	is($node->safe_psql('postgres', 'SELECT what, key, n FROM violation LIMIT 20'), '', "$title: never more than the limit, to the end");
	is($node->safe_psql('postgres', 'SELECT rescued FROM durable.scan_hints()'), 0, "$title: no row was found behind a hint");
	is(damage($node), '', "$title: no damage");
	note $node->safe_psql('postgres', 'SELECT workflow, status, count(*) FROM durable.run GROUP BY 1, 2 ORDER BY 1, 2');
	return;
}

for my $preload (1, 0)
{
	my $title = $preload ? 'background workers' : 'no preload';
	my $node = durable_node("admission$preload", { preload => $preload, background => $preload },
		'durable.max_reclaims = 1000000', 'durable.max_recovery_attempts = 1000000', 'fsync = off', $preload ? 'durable.workers = 4' : ());
	$node->safe_psql('postgres', $schema);
	rounds($node, $title, $preload ? 0 : 4);
	check($node, $title);
	$node->stop;
}

done_testing();
