-- What each privilege of grant_usage opens: these functions and tables, and no others.
\set ECHO none
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
BEGIN;
SELECT plan(32);

CREATE TEMP TABLE opens (privilege text, functions text[], tables text[]);
INSERT INTO opens VALUES
	('start', '{dispatch,dispatch_many,cancel_task,claim_results,ack_results,renew,start,start_many,cancel,cancel_where,redispatch,'
		'upsert_schedule,pause_schedule,resume_schedule,trigger_schedule,backfill_schedule,delete_schedule}', '{}'),
	('signal', '{signal}', '{}'),
	('work', '{claim,settle_and_claim,renew,release,complete,complete_many,fail,heartbeat,wait_for_work,wait_and_claim,'
		'register_workflow,unregister_workflow,register_handler,unregister_handler,work,complete_turn,record_step,exchange,local_step,side_effect,is_recorded,recorded,step,step_async,step_all,await,await_all,await_any,sleep,sleep_until,announce_worker,withdraw_worker,protocol,'
		'wait_for_signal,child,start_child,now,random,uuid,patched,set_event,upsert_search_attributes,log,fail_run,run_id,run_namespace,'
		'schedule_sweeps,unschedule_sweeps,cron_jobs,cron_function,cron_database,cron_place,cron_kinds,cron_lock}', '{}'),
	('read', '{task_status,queue_depth,has_access,require_access,engine_now,get_run,result,history,get_event,wait_for_run,workers,next_fires,stalled_runs,health,queue_list,protocol,queue_workers,workflow_directory,limiter_usage}',
		'{task,task_ready,task_delayed,task_deadline,task_result,task_progress,queue,workflow,handler,run,checkpoint,waiter,signal_buffer,run_log,schedule,retention_policy,retention_state,retention_archive,dead_letter,singleton,quota,worker,worker_queue,run_blocked,limiter,task_limited}'),
	('manage', '{pause_queue,resume_queue,requeue,retry,retry_with_input,set_dead_letter_workflow,redrive,create_schedule,upsert_schedule,pause_schedule,resume_schedule,trigger_schedule,backfill_schedule,delete_schedule,set_retention,drop_retention,delete_run,purge_runs,register_limiter,drop_limiter,pause_limiter,resume_limiter}', '{}');
CREATE FUNCTION pg_temp.functions_of(role text) RETURNS text[] LANGUAGE sql AS $$
	SELECT coalesce(array_agg(p.proname::text ORDER BY p.proname COLLATE "C"), '{}') FROM pg_proc p
	 WHERE p.pronamespace = 'durable'::regnamespace AND has_function_privilege(role, p.oid, 'EXECUTE')
$$;
CREATE FUNCTION pg_temp.tables_of(role text, privilege text) RETURNS text[] LANGUAGE sql AS $$
	SELECT coalesce(array_agg(c.relname::text ORDER BY c.relname COLLATE "C"), '{}') FROM pg_class c
	 WHERE c.relnamespace = 'durable'::regnamespace AND c.relkind = 'r' AND has_table_privilege(role, c.oid, privilege)
$$;
CREATE FUNCTION pg_temp.sorted(text[]) RETURNS text[] LANGUAGE sql AS $$ SELECT coalesce(array_agg(DISTINCT x COLLATE "C" ORDER BY x COLLATE "C"), '{}') FROM unnest($1) x $$;

CREATE ROLE durable_test_nobody;
SELECT is(pg_temp.functions_of('durable_test_nobody'), '{}', 'without a grant: no function');
SELECT is(pg_temp.tables_of('durable_test_nobody', 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'), '{}', 'without a grant: no table');
SELECT ok(NOT has_schema_privilege('durable_test_nobody', 'durable', 'USAGE, CREATE'), 'without a grant: not the schema');

CREATE ROLE durable_test_start;
CREATE ROLE durable_test_signal;
CREATE ROLE durable_test_work;
CREATE ROLE durable_test_read;
CREATE ROLE durable_test_manage;
CREATE ROLE durable_test_all;
SELECT durable.grant_usage(('durable_test_' || privilege)::regrole, 'default', ARRAY[privilege]) FROM opens \g /dev/null
SELECT is(pg_temp.functions_of('durable_test_' || privilege), pg_temp.sorted(functions), privilege || ': these functions') FROM opens ORDER BY privilege;
SELECT is(pg_temp.tables_of('durable_test_' || privilege, 'SELECT'), pg_temp.sorted(tables), privilege || ': SELECT on these tables') FROM opens ORDER BY privilege;
SELECT is(pg_temp.tables_of('durable_test_' || privilege, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER'), '{}', privilege || ': no write to any') FROM opens ORDER BY privilege;

SELECT ok(has_column_privilege('durable_test_read', 'durable.lease', 'ids', 'SELECT'), 'read: the leases');
SELECT ok(NOT has_column_privilege('durable_test_read', 'durable.lease', 'token', 'SELECT'), 'but not their tokens');

SELECT durable.grant_usage('durable_test_all', 'default', '{start,signal,work,read,manage}') \g /dev/null
SELECT is(pg_temp.functions_of('durable_test_all'), pg_temp.sorted((SELECT array_agg(f) FROM opens, unnest(functions) f)), 'all five: all of these');
SELECT is(pg_temp.functions_of('durable_test_nobody'), '{}', 'and still nothing for others');
SELECT ok(has_schema_privilege('durable_test_all', 'durable', 'USAGE') AND NOT has_schema_privilege('durable_test_all', 'durable', 'CREATE'), 'the schema may be used, nothing created in it');
SELECT is_empty($$ SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'durable'::regnamespace AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege('durable_test_all', c.oid, 'USAGE, SELECT, UPDATE') END $$, 'no sequence');
SELECT is_empty($$ SELECT p.proname FROM pg_proc p, aclexplode(p.proacl) a WHERE p.pronamespace = 'durable'::regnamespace AND a.is_grantable AND a.grantee <> p.proowner $$, 'nothing with grant option');
SELECT bag_eq($$ SELECT role::regrole::text, namespace, privileges FROM durable.namespace_access $$,
	$$ SELECT 'durable_test_' || privilege AS role, 'default' AS namespace, ARRAY[privilege] AS privileges FROM opens
	   UNION ALL SELECT 'durable_test_all', 'default', '{manage,read,signal,start,work}'::text[] $$, 'and the same is written in namespace_access');

-- taken back one by one, what another one opens stays
SELECT durable.revoke_usage('durable_test_all', 'default', '{work}') \g /dev/null
SELECT is(pg_temp.functions_of('durable_test_all'), pg_temp.sorted((SELECT array_agg(f) FROM opens, unnest(functions) f WHERE privilege <> 'work')), 'without work');
SELECT durable.revoke_usage('durable_test_all', 'default', '{read}') \g /dev/null
SELECT is(pg_temp.tables_of('durable_test_all', 'SELECT'), '{}', 'without read');
SELECT durable.grant_usage('durable_test_all', 'tenant', '{read}') \g /dev/null
SELECT durable.revoke_usage('durable_test_all') \g /dev/null
SELECT is(pg_temp.functions_of('durable_test_all'), pg_temp.sorted((SELECT functions FROM opens WHERE privilege = 'read')), 'what another namespace needs');
SELECT durable.revoke_usage('durable_test_all', 'tenant') \g /dev/null
SELECT is(pg_temp.functions_of('durable_test_all'), '{}', 'nothing left');
SELECT ok(NOT has_schema_privilege('durable_test_all', 'durable', 'USAGE'), 'nor the schema');
SELECT lives_ok('DROP ROLE durable_test_all', 'and the role can be dropped');

SELECT * FROM finish();
ROLLBACK;
