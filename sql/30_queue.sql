--
-- Queues: waiting, pausing, looking.
--

CREATE PROCEDURE durable.wait_for_work(
	queues text[], timeout interval DEFAULT '30 s', namespace text DEFAULT NULL,
	INOUT ready boolean DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_wait_for_work';
COMMENT ON PROCEDURE durable.wait_for_work(text[], interval, text, boolean) IS
'sleep until one of the queues has something to claim, or the timeout; holds no snapshot meanwhile';

CREATE PROCEDURE durable.wait_and_claim(
	queues text[], max_tasks int DEFAULT 1, lease interval DEFAULT '30 s',
	timeout interval DEFAULT '30 s', worker text DEFAULT NULL,
	namespace text DEFAULT NULL, INOUT tasks jsonb DEFAULT NULL,
	history int DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_wait_and_claim';
COMMENT ON PROCEDURE durable.wait_and_claim(text[], int, interval, interval, text, text, jsonb, int) IS
'wait_for_work and claim in one round trip: the claimed tasks as a jsonb array of claim''s rows, NULL at the timeout';

CREATE FUNCTION durable.pause_queue(queue text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_pause_queue';
COMMENT ON FUNCTION durable.pause_queue(text, text) IS
'stop handing out tasks of the queue; false = it was paused already';

CREATE FUNCTION durable.resume_queue(queue text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_resume_queue';
COMMENT ON FUNCTION durable.resume_queue(text, text) IS
'hand out tasks of a paused queue again; false = it was not paused';

CREATE FUNCTION durable.sweep(max_work int DEFAULT 1000)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'durable_sweep';
COMMENT ON FUNCTION durable.sweep(int) IS
'one bounded maintenance pass over all namespaces; what was done';

CREATE FUNCTION durable.engine_now() RETURNS timestamptz
LANGUAGE c STABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'durable_engine_now';
COMMENT ON FUNCTION durable.engine_now() IS
'the engine''s clock: clock_timestamp() plus durable.clock_offset';

CREATE FUNCTION durable.scan_hints(
	OUT preloaded boolean, OUT checks bigint, OUT rescued bigint)
RETURNS record LANGUAGE c AS 'MODULE_PATHNAME', 'durable_scan_hints';
COMMENT ON FUNCTION durable.scan_hints() IS
'how the claim scan''s shared-memory hints fare: checks of what stands before them, and rows that those found behind a hint (0 is right)';

-- Read with the caller's own rights: SELECT on the tables and their row security.
CREATE FUNCTION durable.task_status(
	task_id text, namespace text DEFAULT NULL,
	OUT status text, OUT output jsonb, OUT error jsonb, OUT attempt int,
	OUT reclaims int, OUT name text, OUT queue text, OUT priority int,
	OUT created_at timestamptz, OUT run_at timestamptz,
	OUT finished_at timestamptz, OUT progress jsonb, OUT heartbeat_at timestamptz)
RETURNS record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ns text := durable.require_access($2, 'read');
	nr bigint := CASE WHEN $1 ~ '^~[1-9][0-9]{0,17}$' THEN pg_catalog.substr($1, 2)::bigint END;
BEGIN
	IF $1 IS NULL THEN
		RAISE EXCEPTION 'task_id must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	SELECT CASE WHEN r.id IS NOT NULL THEN 'ready'
				WHEN d.id IS NOT NULL THEN 'delayed'
				WHEN w.id IS NOT NULL THEN 'parked' ELSE 'claimed' END,
		   NULL, t.error, t.attempt, t.reclaims, t.name, t.queue, t.priority,
		   t.created_at, t.run_at, NULL, p.progress, p.at
	  INTO status, output, error, attempt, reclaims, name, queue, priority,
		   created_at, run_at, finished_at, progress, heartbeat_at
	  FROM durable.task t
	  LEFT JOIN durable.task_ready r ON r.namespace = t.namespace
		   AND r.queue = t.queue AND r.priority = t.priority AND r.id = t.id
	  LEFT JOIN durable.task_delayed d ON d.namespace = t.namespace
		   AND d.queue = t.queue AND d.run_at = t.run_at AND d.id = t.id
	  LEFT JOIN durable.task_limited w ON w.limiter = t.limiter AND w.key = t.limiter_key
		   AND w.queue = t.queue AND w.priority = t.priority AND w.id = t.id
	  LEFT JOIN durable.task_progress p ON p.id = t.id
	 WHERE t.namespace = ns
	   AND ((nr IS NULL AND t.task_id = $1) OR (t.id = nr AND t.task_id IS NULL));
	IF FOUND THEN
		RETURN;
	END IF;
	SELECT r.status, r.output, r.error, r.attempt, r.reclaims, r.name, r.queue,
		   r.priority, r.created_at, NULL, r.finished_at
	  INTO status, output, error, attempt, reclaims, name, queue, priority,
		   created_at, run_at, finished_at
	  FROM durable.task_result r
	 WHERE r.namespace = ns
	   AND ((nr IS NULL AND r.task_id = $1) OR (r.id = nr AND r.task_id IS NULL));
END $$;
COMMENT ON FUNCTION durable.task_status(text, text) IS
'where a stand-alone task stands or how it ended: ready, delayed, parked (at its limiter), claimed, completed, failed, cancelled; all NULL when unknown';

CREATE FUNCTION durable.queue_depth(
	queue text, namespace text DEFAULT NULL,
	OUT ready bigint, OUT claimed bigint, OUT delayed bigint, OUT parked bigint,
	OUT oldest_ready interval)
RETURNS record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ns text := durable.require_access($2, 'read');
	total bigint;
BEGIN
	IF $1 IS NULL THEN
		RAISE EXCEPTION 'queue must not be null' USING ERRCODE = 'null_value_not_allowed';
	END IF;
	SELECT pg_catalog.count(*) INTO ready
	  FROM durable.task_ready r WHERE r.namespace = ns AND r.queue = $1;
	SELECT pg_catalog.count(*) INTO delayed
	  FROM durable.task_delayed d WHERE d.namespace = ns AND d.queue = $1;
	-- OFFSET 0 keeps the order: the listed ids first, then each by its key. On
	-- statistics of yesterday the planner would try it the other way round.
	SELECT pg_catalog.count(*) INTO claimed
	  FROM (SELECT l.id AS lease, u.id
			  FROM durable.lease l
			 CROSS JOIN LATERAL pg_catalog.unnest(l.ids) AS u(id)
			 WHERE l.namespace = ns AND l.kind = 'task' AND (l.queue = $1 OR l.queue = '')
			OFFSET 0) held
	 CROSS JOIN LATERAL (SELECT FROM durable.task t
						  WHERE t.id = held.id AND t.queue = $1
							AND held.lease > COALESCE(t.last_lease, 0)
						 OFFSET 0) mine;
	SELECT pg_catalog.count(*) INTO parked
	  FROM (SELECT FROM durable.task_limited w WHERE w.namespace = ns AND w.queue = $1
			 UNION ALL
			SELECT FROM durable.singleton s JOIN durable.task t ON t.id = s.run
			 WHERE s.namespace = ns AND s.parked AND t.queue = $1) waiting;
	SELECT durable.engine_now() - pg_catalog.min(t.created_at) INTO oldest_ready
	  FROM (SELECT DISTINCT ON (r.priority) r.id
			  FROM durable.task_ready r
			 WHERE r.namespace = ns AND r.queue = $1
			 ORDER BY r.priority DESC, r.id) heads
	  JOIN durable.task t ON t.id = heads.id;
END $$;
COMMENT ON FUNCTION durable.queue_depth(text, text) IS
'how many tasks of the queue are ready, claimed, delayed and parked, and the age of the oldest ready one';
