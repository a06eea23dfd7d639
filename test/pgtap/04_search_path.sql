-- A schema full of traps in front of pg_catalog: operators, functions and types
-- with the names that the extension uses. None may ever be reached, whoever
-- calls; the extension's own code would run them with its owner's rights.
\set ECHO none
\pset format unaligned
\pset tuples_only on
SET client_min_messages = warning;
BEGIN;
SELECT plan(42);

CREATE SCHEMA evil;
CREATE FUNCTION evil.set_traps() RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	o record;
	n int := 0;
BEGIN
	-- every operator on the types that occur
	FOR o IN SELECT oprname, oprleft::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result FROM pg_operator
		WHERE oprnamespace = 'pg_catalog'::regnamespace
		  AND oprname IN ('=', '<>', '<', '>', '<=', '>=', '||', '~', '+', '-', '*', '->', '->>', '@>', '&&')
		  AND oprleft = ANY ('{text,int4,int8,timestamptz,interval,jsonb,uuid,oid,bool,name,float8,numeric,anyarray,anycompatiblearray,anycompatible}'::regtype[])
		  AND oprright = ANY ('{text,int4,int8,timestamptz,interval,jsonb,uuid,oid,bool,name,float8,numeric,anyarray,anycompatiblearray,anycompatible,anynonarray}'::regtype[])
	LOOP
		n := n + 1;
		EXECUTE format('CREATE FUNCTION evil.trap%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''trapped by operator %s''; END $f$', n, o.l, o.r, o.result, o.oprname);
		EXECUTE format('CREATE OPERATOR evil.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = evil.trap%s)', o.oprname, o.l, o.r, n);
	END LOOP;
	-- every function that the extension's SQL names
	FOR o IN SELECT proname, oidvectortypes(proargtypes) AS args, prorettype::regtype AS result, proretset FROM pg_proc
		WHERE pronamespace = 'pg_catalog'::regnamespace AND prokind IN ('f', 'a')
		  AND proname IN ('array_agg', 'array_position', 'array_length', 'cardinality', 'clock_timestamp', 'concat', 'count', 'format', 'gen_random_uuid', 'length',
		                  'min', 'max', 'now', 'pg_has_role', 'pg_control_system', 'current_database', 'substr', 'to_jsonb', 'unnest', 'upper', 'lower', 'set_config', 'current_setting')
		  AND NOT proargtypes::oid[] && '{"\"any\"",internal}'::regtype[]::oid[]
	LOOP
		n := n + 1;
		EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s %s LANGUAGE plpgsql AS $f$ BEGIN RAISE EXCEPTION ''trapped by function %s''; END $f$',
					   o.proname, o.args, CASE WHEN o.proretset THEN 'SETOF' ELSE '' END, o.result, o.proname);
	END LOOP;
	-- types and relations
	CREATE DOMAIN evil.regrole AS text CHECK (false);
	CREATE DOMAIN evil.regclass AS text CHECK (false);
	CREATE TABLE evil.task (id bigint);
	CREATE TABLE evil.pg_roles (oid oid, rolname name);
	CREATE TABLE evil.pg_class (oid oid);
	CREATE SEQUENCE evil.task_seq;
	RETURN n;
END $$;
SELECT cmp_ok(evil.set_traps(), '>=', 150, 'the traps are set');

CREATE FUNCTION hostile(command text) RETURNS text LANGUAGE plpgsql SET search_path = evil, pg_catalog, durable AS $$
DECLARE
	result text;
BEGIN
	EXECUTE command INTO result;
	RETURN result;
END $$;
SELECT throws_ok($$ SELECT hostile('SELECT 1 WHERE ''a''::text = ''b''::text') $$, 'trapped by operator =', 'an operator trap works');
SELECT throws_ok($$ SELECT hostile('SELECT pg_has_role(''postgres''::name, ''USAGE'')') $$, 'trapped by function pg_has_role', 'a function trap works');

-- everything there is to call
SELECT lives_ok(format('SELECT hostile(%L)', command), what) FROM (VALUES
	('SELECT durable.dispatch(''a'', ''{"n": 1}'', ''a1'', priority => 1, headers => ''{}'', max_attempts => 3, backoff => ''1 s'', backoff_kind => ''exp'', jitter => true)', 'dispatch'),
	('SELECT durable.dispatch(''a'', ''{"n": 1}'', ''a1'')', 'dispatch, the id is taken'),
	('SELECT durable.dispatch(''a'')', 'dispatch, generated id'),
	('SELECT durable.dispatch(''a'', task_id => ''later'', run_at => ''2999-01-01'')', 'dispatch, delayed'),
	('SELECT durable.dispatch_many(''a'', ''{1,2}'', task_ids => ''{a2,a3}'')', 'dispatch_many'),
	('SELECT durable.dispatch(''a'', ''{"n": 1}'', ''later'', debounce => ''1 hour'', debounce_max => ''2 hours'')', 'dispatch, debounced'),
	('SELECT durable.dispatch_many(''a'', ''{1,2}'', task_ids => ''{a2,a3}'', on_conflict => ''replace'')', 'dispatch_many, replacing'),
	('SELECT durable.task_status(''a1'')', 'task_status'),
	('SELECT durable.task_status(''~1'')', 'task_status of a generated id'),
	('SELECT durable.queue_depth(''a'')', 'queue_depth'),
	('SELECT durable.cancel_task(''later'')', 'cancel_task'),
	('SELECT durable.pause_queue(''a'')', 'pause_queue'),
	('SELECT durable.claim(''{a}'')', 'claim, paused'),
	('SELECT durable.resume_queue(''a'')', 'resume_queue'),
	('SELECT durable.heartbeat(c.task_id, c.token, ''1'') FROM durable.claim(''{a,b}'', 1, ''1 hour'', ''w'') c', 'claim, heartbeat'),
	('SELECT durable.heartbeat(''a1'', token, ''1'') FROM durable.lease', 'heartbeat again'),
	('SELECT durable.renew(token) FROM durable.lease', 'renew'),
	('SELECT durable.release(token) FROM durable.lease', 'release'),
	('SELECT durable.fail(c.task_id, c.token, ''{}'') FROM durable.claim(''{a}'') c', 'fail'),
	('SELECT durable.complete(c.task_id, c.token, ''{}'') FROM durable.claim(''{a}'') c', 'complete'),
	('SELECT durable.complete_many(c.token, ARRAY[c.task_id]) FROM durable.claim(''{a}'') c', 'complete_many'),
	('SELECT durable.settle_and_claim(c.task_id, c.token, NULL, ''{a}'') FROM durable.claim(''{a}'') c', 'settle_and_claim'),
	('SELECT durable.ack_results(c.token, ARRAY[c.task_id]) FROM durable.claim_results(''{a}'', 1) c', 'claim_results, ack_results'),
	('CALL durable.wait_for_work(''{a}'', ''0'')', 'wait_for_work'),
	('CALL durable.wait_and_claim(''{a}'', timeout => ''0'')', 'wait_and_claim'),
	('SELECT durable.sweep()', 'sweep'),
	('SELECT durable.health(), (SELECT pg_catalog.count(*) FROM durable.queues)', 'health, queues'),
	('SELECT durable.cron_jobs(''5 s'', ''1.6''), durable.cron_kinds(NULL), durable.unschedule_sweeps()', 'the jobs of pg_cron'),
	('SELECT durable.engine_now()', 'engine_now'),
	('SELECT durable.has_access(''default'', ''read''), durable.require_access(NULL, ''work'')', 'has_access, require_access'),
	('SELECT durable.grant_usage(''pg_monitor''::pg_catalog.regrole, ''default'', ''{start,work,read,manage}'')', 'grant_usage'),
	('SELECT durable.activate()', 'activate')
) v (command, what);

-- they did what they say, and did not just answer
SELECT bag_eq('SELECT coalesce(task_id, ''generated''), status FROM durable.task_result',
	$$ VALUES ('generated', 'completed'), ('a2', 'completed'), ('a3', 'completed') $$, 'three tasks were completed, and one result read');
SELECT is((SELECT status FROM durable.task_status('a1')), 'delayed', 'one failed and waits');

-- and by a role that has row security in its way
CREATE ROLE durable_test_trapped;
GRANT pg_monitor TO durable_test_trapped;
GRANT USAGE ON SCHEMA evil TO durable_test_trapped;
GRANT EXECUTE ON FUNCTION hostile(text) TO durable_test_trapped;
SET ROLE durable_test_trapped;
SELECT lives_ok(format('SELECT hostile(%L)', command), what) FROM (VALUES
	('SELECT durable.dispatch(''r'', task_id => ''r1'')', 'as a role: dispatch'),
	('SELECT (SELECT 1 FROM durable.task LIMIT 1), (SELECT 1 FROM durable.task_progress LIMIT 1), (SELECT 1 FROM durable.task_result LIMIT 1)', 'as a role: reading tables'),
	('SELECT durable.task_status(''r1''), durable.queue_depth(''r'')', 'as a role: task_status, queue_depth')
) v (command, what);
RESET ROLE;
SELECT is((SELECT count(*) FROM evil.task) + (SELECT count(*) FROM evil.pg_roles), 0::bigint, 'nothing went to relations of the same names');
SELECT lives_ok($$ SELECT hostile('SELECT durable.revoke_usage(''pg_monitor''::pg_catalog.regrole)') $$, 'revoke_usage');

SELECT * FROM finish();
ROLLBACK;
