-- limiters and what came in beside them: workers that are not fit for what comes first,
-- turns that had a local step's slot, a clock that is put back
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
CREATE SCHEMA limiter_merge;
RESET client_min_messages;
SET search_path = limiter_merge;

CREATE TEMP TABLE held (n serial, task_id text, token uuid, name text);
CREATE FUNCTION take(worker text, queues text[], max int DEFAULT 10) RETURNS text LANGUAGE sql AS $$
	WITH c AS (INSERT INTO held (task_id, token, name)
		SELECT task_id, token, coalesce(input ->> 'n', name) FROM durable.claim(queues, max, '1 day', worker => take.worker) RETURNING n, name)
	SELECT string_agg(name, ',' ORDER BY n) FROM c
$$;
CREATE FUNCTION usage(lim text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s running, %s waiting', running, waiting) FROM durable.limiters WHERE name = lim
$$;

-- What a worker cannot do does not keep it from what stands behind it at the same
-- limiter, and keeps its place.
SELECT count(durable.announce_worker(w, '{film,work}', capabilities => c))
  FROM (VALUES ('plain', '{}'::text[]), ('gpu', '{gpu}')) w (w, c);
SELECT durable.register_workflow('film');
CREATE FUNCTION calls(lim text, key text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('status', 'continue', 'commands', jsonb_agg(
		jsonb_build_object('type', 'call', 'seq', i, 'name', 'cut', 'queue', 'work', 'input', jsonb_build_object('n', i), 'limiter', lim, 'fairness_key', key)
		|| CASE WHEN i IN (0, 1, 3) THEN '{"requires": ["gpu"]}'::jsonb ELSE '{}' END ORDER BY i)) FROM generate_series(0, 4) i
$$;
CREATE FUNCTION start(lim text, key text DEFAULT NULL) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	turn record;
BEGIN
	PERFORM durable.start('film', run_id => lim);
	SELECT * INTO turn FROM durable.claim('{film}', worker => 'gpu');
	PERFORM durable.complete_turn(turn.task_id, turn.token, calls(lim, key));
END $$;
SELECT durable.register_limiter('l' || f || o, concurrency => 4, fairness => f, ordering => o)
  FROM unnest('{fifo,key}'::text[]) f, unnest('{fifo,lifo}'::text[]) o \g /dev/null
CREATE FUNCTION try(lim text) RETURNS TABLE (plain text, again text, gpu text, used text) LANGUAGE plpgsql AS $$
BEGIN
	PERFORM start(lim, 'a');
	plain := take('plain', '{work}', 1);
	again := take('plain', '{work}');
	gpu := take('gpu', '{work}');
	used := usage(lim);
	RETURN NEXT;
	PERFORM durable.complete(task_id, token) FROM held;
	plain := take('plain', '{work}');
	again := NULL;
	gpu := take('gpu', '{work}');
	used := usage(lim);
	RETURN NEXT;
	PERFORM durable.complete(task_id, token) FROM held;
	PERFORM durable.cancel(lim);
	TRUNCATE held;
END $$;
SELECT f, o, t.* FROM unnest('{fifo,key}'::text[]) f, unnest('{fifo,lifo}'::text[]) o, try('l' || f || o) t;
SELECT running, waiting, count(*) FROM durable.limiters GROUP BY 1, 2;

-- A clock that is put back keeps a window closed for a period, no longer.
SELECT durable.register_limiter('slide', rate_limit => 2, rate_period => '10 s', rate_kind => 'sliding'),
	durable.register_limiter('fix', rate_limit => 2, rate_period => '10 s');
CREATE FUNCTION at(seconds int, queue text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('durable.clock_offset', seconds::text, false);
	RETURN take(NULL, ARRAY[queue]);
END $$;
SELECT count(durable.dispatch(l, queue => l, limiter => l)) FROM unnest('{slide,fix}'::text[]) l, generate_series(1, 6);
SELECT l, at(3600, l), at(0, l), at(5, l), at(11, l), at(12, l), at(22, l) FROM unnest('{slide,fix}'::text[]) l;
SELECT at(0, 'slide');
SELECT usage('slide'), count(*) FROM durable.limiter_tick;

-- A run that had a slot for a local step does not keep its limiter from being dropped.
SELECT durable.register_limiter('local', concurrency => 1);
CREATE FUNCTION same(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('limiter_merge.same', i, limiter => 'local');
	RETURN durable.wait_for_signal('go');
END $$;
SELECT durable.register_workflow('body', 'limiter_merge.body');
SELECT durable.start('body', '1', run_id => 'local');
CALL durable.work(duration => '0 s');
SELECT status, turn_state FROM durable.run WHERE run_id = 'local';
SELECT usage('local');
SELECT durable.drop_limiter('local');
SELECT durable.signal('go', '2');
CALL durable.work(duration => '0 s');
SELECT status, output FROM durable.get_run('local');
