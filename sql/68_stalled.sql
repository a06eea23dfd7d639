--
-- Stalled runs: those that nothing will wake by itself, and those whose steps nobody does.
--

-- What waits for a signal stands in waiter; a dispatched step is a task. So runs that
-- sleep, or wait for a child or a handler, are not looked at.
CREATE FUNCTION durable.stalled_runs(
	threshold interval DEFAULT '15 min', max_runs int DEFAULT 100,
	OUT run_id text, OUT namespace text, OUT workflow text, OUT reason text, OUT seq int, OUT name text,
	OUT attempts int, OUT age interval, OUT heartbeat_age interval)
RETURNS SETOF record LANGUAGE plpgsql STABLE ROWS 100
SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
	moment timestamptz := durable.engine_now();
	cutoff timestamptz;
BEGIN
	IF threshold IS NULL OR max_runs IS NULL THEN
		RAISE EXCEPTION '% must not be null', CASE WHEN threshold IS NULL THEN 'threshold' ELSE 'max_runs' END
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF threshold < '1 minute' OR threshold > '100 years' THEN
		RAISE EXCEPTION 'invalid value for threshold'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'It must be at least a minute, and at most a hundred years.';
	END IF;
	IF max_runs NOT BETWEEN 1 AND 10000 THEN
		RAISE EXCEPTION 'invalid value for max_runs'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'It must be between 1 and 10000.';
	END IF;
	cutoff := moment - threshold;
	RETURN QUERY
	WITH claimed AS (
		SELECT u.task, max(l.claimed_at) AS claimed_at
		  FROM durable.lease l CROSS JOIN LATERAL unnest(l.ids) u (task)
		 WHERE l.kind = 'task' GROUP BY u.task
	), found AS (
		SELECT r.id, r.run_id, r.namespace, r.workflow, 'wake_forever' AS reason, c.seq, c.name,
			   c.attempts, c.started_at AS since, NULL::timestamptz AS beat
		  FROM durable.waiter w
		  JOIN durable.checkpoint c ON c.run = w.run AND c.seq = w.seq
		  JOIN durable.run r ON r.id = w.run
		 WHERE c.kind = 'signal' AND c.status = 'pending' AND c.wake_at IS NULL
		   AND c.started_at <= cutoff AND r.turn_state = 'parked'
		UNION ALL
		SELECT r.id, r.run_id, r.namespace, r.workflow, 'stale_pending', c.seq, c.name,
			   t.attempt, GREATEST(COALESCE(t.run_at, t.created_at), p.at, k.claimed_at), p.at
		  FROM durable.task t
		  JOIN durable.run r ON r.run_id = t.run_id
		  JOIN durable.checkpoint c ON c.run = r.id AND c.seq = t.seq
		  LEFT JOIN durable.task_progress p ON p.id = t.id
		  LEFT JOIN claimed k ON k.task = t.id
		 WHERE t.kind = 'step' AND t.created_at <= cutoff
		   AND GREATEST(COALESCE(t.run_at, t.created_at), p.at, k.claimed_at) <= cutoff
		   AND c.status = 'pending' AND r.finished_at IS NULL
		   -- of a fan with a bound on what is in flight, what follows later
		   AND NOT COALESCE(t.seq BETWEEN r.fan_next AND r.fan_last, false)
	), oldest AS (
		SELECT DISTINCT ON (f.id) f.* FROM found f ORDER BY f.id, f.since, f.seq
	)
	SELECT o.run_id, o.namespace, o.workflow, o.reason, o.seq, o.name, o.attempts, moment - o.since, moment - o.beat
	  FROM oldest o ORDER BY o.since, o.id LIMIT max_runs;
END $$;
COMMENT ON FUNCTION durable.stalled_runs(interval, int) IS
'runs that wait for a signal without a deadline, or for a step that nobody does, for longer than that; the oldest first, one row each';
