-- workflows: starting runs; definitions whose owner or function goes away
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_test;
DROP ROLE IF EXISTS durable_wf_gone;
DROP ROLE IF EXISTS durable_wf_heir;
RESET client_min_messages;
SET search_path = wf_test;

CREATE FUNCTION echo(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;
CREATE FUNCTION boom(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'boom'; END $$;
SELECT durable.register_workflow('echo', 'wf_test.echo'), durable.register_workflow('boom', 'wf_test.boom');

--
-- the newest version: by number, else by the numbers in it; no fallback for one that is asked for
--
CREATE FUNCTION newest(versions text[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	id text;
BEGIN
	PERFORM durable.unregister_workflow('versions');
	PERFORM durable.register_workflow('versions', 'wf_test.echo', v) FROM unnest(versions) v;
	id := durable.start('versions');
	PERFORM durable.cancel(id);
	RETURN (SELECT version FROM durable.get_run(id));
END $$;
SELECT v, newest(v) FROM (VALUES ('{1,2,10,9}'::text[]), ('{0,00000001}'), ('{99999999999999999999999999,100000000000000000000000000}'), ('{v1.9,v1.10,v1.2.30}'),
	('{v99999999999999999999999999,v100000000000000000000000000}'), ('{v007,v7.1,v07}'), ('{1.0,1.0.1}'), ('{2024-12-31,2025-01-02,2025-1-10}'), ('{9,9-rc1}'), ('{-1,1}'), ('{a,b,B}')) t (v);
SELECT durable.start('versions', version => 'c');
SELECT durable.start('versions', version => 'A');
SELECT durable.start('unknown', version => '1');
SELECT durable.start('echo', version => '');
SELECT durable.start('echo', version => '01');
SELECT durable.start('echo', namespace => 'elsewhere');

--
-- one id, one run: whatever has become of it. The definition is looked up first
--
SELECT durable.start('echo', '1', 'done'), durable.start('boom', '1', 'failed'), durable.start('echo', '1', 'cancelled'), durable.cancel('cancelled');
CALL durable.work(duration => '0');
SELECT durable.start('echo', '1', 'pending');
SELECT durable.start('boom', '2', id, tags => '{new}', priority => 7) FROM unnest('{done,failed,cancelled,pending}'::text[]) id;
SELECT run_id, workflow, status, input, tags, priority FROM durable.run WHERE run_id IN ('done', 'failed', 'cancelled', 'pending') ORDER BY 1;
SELECT count(*) FROM durable.task;
SELECT durable.start('unknown', '2', 'done');
SELECT durable.start('echo', '2', 'done', version => '7');
CALL durable.work(duration => '0');

--
-- ids
--
SELECT durable.start('echo', to_jsonb(id), id) = id AS same FROM unnest(ARRAY[' ', ' padded ', E'two\nlines', E'\\ ''"%_$$', 'ünïcödé', repeat('ü', 127), repeat('x', 255), 'a~b', 'NULL']) id;
SELECT durable.start('echo', '1', repeat('x', 256));
SELECT durable.start('echo', '1', repeat('ü', 128));
SELECT durable.start('echo', '1', '');
SELECT durable.start('echo', '1', '~');
SELECT durable.start('echo', '1', '~5');
CALL durable.work(duration => '0');
SELECT bool_and(durable.result(run_id) #>> '{}' = run_id) AS found FROM durable.run WHERE jsonb_typeof(input) = 'string';
SELECT durable.start('echo') <> durable.start('echo') AS generated;

--
-- other arguments
--
SELECT durable.start(repeat('x', 256));
SELECT durable.start('echo', '1', 'n1', NULL, NULL, NULL, NULL, NULL, NULL, NULL), durable.start('echo', '1', 'n2', NULL, '', '{}', -2147483648), durable.start('echo', 'null', 'n3', tags => '{a,NULL,a,b}');
SELECT run_id, version, namespace, tags, priority, input FROM durable.run WHERE run_id LIKE 'n_' ORDER BY 1;
SELECT durable.start('echo', start_at => 'infinity');
SELECT durable.start('echo', to_jsonb(repeat('x', 10000000)), 'too large');
SELECT durable.start('echo', '1', 'too large', headers => to_jsonb(repeat('x', 10000000)));
SELECT durable.start('echo', '1', 'too large', search_attributes => to_jsonb(repeat('x', 10000000)));
SET durable.max_payload = '16MB';
SELECT durable.start('echo', to_jsonb(repeat('x', 10000000)), 'large');
CALL durable.work(duration => '0');
SELECT status, length(output #>> '{}') FROM durable.get_run('large');
RESET durable.max_payload;
SELECT count(*) FROM durable.run WHERE run_id = 'too large';

--
-- many at once: all or none
--
SELECT * FROM durable.start_many('echo', '{1,2,3,4}', '{many1,done,many2,many1}');
SELECT run_id, input, status FROM durable.run WHERE run_id LIKE 'many_' OR run_id = 'done' ORDER BY 1;
SELECT * FROM durable.start_many('echo', '{1,2}', '{many3,~4}');
SELECT * FROM durable.start_many('echo', ARRAY['1', to_jsonb(repeat('x', 10000000))], '{many3,many4}');
SELECT * FROM durable.start_many('echo', '{1,2}', '{many3,NULL}');
SELECT * FROM durable.start_many('echo', '{1,2}', '{many3}');
SELECT * FROM durable.start_many('echo', '{}', '{many3}');
SELECT * FROM durable.start_many('echo', '{1}', '{}');
SELECT * FROM durable.start_many('unknown', '{1}');
SELECT * FROM durable.start_many(NULL, '{1}');
SELECT count(*) FROM durable.run WHERE run_id IN ('many3', 'many4');
SELECT * FROM durable.start_many('echo', '{{1,2},{3,4}}', '{{many5,many6},{many7,many8}}');
BEGIN;
SELECT count(*) FROM durable.start_many('echo', array_fill('1'::jsonb, '{100}'));
ROLLBACK;
CALL durable.work(duration => '0');
SELECT status, count(*) FROM durable.run WHERE run_id LIKE 'many_' GROUP BY 1;

--
-- the owner of a definition is dropped: what is left can be looked at, cancelled and taken over
--
CREATE ROLE durable_wf_gone;
CREATE ROLE durable_wf_heir;
SELECT durable.grant_usage('durable_wf_gone'), durable.grant_usage('durable_wf_heir');
GRANT USAGE ON SCHEMA wf_test TO PUBLIC;
SET ROLE durable_wf_gone;
SELECT durable.register_workflow('orphan', 'wf_test.echo'), durable.register_handler('orphan', 'wf_test.echo');
SELECT durable.start('orphan', '1', 'orphan1'), durable.start('orphan', '1', 'orphan2');
RESET ROLE;
SET ROLE durable_wf_heir;
SELECT durable.register_workflow('orphan', 'wf_test.echo');		-- while it has an owner
SELECT durable.unregister_workflow('orphan');
RESET ROLE;
DROP OWNED BY durable_wf_gone;
SELECT durable.revoke_usage('durable_wf_gone');
DROP ROLE durable_wf_gone;
CALL durable.work(duration => '0');
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'orphan_' ORDER BY 1;
SELECT durable.cancel('orphan1');
SET ROLE durable_wf_heir;
SELECT durable.register_workflow('orphan', 'wf_test.echo');
SELECT durable.register_handler('orphan', 'wf_test.echo');
SELECT durable.start('orphan', '3', 'orphan3');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'orphan_' ORDER BY 1;
SELECT durable.requeue('orphan2');		-- its turns are where its new owner looks
SET ROLE durable_wf_heir;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'orphan_' ORDER BY 1;

SET client_min_messages = warning;
SELECT durable.revoke_usage('durable_wf_heir') \g /dev/null
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_wf_heir;
DROP ROLE durable_wf_heir;
