# Sessions that exchange at random: decisions with all kinds of commands, results with and without
# the decision that follows, failures, claims of some queues and of so many tasks, what is handed
# back, forgotten, beaten for or taken back with its transaction. Others cancel, requeue, pause, sweep,
# redispatch, and kill the server. All the time, in whatever is committed, each task stands in exactly
# one place: in a list, behind the bound of its fan, parked, or held by one claim. At the end each
# run has ended, and nothing is left.

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(usleep);

use DurableTest;

my $WORKERS = 5;
my $CALLS = $ENV{DURABLE_CALLS} // 600;    # for each kill
my $LIVE = 40;
my $node = durable_node('fuzz', {}, 'deadlock_timeout = 100ms', 'durable.max_reclaims = 1000000', 'durable.max_recovery_attempts = 1000000');

sub sql { return $node->safe_psql('postgres', $_[0]); }

$node->safe_psql('postgres', <<'SQL');
CREATE ROLE fuzz_role LOGIN;
SELECT durable.grant_usage('fuzz_role', 'default', '{work,start,read}');
CREATE SCHEMA fuzz;
GRANT ALL ON SCHEMA fuzz TO fuzz_role;
SELECT durable.register_workflow('w');
SELECT durable.register_workflow('k', turn_silence => '400 ms', singleton_key => '$.s', singleton_limit => 2);
SELECT durable.register_limiter('one', concurrency => 1), durable.register_limiter('two', concurrency => 2);
CREATE TABLE fuzz.stop (now boolean);
CREATE SEQUENCE fuzz.calls;
CREATE SEQUENCE fuzz.looks;
GRANT ALL ON SEQUENCE fuzz.calls TO fuzz_role;
GRANT ALL ON fuzz.stop TO fuzz_role;
CREATE TABLE fuzz.err (at timestamptz DEFAULT clock_timestamp(), who int, state text, message text, item jsonb);
CREATE TABLE fuzz.seen (what text, n int DEFAULT 1);
CREATE TABLE fuzz.bad (at timestamptz DEFAULT clock_timestamp(), what text, id bigint, run_id text, detail text);
GRANT ALL ON fuzz.err, fuzz.seen TO fuzz_role;

-- each task and in how many places it stands
CREATE VIEW fuzz.places AS
WITH held AS (
	SELECT t.id, count(*) AS n FROM durable.lease l CROSS JOIN LATERAL unnest(l.ids) u (id) JOIN durable.task t ON t.id = u.id
	 WHERE l.kind = 'task' AND l.id > COALESCE(t.last_lease, 0) GROUP BY 1)
SELECT t.id, t.kind, t.run_id, t.seq, t.queue, r.status AS run_status, r.turn_state, c.status AS step_status, r.finished_at,
	(SELECT count(*) FROM durable.task_ready x WHERE x.id = t.id) AS ready,
	(SELECT count(*) FROM durable.task_delayed x WHERE x.id = t.id) AS delayed,
	(SELECT count(*) FROM durable.task_limited x WHERE x.id = t.id) AS limited,
	COALESCE(h.n, 0) AS held,
	CASE WHEN t.kind = 'step' AND t.seq BETWEEN r.fan_next AND r.fan_last THEN 1 ELSE 0 END AS windowed,
	CASE WHEN t.kind = 'turn' AND r.turn_state = 'parked' THEN 1 ELSE 0 END AS parked,
	CASE WHEN t.kind = 'turn' AND EXISTS (SELECT FROM durable.singleton s WHERE s.run = r.id AND s.parked) THEN 1 ELSE 0 END AS waits
  FROM durable.task t LEFT JOIN held h USING (id) LEFT JOIN durable.run r ON r.run_id = t.run_id
  LEFT JOIN durable.checkpoint c ON c.run = r.id AND c.seq = t.seq
 WHERE t.kind IN ('step', 'turn');
CREATE VIEW fuzz.wrong AS
SELECT 'places' AS what, id, run_id, to_jsonb(p)::text AS detail FROM fuzz.places p
 WHERE ready + delayed + limited + held + windowed + parked + waits <> 1
UNION ALL SELECT 'task of an ended run', id, run_id, to_jsonb(p)::text FROM fuzz.places p WHERE finished_at IS NOT NULL AND run_status <> 'completed' OR run_status IS NULL
UNION ALL SELECT 'task of an ended step', id, run_id, to_jsonb(p)::text FROM fuzz.places p WHERE kind = 'step' AND step_status IS DISTINCT FROM 'pending'
UNION ALL SELECT 'pending step without task', c.task, r.run_id, to_jsonb(c)::text FROM durable.checkpoint c JOIN durable.run r ON r.id = c.run
 WHERE c.kind = 'step' AND c.status = 'pending' AND r.finished_at IS NULL AND c.task IS NOT NULL AND NOT EXISTS (SELECT FROM durable.task t WHERE t.id = c.task)
UNION ALL SELECT 'live run without turn', r.id, r.run_id, r.turn_state FROM durable.run r WHERE finished_at IS NULL AND NOT EXISTS (SELECT FROM durable.task t WHERE t.id = r.id)
UNION ALL SELECT 'entry without task', x.id, NULL, x.t FROM (SELECT id, 'ready' t FROM durable.task_ready UNION ALL SELECT id, 'delayed' FROM durable.task_delayed UNION ALL SELECT id, 'limited' FROM durable.task_limited) x
 WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = x.id)
UNION ALL SELECT 'slot of nobody', s.id, t.run_id, 's' FROM durable.limiter_slot s LEFT JOIN durable.task t USING (id)
 WHERE t.id IS NULL OR NOT EXISTS (SELECT FROM durable.lease l WHERE l.id > COALESCE(t.last_lease, 0) AND t.id = ANY (l.ids));
CREATE FUNCTION fuzz.check() RETURNS bigint LANGUAGE sql AS $$
	WITH i AS (INSERT INTO fuzz.bad (what, id, run_id, detail) SELECT * FROM fuzz.wrong RETURNING 1) SELECT count(*) FROM i
$$;
-- all the time
CREATE PROCEDURE fuzz.watch() LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM fuzz.stop) LOOP
		PERFORM fuzz.check(), nextval('fuzz.looks');
		COMMIT;
	END LOOP;
END $$;

SET ROLE fuzz_role;
CREATE UNLOGGED TABLE fuzz.held (id bigserial, who int, task jsonb);
CREATE UNLOGGED TABLE fuzz.turn (who int, run_id text, token text, history jsonb, history_end int, PRIMARY KEY (who, run_id));

CREATE FUNCTION fuzz.call(i int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE c jsonb := jsonb_build_object('type', 'call', 'seq', i, 'name', (ARRAY['s','t','u'])[1 + floor(random() * 3)], 'input', i);
BEGIN
	IF random() < 0.3 THEN c := c || jsonb_build_object('priority', floor(random() * 3)::int); END IF;
	IF random() < 0.15 THEN c := c || jsonb_build_object('limiter', CASE WHEN random() < 0.5 THEN 'one' ELSE 'two' END); END IF;
	IF random() < 0.1 THEN c := c || '{"await": false}'; END IF;
	IF current_setting('fuzz.timeless', true) = 'on' THEN RETURN c; END IF;
	IF random() < 0.3 THEN c := c || '{"retries": 2, "backoff_ms": 3}'; END IF;
	IF random() < 0.15 THEN c := c || jsonb_build_object('pickup_timeout_ms', (ARRAY[0.001, 5, 50])[1 + floor(random() * 3)]); END IF;
	IF random() < 0.15 THEN c := c || jsonb_build_object('timeout_ms', (ARRAY[1, 30, 300])[1 + floor(random() * 3)]); END IF;
	RETURN c;
END $$;

CREATE FUNCTION fuzz.decide(run_id text, history jsonb, history_end int, OUT decision jsonb, OUT after jsonb, OUT after_end int) LANGUAGE plpgsql AS $$
DECLARE
	h jsonb; c jsonb; commands jsonb[] := '{}'; n int; k int; pending int := 0; kind float := random();
BEGIN
	after := history; after_end := history_end;
	FOR h IN SELECT x FROM jsonb_array_elements(history) x WHERE x ->> 'status' = 'pending' LOOP
		pending := pending + 1;
		commands := commands || CASE h ->> 'kind'
			WHEN 'step' THEN jsonb_build_object('type', 'call', 'seq', h -> 'seq', 'name', h -> 'name')
			WHEN 'sleep' THEN jsonb_build_object('type', 'sleep', 'seq', h -> 'seq', 'ms', 5)
			WHEN 'signal' THEN jsonb_build_object('type', 'wait_signal', 'seq', h -> 'seq', 'signal', h -> 'name', 'timeout_ms', 50)
			WHEN 'child' THEN jsonb_build_object('type', 'start_child', 'seq', h -> 'seq', 'workflow', 'w', 'child_id', substr(h ->> 'name', 7)) END;
	END LOOP;
	n := history_end;
	IF kind < 0.08 OR (n > 12 AND pending = 0) OR n > 25 THEN
		-- ends
		FOR k IN 1 .. floor(random() * 2)::int LOOP commands := commands || (fuzz.call(n) || '{"await": false}'); n := n + 1; END LOOP;
		decision := CASE WHEN random() < 0.7 THEN '{"status": "completed", "output": 1}' WHEN random() < 0.7 THEN '{"status": "failed", "error": "no"}' ELSE '{"status": "cancelled", "error": "c"}' END::jsonb;
		decision := decision || jsonb_build_object('commands', (SELECT COALESCE(jsonb_agg(x), '[]') FROM unnest(commands) x WHERE (x ->> 'seq')::int >= history_end));
		RETURN;
	END IF;
	IF pending = 0 OR kind > 0.6 THEN
		FOR k IN 1 .. 1 + floor(random() * 3)::int LOOP
			kind := random();
			IF kind < 0.6 THEN
				c := fuzz.call(n);
				after := after || jsonb_build_object('seq', n, 'kind', 'step', 'name', c -> 'name', 'status', 'pending');
				n := n + 1;
			ELSIF kind < 0.8 THEN
				-- one window at a time
				c := jsonb_build_object('type', 'call_all', 'inputs', '[1,2,3,4,5]'::jsonb, 'mode', (ARRAY['wait_all', 'settled'])[1 + floor(random() * 2)])
					|| CASE WHEN random() < 0.6 AND NOT after @> '[{"status": "pending", "kind": "step"}]' THEN jsonb_build_object('max_in_flight', 1 + floor(random() * 3)) ELSE '{}' END || fuzz.call(n) - '{input,await}'::text[] || '{"type": "call_all"}';
				after := after || (SELECT jsonb_agg(jsonb_build_object('seq', n + i, 'kind', 'step', 'name', c -> 'name', 'status', 'pending')) FROM generate_series(0, 4) i);
				n := n + 5;
			ELSIF kind < 0.87 AND length(run_id) < 40 THEN
				c := jsonb_build_object('type', 'start_child', 'seq', n, 'workflow', CASE WHEN run_id ~ 'child' OR random() < 0.5 THEN 'w' ELSE 'k' END, 'input', jsonb_build_object('s', floor(random() * 3)::int));
				after := after || jsonb_build_object('seq', n, 'kind', 'child', 'name', 'child:' || run_id || '.child.' || n, 'status', 'pending');
				n := n + 1;
			ELSIF kind < 0.92 AND current_setting('fuzz.timeless', true) IS DISTINCT FROM 'on' THEN
				c := jsonb_build_object('type', 'sleep', 'seq', n, 'ms', random() * 10);
				after := after || jsonb_build_object('seq', n, 'kind', 'sleep', 'name', 'sleep', 'status', 'pending');
				n := n + 1;
			ELSIF kind < 0.95 AND current_setting('fuzz.timeless', true) IS DISTINCT FROM 'on' THEN
				c := jsonb_build_object('type', 'wait_signal', 'seq', n, 'signal', 'x', 'timeout_ms', random() * 20);
				after := after || jsonb_build_object('seq', n, 'kind', 'signal', 'name', 'x', 'status', 'pending');
				n := n + 1;
			ELSE
				c := jsonb_build_object('type', 'record_step', 'seq', n, 'name', 'l', 'output', n);
				after := after || jsonb_build_object('seq', n, 'kind', 'local', 'name', 'l', 'status', 'completed', 'output', n);
				n := n + 1;
			END IF;
			commands := commands || c;
		END LOOP;
	END IF;
	after_end := n;
	decision := jsonb_build_object('status', 'continue', 'commands', to_jsonb(commands));
END $$;

-- what a session hands in
CREATE FUNCTION fuzz.item(me int, t jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	item jsonb := jsonb_build_object('task_id', t -> 'task_id', 'token', t -> 'token');
	k fuzz.turn; d record; h jsonb;
BEGIN
	IF t ->> 'kind' = 'turn' THEN
		d := fuzz.decide(t ->> 'run_id', t #> '{input,history}', (t #>> '{input,history_end}')::int);
		DELETE FROM fuzz.turn x WHERE x.who = me AND x.run_id = t ->> 'run_id';
		IF d.decision ->> 'status' = 'continue' THEN
			INSERT INTO fuzz.turn VALUES (me, t ->> 'run_id', t ->> 'token', d.after, d.after_end);
		END IF;
		RETURN item || jsonb_build_object('decision', d.decision);
	END IF;
	IF random() < 0.15 THEN RETURN item || '{"error": {"message": "no"}}'; END IF;
	item := item || '{"output": 1}';
	DELETE FROM fuzz.turn x WHERE x.who = me AND x.run_id = t ->> 'run_id' RETURNING * INTO k;
	IF FOUND AND random() < 0.8 THEN
		SELECT jsonb_agg(CASE WHEN x -> 'seq' = t -> 'seq' THEN x || '{"status": "completed", "output": 1}' ELSE x END ORDER BY n) INTO h
		  FROM jsonb_array_elements(k.history) WITH ORDINALITY y (x, n);
		d := fuzz.decide(k.run_id, h, k.history_end);
		IF d.decision ->> 'status' = 'continue' THEN
			INSERT INTO fuzz.turn VALUES (me, k.run_id, k.token, d.after, d.after_end);
		END IF;
		item := item || jsonb_build_object('turn', jsonb_build_object('token', k.token, 'history_end', k.history_end, 'decision', d.decision));
	END IF;
	RETURN item;
END $$;

CREATE PROCEDURE fuzz.work(me int, calm boolean DEFAULT false) LANGUAGE plpgsql AS $$
DECLARE
	t jsonb; items jsonb[]; e record; seen jsonb := '{}'; r int; what text; queues text[]; mx int; naps boolean; undo boolean;
BEGIN
	WHILE NOT EXISTS (SELECT FROM fuzz.stop) LOOP
		naps := random() < 0.1; undo := random() < 0.05;
		BEGIN
			items := '{}';
			FOR t IN DELETE FROM fuzz.held h WHERE h.id IN (SELECT x.id FROM fuzz.held x WHERE x.who = me ORDER BY random() LIMIT floor(random() * 5)) RETURNING h.task LOOP
				IF calm OR random() < 0.93 THEN
					items := items || fuzz.item(me, t);
				ELSIF random() < 0.5 THEN
					PERFORM durable.release((t ->> 'token')::uuid, ARRAY[t ->> 'task_id']);
				ELSE	-- forgotten, or twice
					IF random() < 0.5 THEN INSERT INTO fuzz.held (who, task) VALUES (me, t); PERFORM durable.heartbeat(t ->> 'task_id', (t ->> 'token')::uuid); END IF;
				END IF;
			END LOOP;
			queues := ARRAY(SELECT q FROM unnest('{w,k,s,t,u}'::text[]) q WHERE random() < 0.6 ORDER BY random());
			IF queues = '{}' THEN queues := '{w,k,s,t,u}'; END IF;
			mx := CASE WHEN (SELECT count(*) FROM fuzz.held h WHERE h.who = me) > 12 THEN 0 ELSE floor(random() * 6) END;
			SELECT * INTO e FROM durable.exchange(to_jsonb(items), queues, mx, lease => (ARRAY['150 ms', '1 s'])[1 + floor(random() * 2)]::interval, worker => CASE WHEN random() < 0.5 THEN 'worker ' || me END);
			INSERT INTO fuzz.held (who, task) SELECT me, x FROM jsonb_array_elements(e.tasks) x;
			IF (SELECT count(*) <> count(DISTINCT x ->> 'task_id') FROM jsonb_array_elements(e.tasks) x) OR jsonb_array_length(e.tasks) > mx
				OR EXISTS (SELECT FROM jsonb_array_elements(e.tasks) x WHERE NOT (x ->> 'queue') = ANY (queues)) THEN
				INSERT INTO fuzz.err (who, state, message, item) VALUES (me, 'CLAIM', mx || queues::text, e.tasks);
			END IF;
			PERFORM nextval('fuzz.calls');
			FOR r IN 1 .. cardinality(items) LOOP
				what := CASE WHEN items[r] ? 'turn' THEN 'after ' WHEN items[r] ? 'decision' THEN 'turn ' ELSE 'step ' END || e.results[r];
				seen := seen || jsonb_build_object(what, COALESCE((seen ->> what)::int, 0) + 1);
			END LOOP;
			IF e.tasks IS NULL AND cardinality(items) = 0 THEN naps := true; END IF;
			IF naps THEN PERFORM pg_sleep(random() * 0.01); END IF;
			IF undo THEN RAISE SQLSTATE 'ZZZZZ'; END IF;
		EXCEPTION WHEN SQLSTATE 'ZZZZZ' THEN NULL;
			WHEN deadlock_detected THEN
				seen := seen || jsonb_build_object('deadlock', COALESCE((seen ->> 'deadlock')::int, 0) + 1);
			WHEN OTHERS THEN
				INSERT INTO fuzz.err (who, state, message, item) VALUES (me, SQLSTATE, SQLERRM, to_jsonb(items));
				DELETE FROM fuzz.held h WHERE h.who = me;
		END;
		COMMIT;
	END LOOP;
	INSERT INTO fuzz.seen SELECT key, value::int FROM jsonb_each_text(seen);
	COMMIT;
END $$;
-- what a session gets that hands in and claims in one call, or in two; taken back
CREATE FUNCTION fuzz.claimed(items jsonb, queues text[], mx int, calls int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	e record;
	r text;
BEGIN
	IF calls = 2 THEN
		SELECT * INTO e FROM durable.exchange(items, queues, 0);
		r := e.results::text;
		SELECT * INTO e FROM durable.exchange(NULL, queues, mx);
	ELSE
		SELECT * INTO e FROM durable.exchange(items, queues, mx);
		r := e.results::text;
	END IF;
	r := r || (SELECT COALESCE(string_agg(concat_ws(' ', t ->> 'run_id', t ->> 'kind', t ->> 'seq', t ->> 'queue', t ->> 'priority', t ->> 'attempt'), ', ' ORDER BY n), '') FROM jsonb_array_elements(e.tasks) WITH ORDINALITY x (t, n));
	RAISE SQLSTATE 'ZZZZZ' USING MESSAGE = r;
EXCEPTION WHEN SQLSTATE 'ZZZZZ' THEN RETURN SQLERRM;
END $$;
CREATE PROCEDURE fuzz.compare(times int) LANGUAGE plpgsql AS $$
DECLARE
	t jsonb; items jsonb[]; e record; queues text[]; mx int; one text; two text; fresh int := 0;
BEGIN
	PERFORM set_config('fuzz.timeless', 'on', false);
	FOR i IN 1 .. times LOOP
		IF (SELECT count(*) FROM fuzz.held) < 5 THEN PERFORM durable.start('w', '{}', priority => floor(random() * 3)::int); END IF;
		items := '{}';
		FOR t IN DELETE FROM fuzz.held h WHERE h.id IN (SELECT x.id FROM fuzz.held x ORDER BY random() LIMIT floor(random() * 5)) RETURNING h.task LOOP
			items := items || fuzz.item(0, t);
		END LOOP;
		queues := ARRAY(SELECT q FROM unnest('{w,k,s,t,u}'::text[]) q WHERE random() < 0.6 ORDER BY random());
		IF queues = '{}' THEN queues := '{w,k,s,t,u}'; END IF;
		mx := 1 + floor(random() * 6);
		one := fuzz.claimed(to_jsonb(items), queues, mx, 1);
		two := fuzz.claimed(to_jsonb(items), queues, mx, 2);
		IF one <> two THEN
			INSERT INTO fuzz.err (who, state, message, item) VALUES (0, 'OTHER', one || ' <> ' || two || ' ' || mx || queues::text, to_jsonb(items));
		END IF;
		SELECT * INTO e FROM durable.exchange(to_jsonb(items), queues, mx);
		INSERT INTO fuzz.held (who, task) SELECT 0, x FROM jsonb_array_elements(e.tasks) x;
		COMMIT;
	END LOOP;
	PERFORM set_config('fuzz.timeless', '', false);
	-- what is still held is for others
	PERFORM durable.release((task ->> 'token')::uuid, ARRAY[task ->> 'task_id']) FROM fuzz.held;
	DELETE FROM fuzz.held;
END $$;
RESET ROLE;

-- who interferes
CREATE PROCEDURE fuzz.disturb(live int) LANGUAGE plpgsql AS $$
DECLARE
	id text; kind float;
BEGIN
	WHILE NOT EXISTS (SELECT FROM fuzz.stop) LOOP
		BEGIN
			IF (SELECT count(*) FROM durable.run WHERE finished_at IS NULL) < live THEN
				PERFORM durable.start_many('w', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 5) i));
			END IF;
			kind := random();
			SELECT run_id INTO id FROM durable.run WHERE (random() < 0.5 OR finished_at IS NULL) ORDER BY random() LIMIT 1;
			IF kind < 0.1 THEN PERFORM durable.cancel(id);
			ELSIF kind < 0.2 THEN PERFORM durable.requeue(id);
			ELSIF kind < 0.3 THEN PERFORM durable.pause_queue((ARRAY['s','t','w'])[1 + floor(random() * 3)]);
			ELSIF kind < 0.5 THEN PERFORM durable.resume_queue(q) FROM unnest('{s,t,w}'::text[]) q;
			ELSIF kind < 0.7 THEN PERFORM durable.sweep();
			ELSIF kind < 0.75 THEN PERFORM durable.signal('x', '1');
			ELSIF kind < 0.8 THEN PERFORM durable.redispatch(id);
			ELSIF kind < 0.85 THEN PERFORM durable.announce_worker('worker ' || floor(random() * 4), '{s,t}'::text[]);
			ELSIF kind < 0.87 THEN PERFORM durable.register_limiter('one', concurrency => 1 + floor(random() * 2)::int);
			END IF;
			PERFORM pg_sleep(random() * 0.01);
		EXCEPTION WHEN deadlock_detected THEN INSERT INTO fuzz.seen VALUES ('deadlock of who disturbs');
			WHEN object_not_in_prerequisite_state THEN NULL;
			WHEN OTHERS THEN
			INSERT INTO fuzz.err (who, state, message) VALUES (0, SQLSTATE, kind || ' ' || SQLERRM);
		END;
		COMMIT;
		PERFORM pg_sleep(random() * 0.01);
	END LOOP;
	PERFORM durable.resume_queue(q) FROM unnest('{s,t,w}'::text[]) q;
END $$;
SQL

my (@sessions, %ways);

sub begin
{
	@sessions = map { DurableTest::Session->new($node, name => "worker $_", user => 'fuzz_role') } 1 .. $WORKERS;
	push @sessions, map { DurableTest::Session->new($node) } 1 .. 2;
	$sessions[ $_ - 1 ]->send("CALL fuzz.work($_)") for 1 .. $WORKERS;
	$sessions[-2]->send("CALL fuzz.disturb($LIVE)");
	$sessions[-1]->send('CALL fuzz.watch()');
	return;
}

# So many calls, and a few looks, more than there were: those who call go on.
sub go_on
{
	my $watch = 'SELECT (SELECT last_value FROM fuzz.calls), (SELECT last_value FROM fuzz.looks)';
	my ($calls, $looks) = split /\|/, sql($watch);
	wait_for(sub {
			for my $session (@sessions)
			{
				die 'a session has ended: ' . $session->answer . $session->error if $session->answered;
			}
			my ($now, $seen) = split /\|/, sql($watch);
			return $now >= $calls + $CALLS && $seen >= $looks + 10;
		}, 'calls');
	return;
}

sub wrong { return sql('SELECT what, count(*), min(detail) FROM (SELECT what, detail FROM fuzz.bad UNION ALL SELECT what, detail FROM fuzz.wrong) x GROUP BY 1'); }

# as if what a call dispatches and claims had stood in its list
my $alone = DurableTest::Session->new($node, user => 'fuzz_role');
$alone->query('CALL fuzz.compare(400)');
$alone->quit;
is(sql('SELECT message, item FROM fuzz.err LIMIT 3'), '', 'one call gives what two would');
is(wrong(), '', 'each task is in one place');

for my $way (qw(backend immediate power))
{
	begin();
	go_on();
	die_by($node, $way, @sessions);
	is(wrong(), '', "each task was in one place, and is after the death of the server ($way)");
}
begin();
go_on();
sql('INSERT INTO fuzz.stop VALUES (true)');
for my $session (@sessions)
{
	$session->answer;
	is($session->error, '', 'no error');
	$session->quit;
}
note sql(q{SELECT string_agg(concat_ws(' ', what, n), ', ' ORDER BY what) FROM (SELECT what, sum(n) AS n FROM fuzz.seen GROUP BY 1) x});
note sql(q{SELECT string_agg(concat_ws(' ', status, n), ', ' ORDER BY status) FROM (SELECT status, count(*) AS n FROM durable.run GROUP BY 1) x});

# all that is left, until nothing is
@sessions = map { DurableTest::Session->new($node, user => 'fuzz_role') } 1 .. 3;
wait_for(sub {
		sql('TRUNCATE fuzz.stop');
		$sessions[ $_ - 1 ]->send("CALL fuzz.work($_, true)") for 1 .. 3;
		usleep(300_000);
		sql('INSERT INTO fuzz.stop VALUES (true)');
		$_->answer for @sessions;
		sql('SELECT FROM durable.sweep(); SELECT FROM fuzz.check()');
		return sql('SELECT count(*) FROM durable.task') == 0;
	}, 'the last task to go');
$_->quit for @sessions;

is(wrong(), '', 'each task was in one place all the time');
is(sql('SELECT who, state, message, count(*), min(item::text) FROM fuzz.err GROUP BY 1, 2, 3'), '', 'no error, and no claim of more or of others than it asked for');
is(sql('SELECT count(*) FROM durable.run WHERE finished_at IS NULL'), 0, 'each run has ended');
cmp_ok(sql("SELECT COALESCE(sum(n), 0) FROM fuzz.seen WHERE what = '$_'"), '>', 0, "there was: $_") for 'turn 1', 'step 1', 'after 1', 'after 2';
is(sql(q{SELECT (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.task_delayed), (SELECT count(*) FROM durable.task_limited), (SELECT count(*) FROM durable.task_deadline),
	(SELECT count(*) FROM durable.limiter_slot), (SELECT count(*) FROM durable.singleton), (SELECT count(*) FROM durable.waiter)}), '0|0|0|0|0|0|0', 'nothing is left over');
is(sql('SELECT rescued FROM durable.scan_hints()'), 0, 'no row was found behind a hint');
is(damage($node), '', 'no table or index is damaged');
$node->stop;
done_testing();
