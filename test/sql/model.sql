-- Random operations, checked one by one against a model in plain SQL. A step may
-- be rolled back; the model, being tables, goes back with it.
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

CREATE SCHEMA model;
SET search_path = model, public;
-- (num is the age)
CREATE TABLE task (num serial, id text, ns text, queue text, priority int, state text, run_at timestamptz, attempt int DEFAULT 1,
                   max_attempts int, reclaims int DEFAULT 0, token uuid, until timestamptz);
CREATE TABLE paused (ns text, queue text);
CREATE TABLE held (id text, ns text, token uuid);	-- every token there ever was
CREATE TABLE seen (op text, outcome text, n int DEFAULT 1, PRIMARY KEY (op, outcome));

CREATE FUNCTION pick(anyarray) RETURNS anyelement LANGUAGE sql AS $$ SELECT $1[1 + floor(random() * cardinality($1))::int] $$;
CREATE FUNCTION seconds(int) RETURNS interval LANGUAGE sql AS $$ SELECT make_interval(secs => $1) $$;

-- what the engine does by itself when somebody looks
CREATE FUNCTION due(in_ns text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	now timestamptz := durable.engine_now();
BEGIN
	UPDATE task SET state = 'ready' WHERE state = 'delayed' AND run_at <= now AND ns = in_ns;
	UPDATE task SET (state, attempt, reclaims, token, until) =
		(SELECT CASE WHEN task.reclaims < 3 OR task.attempt < task.max_attempts THEN 'ready' ELSE 'failed' END,
				CASE WHEN task.reclaims < 3 OR task.attempt = task.max_attempts THEN task.attempt ELSE task.attempt + 1 END,
				CASE WHEN task.reclaims < 3 OR task.attempt = task.max_attempts THEN task.reclaims + 1 ELSE 0 END, NULL::uuid, NULL::timestamptz)
	 WHERE state = 'claimed' AND until < now AND ns = in_ns;
END $$;

CREATE FUNCTION same(op text, got text, expected text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF got IS DISTINCT FROM expected THEN
		RAISE EXCEPTION '%: got %, expected %', op, got, expected;
	END IF;
	INSERT INTO seen AS s (op, outcome) VALUES (op, CASE WHEN expected ~ '^(t|f|0)$|^$' THEN expected ELSE 'some' END)
		ON CONFLICT ON CONSTRAINT seen_pkey DO UPDATE SET n = s.n + 1;
END $$;

CREATE FUNCTION do_dispatch() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	in_ns text := pick('{a,b}'::text[]);
	q text := pick('{q1,q2,q3}'::text[]);
	prio int := pick('{0,0,0,5,-1}'::int[]);
	attempts int := 1 + floor(random() * 3)::int;
	due_at timestamptz := CASE WHEN random() < 0.3 THEN durable.engine_now() + seconds(50 + 100 * floor(random() * 9)::int) END;
	in_id text := CASE WHEN random() < 0.5 THEN 'id' || floor(random() * 100)::int END;
	got text := durable.dispatch('n', '1', in_id, q, in_ns, prio, due_at, attempts);
BEGIN
	PERFORM same('dispatch', (got = in_id OR in_id IS NULL AND got LIKE '~%')::text, 'true');
	INSERT INTO task (id, ns, queue, priority, state, run_at, max_attempts)
	SELECT got, in_ns, q, prio, CASE WHEN due_at IS NULL THEN 'ready' ELSE 'delayed' END, due_at, attempts
	 WHERE NOT EXISTS (SELECT FROM task t WHERE t.id = got AND t.ns = in_ns);
END $$;

CREATE FUNCTION do_dispatch_many() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	in_ns text := pick('{a,b}'::text[]);
	q text := pick('{q1,q2,q3}'::text[]);
	ids text[] := CASE WHEN random() < 0.5 THEN ARRAY(SELECT 'id' || floor(random() * 100)::int FROM generate_series(1, 5)) END;
	inputs jsonb[] := array_fill('1'::jsonb, ARRAY[coalesce(cardinality(ids), 7)]);
BEGIN
	INSERT INTO task (id, ns, queue, priority, state, max_attempts)
	SELECT d.id, in_ns, q, 0, 'ready', 1
	  FROM (SELECT x.id, min(x.o) AS o FROM durable.dispatch_many('n', inputs, q, in_ns, task_ids => ids) WITH ORDINALITY x (id, o) GROUP BY x.id) d
	 WHERE NOT EXISTS (SELECT FROM task t WHERE t.id = d.id AND t.ns = in_ns)
	 ORDER BY d.o;
END $$;

CREATE FUNCTION do_claim() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	in_ns text := pick('{a,b}'::text[]);
	queues text[] := pick('{"{q1}","{q2}","{q3}","{q1,q2}","{q3,q1}","{q1,q2,q3}"}'::text[])::text[];
	n int := 1 + floor(random() * 5)::int;
	lease int := pick('{150,350,1050}'::int[]);
	expected text;
	got text;
BEGIN
	-- a claim takes over only so much at once
	IF (SELECT count(*) FROM durable.lease l WHERE l.namespace = in_ns) > 8 THEN RETURN; END IF;
	PERFORM due(in_ns);
	SELECT string_agg(format('%s/%s/%s/%s', c.id, c.queue, c.attempt, c.reclaims), ' ' ORDER BY c.priority DESC, c.num) INTO expected
	  FROM (SELECT * FROM task k WHERE k.ns = in_ns AND k.queue = ANY (queues) AND k.state = 'ready'
			   AND NOT EXISTS (SELECT FROM paused p WHERE p.ns = k.ns AND p.queue = k.queue)
			 ORDER BY k.priority DESC, k.num LIMIT n) c;
	WITH c AS MATERIALIZED (SELECT * FROM durable.claim(queues, n, seconds(lease), NULL, in_ns) WITH ORDINALITY x),
		 h AS (INSERT INTO held SELECT c.task_id, in_ns, c.token FROM c),
		 u AS (UPDATE task k SET state = 'claimed', token = c.token, until = c.lease_until FROM c WHERE k.id = c.task_id AND k.ns = in_ns)
	SELECT string_agg(format('%s/%s/%s/%s', c.task_id, c.queue, c.attempt, c.reclaims), ' ' ORDER BY c.ordinality) INTO got FROM c;
	PERFORM same('claim', coalesce(got, ''), coalesce(expected, ''));
END $$;

-- settle something with a token that holds it, or held it once
CREATE FUNCTION do_settle(op text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	h held;
	k task;
	got boolean;
BEGIN
	IF random() < 0.7 THEN
		SELECT t.id, t.ns, t.token INTO h FROM task t WHERE state = 'claimed' ORDER BY random() LIMIT 1;
	ELSE
		SELECT * INTO h FROM held ORDER BY random() LIMIT 1;
	END IF;
	IF h.id IS NULL THEN RETURN; END IF;
	SELECT * INTO k FROM task t WHERE t.id = h.id AND t.ns = h.ns AND t.state = 'claimed' AND t.token = h.token;
	CASE op
		WHEN 'complete' THEN
			got := durable.complete(h.id, h.token, '1');
			UPDATE task t SET state = 'completed', token = NULL WHERE t.num = k.num;
		WHEN 'complete_many' THEN
			got := EXISTS (SELECT FROM durable.complete_many(h.token, ARRAY['nosuch', h.id]));
			UPDATE task t SET state = 'completed', token = NULL WHERE t.num = k.num;
		WHEN 'fail' THEN
			got := durable.fail(h.id, h.token, '"x"');
			IF k.attempt < k.max_attempts THEN
				UPDATE task t SET state = 'ready', token = NULL, attempt = attempt + 1, reclaims = 0 WHERE t.num = k.num;
			ELSE
				UPDATE task t SET state = 'failed', token = NULL WHERE t.num = k.num;
			END IF;
		WHEN 'release' THEN
			got := durable.release(h.token, ARRAY[h.id]) = 1;
			UPDATE task t SET state = 'ready', token = NULL WHERE t.num = k.num;
		WHEN 'heartbeat' THEN
			got := durable.heartbeat(h.id, h.token);
	END CASE;
	PERFORM same(op, left(got::text, 1), CASE WHEN k.num IS NULL THEN 'f' ELSE 't' END);
END $$;

CREATE FUNCTION do_round(op text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	t uuid := CASE WHEN random() < 0.5 THEN (SELECT k.token FROM task k WHERE k.state = 'claimed' ORDER BY random() LIMIT 1)
				   ELSE (SELECT h.token FROM held h ORDER BY random() LIMIT 1) END;
	expected int := (SELECT count(*) FROM task k WHERE k.state = 'claimed' AND k.token = t);
BEGIN
	IF t IS NULL THEN RETURN; END IF;
	IF op = 'renew' THEN
		PERFORM same(op, durable.renew(t, '550 s')::text, expected::text);
		UPDATE task k SET until = durable.engine_now() + interval '550 s' WHERE k.state = 'claimed' AND k.token = t;
	ELSE
		PERFORM same(op, durable.release(t)::text, expected::text);
		UPDATE task k SET state = 'ready', token = NULL WHERE k.state = 'claimed' AND k.token = t;
	END IF;
END $$;

CREATE FUNCTION do_cancel() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k task;
BEGIN
	SELECT * INTO k FROM task ORDER BY random() LIMIT 1;
	IF k.id IS NULL THEN RETURN; END IF;
	PERFORM same('cancel', left(durable.cancel_task(k.id, k.ns)::text, 1), CASE WHEN k.state IN ('ready', 'delayed', 'claimed') THEN 't' ELSE 'f' END);
	UPDATE task t SET state = 'cancelled', token = NULL WHERE t.num = k.num AND t.state IN ('ready', 'delayed', 'claimed');
END $$;

CREATE FUNCTION do_pause() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	in_ns text := pick('{a,b}'::text[]);
	q text := pick('{q1,q2,q3}'::text[]);
	is_paused boolean := EXISTS (SELECT FROM paused p WHERE p.ns = in_ns AND p.queue = q);
BEGIN
	IF random() < 0.4 THEN
		PERFORM same('pause', left(durable.pause_queue(q, in_ns)::text, 1), CASE WHEN is_paused THEN 'f' ELSE 't' END);
		IF NOT is_paused THEN INSERT INTO paused VALUES (in_ns, q); END IF;
	ELSE
		PERFORM same('resume', left(durable.resume_queue(q, in_ns)::text, 1), CASE WHEN is_paused THEN 't' ELSE 'f' END);
		DELETE FROM paused p WHERE p.ns = in_ns AND p.queue = q;
	END IF;
END $$;

-- time passes; then a sweep, or a claim of each namespace, sees what is due
CREATE FUNCTION do_time() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('durable.clock_offset', (extract(epoch FROM current_setting('durable.clock_offset')::interval)::int + 100 * (1 + floor(random() * 4)::int))::text, false);
	PERFORM due('a'), due('b');
	IF random() < 0.5 THEN
		PERFORM durable.sweep();
	ELSE
		PERFORM FROM durable.claim('{nothing}', namespace => 'a') a, durable.claim('{nothing}', namespace => 'b') b;
		PERFORM durable.sweep();
	END IF;
END $$;

CREATE FUNCTION do_results() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	in_ns text := pick('{a,b}'::text[]);
	t uuid;
	ids text[];
BEGIN
	SELECT token, array_agg(task_id) INTO t, ids FROM durable.claim_results('{n}', 20, namespace => in_ns) GROUP BY token;
	IF t IS NULL THEN RETURN; END IF;
	PERFORM same('results', (SELECT count(*) FROM task k WHERE k.ns = in_ns AND k.id = ANY (ids) AND k.state IN ('completed', 'failed', 'cancelled'))::text, cardinality(ids)::text);
	PERFORM same('ack', durable.ack_results(t)::text, cardinality(ids)::text);
	DELETE FROM task k WHERE k.ns = in_ns AND k.id = ANY (ids);
END $$;

CREATE FUNCTION do_look() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	k task;
	s record;
BEGIN
	SELECT * INTO k FROM task ORDER BY random() LIMIT 1;
	IF k.id IS NULL THEN RETURN; END IF;
	SELECT * INTO s FROM durable.task_status(k.id, k.ns);
	PERFORM same('status', format('%s/%s/%s', s.status, s.attempt, s.reclaims), format('%s/%s/%s', k.state, k.attempt, k.reclaims));
	SELECT * INTO s FROM durable.queue_depth(k.queue, k.ns);
	PERFORM same('depth', format('%s/%s/%s', s.ready, s.claimed, s.delayed),
			  (SELECT format('%s/%s/%s', count(*) FILTER (WHERE state = 'ready'), count(*) FILTER (WHERE state = 'claimed'), count(*) FILTER (WHERE state = 'delayed'))
				 FROM task t WHERE t.ns = k.ns AND t.queue = k.queue));
END $$;

CREATE FUNCTION step() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	r float8 := random();
	undo boolean := random() < 0.15;
BEGIN
	CASE
		WHEN r < 0.22 THEN PERFORM do_dispatch();
		WHEN r < 0.25 THEN PERFORM do_dispatch_many();
		WHEN r < 0.50 THEN PERFORM do_claim();
		WHEN r < 0.60 THEN PERFORM do_settle('complete');
		WHEN r < 0.64 THEN PERFORM do_settle('complete_many');
		WHEN r < 0.70 THEN PERFORM do_settle('fail');
		WHEN r < 0.74 THEN PERFORM do_settle('release');
		WHEN r < 0.76 THEN PERFORM do_settle('heartbeat');
		WHEN r < 0.78 THEN PERFORM do_round('renew');
		WHEN r < 0.80 THEN PERFORM do_round('release all');
		WHEN r < 0.84 THEN PERFORM do_cancel();
		WHEN r < 0.88 THEN PERFORM do_pause();
		WHEN r < 0.93 THEN PERFORM do_time();
		WHEN r < 0.95 THEN PERFORM do_results();
		ELSE PERFORM do_look();
	END CASE;
	IF undo THEN RAISE SQLSTATE 'UNDO1'; END IF;
EXCEPTION WHEN SQLSTATE 'UNDO1' THEN NULL;
END $$;
CREATE PROCEDURE walk(steps int, seed float8) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM setseed(seed);
	FOR i IN 1..steps LOOP
		PERFORM step();
		IF random() < 0.8 THEN COMMIT; END IF;
	END LOOP;
	COMMIT;
END $$;

SET durable.clock_offset = 0;
CALL walk(1500, 0.25);
-- everything was done, with every outcome that it has
SELECT op, string_agg(outcome, ' ' ORDER BY outcome COLLATE "C") AS outcomes FROM seen GROUP BY op ORDER BY op COLLATE "C";
-- and in the end the tables say what the model says
SELECT count(*) FROM task k, durable.task_status(k.id, k.ns) s WHERE (s.status, s.attempt, s.reclaims) IS DISTINCT FROM (k.state, k.attempt, k.reclaims);
SELECT (SELECT count(*) FROM durable.task) = (SELECT count(*) FROM task WHERE state IN ('ready', 'delayed', 'claimed')) AS tasks,
       (SELECT count(*) FROM durable.task_ready) = (SELECT count(*) FROM task WHERE state = 'ready') AS ready,
       (SELECT count(*) FROM durable.task_delayed) = (SELECT count(*) FROM task WHERE state = 'delayed') AS delayed,
       (SELECT count(*) FROM durable.task_result) = (SELECT count(*) FROM task WHERE state IN ('completed', 'failed', 'cancelled')) AS results;
SELECT rescued FROM durable.scan_hints();
RESET durable.clock_offset;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA model CASCADE;
