-- retention: bad input; who may do and see what
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_test_manager, durable_test_other, durable_test_blind, durable_test_reader, durable_test_tenant;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE ROLE durable_test_manager;
CREATE ROLE durable_test_other;
CREATE ROLE durable_test_blind;
CREATE ROLE durable_test_reader;
CREATE ROLE durable_test_tenant;
SELECT durable.grant_usage('durable_test_manager', privileges => '{start,work,manage,read}');
SELECT durable.grant_usage('durable_test_other', privileges => '{start,signal,work,read}');
SELECT durable.grant_usage('durable_test_blind', privileges => '{manage}');
SELECT durable.grant_usage('durable_test_reader', privileges => '{read}');
SELECT durable.grant_usage('durable_test_tenant', 'tenant', '{start,work,manage,read}');
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
CREATE FUNCTION wrong(i text) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;
CREATE FUNCTION closed(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
REVOKE EXECUTE ON FUNCTION closed(jsonb) FROM PUBLIC;
SET ROLE durable_test_manager;
SELECT durable.register_workflow('w', 'body');
SELECT durable.start('w', run_id => 'mine');
CALL durable.work(duration => '0');

-- statuses
SELECT durable.set_retention(NULL, max_age => '1 day');
SELECT durable.set_retention('{}', max_age => '1 day');
SELECT durable.set_retention('{completed,NULL}', max_age => '1 day');
SELECT durable.set_retention('{completed,running}', max_age => '1 day');
SELECT durable.set_retention('{suspended}', max_age => '1 day');
SELECT durable.set_retention('{done}', max_age => '1 day');
SELECT durable.set_retention(array_fill('completed'::text, ARRAY[17]), max_age => '1 day');
-- limits
SELECT durable.set_retention('{completed}');
SELECT durable.set_retention('{completed}', max_age => '-1 day');
SELECT durable.set_retention('{completed}', max_age => '1 day -25 hours');
SELECT durable.set_retention('{completed}', max_age => '200 years');
SELECT durable.set_retention('{completed}', max_count => -1);
-- scope
SELECT durable.set_retention('{completed}', max_count => 1, workflow => '');
SELECT durable.set_retention('{completed}', max_count => 1, tag => repeat('x', 256));
SELECT durable.set_retention('{completed}', max_count => 1, namespace => repeat('x', 256));
SELECT durable.set_retention('{completed}', max_count => 1, namespace => 'tenant');
SELECT durable.set_retention('{completed}', max_count => 1, namespace => '*');
-- archive functions
SELECT durable.set_retention('{completed}', max_count => 1, archive => 'nowhere(jsonb)');
SELECT durable.set_retention('{completed}', max_count => 1, archive => 'wrong(text)');
SELECT durable.set_retention('{completed}', max_count => 1, archive => 'closed(jsonb)');
SELECT durable.set_retention('{completed}', max_count => 1, archive => '');
SELECT count(*) FROM durable.retention;

SELECT durable.drop_retention(NULL);
SELECT durable.drop_retention(0);
SELECT durable.delete_run(NULL);
SELECT durable.delete_run('');
SELECT durable.delete_run(repeat('x', 100000));

-- filters
SELECT durable.purge_runs(NULL);
SELECT durable.purge_runs('{}');
SELECT durable.purge_runs('[]');
SELECT durable.purge_runs('"w"');
SELECT durable.purge_runs('null');
SELECT durable.purge_runs('{"workflows": "w"}');
SELECT durable.purge_runs('{"workflow": null}');
SELECT durable.purge_runs('{"workflow": 1}');
SELECT durable.purge_runs('{"workflow": {"a": 1}}');
SELECT durable.purge_runs('{"workflow": []}');
SELECT durable.purge_runs('{"workflow": ["w", 1]}');
SELECT durable.purge_runs('{"workflow": [["w"]]}');
SELECT durable.purge_runs(jsonb_build_object('tag', array_fill('t'::text, ARRAY[1001])));
SELECT durable.purge_runs('{"status": "done"}');
SELECT durable.purge_runs('{"status": ["completed", "done"]}');
SELECT durable.purge_runs('{"namespace": ["default"]}');
SELECT durable.purge_runs('{"namespace": "tenant"}');
SELECT durable.purge_runs('{"namespace": "*"}');
SELECT durable.purge_runs(jsonb_build_object('namespace', repeat('x', 256)));
SELECT durable.purge_runs('{"search_attributes": [1]}');
SELECT durable.purge_runs('{"search_attributes": 1}');
SELECT durable.purge_runs('{"older_than": 5}');
SELECT durable.purge_runs('{"older_than": "5 moons"}');
SELECT durable.purge_runs('{"older_than": "-1 h"}');
SELECT durable.purge_runs('{"older_than": "900 years"}');
SELECT durable.purge_runs('{"created_before": true}');
SELECT durable.purge_runs('{"created_before": "someday"}');
SELECT durable.purge_runs('{"workflow": "w"}', NULL);
SELECT durable.purge_runs('{"workflow": "w"}', max_runs => NULL);
SELECT durable.purge_runs('{"workflow": "w"}', max_runs => 0);
SELECT durable.purge_runs('{"workflow": "w"}', max_runs => 10001);
-- data, not SQL
SELECT durable.purge_runs(jsonb_build_object('workflow', $$w' OR true --$$, 'tag', '{a}', 'version', '"'));
SELECT count(*) FROM durable.run;

-- a step cannot delete its own run, nor does a body write
RESET ROLE;
CREATE FUNCTION suicide(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.delete_run(durable.run_id());
	RETURN i;
END $$;
CREATE FUNCTION purge(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.purge_runs(jsonb_build_object('workflow', 'own'), force => true);
	RETURN i;
END $$;
CREATE FUNCTION own(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.local_step(i #>> '{}');
END $$;
SET ROLE durable_test_manager;
SELECT durable.register_workflow('own', 'own');
SELECT durable.start('own', '"suicide(jsonb)"', run_id => 'own1'), durable.start('own', '"purge(jsonb)"', run_id => 'own2');
CALL durable.work(duration => '0');
SELECT run_id, status, error ->> 'code' AS code, error ->> 'message' AS message FROM durable.run ORDER BY id;
-- nor a read-only transaction
BEGIN READ ONLY;
SELECT durable.delete_run('mine');
ROLLBACK;

-- who may what, found by doing it; every try is undone
SELECT durable.set_retention('{completed}', max_age => '1 day') AS policy \gset
RESET ROLE;
CREATE FUNCTION try(role text, policy bigint, namespace text DEFAULT 'default') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
	command text;
	allowed text[] := '{}';
BEGIN
	FOR name, command IN VALUES
		('set', format('SELECT durable.set_retention(''{failed}'', max_age => ''1 h'', namespace => %L)', namespace)),
		('archive', format('SELECT durable.set_retention(''{failed}'', max_age => ''1 h'', namespace => %L, archive => ''public.body(jsonb)'')', namespace)),
		('drop', format('SELECT durable.drop_retention(%s)', policy)),
		('delete', 'SELECT durable.delete_run(''mine'')'),
		('purge', format('SELECT durable.purge_runs(''{"namespace": "%s"}'')', namespace)),
		('view', 'SELECT * FROM durable.retention'),
		('failures', 'SELECT * FROM durable.retention_failures'),
		('table', 'SELECT * FROM durable.retention_policy'),
		('due', 'SELECT * FROM durable.retention_due'),
		('match', 'SELECT * FROM durable.retention_match'),
		('pass', 'SELECT * FROM durable.retention_pass(now(), 1)'),
		('trees', 'SELECT * FROM durable.run_trees(''{1}'')'),
		('delete_trees', 'SELECT * FROM durable.delete_trees(''{1}'', true, true)'),
		('archive_run', 'SELECT durable.archive_run(1)'),
		('find', 'SELECT durable.find_runs(''{}'', ''*'', now(), NULL, false, 10, 0)'),
		('write', 'UPDATE durable.retention_policy SET max_age = ''0'''),
		('insert', 'INSERT INTO durable.retention_archive SELECT * FROM durable.retention_archive'),
		('remove', 'DELETE FROM durable.run')
	LOOP
		BEGIN
			EXECUTE format('SET LOCAL ROLE %I', role);
			EXECUTE command;
			allowed := allowed || name;
			RAISE EXCEPTION USING ERRCODE = 'UNDO1', MESSAGE = 'undo';
		EXCEPTION
			WHEN SQLSTATE 'UNDO1' THEN NULL;
			WHEN insufficient_privilege THEN NULL;
		END;
	END LOOP;
	RETURN array_to_string(allowed, ', ');
END $$;
SELECT r, try(r, :policy) FROM unnest('{durable_test_manager,durable_test_other,durable_test_blind,durable_test_reader,durable_test_tenant}'::text[]) r;
SELECT try('durable_test_tenant', :policy, 'tenant');
-- what a reader of another namespace sees
SET ROLE durable_test_tenant;
SELECT count(*) FROM durable.retention;
SELECT count(*) FROM durable.retention_failures;
SELECT durable.drop_retention(:policy);
SELECT durable.delete_run('mine');
RESET ROLE;
-- one may be called '*'; who manages that one does not manage the others
SELECT durable.set_retention('{cancelled}', max_age => '1 h', namespace => '*') AS everywhere \gset
SELECT durable.grant_usage('durable_test_blind', '*', '{start,work,read,manage}');
SET ROLE durable_test_blind;
SELECT durable.set_retention('{failed}', max_age => '1 h', namespace => '*');
SELECT durable.drop_retention(:everywhere);
SELECT durable.purge_runs('{"namespace": "*"}', force => true);
SET durable.namespace = '*';
SELECT durable.purge_runs('{"workflow": "w"}', force => true);
SELECT durable.redrive('{"workflow": "w"}');
SELECT durable.cancel_where('{"workflow": "w"}');
RESET durable.namespace;
RESET ROLE;
SELECT count(*) FROM durable.run;
SELECT durable.drop_retention(:everywhere);
-- whose role is dropped, the policy stays
SELECT durable.set_retention('{dead}', max_age => '1 h', archive => 'body(jsonb)') > 0 AS set;
UPDATE durable.retention_policy SET owner = 'durable_test_reader'::regrole WHERE archive IS NOT NULL;
SELECT durable.revoke_usage('durable_test_reader', privileges => '{read}');
DROP ROLE durable_test_reader;
SELECT statuses, last_error FROM durable.retention ORDER BY id;

SET client_min_messages = warning;
DROP EXTENSION durable;
DROP FUNCTION body, wrong, closed, try, suicide, purge, own;
DROP ROLE durable_test_manager, durable_test_other, durable_test_blind, durable_test_tenant;
