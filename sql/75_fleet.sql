--
-- Looking at workers: who is there, what nobody serves, what does not fit together.
-- Read with the caller's own rights: SELECT on the tables and their row security.
--

CREATE VIEW durable.workers WITH (security_invoker = true) AS
SELECT 'external' AS kind, w.namespace, w.worker, w.role,
	   w.expires_at OPERATOR(pg_catalog.>) c.now AS live,
	   COALESCE(w.status OPERATOR(pg_catalog.->>) 'status', 'up') AS state,
	   w.queues, w.workflows, w.capabilities,
	   ARRAY[w.protocol_min, w.protocol_max] AS protocol,
	   w.protocol_min OPERATOR(pg_catalog.<=) p.engine[2]
	   AND w.protocol_max OPERATOR(pg_catalog.>=) p.engine[1] AS compatible,
	   w.status, w.first_seen, w.last_seen, w.expires_at,
	   NULL::int AS pid, NULL::text AS run_id, NULL::text AS step
  FROM durable.worker w
 CROSS JOIN durable.engine_now() c(now)
 CROSS JOIN durable.protocol() p(engine)
UNION ALL
SELECT b.kind, b.namespace, NULL, b.role, true, b.state, NULL, NULL, NULL, NULL, true, NULL,
	   b.started_at, b.since, NULL, b.pid, b.run_id, b.step
  FROM durable.workers() b;
COMMENT ON VIEW durable.workers IS
'all workers: those outside that have announced themselves (kind external), and the background workers of this database';

CREATE FUNCTION durable.queue_workers(
	namespace text DEFAULT NULL,
	OUT queue text, OUT ready bigint, OUT claimed bigint, OUT depth bigint,
	OUT live_workers bigint, OUT workers text[], OUT last_seen timestamptz, OUT alert boolean)
RETURNS SETOF record LANGUAGE plpgsql STABLE ROWS 20
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ns text := durable.require_access($1, 'read');
	t timestamptz := durable.engine_now();
BEGIN
	RETURN QUERY
	WITH waiting AS (
		SELECT r.queue, count(*) AS n FROM durable.task_ready r
		 WHERE r.namespace = ns AND r.queue NOT LIKE '#%' GROUP BY 1),
	taken AS (
		SELECT k.queue, count(*) AS n
		  FROM (SELECT l.id AS lease, u.id FROM durable.lease l
				 CROSS JOIN LATERAL unnest(l.ids) AS u(id)
				 WHERE l.namespace = ns AND l.kind = 'task' OFFSET 0) held
		 CROSS JOIN LATERAL (SELECT k.queue FROM durable.task k
							  WHERE k.id = held.id AND held.lease > COALESCE(k.last_lease, 0)
								AND k.queue NOT LIKE '#%' OFFSET 0) k
		 GROUP BY 1),
	serving AS (
		SELECT q.name AS queue, count(*) FILTER (WHERE w.expires_at > t) AS n,
			   array_agg(w.worker ORDER BY w.worker) FILTER (WHERE w.expires_at > t) AS names,
			   max(w.last_seen) AS seen
		  FROM durable.worker w CROSS JOIN LATERAL unnest(w.queues) q(name)
		 WHERE w.namespace = ns GROUP BY 1),
	known AS (
		SELECT a.queue FROM waiting a UNION SELECT b.queue FROM taken b
		UNION SELECT c.queue FROM serving c
		UNION SELECT d.queue FROM durable.workflow d WHERE d.namespace = ns AND d.body IS NULL)
	SELECT k.queue, COALESCE(a.n, 0), COALESCE(b.n, 0), COALESCE(a.n, 0) + COALESCE(b.n, 0),
		   COALESCE(s.n, 0), COALESCE(s.names, '{}'), s.seen,
		   COALESCE(a.n, 0) + COALESCE(b.n, 0) > 0 AND COALESCE(s.n, 0) = 0
	  FROM known k
	  LEFT JOIN waiting a ON a.queue = k.queue
	  LEFT JOIN taken b ON b.queue = k.queue
	  LEFT JOIN serving s ON s.queue = k.queue
	 ORDER BY k.queue;
END $$;
COMMENT ON FUNCTION durable.queue_workers(text) IS
'the queues that workers outside serve: tasks that are ready and claimed, live workers; alert = there are tasks and no live worker';

CREATE FUNCTION durable.workflow_directory(
	namespace text DEFAULT NULL,
	OUT workflow text, OUT versions text[], OUT kind text, OUT queue text,
	OUT workers text[], OUT observed text[], OUT disagreements text[])
RETURNS SETOF record LANGUAGE plpgsql STABLE ROWS 20
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ns text := durable.require_access($1, 'read');
	t timestamptz := durable.engine_now();
	engine int[] := durable.protocol();
BEGIN
	RETURN QUERY
	WITH declared AS (
		SELECT f.name, w.worker, w.queues, w.capabilities,
			   w.protocol_min <= engine[2] AND w.protocol_max >= engine[1] AS compatible
		  FROM durable.worker w CROSS JOIN LATERAL unnest(w.workflows) f(name)
		 WHERE w.namespace = ns AND w.expires_at > t),
	registered AS (
		SELECT r.name, array_agg(r.version ORDER BY r.version) AS versions,
			   CASE WHEN bool_or(r.body IS NOT NULL) AND bool_or(r.body IS NULL) THEN 'mixed'
					WHEN bool_or(r.body IS NOT NULL) THEN 'sql'
					WHEN bool_and(r.convention) THEN 'convention' ELSE 'external' END AS kind,
			   array_agg(DISTINCT r.queue) FILTER (WHERE r.body IS NULL) AS queues,
			   bool_or(r.body IS NULL AND r.requires IS NOT NULL) AS picky
		  FROM durable.workflow r WHERE r.namespace = ns GROUP BY 1),
	-- who holds claims of a queue and has not announced himself
	seen AS (
		SELECT l.queue, array_agg(DISTINCT l.worker ORDER BY l.worker) AS names
		  FROM durable.lease l
		 WHERE l.namespace = ns AND l.kind = 'task' AND l.worker IS NOT NULL
		   AND l.worker <> 'durable.work' AND l.lease_until > t
		   AND NOT EXISTS (SELECT FROM durable.worker w
							WHERE w.namespace = ns AND w.worker = l.worker AND w.expires_at > t)
		 GROUP BY 1),
	names AS (SELECT d.name FROM declared d UNION SELECT r.name FROM registered r)
	SELECT b.name, r.versions, COALESCE(r.kind, 'unregistered'), array_to_string(r.queues, ', '),
		   COALESCE(d.names, '{}'), COALESCE(s.names, '{}'),
		   array_remove(ARRAY[
			   CASE WHEN r.name IS NULL THEN 'not registered' END,
			   CASE WHEN r.kind = 'sql' AND d.n > 0 THEN 'executed in the database, and declared by workers' END,
			   CASE WHEN r.kind <> 'sql' AND COALESCE(d.n, 0) = 0 AND s.names IS NULL THEN 'no live worker declares it' END,
			   CASE WHEN r.kind <> 'sql' AND COALESCE(d.n, 0) = 0 AND s.names IS NOT NULL THEN 'claimed by workers that have not announced themselves' END,
			   CASE WHEN r.kind <> 'sql' AND d.unserved > 0 THEN 'declared by workers that do not serve its queue' END,
			   CASE WHEN d.incompatible > 0 THEN 'declared by workers of another protocol' END,
			   CASE WHEN r.picky AND d.n > 0 AND d.capable = 0 THEN 'no live worker can do what it requires' END
		   ], NULL)
	  FROM names b
	  LEFT JOIN registered r ON r.name = b.name
	  LEFT JOIN LATERAL (
		SELECT count(*) AS n, array_agg(e.worker ORDER BY e.worker) AS names,
			   count(*) FILTER (WHERE NOT e.queues && r.queues) AS unserved,
			   count(*) FILTER (WHERE NOT e.compatible) AS incompatible,
			   count(*) FILTER (WHERE e.compatible AND NOT EXISTS (
					SELECT FROM durable.workflow q
					 WHERE q.namespace = ns AND q.name = b.name AND q.body IS NULL
					   AND NOT COALESCE(q.requires, '{}') <@ e.capabilities)) AS capable
		  FROM declared e WHERE e.name = b.name HAVING count(*) > 0) d ON true
	  LEFT JOIN LATERAL (
		SELECT array_agg(DISTINCT n.name ORDER BY n.name) AS names
		  FROM seen x CROSS JOIN LATERAL unnest(x.names) n(name)
		 WHERE x.queue = ANY (r.queues) HAVING count(*) > 0) s ON true
	 ORDER BY b.name;
END $$;
COMMENT ON FUNCTION durable.workflow_directory(text) IS
'what live workers declare against what is registered, workflow by workflow; disagreements are told and not resolved';
