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
CREATE FUNCTION start(lim text, key text DEFAULT NULL) RETURNS boolean LANGUAGE sql AS $$
	SELECT durable.start('film');
	SELECT durable.complete_turn(task_id, token, calls(lim, key)) FROM durable.claim('{film}', worker => 'gpu')
$$;
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
	TRUNCATE held;
END $$;
SELECT f, o, t.* FROM unnest('{fifo,key}'::text[]) f, unnest('{fifo,lifo}'::text[]) o, try('l' || f || o) t;
SELECT running, waiting, count(*) FROM durable.limiters GROUP BY 1, 2;
