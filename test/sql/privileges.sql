-- Who may do what: grant_usage, revoke_usage, namespaces, row security
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_test_app, durable_test_none, durable_test_member, durable_test_noinherit, "durable test ""role", durable_test_caller;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE ROLE durable_test_app;
CREATE ROLE durable_test_none;

-- what a role can do in a namespace, found by doing it; every try is undone
CREATE FUNCTION try(role text, namespace text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	task text := 'task-' || namespace;
	tok uuid := (SELECT token FROM tokens t WHERE t.name = 'work-' || try.namespace);
	res uuid := (SELECT token FROM tokens t WHERE t.name = 'results-' || try.namespace);
	name text;
	command text;
	allowed text[] := '{}';
BEGIN
	FOR name, command IN VALUES
		('dispatch', format('SELECT durable.dispatch(''x'', namespace => %L)', namespace)),
		('dispatch_many', format('SELECT durable.dispatch_many(''x'', ''{1}'', namespace => %L)', namespace)),
		('cancel_task', format('SELECT durable.cancel_task(%L, %L)', task, namespace)),
		('claim_results', format('SELECT durable.claim_results(''{q}'', namespace => %L)', namespace)),
		('ack_results', format('SELECT durable.ack_results(%L)', res)),
		('claim', format('SELECT durable.claim(''{q}'', namespace => %L)', namespace)),
		('settle_and_claim', format('SELECT durable.settle_and_claim(NULL, NULL, NULL, ''{q}'', namespace => %L)', namespace)),
		('renew-results', format('SELECT durable.renew(%L)', res)),
		('renew', format('SELECT durable.renew(%L)', tok)),
		('release', format('SELECT durable.release(%L)', tok)),
		('complete', format('SELECT durable.complete(%L, %L)', task, tok)),
		('complete_many', format('SELECT durable.complete_many(%L, ARRAY[%L])', tok, task)),
		('fail', format('SELECT durable.fail(%L, %L, ''1'')', task, tok)),
		('heartbeat', format('SELECT durable.heartbeat(%L, %L)', task, tok)),
		('wait_for_work', format('CALL durable.wait_for_work(''{q}'', ''0'', %L)', namespace)),
		('wait_and_claim', format('CALL durable.wait_and_claim(''{q}'', timeout => ''0'', namespace => %L)', namespace)),
		('task_status', format('SELECT durable.task_status(%L, %L)', task, namespace)),
		('queue_depth', format('SELECT durable.queue_depth(''q'', %L)', namespace)),
		('pause_queue', format('SELECT durable.pause_queue(''q'', %L)', namespace)),
		('resume_queue', format('SELECT durable.resume_queue(''q'', %L)', namespace)),
		('sweep', 'SELECT durable.sweep()'),
		('activate', 'SELECT durable.activate()'),
		('scan_hints', 'SELECT durable.scan_hints()'),
		('grant_usage', format('SELECT durable.grant_usage(%L, %L)', role, namespace)),
		('revoke_usage', format('SELECT durable.revoke_usage(%L, %L)', role, namespace)),
		('insert', 'INSERT INTO durable.queue VALUES (''a'', ''b'', NULL, NULL)'),
		('update', 'UPDATE durable.task SET attempt = attempt'),
		('delete', 'DELETE FROM durable.task_ready'),
		('truncate', 'TRUNCATE durable.task_result'),
		('lock', 'LOCK TABLE durable.task IN ACCESS EXCLUSIVE MODE'),
		('nextval', 'SELECT nextval(''durable.task_seq'')'),
		('access', 'SELECT * FROM durable.namespace_access'),
		('identity', 'SELECT * FROM durable.identity')
	LOOP
		BEGIN
			EXECUTE format('SET LOCAL ROLE %I', role);
			EXECUTE command;
			allowed := allowed || name;
			RAISE EXCEPTION USING ERRCODE = 'UNDO1', MESSAGE = 'undo';
		EXCEPTION
			WHEN insufficient_privilege THEN NULL;
			WHEN SQLSTATE 'UNDO1' THEN NULL;
		END;
	END LOOP;
	RETURN array_to_string(allowed, ' ');
END $$;
CREATE TABLE tokens (name text, token uuid);
SELECT durable.dispatch('q', task_id => 'task-' || ns, namespace => ns), durable.dispatch('q', task_id => 'done-' || ns, namespace => ns, priority => 1)
  FROM unnest('{default,tenant}'::text[]) ns \g /dev/null
INSERT INTO tokens SELECT 'done-' || ns, c.token FROM unnest('{default,tenant}'::text[]) ns, durable.claim('{q}', 1, '1 hour', namespace => ns) c;
SELECT durable.complete('done-' || ns, token) FROM unnest('{default,tenant}'::text[]) ns JOIN tokens ON name = 'done-' || ns;
INSERT INTO tokens SELECT 'results-' || ns, c.token FROM unnest('{default,tenant}'::text[]) ns, durable.claim_results('{q}', 1, '1 hour', namespace => ns) c;
INSERT INTO tokens SELECT 'work-' || ns, c.token FROM unnest('{default,tenant}'::text[]) ns, durable.claim('{q}', 1, '1 hour', namespace => ns) c;
SELECT name FROM tokens ORDER BY name;

-- without a grant: nothing, not even the schema
SELECT try('durable_test_app', 'default') AS allowed;
SET ROLE durable_test_app;
SELECT durable.dispatch('x');
SELECT * FROM durable.task;
RESET ROLE;
-- USAGE on the schema alone changes nothing
GRANT USAGE ON SCHEMA durable TO durable_test_app;
SELECT try('durable_test_app', 'default') AS allowed;
SET ROLE durable_test_app;
SELECT durable.dispatch('x');
SELECT * FROM durable.task;
RESET ROLE;
REVOKE USAGE ON SCHEMA durable FROM durable_test_app;

-- each privilege by itself, in one namespace
SELECT durable.grant_usage('durable_test_app', 'default', '{start}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'default', '{start}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT durable.grant_usage('durable_test_app', 'default', '{work}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'default', '{work}');
SELECT durable.grant_usage('durable_test_app', 'default', '{read}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'default', '{read}');
SELECT durable.grant_usage('durable_test_app', 'default', '{manage}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'default', '{manage}');
SELECT durable.grant_usage('durable_test_app', 'default', '{signal}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'default', '{signal}');
-- what two of them open stays open until both are gone
SELECT durable.grant_usage('durable_test_app', 'default', '{start,work}');
SELECT durable.revoke_usage('durable_test_app', 'default', '{start}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT durable.grant_usage('durable_test_app', 'tenant', '{start}');
SELECT durable.revoke_usage('durable_test_app', 'default', '{work}');
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'tenant');
-- all of it gone again
SELECT count(*) FROM durable.namespace_access;
SELECT has_schema_privilege('durable_test_app', 'durable', 'USAGE') AS schema,
       (SELECT count(*) FROM pg_class WHERE relnamespace = 'durable'::regnamespace AND relkind = 'r' AND has_any_column_privilege('durable_test_app', oid, 'SELECT,INSERT,UPDATE')) AS tables,
       (SELECT count(*) FROM pg_proc WHERE pronamespace = 'durable'::regnamespace AND has_function_privilege('durable_test_app', oid, 'EXECUTE')) AS functions;

-- the default: start, signal, work, read, in 'default'
SELECT durable.grant_usage('durable_test_app');
SELECT namespace, role, privileges FROM durable.namespace_access;
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;

-- more of it, twice, and in another namespace
SELECT durable.grant_usage('durable_test_app', privileges => '{work,manage,work}');
SELECT durable.grant_usage('durable_test_app', 'tenant', '{read}');
SELECT namespace, role, privileges FROM durable.namespace_access ORDER BY namespace;
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
-- taken back where it was, and kept where it still is
SELECT durable.revoke_usage('durable_test_app');
SELECT namespace, role, privileges FROM durable.namespace_access ORDER BY namespace;
SELECT try('durable_test_app', 'default') AS allowed;
SELECT try('durable_test_app', 'tenant') AS allowed;
SELECT durable.revoke_usage('durable_test_app', 'tenant', '{start,work}');
SELECT try('durable_test_app', 'tenant') AS allowed;
-- revoking what was not granted
SELECT durable.revoke_usage('durable_test_none'), durable.revoke_usage('durable_test_app', 'nosuch');
SELECT namespace, role, privileges FROM durable.namespace_access ORDER BY namespace;

-- rows of another namespace are not even visible
SELECT durable.dispatch('delayed', task_id => 'delayed-' || ns, run_at => '2999-01-01', namespace => ns), durable.dispatch('ready', task_id => 'ready-' || ns, namespace => ns),
       durable.pause_queue('paused-' || ns, ns) FROM unnest('{default,tenant}'::text[]) ns \g /dev/null
SELECT durable.heartbeat('task-' || ns, token, to_jsonb(ns)) FROM unnest('{default,tenant}'::text[]) ns JOIN tokens ON name = 'work-' || ns;
SET ROLE durable_test_app;
SELECT namespace, task_id FROM durable.task ORDER BY task_id;
SELECT namespace, queue FROM durable.task_ready;
SELECT namespace, queue FROM durable.task_delayed;
SELECT namespace, kind FROM durable.lease ORDER BY kind;
SELECT namespace, task_id FROM durable.task_result;
SELECT progress FROM durable.task_progress;
SELECT namespace, queue FROM durable.queue;
SELECT status FROM durable.task_status('task-tenant', 'tenant');
SELECT durable.has_access('tenant', 'read'), durable.has_access('tenant', 'work'), durable.has_access('default', 'read'), durable.has_access(NULL, 'read');
SELECT durable.require_access('tenant', 'read');
\set VERBOSITY default
SELECT durable.require_access('tenant', 'work');
SELECT durable.require_access(NULL, 'read');
\set VERBOSITY terse
-- a function of the caller that leaks what it sees sees no more
CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE INFO 'leaked %', $1; RETURN true; END $$;
SELECT count(*) FROM durable.task WHERE pg_temp.leak(task_id) AND name = 'q';
DROP FUNCTION pg_temp.leak;
-- nor does a parallel query
SELECT set_config(CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'force_parallel_mode' ELSE 'debug_parallel_query' END, 'on', false) \g /dev/null
SET parallel_setup_cost = 0;
SET min_parallel_table_scan_size = 0;
SELECT namespace, count(*) FROM durable.task GROUP BY namespace;
SELECT count(*) FROM durable.task_progress;
SELECT ready, claimed, delayed FROM durable.queue_depth('q', 'tenant');
RESET ALL;
SET ROLE durable_test_app;
-- nor does naming the token help
RESET ROLE;
SELECT token AS foreign FROM tokens WHERE name = 'work-default' \gset
SELECT token AS foreign_results FROM tokens WHERE name = 'results-default' \gset
SELECT durable.grant_usage('durable_test_app', 'tenant', '{start,work}');
SET ROLE durable_test_app;
SELECT durable.complete('task-default', :'foreign');
SELECT * FROM durable.complete_many(:'foreign', '{task-default}');
SELECT durable.fail('task-default', :'foreign', '1');
SELECT durable.renew(:'foreign');
SELECT durable.release(:'foreign');
SELECT durable.release(:'foreign', '{task-default}');
SELECT durable.heartbeat('task-default', :'foreign');
SELECT durable.ack_results(:'foreign_results');
SELECT durable.renew(:'foreign_results');
SELECT task_id FROM durable.settle_and_claim('task-default', :'foreign', '1', '{ready}', namespace => 'tenant');
-- the setting names the namespace; it gives no rights
SET durable.namespace = 'default';
SELECT durable.dispatch('x');
SET durable.namespace = 'tenant';
SELECT durable.dispatch('x', task_id => 'by setting');
SELECT task_id FROM durable.claim('{x}');
RESET durable.namespace;
RESET ROLE;
SELECT namespace FROM durable.task WHERE task_id = 'by setting';

-- only the extension's owner grants
SET ROLE durable_test_app;
SELECT durable.grant_usage('durable_test_app', 'default');
SELECT durable.has_access('default', 'read');
RESET ROLE;
GRANT EXECUTE ON FUNCTION durable.grant_usage, durable.revoke_usage, durable.check_privileges, durable.privilege_objects, durable.activate TO durable_test_app;
SET ROLE durable_test_app;
\set VERBOSITY default
SELECT durable.grant_usage('durable_test_app', 'default');
SELECT durable.revoke_usage('durable_test_app', 'default');
SELECT durable.activate();
\set VERBOSITY terse
RESET ROLE;
REVOKE EXECUTE ON FUNCTION durable.grant_usage, durable.revoke_usage, durable.check_privileges, durable.privilege_objects, durable.activate FROM durable_test_app;

-- members of a role have its rights, as far as they inherit them
CREATE ROLE durable_test_member IN ROLE durable_test_app;
CREATE ROLE durable_test_noinherit NOINHERIT IN ROLE durable_test_app;
SELECT try('durable_test_member', 'tenant') AS allowed;
SELECT try('durable_test_member', 'default') AS allowed;
SELECT try('durable_test_noinherit', 'tenant') AS allowed;
SET ROLE durable_test_member;
SELECT count(*) > 0 AS sees FROM durable.task;
RESET ROLE;
-- a change of membership counts at once
REVOKE durable_test_app FROM durable_test_member;
SELECT try('durable_test_member', 'tenant') AS allowed;
GRANT durable_test_app TO durable_test_member;
SELECT try('durable_test_member', 'tenant') <> '' AS some;
-- as does a change of the grants, also one that is rolled back
BEGIN;
SELECT durable.revoke_usage('durable_test_app', 'tenant');
SELECT try('durable_test_member', 'tenant') AS allowed;
ROLLBACK;
SELECT try('durable_test_member', 'tenant') <> '' AS some;
BEGIN;
SELECT durable.grant_usage('durable_test_app', 'default', '{start}');
SET LOCAL ROLE durable_test_member;
SELECT durable.dispatch('x', task_id => 'x') \g /dev/null
ROLLBACK;
SET ROLE durable_test_member;
SELECT durable.dispatch('x', task_id => 'x');
RESET ROLE;
-- rights of two roles add up
SELECT durable.grant_usage('durable_test_member', 'tenant', '{manage}');
SELECT try('durable_test_member', 'tenant') AS allowed;

-- names that need quoting
CREATE ROLE "durable test ""role";
SELECT durable.grant_usage('"durable test ""role"', 'a namespace; with "quotes"', '{start,manage}');
SET ROLE "durable test ""role";
SELECT durable.dispatch('x', task_id => 'quoted', namespace => 'a namespace; with "quotes"');
SELECT durable.pause_queue('x', 'a namespace; with "quotes"');
RESET ROLE;
SELECT namespace, paused_by FROM durable.queue WHERE queue = 'x';
SELECT durable.revoke_usage('"durable test ""role"', 'a namespace; with "quotes"');
DROP ROLE "durable test ""role";

-- '' and NULL
SELECT durable.grant_usage('durable_test_none', '', '{read}');
SELECT namespace, role, privileges FROM durable.namespace_access WHERE role = 'durable_test_none'::regrole;
SELECT durable.revoke_usage('durable_test_none', '');
-- bad arguments
\set VERBOSITY sqlstate
SELECT durable.grant_usage(NULL);
SELECT durable.grant_usage('durable_test_none', NULL);
SELECT durable.grant_usage('durable_test_none', 'x', NULL);
SELECT durable.grant_usage('durable_test_none', 'x', '{read,NULL}');
SELECT durable.grant_usage('durable_test_none', 'x', '{}');
SELECT durable.grant_usage('durable_test_none', 'x', '{read,write}');
SELECT durable.grant_usage('durable_test_none', 'x', '{READ}');
SELECT durable.grant_usage('durable_test_none', repeat('x', 256), '{read}');
SELECT durable.grant_usage('durable_test_nosuch');
SELECT durable.grant_usage(0::regrole);
SELECT durable.grant_usage(4294967295::regrole);
SELECT durable.revoke_usage(NULL);
SELECT durable.revoke_usage('durable_test_none', NULL);
SELECT durable.revoke_usage('durable_test_none', 'x', NULL);
SELECT durable.revoke_usage('durable_test_none', 'x', '{write}');
SELECT durable.has_access('default', NULL);
SELECT durable.has_access('default', 'write');
SELECT durable.has_access(repeat('x', 256), 'read');
SELECT durable.require_access('default', NULL);
SELECT durable.require_access('default', 'write');
SELECT durable.require_access(repeat('x', 256), 'read');
\set VERBOSITY terse
SELECT durable.grant_usage('durable_test_none', 'x', '{read,write}');
SELECT durable.grant_usage(0::regrole);
SELECT count(*) FROM durable.namespace_access WHERE role = 'durable_test_none'::regrole;

-- a role with an entry can be dropped like any other; what is left of it means nothing
SELECT durable.grant_usage('durable_test_none', 'x', '{start}');
DROP OWNED BY durable_test_none;
DROP ROLE durable_test_none;
SELECT durable.dispatch('x', namespace => 'x', task_id => 'still works');
-- and goes with the next sweep
SELECT durable.sweep() ->> 'grants_expired' AS grants_expired;
SELECT count(*) FROM durable.namespace_access WHERE namespace = 'x';

-- a wrapper of the application's owner, for callers without any rights here
CREATE ROLE durable_test_caller;
GRANT CREATE ON SCHEMA public TO durable_test_app;
SET ROLE durable_test_app;
CREATE FUNCTION public.durable_test_send(what text) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ SELECT durable.dispatch('wrapped', to_jsonb(what), 'wrapped-' || what, namespace => 'tenant') $$;
CREATE FUNCTION public.durable_test_take() RETURNS TABLE (task_id text, done boolean) LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
	AS $$ SELECT c.task_id, durable.complete(c.task_id, c.token) FROM durable.claim('{wrapped}', namespace => 'tenant') c $$;
SET ROLE durable_test_caller;
SELECT public.durable_test_send('a');
SELECT * FROM public.durable_test_take();
SELECT durable.dispatch('wrapped', namespace => 'tenant');
RESET ROLE;
-- it has the rights of its owner, and loses them with him
SELECT durable.revoke_usage('durable_test_app', 'tenant', '{start}');
SET ROLE durable_test_caller;
SELECT public.durable_test_send('b');
SELECT * FROM public.durable_test_take();
RESET ROLE;

-- a superuser's own namespace is any
SELECT durable.dispatch('x', task_id => 'anywhere', namespace => 'never heard of');

DROP FUNCTION public.durable_test_send, public.durable_test_take, try;
DROP TABLE tokens;
REVOKE CREATE ON SCHEMA public FROM durable_test_app;
DROP EXTENSION durable;
DROP ROLE durable_test_app, durable_test_member, durable_test_noinherit, durable_test_caller;
