-- dead letters: what is started for a run that is dead
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_dead_owner, durable_dead_boss, durable_dead_user;
CREATE EXTENSION durable;
CREATE SCHEMA dead_test;
RESET client_min_messages;
SET search_path = dead_test;
SET durable.max_recovery_attempts = 0;

CREATE FUNCTION echo(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
CREATE FUNCTION breaks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it broke' USING ERRCODE = '22012'; END $$;
-- a worker takes the turn of the queue's runs and is never heard of again
CREATE FUNCTION lose(queue text, namespace text DEFAULT NULL) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	SELECT count(*) INTO n FROM durable.claim(ARRAY[queue], 10, '1 s', namespace => namespace);
	SET LOCAL durable.clock_offset = 600;
	PERFORM durable.sweep();
	RETURN n;
END $$;
CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, namespace text, workflow text, version text, status text, tags text[], priority int, headers jsonb, input jsonb, code text)
LANGUAGE sql AS $$
	SELECT run_id, namespace, workflow, version, status, tags, priority, headers, input, error ->> 'code' FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY run_id
$$;
CREATE VIEW notes AS SELECT run_id, seq, number, level, message, data FROM durable.run_log l JOIN durable.run r ON r.id = l.run ORDER BY run_id, seq, number;

--
-- nobody asked for one
--
SELECT durable.register_workflow('plain', NULL, queue => 'lossy');
SELECT durable.start('plain', '1', 'plain 1');
SELECT lose('lossy');
SELECT * FROM runs('%');
SELECT * FROM notes;

--
-- the workflow's own, then the namespace's default
--
SELECT durable.register_workflow('letters', 'dead_test.echo', version => '1'), durable.register_workflow('letters', 'dead_test.echo', version => '2', tags => '{letter}');
SELECT durable.register_workflow('default letters', 'dead_test.echo');
SELECT durable.register_workflow('own', NULL, queue => 'lossy', dead_letter_workflow => 'letters');
SELECT durable.set_dead_letter_workflow('default letters');
SELECT owner = current_user::regrole AS mine, namespace, workflow FROM durable.dead_letter;
SELECT durable.start('plain', '{"n": 1}', 'plain 2'), durable.start('own', '{"n": 2}', 'own 1', tags => '{mine}', priority => 7, headers => '{"traceparent": "x"}'),
	durable.start('own', NULL, 'own 2');
SELECT lose('lossy');
SELECT * FROM runs('%');
SELECT * FROM notes;
CALL durable.work(duration => '0');
SELECT run_id, status, output = input AS echoed FROM durable.run WHERE run_id LIKE 'dlq:%' ORDER BY 1;

-- once: a run that is requeued and dies again has its dead letter
SELECT durable.requeue('own 1');
SELECT lose('lossy');
SELECT * FROM runs('%own 1');
SELECT * FROM notes;

-- a version says for itself
SELECT durable.register_workflow('own', NULL, queue => 'lossy', version => '2');
SELECT durable.start('own', NULL, 'own v1', version => '1'), durable.start('own', NULL, 'own v2');
SELECT lose('lossy');
SELECT run_id, workflow FROM runs('dlq:own v_');

-- no default any more; the workflow's own is replaced
SELECT durable.set_dead_letter_workflow(NULL), durable.set_dead_letter_workflow(NULL);
SELECT * FROM durable.dead_letter;
SELECT durable.register_workflow('own', NULL, queue => 'lossy', dead_letter_workflow => 'default letters');
SELECT durable.start('plain', NULL, 'plain 3'), durable.start('own', NULL, 'own 3', version => '1');
SELECT lose('lossy');
SELECT run_id, workflow FROM runs('%_ 3');

--
-- only dead ones: not what failed or was cancelled
--
SELECT durable.register_workflow('breaks', 'dead_test.breaks', dead_letter_workflow => 'letters');
SELECT durable.start('breaks', NULL, 'failed'), durable.start('breaks', NULL, 'cancelled', start_at => now() + interval '1 day'), durable.cancel('cancelled');
CALL durable.work(duration => '0');
SELECT run_id, status FROM runs('%failed');
SELECT run_id, status FROM runs('%cancelled');

--
-- no chains: a dead letter that is dead has none
--
SELECT durable.register_workflow('lossy letters', NULL, queue => 'lossy', dead_letter_workflow => 'letters');
SELECT durable.register_workflow('chain', NULL, queue => 'lossy', dead_letter_workflow => 'lossy letters');
SELECT durable.set_dead_letter_workflow('letters');
SELECT durable.start('chain', NULL, 'chain');
SELECT lose('lossy');
SELECT lose('lossy');
SELECT run_id, workflow, status FROM runs('%chain');
-- nor a retry of it
SELECT durable.retry_with_input('dlq:chain', '1') LIKE 'dlq:chain~retry~%';
SELECT lose('lossy');
SELECT workflow, status FROM runs('%chain%') ORDER BY run_id;
-- a workflow may take its own
SELECT durable.register_workflow('self', NULL, queue => 'lossy', dead_letter_workflow => 'self');
SELECT durable.start('self', '1', 'self');
SELECT lose('lossy');
SELECT lose('lossy');
SELECT run_id, workflow, status, input ->> 'dead_run_id' AS dead FROM runs('%self');

--
-- what cannot be started does not keep the run from being dead
--
SELECT durable.register_workflow('lost', NULL, queue => 'lossy', dead_letter_workflow => 'not there');
SELECT durable.start('lost', NULL, 'lost 1');
SELECT lose('lossy');
SELECT run_id, status FROM runs('%lost 1');
SELECT * FROM notes WHERE run_id LIKE 'lost%';
-- noted each time
SELECT durable.requeue('lost 1');
SELECT lose('lossy');
SELECT * FROM notes WHERE run_id LIKE 'lost%';
-- registered meanwhile
SELECT durable.register_workflow('not there', 'dead_test.echo');
SELECT durable.requeue('lost 1');
SELECT lose('lossy');
SELECT run_id, status FROM runs('%lost 1');
-- an input that is refused fails the dead letter, in its first turn
CREATE FUNCTION never(i jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
SELECT durable.register_workflow('picky', 'dead_test.echo', input_check => 'dead_test.never');
SELECT durable.register_workflow('lost', NULL, queue => 'lossy', dead_letter_workflow => 'picky');
SELECT durable.start('lost', NULL, 'lost 2');
SELECT lose('lossy');
SELECT run_id, status FROM runs('%lost 2');
CALL durable.work(duration => '0');
SELECT run_id, status, error ->> 'code' AS code, error ->> 'message' AS message, error ->> 'reason' AS reason FROM durable.run WHERE run_id = 'dlq:lost 2';
-- the longest id
SELECT durable.register_workflow('lost', NULL, queue => 'lossy', dead_letter_workflow => 'letters');
SELECT length(durable.start('lost', NULL, repeat('x', 255)));
SELECT lose('lossy');
SELECT length(run_id), status FROM runs('dlq:xxx%');
CALL durable.work(duration => '0');
SELECT length(run_id), status, durable.result(run_id) - 'dead_run_id' AS result FROM runs('dlq:xxx%');
SELECT durable.cancel('dlq:' || repeat('x', 255));

--
-- steps and stand-alone tasks have none: their run decides, or who dispatched them
--
SELECT count(*) FROM durable.dispatch('lonely', '1', queue => 'lossy');
SET durable.max_reclaims = 0;
SELECT lose('lossy');
RESET durable.max_reclaims;
SELECT status, error ->> 'code' AS code FROM durable.task_result WHERE name = 'lonely';
SELECT count(*) FROM durable.run WHERE input ->> 'workflow' = 'lonely';

--
-- a run that waits for the dead one learns of it, too
--
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.child('lost', NULL, 'the child');
EXCEPTION WHEN SQLSTATE 'WF003' THEN
	RETURN to_jsonb(sqlerrm);
END $$;
SELECT durable.register_workflow('parent', 'dead_test.parent');
SELECT durable.start('parent', NULL, 'the parent');
CALL durable.work(duration => '0');
SELECT lose('lossy');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id IN ('the child', 'the parent', 'dlq:the child') ORDER BY 1;

--
-- the ids are nobody else's
--
SELECT durable.start('plain', NULL, 'dlq:x');
\set VERBOSITY default
SELECT durable.start('plain', NULL, 'onerror:x');
\set VERBOSITY terse
CREATE FUNCTION grabs(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(durable.start_child('letters', NULL, i #>> '{}')); END $$;
SELECT durable.register_workflow('grabs', 'dead_test.grabs');
SELECT durable.start('grabs', '"dlq:mine"', 'grab 1'), durable.start('grabs', '"sched:x:1"', 'grab 2'), durable.start('grabs', '"onerror:x"', 'grab 3'), durable.start('grabs', '"mydlq:x"', 'grab 4');
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'code' AS code, error ->> 'detail' AS detail FROM durable.run WHERE run_id LIKE 'grab%' ORDER BY 1;
-- a dead letter's own children have ids that begin like its own
SELECT durable.register_workflow('grabs', 'dead_test.grabs', version => '2');
CREATE FUNCTION kids(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(ARRAY[durable.start_child('letters'), durable.start_child('letters', NULL, durable.run_id() || '.x')]); END $$;
SELECT durable.register_workflow('kids', 'dead_test.kids');
SELECT durable.register_workflow('lost', NULL, queue => 'lossy', dead_letter_workflow => 'kids');
SELECT durable.start('lost', NULL, 'lost 3');
SELECT lose('lossy');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id LIKE 'dlq:lost 3%' ORDER BY 1;
-- an external worker's decision neither
SELECT durable.register_workflow('decides', NULL, queue => 'deciders');
SELECT durable.start('decides', NULL, 'decides');
SELECT durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "letters", "child_id": "dlq:x"}]}') FROM durable.claim('{deciders}');
SELECT status, error ->> 'message' AS message FROM durable.run WHERE run_id = 'decides';

--
-- arguments
--
SELECT durable.set_dead_letter_workflow('');
SELECT durable.set_dead_letter_workflow(repeat('x', 256));
SELECT durable.set_dead_letter_workflow('letters', repeat('x', 256));
SELECT durable.register_workflow('own', 'dead_test.echo', dead_letter_workflow => '');
SELECT durable.register_workflow('own', 'dead_test.echo', dead_letter_workflow => repeat('x', 256));
BEGIN READ ONLY;
SELECT durable.set_dead_letter_workflow('letters');
ROLLBACK;
SELECT workflow FROM durable.dead_letter;

--
-- who may, and in whose name
--
CREATE ROLE durable_dead_owner;
CREATE ROLE durable_dead_boss;
CREATE ROLE durable_dead_user;
GRANT USAGE ON SCHEMA dead_test TO durable_dead_owner, durable_dead_boss, durable_dead_user;
SELECT durable.grant_usage('durable_dead_owner', 'ns', '{work}'), durable.grant_usage('durable_dead_boss', 'ns', '{manage}'), durable.grant_usage('durable_dead_user', 'other', '{start,work,read,manage}');
SELECT durable.grant_usage('durable_dead_user', 'ns', '{read}');
SET ROLE durable_dead_user;
SELECT durable.set_dead_letter_workflow('letters', 'ns');
SELECT durable.set_dead_letter_workflow('letters', 'other');
SELECT namespace, workflow, owner FROM durable.dead_letter;
DELETE FROM durable.dead_letter;
SET ROLE durable_dead_boss;
SELECT durable.set_dead_letter_workflow('letters', 'other');
\set VERBOSITY default
SELECT durable.set_dead_letter_workflow('letters', 'ns');
\set VERBOSITY terse
SELECT durable.set_dead_letter_workflow(NULL, 'ns');
SET ROLE durable_dead_owner;
SELECT durable.set_dead_letter_workflow('letters', 'ns');
SELECT durable.register_workflow('own', NULL, namespace => 'ns', queue => 'lossy', dead_letter_workflow => 'letters');
SELECT durable.register_workflow('own', NULL, namespace => 'ns', queue => 'lossy');
RESET ROLE;
-- with start it may, in the namespace; the default's owner likewise
SELECT durable.grant_usage('durable_dead_owner', 'ns', '{start}'), durable.grant_usage('durable_dead_boss', 'ns', '{start}');
SET ROLE durable_dead_owner;
SELECT durable.register_workflow('own', NULL, namespace => 'ns', queue => 'lossy', dead_letter_workflow => 'letters');
SELECT durable.register_workflow('plain', NULL, namespace => 'ns', queue => 'lossy');
SET ROLE durable_dead_boss;
SELECT durable.set_dead_letter_workflow('letters', 'ns');
RESET ROLE;
SELECT durable.start('own', NULL, 'ns 1', namespace => 'ns');
SELECT lose('lossy', 'ns');
SELECT message FROM notes WHERE run_id = 'ns 1';
SELECT durable.register_workflow('letters', 'dead_test.echo', namespace => 'ns');
SELECT durable.start('own', NULL, 'ns 2', namespace => 'ns'), durable.start('plain', NULL, 'ns 3', namespace => 'ns');
SELECT lose('lossy', 'ns');
SELECT run_id, namespace, workflow, status FROM runs('%ns _');
-- whoever lost the right since starts nothing any more
SELECT durable.revoke_usage('durable_dead_owner', 'ns', '{start}'), durable.revoke_usage('durable_dead_boss', 'ns', '{start}');
SELECT durable.start('own', NULL, 'ns 4', namespace => 'ns'), durable.start('plain', NULL, 'ns 5', namespace => 'ns');
SELECT lose('lossy', 'ns');
SELECT run_id, status FROM runs('%ns _') WHERE run_id > 'ns 3' OR run_id > 'dlq:ns 3' AND run_id < 'e';
SELECT run_id, message FROM notes WHERE run_id IN ('ns 4', 'ns 5');
-- and whoever is gone
SELECT durable.revoke_usage('durable_dead_boss', 'ns');
REVOKE USAGE ON SCHEMA dead_test FROM durable_dead_boss;
DROP ROLE durable_dead_boss;
SELECT durable.start('plain', NULL, 'ns 6', namespace => 'ns');
SELECT lose('lossy', 'ns');
SELECT run_id, status FROM runs('%ns 6');
SELECT regexp_replace(message, 'role \d+', 'role N') AS message FROM notes WHERE run_id = 'ns 6';

SELECT count(*) FROM durable.task WHERE kind = 'turn' AND run_id NOT IN (SELECT run_id FROM durable.run);
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA dead_test CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_dead_owner, durable_dead_user;
DROP ROLE durable_dead_owner, durable_dead_user;
