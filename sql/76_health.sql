--
-- health() and queues: what an operator looks at.
--
-- The C functions of the API find out which namespaces the caller may read (NULL: all) and
-- then run the internal functions below as the extension's owner. None of them scans what
-- grows: they hop along indexes from queue to queue, or read what is small.
--

-- The groups of task_ready: one row for each priority of each queue, with its first task.
CREATE FUNCTION durable.ready_heads(
	namespaces text[], OUT namespace text, OUT queue text, OUT priority int, OUT id bigint)
RETURNS SETOF record LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
	WITH RECURSIVE hop AS (
		(SELECT r.namespace, r.queue, r.priority, r.id FROM durable.task_ready r
		  ORDER BY r.namespace, r.queue, r.priority DESC, r.id LIMIT 1)
		UNION ALL
		SELECT n.* FROM hop CROSS JOIN LATERAL (
			(SELECT r.namespace, r.queue, r.priority, r.id FROM durable.task_ready r
			  WHERE r.namespace = hop.namespace AND r.queue = hop.queue AND r.priority < hop.priority
			  ORDER BY r.priority DESC, r.id LIMIT 1)
			UNION ALL
			(SELECT r.namespace, r.queue, r.priority, r.id FROM durable.task_ready r
			  WHERE r.namespace = hop.namespace AND r.queue > hop.queue
			  ORDER BY r.queue, r.priority DESC, r.id LIMIT 1)
			UNION ALL
			(SELECT r.namespace, r.queue, r.priority, r.id FROM durable.task_ready r
			  WHERE r.namespace > hop.namespace
			  ORDER BY r.namespace, r.queue, r.priority DESC, r.id LIMIT 1)
			LIMIT 1) n)
	SELECT h.namespace, h.queue, h.priority, h.id FROM hop h
	 WHERE $1 IS NULL OR h.namespace = ANY ($1)
$$;
COMMENT ON FUNCTION durable.ready_heads(text[]) IS
'internal: the first ready task of each priority of each queue';

CREATE FUNCTION durable.delayed_heads(
	namespaces text[], OUT namespace text, OUT queue text, OUT run_at timestamptz)
RETURNS SETOF record LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
	WITH RECURSIVE hop AS (
		(SELECT d.namespace, d.queue, d.run_at FROM durable.task_delayed d
		  ORDER BY d.namespace, d.queue, d.run_at LIMIT 1)
		UNION ALL
		SELECT n.* FROM hop CROSS JOIN LATERAL (
			SELECT d.namespace, d.queue, d.run_at FROM durable.task_delayed d
			 WHERE ROW(d.namespace, d.queue) > ROW(hop.namespace, hop.queue)
			 ORDER BY d.namespace, d.queue, d.run_at LIMIT 1) n)
	SELECT h.namespace, h.queue, h.run_at FROM hop h
	 WHERE $1 IS NULL OR h.namespace = ANY ($1)
$$;
COMMENT ON FUNCTION durable.delayed_heads(text[]) IS
'internal: when the first delayed task of each queue is due';

-- When a task became ready is not stored. For a turn it is the last thing that happened to
-- its run: a timer, or what was recorded last.
CREATE FUNCTION durable.ready_since(task bigint) RETURNS timestamptz
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $$
	SELECT GREATEST(t.created_at, t.run_at, r.wake_at,
					(SELECT max(GREATEST(c.started_at, c.finished_at))
					   FROM (SELECT c.started_at, c.finished_at FROM durable.checkpoint c
							  WHERE c.run = r.id ORDER BY c.seq DESC LIMIT 20) c))
	  FROM durable.task t
	  LEFT JOIN durable.run r ON t.kind = 'turn' AND r.id = t.id
	 WHERE t.id = $1
$$;
COMMENT ON FUNCTION durable.ready_since(bigint) IS
'internal: since when a ready task could have been claimed, as far as it can be told';

-- ------------------------------------------------------------------- queues

-- More than 10,000 are not counted; the order makes it the index's first ones.
CREATE FUNCTION durable.queue_counts(
	namespaces text[], OUT namespace text, OUT queue text, OUT paused boolean,
	OUT ready bigint, OUT delayed bigint, OUT claimed bigint, OUT oldest_ready interval,
	OUT next_due timestamptz)
RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	engine timestamptz := durable.engine_now();
BEGIN
	RETURN QUERY
	WITH heads AS MATERIALIZED (
		SELECT h.namespace, h.queue, min(durable.ready_since(h.id)) AS since
		  FROM durable.ready_heads($1) h GROUP BY 1, 2),
	due AS MATERIALIZED (SELECT * FROM durable.delayed_heads($1)),
	held AS MATERIALIZED (
		SELECT t.namespace, t.queue, count(*) AS n
		  FROM (SELECT l.id AS lease, u.id FROM durable.lease l CROSS JOIN LATERAL unnest(l.ids) AS u(id)
				 WHERE l.kind = 'task' AND ($1 IS NULL OR l.namespace = ANY ($1)) OFFSET 0) i
		 CROSS JOIN LATERAL (SELECT t.namespace, t.queue FROM durable.task t
							  WHERE t.id = i.id AND i.lease > COALESCE(t.last_lease, 0) OFFSET 0) t
		 GROUP BY 1, 2),
	named AS (
		SELECT h.namespace, h.queue FROM heads h
		UNION SELECT d.namespace, d.queue FROM due d
		UNION SELECT c.namespace, c.queue FROM held c
		UNION SELECT q.namespace, q.queue FROM durable.queue q
			   WHERE q.paused_at IS NOT NULL AND ($1 IS NULL OR q.namespace = ANY ($1)))
	SELECT n.namespace, n.queue, q.paused_at IS NOT NULL,
		   (SELECT count(*) FROM (SELECT FROM durable.task_ready r
								   WHERE r.namespace = n.namespace AND r.queue = n.queue
								   ORDER BY r.priority DESC, r.id LIMIT 10000) x),
		   (SELECT count(*) FROM (SELECT FROM durable.task_delayed d
								   WHERE d.namespace = n.namespace AND d.queue = n.queue
								   ORDER BY d.run_at, d.id LIMIT 10000) x),
		   COALESCE(c.n, 0), engine - h.since, d.run_at
	  FROM named n
	  LEFT JOIN heads h ON h.namespace = n.namespace AND h.queue = n.queue
	  LEFT JOIN due d ON d.namespace = n.namespace AND d.queue = n.queue
	  LEFT JOIN held c ON c.namespace = n.namespace AND c.queue = n.queue
	  LEFT JOIN durable.queue q ON q.namespace = n.namespace AND q.queue = n.queue
	 ORDER BY 1, 2;
END $$;
COMMENT ON FUNCTION durable.queue_counts(text[]) IS
'internal: the rows of the view queues';

CREATE FUNCTION durable.queue_list(
	OUT namespace text, OUT queue text, OUT paused boolean,
	OUT ready bigint, OUT delayed bigint, OUT claimed bigint, OUT oldest_ready interval,
	OUT next_due timestamptz)
RETURNS SETOF record LANGUAGE c ROWS 20 AS 'MODULE_PATHNAME', 'durable_queue_list';
COMMENT ON FUNCTION durable.queue_list() IS
'internal: the view queues, for the namespaces that the caller may read';

CREATE VIEW durable.queues WITH (security_invoker = true) AS
SELECT q.namespace, q.queue, q.paused, q.ready, q.delayed, q.claimed, q.oldest_ready, q.next_due
  FROM durable.queue_list() q;
COMMENT ON VIEW durable.queues IS
'every queue that has tasks or is paused: how many are ready, delayed and claimed (10,000 of the first two mean that or more), how long the oldest has been ready, when the next is due';

-- ------------------------------------------------------------------- health

-- What is worth a warning, and what is critical; the unit is that of the check's value.
CREATE FUNCTION durable.health_thresholds(
	given jsonb, OUT name text, OUT unit text, OUT warn float8, OUT critical float8)
RETURNS SETOF record LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	wrong text;
BEGIN
	IF jsonb_typeof($1) IS DISTINCT FROM 'object' THEN
		RAISE EXCEPTION 'invalid value for thresholds'
			USING ERRCODE = 'invalid_parameter_value',
				  DETAIL = 'It must be an object that gives, for names of checks, two numbers: when to warn, and what is critical.',
				  HINT = 'For example: {"oldest_ready": [60, 600]}';
	END IF;
	SELECT k INTO wrong FROM jsonb_each($1) AS e(k, v)
	 WHERE NOT (CASE WHEN jsonb_typeof(v) = 'array' THEN jsonb_array_length(v) = 2
					 AND jsonb_typeof(v -> 0) = 'number' AND jsonb_typeof(v -> 1) = 'number' ELSE false END);
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION 'invalid thresholds for the check "%"', wrong
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'They must be an array of two numbers.';
	END IF;
	RETURN QUERY
	SELECT d.name, d.unit, COALESCE(($1 -> d.name ->> 0)::float8, d.warn),
		   COALESCE(($1 -> d.name ->> 1)::float8, d.critical)
	  FROM (VALUES
		('activation', 'copies', 1, 1),
		('scheduler', 'missing', 1, 1),
		('executors', 'percent', 101, 101),
		('worker_slots', 'percent', 90, 100),
		('last_sweep', 's', 180, 900),
		('sweep_failures', 'parts', 1, 3),
		('pg_cron', 'failed', 1, 2),
		('paused', 's', 3600, 86400),
		('oldest_ready', 's', 60, 900),
		('unserved_queues', 's', 60, 300),
		('blocked_runs', 's', 300, 3600),
		('singletons', 's', 3600, 86400),
		('stalled_runs', 'runs', 1, 100),
		('timers', 's', 60, 600),
		('schedules', 's', 120, 900),
		('schedules_paused', 'schedules', 1, 10),
		('lapsed_claims', 's', 60, 600),
		('results_overdue', 's', 86400, 604800),
		('snapshot_age', 's', 600, 3600),
		('xmin_age', 'transactions', 10000000, 100000000),
		('dead_rows', 'rows', 200000, 2000000),
		('autovacuum', 'off', 1, 2),
		('freeze_age', 'percent', 120, 300)
		) AS d (name, unit, warn, critical);
	SELECT k INTO wrong FROM jsonb_object_keys($1) k
	 WHERE NOT EXISTS (SELECT FROM durable.health_thresholds('{}') t WHERE t.name = k);
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION 'there is no check "%"', wrong
			USING ERRCODE = 'invalid_parameter_value', HINT = 'SELECT name FROM durable.health() shows the checks.';
	END IF;
END $$;
COMMENT ON FUNCTION durable.health_thresholds(jsonb) IS
'internal: the thresholds of the checks of health(), some of them as given';

-- Each check is a query that gives one value, details and a hint. A new one: its thresholds
-- above, its query here. $1 is the namespaces (NULL: all), and $2 whether the caller may see
-- what concerns the whole database.
CREATE FUNCTION durable.health_queries(OUT name text, OUT query text)
RETURNS SETOF record LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $queries$
VALUES
('activation', $q$
	SELECT (NOT durable.is_active())::int, NULL::jsonb,
		   'This database is a copy and executes nothing. If the original no longer runs this work, call durable.activate().' $q$),
('scheduler', $q$
	SELECT (a.wanted AND w.pid IS NULL)::int,
		   jsonb_build_object('preloaded', a.preloaded, 'background', a.background, 'pid', w.pid, 'since', w.started_at),
		   'The background worker of this database is not running. The server''s log may say why; is max_worker_processes large enough?'
	  FROM (SELECT h.preloaded, b.background, h.preloaded AND b.background AND NOT pg_is_in_recovery() AND durable.is_active() AS wanted
			  FROM durable.scan_hints() h, (SELECT current_setting('durable.background')::boolean) b (background)) a
	  LEFT JOIN LATERAL (SELECT w.pid, w.started_at FROM durable.workers() w WHERE w.kind = 'scheduler' LIMIT 1) w ON true $q$),
('executors', $q$
	SELECT CASE WHEN m.n > 0 THEN 100.0 * count(*) FILTER (WHERE w.state = 'busy') / m.n ELSE 0 END,
		   jsonb_build_object('limit', m.n, 'busy', count(*) FILTER (WHERE w.state = 'busy'), 'idle', count(*) FILTER (WHERE w.state = 'idle'),
							  'starting', count(*) FILTER (WHERE w.state = 'starting')),
		   'All executors are busy. Increase durable.workers if work waits.'
	  FROM (SELECT current_setting('durable.workers')::int) m (n) LEFT JOIN durable.workers() w ON w.kind = 'executor' GROUP BY m.n $q$),
('worker_slots', $q$
	SELECT 100.0 * count(*) / m.n, jsonb_build_object('limit', m.n, 'used', count(*)),
		   'The server has no room for further background workers; work waits. Increase max_worker_processes.'
	  FROM pg_stat_activity a, (SELECT current_setting('max_worker_processes')::int) m (n)
	 WHERE a.backend_type NOT IN ('client backend', 'walsender', 'walreceiver', 'walwriter', 'walsummarizer', 'checkpointer', 'background writer', 'startup',
								  'archiver', 'logger', 'autovacuum launcher', 'autovacuum worker', 'standalone backend', 'slotsync worker', 'io worker')
	 GROUP BY m.n $q$),
('last_sweep', $q$
	SELECT CASE WHEN s.alive THEN 0 ELSE extract(epoch FROM clock_timestamp() - COALESCE(l.at, i.since)) END,
		   jsonb_build_object('by_scheduler', s.alive, 'at', l.at) || CASE WHEN $2 THEN jsonb_build_object('by', l.by_role, 'pid', l.pid, 'done', l.done) ELSE '{}' END,
		   'Nobody sweeps: no scheduler runs, and durable.sweep() has not been called. See schedule_sweeps().'
	  FROM (SELECT EXISTS (SELECT FROM durable.workers() w WHERE w.kind = 'scheduler' AND w.state <> 'starting')) s (alive)
	 CROSS JOIN (SELECT max(i.created_at) FROM durable.identity i) i (since)
	  LEFT JOIN durable.last_sweep l ON true $q$),
('sweep_failures', $q$
	SELECT COALESCE(sum(CASE WHEN f.failures >= 3 THEN 3 ELSE 1 END), 0),
		   CASE WHEN $2 THEN jsonb_object_agg(f.part, jsonb_build_object('since', f.since, 'at', f.at, 'failures', f.failures, 'code', f.code, 'message', f.message, 'context', f.context))
						FILTER (WHERE f.part IS NOT NULL)
				ELSE jsonb_agg(f.part) END,
		   'A part of the sweep failed when it was last tried; the others go on. The detail has the error.'
	  FROM durable.sweep_failure f $q$),
('paused', $q$
	SELECT COALESCE(extract(epoch FROM clock_timestamp() - min(p.at)), 0), jsonb_agg(p.what ORDER BY p.what),
		   'Somebody has paused this: see resume() and resume_queue().'
	  FROM (SELECT w.paused_at, 'workers' FROM durable.worker_pause w
			UNION ALL
			SELECT q.paused_at, format('queue %s of %s', q.queue, q.namespace) FROM durable.queue q
			 WHERE q.paused_at IS NOT NULL AND ($1 IS NULL OR q.namespace = ANY ($1))) p (at, what) $q$),
('oldest_ready', $q$
	SELECT COALESCE(max(extract(epoch FROM durable.engine_now() - h.since)), 0),
		   jsonb_agg(jsonb_build_object('namespace', h.namespace, 'queue', h.queue, 'since', h.since) ORDER BY h.since) FILTER (WHERE h.nr <= 5),
		   'Work waits and nobody claims it: are there workers for this queue, and enough of them?'
	  FROM (SELECT r.*, row_number() OVER (ORDER BY r.since) AS nr
			  FROM (SELECT h.namespace, h.queue, min(durable.ready_since(h.id)) AS since FROM durable.ready_heads($1) h
					 WHERE NOT EXISTS (SELECT FROM durable.queue q WHERE q.namespace = h.namespace AND q.queue = h.queue AND q.paused_at IS NOT NULL)
					 GROUP BY 1, 2) r) h $q$),
('unserved_queues', $q$
	SELECT COALESCE(max(extract(epoch FROM n.now - u.since)), 0),
		   jsonb_agg(jsonb_build_object('namespace', u.namespace, 'queue', u.queue, 'since', u.since) ORDER BY u.since) FILTER (WHERE u.nr <= 5),
		   'Work waits for workers outside, and none that is alive has announced that it serves this queue: see queue_workers().'
	  FROM (SELECT durable.engine_now()) n (now)
	  LEFT JOIN LATERAL (
			SELECT h.namespace, h.queue, min(durable.ready_since(h.id)) AS since, row_number() OVER (ORDER BY min(durable.ready_since(h.id))) AS nr
			  FROM durable.ready_heads($1) h
			 WHERE h.queue NOT LIKE '#%'
			   AND NOT EXISTS (SELECT FROM durable.queue q WHERE q.namespace = h.namespace AND q.queue = h.queue AND q.paused_at IS NOT NULL)
			   AND NOT EXISTS (SELECT FROM durable.worker_queue q JOIN durable.worker w ON w.namespace = q.namespace AND w.worker = q.worker
								WHERE q.namespace = h.namespace AND q.queue = h.queue AND w.expires_at > n.now)
			   -- workers need not announce themselves
			   AND (EXISTS (SELECT FROM durable.worker w WHERE w.namespace = h.namespace)
					OR EXISTS (SELECT FROM durable.workflow f WHERE f.namespace = h.namespace AND f.queue = h.queue AND f.body IS NULL))
			 GROUP BY 1, 2) u ON true $q$),
('blocked_runs', $q$
	SELECT COALESCE(max(extract(epoch FROM durable.engine_now() - b.since)), 0),
		   jsonb_agg(jsonb_build_object('namespace', b.namespace, 'queue', b.queue, 'requires', b.requires, 'runs', b.n, 'since', b.since) ORDER BY b.since) FILTER (WHERE b.nr <= 5),
		   'Runs wait for a worker of this queue that can do what they require, and there is none: see the view workers.'
	  FROM (SELECT r.namespace, r.queue, r.requires, count(*) AS n, min(r.since) AS since, row_number() OVER (ORDER BY min(r.since)) AS nr
			  FROM (SELECT x.* FROM durable.run_blocked x WHERE $1 IS NULL OR x.namespace = ANY ($1) ORDER BY x.run LIMIT 10000) r
			 GROUP BY 1, 2, 3) b $q$),
('singletons', $q$
	WITH parked AS MATERIALIZED (
		SELECT s.* FROM (
			SELECT x.namespace, x.workflow, x.key, x.state, x.run FROM durable.singleton x WHERE $1 IS NULL OR x.namespace = ANY ($1)
			 ORDER BY x.namespace, x.workflow, x.key, x.state, x.run LIMIT 10000) s
		 WHERE s.state = 'waiting'),
	heads AS (
		SELECT h.*, durable.ready_since(h.run) AS since
		  FROM (SELECT p.namespace, p.workflow, p.key, min(p.run) AS run, count(*) AS n FROM parked p GROUP BY 1, 2, 3 ORDER BY 4 LIMIT 5) h)
	SELECT COALESCE(max(extract(epoch FROM durable.engine_now() - h.since)), 0),
		   jsonb_build_object('waiting', (SELECT count(*) FROM parked),
							  'keys', jsonb_agg(jsonb_build_object('namespace', h.namespace, 'workflow', h.workflow, 'key', h.key, 'waiting', h.n, 'since', h.since) ORDER BY h.run)),
		   'Runs wait long for others of their singleton key, which hold the slots: see the view singletons, and whether those go on.'
	  FROM heads h $q$),
('stalled_runs', $q$
	SELECT count(s.run_id),
		   jsonb_agg(jsonb_build_object('run_id', s.run_id, 'reason', s.reason, 'name', s.name, 'age', s.age) ORDER BY s.age DESC) FILTER (WHERE s.nr <= 5),
		   'Runs will not go on by themselves: see stalled_runs(), and whether somebody sends the signals and serves the steps that it names.'
	  FROM (SELECT x.*, row_number() OVER (ORDER BY x.age DESC) AS nr
			  FROM (SELECT current_setting('durable.stalled_after')::interval WHERE current_setting('durable.stalled_after') <> '0' OFFSET 0) g (after)
			 CROSS JOIN LATERAL durable.stalled_runs(g.after, 10000) x
			 WHERE $1 IS NULL OR x.namespace = ANY ($1)) s $q$),
('timers', $q$
	SELECT COALESCE(max(extract(epoch FROM n.now - d.run_at)) FILTER (WHERE d.run_at < n.now), 0),
		   jsonb_agg(jsonb_build_object('namespace', d.namespace, 'queue', d.queue, 'due', d.run_at) ORDER BY d.run_at) FILTER (WHERE d.run_at < n.now AND d.nr <= 5),
		   'Timers and delayed tasks are late: is there a scheduler, or somebody who claims or sweeps?'
	  FROM (SELECT durable.engine_now()) n (now)
	  LEFT JOIN (SELECT h.*, row_number() OVER (ORDER BY h.run_at) AS nr FROM durable.delayed_heads($1) h) d ON true $q$),
('schedules', $q$
	SELECT COALESCE(max(extract(epoch FROM durable.engine_now() - s.next_fire)), 0),
		   jsonb_agg(jsonb_build_object('schedule_id', s.schedule_id, 'due', s.next_fire) ORDER BY s.next_fire),
		   'Schedules are late: is there a scheduler, or somebody who sweeps?'
	  FROM (SELECT s.schedule_id, s.next_fire FROM durable.schedule s
			 WHERE s.next_fire < durable.engine_now() AND ($1 IS NULL OR s.namespace = ANY ($1)) ORDER BY s.next_fire LIMIT 5) s $q$),
('schedules_paused', $q$
	SELECT count(*), jsonb_agg(jsonb_build_object('schedule_id', s.schedule_id, 'error', s.last_error) ORDER BY s.schedule_id) FILTER (WHERE s.nr <= 5),
		   'These schedules could not start anything any more and have paused themselves. Mend them with upsert_schedule(..., paused => false).'
	  FROM (SELECT s.schedule_id, s.last_error, row_number() OVER (ORDER BY s.schedule_id) AS nr FROM durable.schedule s
			 WHERE s.paused AND s.last_error LIKE 'invalid schedule:%' AND ($1 IS NULL OR s.namespace = ANY ($1))) s $q$),
('lapsed_claims', $q$
	SELECT COALESCE(max(extract(epoch FROM n.now - l.lease_until)) FILTER (WHERE l.lease_until < n.now), 0),
		   jsonb_build_object('rounds', count(l.lease_until), 'lapsed', count(*) FILTER (WHERE l.lease_until < n.now),
							  'within_5_s', count(*) FILTER (WHERE l.lease_until BETWEEN n.now AND n.now + interval '5 s')),
		   'Workers have died or are stuck, and nobody has taken over what they had: is there a scheduler, or somebody who claims or sweeps?'
	  FROM (SELECT durable.engine_now()) n (now)
	  LEFT JOIN durable.lease l ON l.worker IS DISTINCT FROM 'durable.work' AND ($1 IS NULL OR l.namespace = ANY ($1)) GROUP BY n.now $q$),
('results_overdue', $q$
	WITH RECURSIVE hop AS (
		(SELECT r.namespace, r.name, r.finished_at FROM durable.task_result r WHERE r.lease_id IS NULL
		  ORDER BY r.namespace, r.name, r.finished_at LIMIT 1)
		UNION ALL
		SELECT n.* FROM hop CROSS JOIN LATERAL (
			SELECT r.namespace, r.name, r.finished_at FROM durable.task_result r
			 WHERE r.lease_id IS NULL AND ROW(r.namespace, r.name) > ROW(hop.namespace, hop.name)
			 ORDER BY r.namespace, r.name, r.finished_at LIMIT 1) n)
	SELECT CASE WHEN k.minutes >= 0 THEN GREATEST(COALESCE(extract(epoch FROM durable.engine_now() - min(h.finished_at)), 0) - 60 * k.minutes, 0) ELSE 0 END,
		   jsonb_build_object('oldest', min(h.finished_at)),
		   'Results that nobody has acknowledged are kept longer than durable.result_retention: the sweep does not keep up. Give it more max_work, or call it more often.'
	  FROM (SELECT s.setting::int FROM pg_settings s WHERE s.name = 'durable.result_retention') k (minutes)
	  LEFT JOIN hop h ON $1 IS NULL OR h.namespace = ANY ($1) GROUP BY k.minutes $q$),
('snapshot_age', $q$
	SELECT COALESCE(max(o.age), 0),
		   jsonb_agg(jsonb_strip_nulls(jsonb_build_object('pid', o.pid, 'gid', o.gid, 'age', round(o.age::numeric, 1))) ORDER BY o.age DESC) FILTER (WHERE o.nr <= 3),
		   'An old transaction keeps VACUUM from removing dead rows. End it: pg_terminate_backend, or ROLLBACK PREPARED.'
	  FROM (SELECT s.*, row_number() OVER (ORDER BY s.age DESC) AS nr FROM (
			SELECT a.pid, NULL AS gid, extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS age FROM pg_stat_activity a
			 WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_type <> 'autovacuum worker'
			   AND (a.backend_xmin IS NOT NULL OR a.backend_xid IS NOT NULL) AND a.xact_start IS NOT NULL
			UNION ALL
			SELECT NULL, CASE WHEN $2 THEN p.gid ELSE '?' END, extract(epoch FROM clock_timestamp() - p.prepared)::float8
			  FROM pg_prepared_xacts p WHERE p.database = current_database()) s) o $q$),
('xmin_age', $q$
	SELECT COALESCE(max(o.age), 0), jsonb_object_agg(o.kind, o.age),
		   'VACUUM cannot remove what was deleted since that long: by an old transaction, a prepared one, an unused replication slot, or a standby with hot_standby_feedback.'
	  FROM (SELECT s.kind, max(s.age) FROM (
			SELECT 'sessions' AS kind, age(a.backend_xmin) AS age FROM pg_stat_activity a WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xmin IS NOT NULL
			UNION ALL SELECT 'standbys', age(r.backend_xmin) FROM pg_stat_replication r WHERE r.backend_xmin IS NOT NULL
			UNION ALL SELECT 'slots', age(s.xmin) FROM pg_replication_slots s WHERE s.xmin IS NOT NULL
			UNION ALL SELECT 'prepared', age(p.transaction) FROM pg_prepared_xacts p WHERE p.database = current_database()) s GROUP BY 1) o (kind, age) $q$),
('dead_rows', $q$
	SELECT COALESCE(max(t.n_dead_tup), 0),
		   jsonb_object_agg(t.relname, jsonb_build_object('dead', t.n_dead_tup, 'live', t.n_live_tup, 'last_autovacuum', t.last_autovacuum)) FILTER (WHERE t.n_dead_tup >= 10000),
		   'Dead rows pile up. See snapshot_age and xmin_age; if both are ok, let autovacuum look more often (autovacuum_naptime) and do more (autovacuum_max_workers).'
	  FROM pg_stat_all_tables t WHERE t.schemaname = 'durable' $q$),
('autovacuum', $q$
	SELECT CASE WHEN s.off THEN 2 ELSE (t.names IS NOT NULL)::int END, to_jsonb(t.names),
		   'Autovacuum is off, for the server or for these tables, which turn over quickly. Turn it on: autovacuum, track_counts, and autovacuum_enabled of the tables.'
	  FROM (SELECT NOT current_setting('autovacuum')::boolean OR NOT current_setting('track_counts')::boolean) s (off),
		   (SELECT array_agg(c.relname::text ORDER BY c.relname) FROM pg_class c CROSS JOIN LATERAL pg_options_to_table(c.reloptions) o
			 WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r' AND o.option_name = 'autovacuum_enabled'
			   AND NOT o.option_value::boolean) t (names) $q$),
('freeze_age', $q$
	SELECT 100.0 * max(age(c.relfrozenxid)) / current_setting('autovacuum_freeze_max_age')::float8,
		   jsonb_build_object('age', max(age(c.relfrozenxid))),
		   'The tables have not been frozen for long: autovacuum does not get through. See snapshot_age and xmin_age.'
	  FROM pg_class c WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r' $q$)
$queries$;
COMMENT ON FUNCTION durable.health_queries() IS
'internal: the checks of health()';

-- pg_cron's tables are there only where it is.
CREATE FUNCTION durable.health_of_cron(OUT value float8, OUT detail jsonb, OUT hint text)
RETURNS record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	value := 0;
	hint := 'Jobs of schedule_sweeps() failed when they ran last: see cron.job_run_details, and whether their roles may connect (cron.host, pg_hba.conf).';
	IF NOT EXISTS (SELECT FROM pg_extension e WHERE e.extname = 'pg_cron') THEN
		RETURN;
	END IF;
	EXECUTE $q$
		WITH recent AS MATERIALIZED (
			SELECT d.jobid, d.runid, d.status, d.return_message, d.end_time FROM cron.job_run_details d ORDER BY d.runid DESC LIMIT 2000),
		last AS (
			SELECT DISTINCT ON (r.jobid) r.* FROM recent r WHERE r.status IN ('succeeded', 'failed') ORDER BY r.jobid, r.runid DESC)
		SELECT count(*) FILTER (WHERE l.status = 'failed'),
			   jsonb_agg(jsonb_build_object('job', j.jobname, 'role', j.username, 'schedule', j.schedule, 'active', j.active,
											'last', l.status, 'at', l.end_time, 'message', CASE WHEN l.status = 'failed' THEN l.return_message END) ORDER BY j.jobid)
		  FROM cron.job j LEFT JOIN last l ON l.jobid = j.jobid
		 WHERE j.jobname = ANY ($1) $q$
	   INTO value, detail
	  USING ARRAY(SELECT c.job_name FROM durable.cron_jobs('1 min', '1.4') c);
END $$;
COMMENT ON FUNCTION durable.health_of_cron() IS
'internal: how the jobs of schedule_sweeps fare';

-- A check that cannot be made is critical, and does not keep the others.
CREATE FUNCTION durable.health_checks(
	namespaces text[], whole boolean, thresholds jsonb, OUT name text, OUT level text, OUT value float8, OUT unit text,
	OUT hint text, OUT detail jsonb)
RETURNS SETOF record LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	c record;
BEGIN
	FOR c IN
		SELECT t.*, COALESCE(q.query, 'SELECT h.value, CASE WHEN $2 THEN h.detail END, h.hint FROM durable.health_of_cron() h') AS query
		  FROM durable.health_thresholds($3) WITH ORDINALITY t (name, unit, warn, critical, nr)
		  LEFT JOIN durable.health_queries() q ON q.name = t.name
		 ORDER BY t.nr
	LOOP
		name := c.name;
		unit := c.unit;
		BEGIN
			EXECUTE c.query INTO value, detail, hint USING $1, $2;
			value := GREATEST(value, 0);		-- a clock that was put back
			level := CASE WHEN value >= c.critical THEN 'critical' WHEN value >= c.warn THEN 'warn' ELSE 'ok' END;
			hint := CASE WHEN level <> 'ok' THEN hint END;
		EXCEPTION WHEN OTHERS THEN
			level := 'critical';
			value := NULL;
			detail := jsonb_build_object('code', SQLSTATE, 'message', CASE WHEN $2 THEN SQLERRM END);
			hint := 'The check could not be made.';
		END;
		RETURN NEXT;
	END LOOP;
END $$;
COMMENT ON FUNCTION durable.health_checks(text[], boolean, jsonb) IS
'internal: the rows of health()';

CREATE FUNCTION durable.is_active() RETURNS boolean
LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'durable_shows_active';
COMMENT ON FUNCTION durable.is_active() IS
'internal: false in a restored or cloned copy of a database that has not been activated';

CREATE FUNCTION durable.health(
	thresholds jsonb DEFAULT '{}', OUT name text, OUT level text, OUT value float8, OUT unit text,
	OUT hint text, OUT detail jsonb)
RETURNS SETOF record LANGUAGE c ROWS 25 AS 'MODULE_PATHNAME', 'durable_health';
COMMENT ON FUNCTION durable.health(jsonb) IS
'how this database''s work fares: one row per check, with a level (ok, warn, critical), a value, and what to do';
