-- workflows: versions, code that changes under live runs, atomic ones, who may what
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_test;
DROP ROLE IF EXISTS durable_wf_alice;
DROP ROLE IF EXISTS durable_wf_bob;
RESET client_min_messages;
SET search_path = wf_test;

CREATE TABLE effect (n serial, run text, step text, input jsonb);
CREATE FUNCTION note(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO wf_test.effect (run, step, input) VALUES (durable.run_id(), 'note', i);
	RETURN to_jsonb(current_user::text);
END $$;
CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message' FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY run_id
$$;

--
-- versions: the newest by number, or the one asked for; a run stays with its own
--
CREATE FUNCTION v_old(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.wait_for_signal('go'); RETURN '"old"'; END $$;
CREATE FUNCTION v_new(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN '"new"'; END $$;
SELECT durable.register_workflow('v', 'wf_test.v_old', '9');
SELECT durable.start('v', NULL, 'v1');
CALL durable.work(duration => '0');
SELECT durable.register_workflow('v', 'wf_test.v_new', '10'), durable.register_workflow('v', 'wf_test.v_new', '010');
SELECT durable.start('v', NULL, 'v2'), durable.start('v', NULL, 'v3', version => '9');
SELECT run_id, version = '9' AS old FROM durable.run ORDER BY id;
SELECT durable.signal('go'), durable.signal('go');
CALL durable.work(duration => '0');
SELECT run_id, output FROM durable.run ORDER BY id;
SELECT durable.register_workflow('natural', 'wf_test.v_new', v) FROM unnest('{1.9.0,1.10.0,1.2,beta}'::text[]) v \g /dev/null
SELECT durable.start('natural', NULL, 'n1');
SELECT durable.unregister_workflow('natural', 'beta');
SELECT durable.start('natural', NULL, 'n2');
SELECT durable.unregister_workflow('natural', 'unknown'), durable.unregister_workflow('natural', '1.2');
SELECT run_id, version FROM durable.run WHERE run_id LIKE 'n%' ORDER BY 1;
SELECT durable.unregister_workflow('natural');		-- refused while one lives
-- a run without its version is left alone until the version is back
SELECT durable.cancel('n2');
DELETE FROM durable.workflow WHERE name = 'natural' AND version = 'beta';
CALL durable.work(duration => '0');
SELECT * FROM runs('n%');
SELECT durable.register_workflow('natural', 'wf_test.v_new', 'beta');
SET durable.clock_offset = 10;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('n%');
-- the same for a function that is gone
SELECT durable.start('v', NULL, 'gone'), durable.start('natural', NULL, 'n3');
ALTER FUNCTION v_new(jsonb) RENAME TO v_newer;
SELECT durable.start('v', NULL, 'not gone', version => '9'), durable.signal('go');
CALL durable.work(duration => '0');
SELECT * FROM runs('%gone');
ALTER FUNCTION v_newer(jsonb) RENAME TO v_new;
SET durable.clock_offset = 20;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('gone');
SELECT durable.unregister_workflow('natural'), durable.unregister_workflow('natural');

--
-- a body that changes under its runs
--
CREATE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.note', i, 'one');
	PERFORM durable.wait_for_signal(durable.run_id());
	RETURN durable.local_step('wf_test.note', i, 'three');
END $$;
SELECT durable.register_workflow('changes', 'wf_test.changes');
SELECT durable.start('changes', NULL, 'changed' || n) FROM generate_series(1, 7) n;
CALL durable.work(duration => '0');
SELECT durable.signal('changed1');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.note', i, 'another');
	RETURN '1';
END $$;
CALL durable.work(duration => '0');
-- another kind at the same position
SELECT durable.signal('changed2');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step('one', i);
	RETURN '1';
END $$;
CALL durable.work(duration => '0');
-- a mismatch that the body catches fails the run all the same
SELECT durable.signal('changed3');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.sleep('1 s');
	EXCEPTION WHEN OTHERS THEN
		NULL;
	END;
	RETURN durable.local_step('wf_test.note', i, 'after');
END $$;
CALL durable.work(duration => '0');
SELECT durable.signal('changed4');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.sleep('1 s');
	RETURN '1';
EXCEPTION WHEN OTHERS THEN
	RAISE EXCEPTION 'something else';
END $$;
CALL durable.work(duration => '0');
-- guarded: runs that are past the place keep to the old way, others take the new one
SELECT durable.signal('changed5');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	fresh boolean;
BEGIN
	IF durable.patched('first') THEN
		PERFORM durable.local_step('wf_test.note', i, 'zero');
	END IF;
	PERFORM durable.local_step('wf_test.note', i, 'one');
	PERFORM durable.wait_for_signal(durable.run_id());
	fresh := durable.patched('second');
	RETURN to_jsonb(fresh);
END $$;
SELECT durable.start('changes', NULL, 'changed8');
CALL durable.work(duration => '0');
SELECT durable.signal('changed8');
CALL durable.work(duration => '0');
-- another patch at the same position
SELECT durable.start('changes', NULL, 'changed9');
CALL durable.work(duration => '0');
SELECT durable.signal('changed9');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(durable.patched('other'));
END $$;
CALL durable.work(duration => '0');
-- a shorter body just ends
SELECT durable.signal('changed6');
CREATE OR REPLACE FUNCTION changes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN '"short"'; END $$;
CALL durable.work(duration => '0');
SELECT run_id, status, output, code, left(message, 80) AS message FROM runs('changed%');
SELECT error ->> 'detail' AS detail, error ->> 'hint' AS hint FROM durable.run WHERE run_id IN ('changed1', 'changed2', 'changed3', 'changed9') ORDER BY run_id;
SELECT run_id, seq, kind, name FROM durable.run, durable.history(run_id) WHERE run_id IN ('changed5', 'changed8') ORDER BY 1, 2;
SELECT durable.cancel('changed7');

--
-- atomic: all steps up to the next wait in one commit
--
CREATE FUNCTION xid(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(pg_current_xact_id()::text); END $$;
CREATE FUNCTION together(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	x jsonb[];
BEGIN
	FOR n IN 1..3 LOOP
		x := x || durable.local_step('wf_test.xid');
	END LOOP;
	PERFORM durable.wait_for_signal(durable.run_id());
	FOR n IN 1..3 LOOP
		x := x || durable.local_step('wf_test.xid');
	END LOOP;
	RETURN to_jsonb((SELECT count(DISTINCT y) FROM unnest(x) y));
END $$;
SELECT durable.register_workflow('together', 'wf_test.together', atomic => true), durable.register_workflow('apart', 'wf_test.together');
SELECT durable.start('together', NULL, 'together'), durable.start('apart', NULL, 'apart');
CALL durable.work(duration => '0');
SELECT durable.signal('together'), durable.signal('apart');
CALL durable.work(duration => '0');
SELECT * FROM runs('%t%') WHERE run_id IN ('together', 'apart');

-- constraints that wait for the commit belong to the step
CREATE TABLE p (id int PRIMARY KEY);
CREATE TABLE c (id int REFERENCES p DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION orphan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO wf_test.c VALUES (i::int); RETURN i; END $$;
CREATE FUNCTION adopts(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.local_step('wf_test.orphan', i);
EXCEPTION WHEN foreign_key_violation THEN
	RETURN to_jsonb(sqlerrm);
END $$;
INSERT INTO p VALUES (1);
SELECT durable.register_workflow('adopts', 'wf_test.adopts'), durable.register_handler('orphan', 'wf_test.orphan');
CREATE FUNCTION adopts_far(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('orphan', i); END $$;
SELECT durable.register_workflow('adopts_far', 'wf_test.adopts_far');
SELECT durable.start('adopts', n::text::jsonb, 'adopts' || n), durable.start('adopts_far', n::text::jsonb, 'far' || n) FROM generate_series(1, 2) n;
CALL durable.work(duration => '0');
SELECT * FROM runs('adopts%') UNION ALL SELECT * FROM runs('far%');
SELECT * FROM c;

--
-- roles
--
CREATE ROLE durable_wf_alice;
CREATE ROLE durable_wf_bob;
GRANT USAGE ON SCHEMA wf_test TO PUBLIC;
GRANT ALL ON ALL TABLES IN SCHEMA wf_test TO PUBLIC;
GRANT ALL ON ALL SEQUENCES IN SCHEMA wf_test TO PUBLIC;
SET ROLE durable_wf_alice;
SELECT durable.register_workflow('a', 'wf_test.changes');
RESET ROLE;
SELECT durable.grant_usage('durable_wf_alice'), durable.grant_usage('durable_wf_bob');
CREATE FUNCTION secret(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"secret"'::jsonb $$;
REVOKE ALL ON FUNCTION secret(jsonb) FROM PUBLIC;
CREATE FUNCTION who(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_array(current_user, durable.local_step('wf_test.note', i), durable.step('who'));
END $$;
CREATE FUNCTION tries(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.secret', i); END $$;
SET ROLE durable_wf_alice;
SELECT durable.register_workflow('a', 'wf_test.secret');
SELECT durable.register_handler('a', 'wf_test.secret');
SELECT durable.register_workflow('a', 'wf_test.who'), durable.register_handler('who', 'wf_test.note'), durable.register_workflow('tries', 'wf_test.tries');
SELECT durable.register_workflow('v', 'wf_test.who', '10');		-- somebody else's
SELECT durable.unregister_workflow('changes');
SELECT durable.register_workflow('a', 'wf_test.who', namespace => 'elsewhere');
SET ROLE durable_wf_bob;
SELECT durable.register_workflow('a', 'wf_test.who');
SELECT durable.register_handler('who', 'wf_test.note');
SELECT durable.unregister_handler('who'), durable.unregister_workflow('a');
SELECT durable.start('a', NULL, 'by bob'), durable.start('tries', NULL, 'tries');		-- starting is another thing
CALL durable.work(duration => '0');
RESET ROLE;
CALL durable.work(duration => '0');
SELECT * FROM runs('by bob');
SET ROLE durable_wf_alice;
CALL durable.work(duration => '0');
SELECT * FROM runs('by bob') UNION ALL SELECT * FROM runs('tries');
SELECT durable.start('v', NULL, 'for postgres', namespace => 'elsewhere');
-- the queue of another owner's bodies yields nothing
SELECT durable.start('v', NULL, 'for postgres');
RESET ROLE;
SELECT queue AS postgres_queue FROM durable.workflow WHERE name = 'v' LIMIT 1 \gset
SET ROLE durable_wf_alice;
CALL durable.work(ARRAY[:'postgres_queue'], '0');
SELECT * FROM runs('for postgres');
RESET ROLE;
SET durable.clock_offset = 30;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('for postgres');
-- an id that is taken in a namespace where one has no rights
SELECT durable.register_workflow('v', 'wf_test.v_new', namespace => 'elsewhere');
SELECT durable.start('v', NULL, 'hidden', namespace => 'elsewhere');
SET ROLE durable_wf_bob;
SELECT durable.start('v', NULL, 'hidden');
SELECT durable.cancel('hidden');
SELECT durable.signal('x', namespace => 'elsewhere');
SELECT durable.result('hidden');
SELECT durable.get_run('hidden') IS NULL, count(*) FROM durable.history('hidden');
CALL durable.wait_for_run('hidden', '0');
SELECT count(*) FROM durable.run WHERE namespace = 'elsewhere';
INSERT INTO durable.run SELECT * FROM durable.run;
-- a privilege that is taken back, a function that may not be executed any more
RESET ROLE;
SELECT durable.start('a', NULL, 'later');
SELECT durable.revoke_usage('durable_wf_bob', privileges => '{start}');
SET ROLE durable_wf_bob;
SELECT durable.start('a', NULL, 'no more');
SELECT durable.cancel('later');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION who(jsonb) FROM PUBLIC;
SET ROLE durable_wf_alice;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT * FROM runs('later');
GRANT EXECUTE ON FUNCTION who(jsonb) TO PUBLIC;
SET durable.clock_offset = 60;
SET ROLE durable_wf_alice;
SET durable.clock_offset = 0;
CALL durable.work(duration => '0');
RESET ROLE;
RESET durable.clock_offset;
SELECT * FROM runs('later');

-- a queue that several owners work on: what is not mine stays, for a while
CREATE FUNCTION routed(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('ours', i, queue => 'shared'); END $$;
SELECT durable.register_workflow('routed', 'wf_test.routed', queue => 'shared'), durable.register_handler('ours', 'wf_test.note');
SELECT durable.start('routed', NULL, 'routed'), durable.dispatch('nobody', task_id => 'nobody', queue => 'shared');
SET ROLE durable_wf_alice;
CALL durable.work('{shared}', '0');
RESET ROLE;
SELECT * FROM runs('routed');
SET durable.clock_offset = 10;
CALL durable.work('{shared}', '0', 1);
SET ROLE durable_wf_alice;
CALL durable.work('{shared}', '0');
RESET ROLE;
SELECT * FROM runs('routed');
SELECT name, attempt, reclaims, error FROM durable.task WHERE queue = 'shared' ORDER BY name;
SET durable.clock_offset = 20;
CALL durable.work('{shared}', '0');
SELECT * FROM runs('routed');
RESET durable.clock_offset;

-- what a step or a body SETs ends with it
CREATE FUNCTION sets(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('role', 'durable_wf_bob', false), set_config('search_path', 'nowhere', false), set_config('wf_test.x', 'set', false);
	RETURN to_jsonb(current_user::text);
END $$;
CREATE FUNCTION settings(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('work_mem', '128kB', false);
	RETURN jsonb_build_array(durable.local_step('wf_test.sets'), current_user, current_setting('wf_test.x', true), durable.local_step('wf_test.note', i), durable.step('sets'), durable.step('ours'));
END $$;
SELECT durable.register_workflow('settings', 'wf_test.settings'), durable.register_handler('sets', 'wf_test.sets');
SELECT durable.start('settings', NULL, 'settings');
CALL durable.work(duration => '0');
SELECT output FROM runs('settings');
SELECT current_user, current_setting('search_path'), current_setting('wf_test.x', true), current_setting('work_mem') <> '128kB' AS unchanged;

-- a read-only session, and one at another isolation level
SET default_transaction_read_only = on;
CALL durable.work(duration => '0');
SELECT durable.start('v');
RESET default_transaction_read_only;
SET default_transaction_isolation = 'serializable';
SELECT durable.start('together', NULL, 'serializable');
CALL durable.work(duration => '0');
SELECT durable.signal('serializable');
CALL durable.work(duration => '0');
RESET default_transaction_isolation;
SELECT * FROM runs('serializable');

SET client_min_messages = warning;
SELECT durable.revoke_usage('durable_wf_alice'), durable.revoke_usage('durable_wf_bob') \g /dev/null
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
DROP ROLE durable_wf_alice, durable_wf_bob;
