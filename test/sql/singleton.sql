-- singletons: at most so many runs of a key go on, the oldest first; who waits is parked, and is told
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
DROP SCHEMA IF EXISTS singleton CASCADE;
CREATE SCHEMA singleton;
DROP ROLE IF EXISTS durable_singleton_web;
CREATE ROLE durable_singleton_web;
RESET client_min_messages;
SET search_path = singleton;

CREATE TABLE effect (n int GENERATED ALWAYS AS IDENTITY, run text, what text);
CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect (run, what) VALUES (i ->> 'run', i ->> 'what');
	RETURN i;
END $$;
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('act', jsonb_build_object('run', durable.run_id(), 'what', 'begins'));
	PERFORM durable.wait_for_signal('go:' || durable.run_id());
	PERFORM durable.local_step('act', jsonb_build_object('run', durable.run_id(), 'what', 'ends'));
	RETURN i;
END $$;
CREATE FUNCTION echo(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;
CREATE VIEW entries AS SELECT r.run_id, s.workflow, s.key, s.state, s.parked, r.status,
	EXISTS (SELECT FROM durable.task_ready t WHERE t.id = s.run) AS ready FROM durable.singleton s JOIN durable.run r ON r.id = s.run ORDER BY s.run;
CREATE FUNCTION go(VARIADIC runs text[]) RETURNS void LANGUAGE sql AS $$ SELECT durable.signal('go:' || r) FROM unnest(runs) r $$;

--
-- one at a time, in the order of their creation, whatever their priority
--
SELECT durable.register_workflow('w', 'singleton.body', singleton_key => '$.k');
SELECT durable.start('w', '{"k": "a"}', 'a' || n, priority => n) FROM generate_series(1, 4) n;
SELECT durable.start('w', '{"k": "b"}', 'b1');
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT * FROM durable.singletons ORDER BY key;
SELECT run, what FROM effect ORDER BY n;
-- nobody polls: nothing is claimed, delayed or due
SELECT (SELECT count(*) FROM durable.task_ready) AS ready, (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.lease) AS leases;
SELECT ready, claimed, delayed, parked FROM durable.queue_depth((SELECT queue FROM durable.workflow));
-- a release queues the next, and only that
SELECT go('a1', 'b1');
CALL durable.work(duration => '0', max_tasks => 2);
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT run, what FROM effect ORDER BY n;
-- the slot is kept over waits, and given on however a run ends: failed, cancelled while it waits at the gate or for a signal
SELECT durable.cancel('a3');
SELECT * FROM entries;
SELECT durable.cancel('a2');
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT run, what FROM effect WHERE run = 'a4';
SELECT go('a4');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT run_id, status, singleton_key FROM durable.run ORDER BY id;
SELECT count(*) FROM durable.task;
-- taken back with the transaction
SELECT durable.start('w', '{"k": "a"}', 's' || n) FROM generate_series(1, 3) n;
CALL durable.work(duration => '0');
BEGIN;
SAVEPOINT s;
SELECT durable.cancel('s1');
SELECT * FROM entries;
ROLLBACK TO s;
SELECT * FROM entries;
SELECT durable.cancel('s1');
ROLLBACK;
SELECT * FROM entries;
BEGIN;
SELECT durable.cancel('s1');
SELECT durable.cancel('s2');
COMMIT;
SELECT * FROM entries;
SELECT durable.cancel('s3');
SELECT count(*) FROM durable.task_ready;
CALL durable.work(duration => '0');
-- a run of its own: the key is of the workflow and the namespace
SELECT durable.register_workflow('v', 'singleton.body', singleton_key => '$.k'),
	durable.register_workflow('w', 'singleton.body', namespace => 'other', singleton_key => '$.k');
SELECT durable.start('w', '{"k": "a"}', 'n1'), durable.start('v', '{"k": "a"}', 'n2'), durable.start('w', '{"k": "a"}', 'n3', namespace => 'other');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT * FROM durable.singletons ORDER BY namespace, workflow;
SELECT durable.cancel(run_id) FROM entries;
-- tags make no singleton
SELECT durable.register_workflow('free', 'singleton.body');
SELECT durable.start('free', '{"k": "a"}', 't' || n, tags => '{singleton:a,durable:singleton:admitted}') FROM generate_series(1, 2) n;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT run_id, status, singleton_key FROM durable.run WHERE run_id LIKE 't_';
SELECT durable.cancel('t' || n) FROM generate_series(1, 2) n;

--
-- several at once; children, sleeps and steps of a holder need no other slot
--
TRUNCATE effect;
CREATE FUNCTION rich(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('act', jsonb_build_object('run', durable.run_id(), 'what', 'begins'));
	PERFORM durable.sleep('1 hour');
	PERFORM durable.step('remote', i);
	PERFORM durable.child('free', i, durable.run_id() || '.c');
	RETURN i;
END $$;
SELECT durable.register_workflow('rich', 'singleton.rich', singleton_key => '$.k', singleton_limit => 2);
SELECT durable.start('rich', '{"k": 7}', 'r' || n) FROM generate_series(1, 3) n;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.complete(task_id, token) FROM durable.claim('{remote}', 10);
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT go('r1.c');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT run, what FROM effect ORDER BY n;
SELECT durable.cancel(run_id) FROM entries;
RESET durable.clock_offset;

--
-- what a key may be
--
CREATE FUNCTION keys_of(path jsonpath, VARIADIC inputs jsonb[]) RETURNS TABLE (input jsonb, key text) LANGUAGE plpgsql AS $$
DECLARE
	id text;
	message text;
	detail text;
BEGIN
	PERFORM durable.register_workflow('k', 'singleton.echo', singleton_key => path);
	FOREACH input IN ARRAY inputs
	LOOP
		BEGIN
			id := durable.start('k', input);
			key := (SELECT r.singleton_key FROM durable.get_run(id) r);
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL;
			key := SQLSTATE || ' ' || left(message, 100) || ' / ' || left(detail, 120);
		END;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM keys_of('$.k', '{"k": "x"}', '{"k": 1}', '{"k": 1.0}', '{"k": 1e3}', '{"k": -0.50}', '{"k": true}', '{"k": false}', '{"k": "ünï\n''\"$"}', '{"k": "null"}');
SELECT * FROM keys_of('$.k', '{"k": null}', '{"k": {}}', '{"k": {"a": 1}}', '{"k": []}', '{"k": [1]}', '{}', '[]', '"x"', 'null', NULL, '{"k": ""}', '[{"k": 1}, {"k": 2}]');
SELECT * FROM keys_of('strict $.k', '{"k": "x"}', '{}', '[{"k": "x"}]');
SELECT * FROM keys_of('$.k[*] ? (@ > 1)', '{"k": [1, 2]}', '{"k": [1]}', '{"k": [2, 3]}');
SELECT * FROM keys_of('$.k.size()', '{"k": [1, 2]}', '{"k": "x"}');
SELECT * FROM keys_of('$.k == "x"', '{"k": "x"}', '{"k": "y"}', '{}');
SELECT * FROM keys_of('"all"', '{}', NULL);
SELECT * FROM keys_of('$x', '{}');
SELECT length(durable.start('k', jsonb_build_object('k', repeat('ü', 127)), 'long')) AS long FROM durable.register_workflow('k', 'singleton.echo', singleton_key => '$.k');
SELECT durable.start('k', jsonb_build_object('k', repeat('x', 256)));
SELECT durable.start('k', jsonb_build_object('k', repeat('ü', 128)));
SELECT durable.cancel(run_id) FROM entries WHERE workflow = 'k' \g /dev/null
-- a run that exists is not refused for what it is asked with
SELECT durable.start('w', '{"k": "a"}', 'e1'), durable.start('w', '{}', 'e1'), durable.start('w', NULL, 'e1');
SELECT durable.cancel('e1');
-- nothing is left of what is refused
SELECT durable.start('w', '{}', 'refused');
SELECT durable.start_many('w', ARRAY['{"k": 1}', '{}']::jsonb[]);
SELECT count(*) FROM durable.run WHERE run_id = 'refused' OR finished_at IS NULL;
-- definitions
SELECT durable.register_workflow('bad', 'singleton.echo', singleton_limit => 2);
SELECT durable.register_workflow('bad', 'singleton.echo', singleton_max_queued => 2);
SELECT durable.register_workflow('bad', 'singleton.echo', singleton_key => '$.k', singleton_limit => 0);
SELECT durable.register_workflow('bad', 'singleton.echo', singleton_key => '$.k', singleton_max_queued => -1);
SELECT durable.register_workflow('bad', 'singleton.echo', singleton_key => '$.k[');
SELECT count(*) FROM durable.workflow WHERE name = 'bad';

--
-- a bound on the queue: exact, and no bound for what exists
--
SELECT durable.register_workflow('q', 'singleton.body', singleton_key => '$.k', singleton_limit => 2, singleton_max_queued => 1);
SELECT durable.start('q', '{"k": "a"}', 'q' || n) FROM generate_series(1, 3) n;
\set VERBOSITY default
SELECT durable.start('q', '{"k": "a"}', 'q4');
\set VERBOSITY terse
CALL durable.work(duration => '0');
\set VERBOSITY sqlstate
SELECT durable.start('q', '{"k": "a"}', 'q4');
\set VERBOSITY terse
SELECT durable.start('q', '{"k": "a"}', 'q1'), durable.start('q', '{"k": "b"}', 'q5');
BEGIN;
SELECT durable.cancel('q3');
SELECT durable.start('q', '{"k": "a"}', 'q4');
SELECT durable.start('q', '{"k": "a"}', 'q6');
ROLLBACK;
SELECT durable.cancel('q3');
SELECT durable.start('q', '{"k": "a"}', 'q4', start_at => now() + '1 hour');
SELECT * FROM entries;
SELECT durable.start('q', '{"k": "a"}', 'q6');
SELECT durable.start_many('q', array_agg('{"k": "c"}'::jsonb)) FROM generate_series(1, 4);
SELECT count(*) FROM entries WHERE key = 'c';
SELECT durable.cancel(run_id) FROM entries \g /dev/null
SELECT durable.register_workflow('q', 'singleton.body', singleton_key => '$.k', singleton_max_queued => 0);
SELECT durable.start('q', '{"k": "a"}', 'q7'), durable.start('q', '{"k": "a"}', 'q8');
SELECT durable.start('q', '{"k": "a"}', 'q7');
SELECT durable.start('q', '{"k": "a"}', 'q8');
SELECT durable.cancel('q7');

--
-- a start that is due later waits for no slot until then, and keeps nobody back
--
SELECT durable.start('w', '{"k": "d"}', 'd1', start_at => durable.engine_now() + '1 hour'), durable.start('w', '{"k": "d"}', 'd2'), durable.start('w', '{"k": "d"}', 'd3');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT go('d2');
CALL durable.work(duration => '0');
SELECT * FROM entries;
RESET durable.clock_offset;
SELECT durable.cancel('d1'), durable.cancel('d3');
SELECT durable.start('w', '{"k": "d"}', 'd4', start_at => durable.engine_now() + '1 hour'), durable.cancel('d4');
SELECT count(*) FROM durable.singleton;
CALL durable.work(duration => '0');

--
-- requeue: one that waits goes on waiting, one that had ended competes again, with its old number
--
CREATE TABLE broken (run text);
CREATE FUNCTION act2(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM broken WHERE run = i ->> 'run') THEN
		RAISE EXCEPTION 'broken';
	END IF;
	RETURN i;
END $$;
CREATE FUNCTION breaks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('act2', jsonb_build_object('run', durable.run_id()));
	PERFORM durable.wait_for_signal('go:' || durable.run_id());
	RETURN i;
END $$;
SELECT durable.register_workflow('x', 'singleton.breaks', singleton_key => '$.k');
INSERT INTO broken VALUES ('x1');
SELECT durable.start('x', '{"k": "a"}', 'x' || n) FROM generate_series(1, 4) n;
CALL durable.work(duration => '0');
SELECT run_id, status FROM durable.run WHERE workflow = 'x' ORDER BY id;
SELECT * FROM entries;
SELECT durable.requeue('x3'), durable.requeue('x2'), durable.requeue('x1');
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT * FROM entries;
-- x1 comes before those that are younger
TRUNCATE broken;
SELECT go('x2');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.retry('x1');
SELECT go('x1');
CALL durable.work(duration => '0');
SELECT run_id, status FROM durable.run WHERE workflow = 'x' ORDER BY id;
SELECT durable.cancel('x3'), durable.cancel('x4');
-- another input, another key
SELECT durable.retry_with_input('x1', '{"k": "b"}') LIKE 'x1~retry~%' AS started;
SELECT workflow, key, state FROM durable.singleton;
SELECT durable.retry_with_input('x1', '{}');
SELECT durable.cancel(run_id) FROM entries \g /dev/null

--
-- registered again: the new definition counts from now on, and nobody is forgotten
--
SELECT durable.register_workflow('p', 'singleton.body', singleton_key => '$.k', singleton_limit => 2);
SELECT durable.start('p', '{"k": "a"}', 'p' || n) FROM generate_series(1, 7) n;
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons;
-- a lower limit ends nobody
SELECT durable.register_workflow('p', 'singleton.body', singleton_key => '$.k', singleton_limit => 1);
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons;
SELECT go('p1');
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons;
-- a higher one lets go at once
SELECT durable.register_workflow('p', 'singleton.body', singleton_key => '$.k', singleton_limit => 3);
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons;
-- the same again asks nobody to look
SELECT durable.register_workflow('p', 'singleton.body', singleton_key => '$.k', singleton_limit => 3);
SELECT count(*) FROM durable.task WHERE kind = 'look';
-- another key is that of new runs
SELECT durable.register_workflow('p', 'singleton.body', singleton_key => '$.other', singleton_limit => 3);
SELECT durable.start('p', '{"k": "a", "other": "z"}', 'p8');
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons ORDER BY key;
-- no key any more: whoever waits goes, in bounded steps
SELECT durable.start('p', '{"k": "a", "other": "z"}', 'more' || n) FROM generate_series(1, 250) n \g /dev/null
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons ORDER BY key;
BEGIN;
SELECT durable.register_workflow('p', 'singleton.body');
ROLLBACK;
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons ORDER BY key;
SELECT durable.register_workflow('p', 'singleton.body');
SELECT durable.start('p', '{"k": "a"}', 'p9');
CALL durable.work(duration => '0');
SELECT * FROM durable.singletons ORDER BY key;
SELECT count(*) FROM durable.run WHERE workflow = 'p' AND status = 'suspended';
SELECT durable.cancel(run_id) FROM durable.run WHERE workflow = 'p' AND finished_at IS NULL \g /dev/null
SELECT (SELECT count(*) FROM durable.singleton) AS entries, (SELECT count(*) FROM durable.task) AS tasks;
-- another version has another limit; the slots are those of the workflow
SELECT durable.register_workflow('m', 'singleton.body', '1', singleton_key => '$.k', singleton_limit => 1),
	durable.register_workflow('m', 'singleton.body', '2', singleton_key => '$.k', singleton_limit => 3);
SELECT durable.start('m', '{"k": "a"}', 'm' || n, CASE WHEN n IN (2, 5) THEN '1' ELSE '2' END) FROM generate_series(1, 5) n;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.cancel('m2');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.cancel(run_id) FROM entries \g /dev/null
CALL durable.work(duration => '0');

--
-- external turns: what is denied is not handed out, and does not count
--
SELECT durable.register_workflow('ext', singleton_key => '$.k');
SELECT durable.start('ext', '{"k": "a"}', 'ea' || n) FROM generate_series(1, 3) n;
SELECT durable.start('ext', '{"k": "b"}', 'eb1');
CREATE TABLE held AS SELECT task_id, token, run_id FROM durable.claim('{ext}', 10);
SELECT run_id FROM held ORDER BY 1;
SELECT * FROM entries;
SELECT ready, claimed, delayed, parked FROM durable.queue_depth('ext');
SELECT count(*) FROM durable.claim('{ext}', 10);
SELECT durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "wait_signal", "seq": 0, "signal": "ext"}]}') FROM held WHERE run_id = 'ea1';
SELECT count(*) FROM durable.claim('{ext}', 10);
SELECT durable.signal('ext');
SELECT durable.complete_turn(task_id, token, '{"status": "failed", "error": {"message": "no"}}') FROM durable.claim('{ext}', 10);
SELECT * FROM entries;
-- a lapsed claim keeps the slot
SELECT run_id FROM durable.claim('{ext}', 10, '10 s');
SET durable.clock_offset = 3700;
SELECT run_id, reclaims FROM durable.claim('{ext}', 10, '10 s') ORDER BY 1;
SELECT * FROM entries;
SELECT durable.cancel('ea2');
SELECT run_id FROM durable.claim('{ext}', 10);
RESET durable.clock_offset;
SELECT durable.cancel(run_id) FROM entries \g /dev/null

--
-- a run that has not begun is replaced: it has the key of its new input, and gives back a slot that it had
--
SELECT durable.start('w', '{"k": "o"}', 'o' || n) FROM generate_series(1, 4) n;
CALL durable.work(duration => '0');
SELECT durable.start('w', '{"k": "o", "n": 2}', 'o2', on_conflict => 'replace'), durable.start('w', '{"k": "other"}', 'o3', on_conflict => 'replace'),
	durable.start('w', '{"k": "o"}', 'o4', on_conflict => 'debounce', debounce => '1 hour');
SELECT * FROM entries;
SELECT durable.start('w', '{}', 'o2', on_conflict => 'replace');
SELECT durable.start('w', '{"k": "o"}', 'o1', on_conflict => 'replace');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.cancel('o1');
SELECT * FROM entries;
SELECT durable.start('w', '{"k": "o"}', 'o5'), durable.start('w', '{"k": "new"}', 'o2', on_conflict => 'replace');
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT run_id, input, singleton_key FROM durable.run WHERE run_id LIKE 'o_' ORDER BY 1;
SELECT durable.cancel(run_id) FROM entries \g /dev/null
CALL durable.work(duration => '0');
SELECT count(*) FROM durable.task;

--
-- children: a bad key or a full queue fails the step, not the engine
--
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.child(i ->> 'workflow', i -> 'input', durable.run_id() || '.c');
EXCEPTION WHEN SQLSTATE '22023' OR SQLSTATE 'WF010' THEN
	RETURN jsonb_build_object('caught', SQLSTATE, 'message', SQLERRM);
END $$;
CREATE FUNCTION launcher(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.start_child(i ->> 'workflow', i -> 'input', durable.run_id() || '.c');
	PERFORM durable.sleep('1 second');
	RETURN '"started"';
END $$;
CREATE FUNCTION ends(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(durable.start_child(i ->> 'workflow', i -> 'input', durable.run_id() || '.c'));
END $$;
CREATE FUNCTION steps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.start_child(i ->> 'workflow', i -> 'input', durable.run_id() || '.c');
	PERFORM durable.local_step('act', i);
	RETURN NULL;
END $$;
SELECT durable.register_workflow('ends', 'singleton.ends'), durable.register_workflow('steps', 'singleton.steps');
SELECT durable.register_workflow('parent', 'singleton.parent'), durable.register_workflow('launcher', 'singleton.launcher'),
	durable.register_workflow('one', 'singleton.body', singleton_key => '$.k', singleton_max_queued => 0),
	durable.register_workflow('vars', 'singleton.body', singleton_key => '$.k ? (@ == $x)');
SELECT durable.start('parent', '{"workflow": "one", "input": {}}', 'c1'), durable.start('parent', '{"workflow": "one", "input": {"k": 1}}', 'c2'),
	durable.start('parent', '{"workflow": "one", "input": {"k": 1}}', 'c3'), durable.start('launcher', '{"workflow": "one", "input": {"k": 1}}', 'c4'),
	durable.start('parent', '{"workflow": "vars", "input": {"k": 1}}', 'c5'), durable.start('ends', '{"workflow": "one", "input": {"k": 1}}', 'c6'),
	durable.start('steps', '{"workflow": "one", "input": {}}', 'c7');
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'message' AS error, error ->> 'code' AS code FROM durable.run WHERE run_id LIKE 'c_' OR run_id LIKE 'c_.c' ORDER BY run_id;
SELECT go('c2.c');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id = 'c2';
SELECT * FROM entries;

--
-- what a schedule may not start it records
--
SELECT durable.start('one', '{"k": "s"}', 's0');
SELECT durable.create_schedule('often', 'one', '{"k": "s"}', every => '1 hour') \g /dev/null
SET durable.clock_offset = 7300;
SELECT durable.sweep() -> 'fired' AS fired;
SELECT last_error FROM durable.schedules;
RESET durable.clock_offset;
SELECT durable.delete_schedule('often'), durable.cancel('s0');

--
-- a copy: who is parked stays parked
--
SELECT durable.start('w', '{"k": "copy"}', 'copy' || n) FROM generate_series(1, 2) n;
CALL durable.work(duration => '0');
SELECT durable.activate() \g /dev/null
SELECT * FROM entries;
SELECT durable.cancel('copy1');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.cancel('copy2');

--
-- who may look, and that nobody may write
--
SELECT durable.start('w', '{"k": "mine"}', 'p1a'), durable.start('w', '{"k": "theirs"}', 'p1b', namespace => 'other');
SELECT durable.grant_usage('durable_singleton_web', privileges => '{start,read}');
GRANT USAGE ON SCHEMA singleton TO durable_singleton_web;
SET ROLE durable_singleton_web;
SELECT namespace, key, running, waiting FROM durable.singletons;
SELECT count(*) FROM durable.singleton;
INSERT INTO durable.singleton SELECT * FROM durable.singleton;
UPDATE durable.singleton SET state = 'held';
DELETE FROM durable.singleton;
TRUNCATE durable.quota;
UPDATE durable.run SET singleton_key = NULL;
SELECT durable.start('w', '{"k": "mine"}', 'p1c');
SELECT key, running, waiting FROM durable.singletons;
RESET ROLE;

SET client_min_messages = warning;
SELECT durable.revoke_usage('durable_singleton_web') \g /dev/null
DROP SCHEMA singleton CASCADE;
DROP ROLE durable_singleton_web;
DROP EXTENSION durable;
