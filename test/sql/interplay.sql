-- what singletons, quotas, routes of failures, requirements and replacements do to each other
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
DROP SCHEMA IF EXISTS interplay CASCADE;
DROP ROLE IF EXISTS durable_interplay;
CREATE ROLE durable_interplay;
SELECT durable.grant_usage('durable_interplay', privileges => '{work,start,signal,read,manage}');
CREATE SCHEMA interplay AUTHORIZATION durable_interplay;
RESET client_min_messages;
SET search_path = interplay;
SET ROLE durable_interplay;
CREATE VIEW entries AS SELECT r.run_id, s.state, s.parked, r.status,
	EXISTS (SELECT FROM durable.task_ready t WHERE t.id = s.run) AS ready FROM durable.singleton s JOIN durable.run r ON r.id = s.run ORDER BY s.run;

--
-- a handler of the key of the run whose failure it takes has that run's slot
--
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF i ? 'run_id' THEN	-- as a handler
		RETURN durable.wait_for_signal('go:' || durable.run_id());
	END IF;
	RAISE EXCEPTION 'broken';
END $$;
SELECT durable.register_workflow('w', 'interplay.fails', singleton_key => '"all"', singleton_max_queued => 5, on_error => '[{"workflow": "w"}]');
SELECT durable.start('w', '{}', 'r' || n) FROM generate_series(1, 3) n;
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT run_id, status FROM durable.run ORDER BY id;
-- nobody else gets it before the handler has ended
SELECT durable.signal('go:onerror:r1:1', '"mended"');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT run_id, status, output FROM durable.run ORDER BY id;
-- requeued meanwhile: the handler is cancelled, and the run is before those that are younger
SELECT durable.requeue('r2');
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT * FROM entries;
-- a handler that is cancelled, fails with its run, or goes with it
SELECT durable.cancel('onerror:r2:2');
SELECT * FROM entries;
CALL durable.work(duration => '0');
SELECT durable.cancel('r3');
SELECT * FROM entries;
SELECT run_id, status FROM durable.run ORDER BY id;
-- one that has failed and is tried again waits like any other
SELECT durable.start('w', '{}', 'r4');
CALL durable.work(duration => '0');
SELECT durable.requeue('r2');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.cancel(run_id) FROM durable.run WHERE finished_at IS NULL ORDER BY id DESC \g /dev/null
SELECT count(*) FROM durable.singleton;
-- another key: each has its own
SELECT durable.register_workflow('w2', 'interplay.fails', singleton_key => '$.k', on_error => '[{"workflow": "h"}]'),
	durable.register_workflow('h', 'interplay.fails', singleton_key => '$.input.k');
SELECT durable.start('w2', '{"k": 1}', 'other');
CALL durable.work(duration => '0');
SELECT * FROM entries;
SELECT durable.signal('go:onerror:other:1');
CALL durable.work(duration => '0');
SELECT count(*) FROM durable.singleton;

--
-- several children of one turn: each is counted with those before it
--
CREATE FUNCTION child(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.wait_for_signal('child'); RETURN i; END $$;
CREATE FUNCTION starts(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN 1..(i ->> 'n')::int LOOP
		PERFORM durable.start_child(i ->> 'child', NULL, (i ->> 'id') || n % (i ->> 'ids')::int);
	END LOOP;
	RETURN '"all started"';
END $$;
SELECT durable.register_workflow('starts', 'interplay.starts'),
	durable.register_workflow('counted', 'interplay.child', concurrency_key => '"c"', concurrency_limit => 2),
	durable.register_workflow('queued', 'interplay.child', singleton_key => '"q"', singleton_max_queued => 1);
SELECT durable.start('starts', '{"child": "counted", "n": 2, "ids": 9, "id": "a"}', 'two');
CALL durable.work(duration => '0');
SELECT status, output FROM durable.run WHERE run_id = 'two';
SELECT durable.cancel(run_id) FROM durable.run WHERE workflow = 'counted' \g /dev/null
SELECT durable.start('starts', '{"child": "counted", "n": 3, "ids": 9, "id": "b"}', 'three');
CALL durable.work(duration => '0');
SELECT status, output, error ->> 'code' AS code, error ->> 'message' AS message, error ->> 'detail' AS detail FROM durable.run WHERE run_id = 'three';
SELECT durable.cancel(run_id) FROM durable.run WHERE workflow = 'counted' \g /dev/null
-- one that is asked for twice is one
SELECT durable.start('starts', '{"child": "counted", "n": 6, "ids": 2, "id": "c"}', 'same');
CALL durable.work(duration => '0');
SELECT status, output FROM durable.run WHERE run_id = 'same';
SELECT durable.start('starts', '{"child": "queued", "n": 2, "ids": 9, "id": "d"}', 'two queued');
CALL durable.work(duration => '0');
SELECT status, output FROM durable.run WHERE run_id = 'two queued';
SELECT durable.cancel(run_id) FROM durable.run WHERE workflow = 'queued' \g /dev/null
SELECT durable.start('starts', '{"child": "queued", "n": 3, "ids": 9, "id": "f"}', 'three queued');
CALL durable.work(duration => '0');
SELECT status, output, error ->> 'code' AS code, error ->> 'detail' AS detail FROM durable.run WHERE run_id = 'three queued';

--
-- a run that is replaced is one of the new version in all that this asks of a worker
--
SELECT durable.register_workflow('e', version => '1', requires => '{a}', turn_silence => '1 min');
SELECT durable.start('e', '1', 'e1'), durable.start('e', '1', 'e2');
SELECT durable.register_workflow('e', version => '2', requires => '{b}', turn_silence => '5 min');
SELECT durable.start('e', '2', 'e1', on_conflict => 'replace');
SELECT durable.register_workflow('e', version => '3');
SELECT durable.start('e', '3', 'e2', on_conflict => 'replace');
SELECT r.run_id, r.version, t.requires, t.timeout FROM durable.run r JOIN durable.task t USING (id) WHERE r.workflow = 'e' ORDER BY r.id;
-- one that is blocked is so no longer; that it was put off is no time that somebody has asked for
SELECT durable.announce_worker('x', '{b}') ->> 'outcome' AS outcome;
SELECT durable.register_workflow('b', requires => '{nobody}');
CREATE FUNCTION block(policy text) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
	before text;
	after text;
BEGIN
	PERFORM durable.start('b', '1', policy);
	PERFORM task_id FROM durable.claim('{b}', worker => 'x');
	SELECT status INTO before FROM durable.run WHERE run_id = policy;
	PERFORM durable.start('b', '2', policy, on_conflict => policy);
	SELECT concat_ws(' ', status, error, wake_at) INTO after FROM durable.run WHERE run_id = policy;
	RETURN ARRAY[before, after];
END $$;
SELECT block('replace');
SELECT durable.cancel('replace');
SELECT block('replace_keep_time');
SELECT run_id, status, error, input, wake_at FROM durable.run WHERE run_id = 'replace_keep_time';
SELECT count(*) FROM durable.run_blocked;

RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA interplay CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_interplay;
DROP ROLE durable_interplay;
