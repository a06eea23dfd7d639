--
-- Nothing to PUBLIC. grant_usage gives a role what it names, in one namespace.
--

DO $$
DECLARE
	f pg_catalog.regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_catalog.pg_proc p
			  WHERE p.pronamespace OPERATOR(pg_catalog.=) 'durable'::pg_catalog.regnamespace
	LOOP
		EXECUTE pg_catalog.format('REVOKE ALL ON ROUTINE %s FROM PUBLIC', f);
	END LOOP;
END $$;

ALTER TABLE durable.task ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.task_ready ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.task_delayed ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.lease ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.task_result ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.task_progress ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.task_deadline ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.task_limited ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.limiter ENABLE ROW LEVEL SECURITY;
CREATE POLICY namespace_read ON durable.task FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.task_ready FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.task_delayed FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.lease FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.task_result FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.task_deadline FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.task_limited FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.limiter FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.queue FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.task_progress FOR SELECT
	USING (EXISTS (SELECT FROM durable.task t
					WHERE t.id OPERATOR(pg_catalog.=) task_progress.id));

ALTER TABLE durable.workflow ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.handler ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.run ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.checkpoint ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.waiter ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.signal_buffer ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.run_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.schedule ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.retention_policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.retention_state ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.retention_archive ENABLE ROW LEVEL SECURITY;
CREATE POLICY namespace_read ON durable.retention_policy FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.retention_state FOR SELECT
	USING (EXISTS (SELECT FROM durable.retention_policy p
					WHERE p.id OPERATOR(pg_catalog.=) retention_state.policy));
CREATE POLICY namespace_read ON durable.retention_archive FOR SELECT
	USING (EXISTS (SELECT FROM durable.retention_policy p
					WHERE p.id OPERATOR(pg_catalog.=) retention_archive.policy));
ALTER TABLE durable.dead_letter ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.singleton ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.quota ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.worker ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.worker_queue ENABLE ROW LEVEL SECURITY;
ALTER TABLE durable.run_blocked ENABLE ROW LEVEL SECURITY;
CREATE POLICY namespace_read ON durable.worker FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.worker_queue FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.run_blocked FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.workflow FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.handler FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.run FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.waiter FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.signal_buffer FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.schedule FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.dead_letter FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.singleton FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.quota FOR SELECT
	USING (durable.has_access(namespace, 'read'));
CREATE POLICY namespace_read ON durable.checkpoint FOR SELECT
	USING (EXISTS (SELECT FROM durable.run r
					WHERE r.id OPERATOR(pg_catalog.=) checkpoint.run));
CREATE POLICY namespace_read ON durable.run_log FOR SELECT
	USING (EXISTS (SELECT FROM durable.run r
					WHERE r.id OPERATOR(pg_catalog.=) run_log.run));

-- Which objects each privilege opens. 'start' and the others name the same
-- rights as the rows of namespace_access, which the functions themselves check.
CREATE FUNCTION durable.privilege_objects(privilege text) RETURNS SETOF text
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $$
	SELECT o FROM (VALUES
		('start', 'EXECUTE ON ROUTINE durable.dispatch'),
		('start', 'EXECUTE ON ROUTINE durable.dispatch_many'),
		('start', 'EXECUTE ON ROUTINE durable.cancel_task'),
		('start', 'EXECUTE ON ROUTINE durable.claim_results'),
		('start', 'EXECUTE ON ROUTINE durable.ack_results'),
		('start', 'EXECUTE ON ROUTINE durable.renew'),
		('work', 'EXECUTE ON ROUTINE durable.claim'),
		('work', 'EXECUTE ON ROUTINE durable.settle_and_claim'),
		('work', 'EXECUTE ON ROUTINE durable.renew'),
		('work', 'EXECUTE ON ROUTINE durable.release'),
		('work', 'EXECUTE ON ROUTINE durable.complete'),
		('work', 'EXECUTE ON ROUTINE durable.complete_many'),
		('work', 'EXECUTE ON ROUTINE durable.fail'),
		('work', 'EXECUTE ON ROUTINE durable.heartbeat'),
		('work', 'EXECUTE ON ROUTINE durable.wait_for_work'),
		('work', 'EXECUTE ON ROUTINE durable.wait_and_claim'),
		('read', 'EXECUTE ON ROUTINE durable.task_status'),
		('read', 'EXECUTE ON ROUTINE durable.queue_depth'),
		('read', 'EXECUTE ON ROUTINE durable.has_access'),
		('read', 'EXECUTE ON ROUTINE durable.require_access'),
		('read', 'EXECUTE ON ROUTINE durable.engine_now'),
		('read', 'SELECT ON durable.task, durable.task_ready, durable.task_delayed, '
			  || 'durable.task_result, durable.task_progress, durable.task_deadline, durable.queue, '
			  || 'durable.task_limited, durable.limiter'),
		('read', 'SELECT ON durable.limiters'),
		('read', 'EXECUTE ON ROUTINE durable.limiter_usage'),
		-- not the token: whoever knows it may settle
		('read', 'SELECT (id, lease_until, claimed_at, kind, namespace, queue, worker, ids) '
			  || 'ON durable.lease'),
		('start', 'EXECUTE ON ROUTINE durable.start'),
		('start', 'EXECUTE ON ROUTINE durable.start_many'),
		('start', 'EXECUTE ON ROUTINE durable.cancel'),
		('start', 'EXECUTE ON ROUTINE durable.redispatch'),
		('signal', 'EXECUTE ON ROUTINE durable.signal'),
		('read', 'EXECUTE ON ROUTINE durable.get_run'),
		('read', 'EXECUTE ON ROUTINE durable.result'),
		('read', 'EXECUTE ON ROUTINE durable.history'),
		('read', 'EXECUTE ON ROUTINE durable.get_event'),
		('read', 'EXECUTE ON ROUTINE durable.wait_for_run'),
		('read', 'SELECT ON durable.workflow, durable.handler, durable.run, durable.checkpoint, '
			  || 'durable.waiter, durable.signal_buffer, durable.run_log, durable.dead_letter'),
		('manage', 'EXECUTE ON ROUTINE durable.set_dead_letter_workflow'),
		('manage', 'EXECUTE ON ROUTINE durable.redrive'),
		('read', 'EXECUTE ON ROUTINE durable.stalled_runs'),
		('start', 'EXECUTE ON ROUTINE durable.cancel_where'),
		('work', 'EXECUTE ON ROUTINE durable.register_workflow'),
		('work', 'EXECUTE ON ROUTINE durable.unregister_workflow'),
		('work', 'EXECUTE ON ROUTINE durable.register_handler'),
		('work', 'EXECUTE ON ROUTINE durable.unregister_handler'),
		('work', 'EXECUTE ON ROUTINE durable.work'),
		('work', 'EXECUTE ON ROUTINE durable.complete_turn'),
		('work', 'EXECUTE ON ROUTINE durable.record_step'),
		('work', 'EXECUTE ON ROUTINE durable.exchange'),
		('work', 'EXECUTE ON ROUTINE durable.local_step'),
		('work', 'EXECUTE ON ROUTINE durable.side_effect'),
		('work', 'EXECUTE ON ROUTINE durable.is_recorded'),
		('work', 'EXECUTE ON ROUTINE durable.recorded'),
		('work', 'EXECUTE ON ROUTINE durable.step'),
		('work', 'EXECUTE ON ROUTINE durable.step_async'),
		('work', 'EXECUTE ON ROUTINE durable.step_all'),
		('work', 'EXECUTE ON ROUTINE durable.await'),
		('work', 'EXECUTE ON ROUTINE durable.await_all'),
		('work', 'EXECUTE ON ROUTINE durable.await_any'),
		('work', 'EXECUTE ON ROUTINE durable.sleep'),
		('work', 'EXECUTE ON ROUTINE durable.sleep_until'),
		('work', 'EXECUTE ON ROUTINE durable.wait_for_signal'),
		('work', 'EXECUTE ON ROUTINE durable.child'),
		('work', 'EXECUTE ON ROUTINE durable.start_child'),
		('work', 'EXECUTE ON ROUTINE durable.now'),
		('work', 'EXECUTE ON ROUTINE durable.random'),
		('work', 'EXECUTE ON ROUTINE durable.uuid'),
		('work', 'EXECUTE ON ROUTINE durable.patched'),
		('work', 'EXECUTE ON ROUTINE durable.set_event'),
		('work', 'EXECUTE ON ROUTINE durable.upsert_search_attributes'),
		('work', 'EXECUTE ON ROUTINE durable.log'),
		('work', 'EXECUTE ON ROUTINE durable.fail_run'),
		('work', 'EXECUTE ON ROUTINE durable.run_id'),
		('work', 'EXECUTE ON ROUTINE durable.run_namespace'),
		-- jobs of pg_cron run as the role that schedules them
		('work', 'EXECUTE ON ROUTINE durable.schedule_sweeps, durable.unschedule_sweeps, durable.cron_jobs, '
			  || 'durable.cron_function, durable.cron_database, durable.cron_place, durable.cron_kinds, durable.cron_lock'),
		('manage', 'EXECUTE ON ROUTINE durable.requeue'),
		('manage', 'EXECUTE ON ROUTINE durable.retry'),
		('manage', 'EXECUTE ON ROUTINE durable.retry_with_input'),
		('read', 'EXECUTE ON ROUTINE durable.workers'),
		('read', 'EXECUTE ON ROUTINE durable.health, durable.queue_list'),
		('read', 'SELECT ON durable.queues'),
		('work', 'EXECUTE ON ROUTINE durable.announce_worker'),
		('work', 'EXECUTE ON ROUTINE durable.withdraw_worker'),
		('work', 'EXECUTE ON ROUTINE durable.protocol'),
		('read', 'EXECUTE ON ROUTINE durable.protocol'),
		('read', 'EXECUTE ON ROUTINE durable.queue_workers'),
		('read', 'EXECUTE ON ROUTINE durable.workflow_directory'),
		('read', 'SELECT ON durable.worker, durable.worker_queue, durable.run_blocked, durable.workers'),
		('manage', 'EXECUTE ON ROUTINE durable.pause_queue'),
		('manage', 'EXECUTE ON ROUTINE durable.resume_queue'),
		('manage', 'EXECUTE ON ROUTINE durable.register_limiter'),
		('manage', 'EXECUTE ON ROUTINE durable.drop_limiter'),
		('manage', 'EXECUTE ON ROUTINE durable.pause_limiter'),
		('manage', 'EXECUTE ON ROUTINE durable.resume_limiter'),
		('read', 'SELECT ON durable.schedule, durable.schedules'),
		('read', 'SELECT ON durable.retention_policy, durable.retention_state, '
			  || 'durable.retention_archive, durable.retention, durable.retention_failures'),
		('manage', 'EXECUTE ON ROUTINE durable.set_retention'),
		('manage', 'EXECUTE ON ROUTINE durable.drop_retention'),
		('manage', 'EXECUTE ON ROUTINE durable.delete_run'),
		('manage', 'EXECUTE ON ROUTINE durable.purge_runs'),
		('read', 'SELECT ON durable.singleton, durable.singletons, durable.quota'),
		('read', 'EXECUTE ON ROUTINE durable.next_fires'),
		('manage', 'EXECUTE ON ROUTINE durable.create_schedule'),
		('manage', 'EXECUTE ON ROUTINE durable.upsert_schedule'),
		('manage', 'EXECUTE ON ROUTINE durable.pause_schedule'),
		('manage', 'EXECUTE ON ROUTINE durable.resume_schedule'),
		('manage', 'EXECUTE ON ROUTINE durable.trigger_schedule'),
		('manage', 'EXECUTE ON ROUTINE durable.backfill_schedule'),
		('manage', 'EXECUTE ON ROUTINE durable.delete_schedule'),
		-- the owner of a schedule, who need not manage the namespace any more
		('start', 'EXECUTE ON ROUTINE durable.upsert_schedule'),
		('start', 'EXECUTE ON ROUTINE durable.pause_schedule'),
		('start', 'EXECUTE ON ROUTINE durable.resume_schedule'),
		('start', 'EXECUTE ON ROUTINE durable.trigger_schedule'),
		('start', 'EXECUTE ON ROUTINE durable.backfill_schedule'),
		('start', 'EXECUTE ON ROUTINE durable.delete_schedule')
	) AS v(p, o) WHERE p = $1;
$$;
COMMENT ON FUNCTION durable.privilege_objects(text) IS
'the GRANT targets behind a privilege of grant_usage';

CREATE FUNCTION durable.check_privileges(role regrole, namespace text, privileges text[]) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	wrong text;
BEGIN
	IF NOT (SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c
			 WHERE c.oid = 'durable.namespace_access'::regclass) THEN
		RAISE EXCEPTION 'permission denied to change namespace access'
			USING ERRCODE = 'insufficient_privilege',
				  HINT = 'Only the role that owns the extension may grant or revoke usage.';
	END IF;
	IF $1 IS NULL OR $2 IS NULL OR $3 IS NULL OR array_position($3, NULL) IS NOT NULL THEN
		RAISE EXCEPTION 'role, namespace and privileges must not be null'
			USING ERRCODE = 'null_value_not_allowed';
	END IF;
	IF octet_length($2) NOT BETWEEN 1 AND 255 THEN
		RAISE EXCEPTION 'invalid value for namespace'
			USING ERRCODE = 'invalid_parameter_value', DETAIL = 'It must have between 1 and 255 bytes.';
	END IF;
	IF cardinality($3) = 0 THEN
		RAISE EXCEPTION 'privileges must not be empty' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	SELECT p INTO wrong FROM unnest($3) p
	 WHERE p <> ALL ('{start,signal,work,read,manage}'::text[]) LIMIT 1;
	IF wrong IS NOT NULL THEN
		RAISE EXCEPTION 'unknown privilege "%"', wrong
			USING ERRCODE = 'invalid_parameter_value',
				  HINT = 'The privileges are start, signal, work, read and manage.';
	END IF;
END $$;
COMMENT ON FUNCTION durable.check_privileges(regrole, text, text[]) IS
'the checks shared by grant_usage and revoke_usage';

CREATE FUNCTION durable.grant_usage(role regrole, namespace text DEFAULT 'default',
	privileges text[] DEFAULT '{start,signal,work,read}') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ns text := CASE WHEN $2 = '' THEN 'default' ELSE $2 END;
	target text;
BEGIN
	PERFORM durable.check_privileges($1, ns, $3);
	IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = $1) THEN
		RAISE EXCEPTION 'role % does not exist', $1 USING ERRCODE = 'undefined_object';
	END IF;
	INSERT INTO durable.namespace_access AS a (namespace, role, privileges)
	SELECT ns, $1, array_agg(DISTINCT p ORDER BY p) FROM unnest($3) p
	ON CONFLICT ON CONSTRAINT namespace_access_pkey DO UPDATE
	   SET privileges = (SELECT array_agg(DISTINCT p ORDER BY p)
						   FROM unnest(a.privileges || excluded.privileges) p);
	EXECUTE format('GRANT USAGE ON SCHEMA durable TO %s', $1);
	FOR target IN SELECT o FROM unnest($3) p, durable.privilege_objects(p) o
	LOOP
		EXECUTE format('GRANT %s TO %s', target, $1);
	END LOOP;
END $$;
COMMENT ON FUNCTION durable.grant_usage(regrole, text, text[]) IS
'let a role start, signal, work, read or manage in one namespace; only the extension''s owner may';

CREATE FUNCTION durable.revoke_usage(role regrole, namespace text DEFAULT 'default',
	privileges text[] DEFAULT '{start,signal,work,read,manage}') RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	ns text := CASE WHEN $2 = '' THEN 'default' ELSE $2 END;
	target text;
BEGIN
	PERFORM durable.check_privileges($1, ns, $3);
	UPDATE durable.namespace_access a
	   SET privileges = ARRAY(SELECT p FROM unnest(a.privileges) p WHERE p <> ALL ($3))
	 WHERE a.namespace = ns AND a.role = $1;
	IF 'work' = ANY ($3) THEN
		WITH gone AS (
			DELETE FROM durable.worker w WHERE w.namespace = ns AND w.role = $1 RETURNING w.worker)
		DELETE FROM durable.worker_queue q USING gone g WHERE q.namespace = ns AND q.worker = g.worker;
	END IF;
	DELETE FROM durable.namespace_access a
	 WHERE a.namespace = ns AND a.role = $1 AND cardinality(a.privileges) = 0;
	IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = $1) THEN
		RETURN;		-- a dropped role: only its row was left
	END IF;
	-- An object stays granted while any privilege left, in any namespace, opens it.
	FOR target IN
		SELECT o FROM unnest($3) p, durable.privilege_objects(p) o
		EXCEPT
		SELECT o FROM durable.namespace_access a, unnest(a.privileges) p,
			   durable.privilege_objects(p) o
		 WHERE a.role = $1
	LOOP
		EXECUTE format('REVOKE %s FROM %s', target, $1);
	END LOOP;
	IF NOT EXISTS (SELECT FROM durable.namespace_access a WHERE a.role = $1) THEN
		EXECUTE format('REVOKE USAGE ON SCHEMA durable FROM %s', $1);
	END IF;
END $$;
COMMENT ON FUNCTION durable.revoke_usage(regrole, text, text[]) IS
'take back what grant_usage gave';

REVOKE ALL ON FUNCTION durable.privilege_objects(text), durable.check_privileges(regrole, text, text[]),
	durable.grant_usage(regrole, text, text[]), durable.revoke_usage(regrole, text, text[]) FROM PUBLIC;
