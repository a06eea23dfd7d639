-- retention of runs that others look after: dead runs with their dead letters, runs whose failure was handed over
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SET durable.max_recovery_attempts = 0;
CREATE FUNCTION asks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('to ' || durable.run_id()); END $$;
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'it broke'; END $$;
CREATE FUNCTION archive(doc jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO archived VALUES (doc); RETURN NULL; END $$;
CREATE TABLE archived (doc jsonb);
-- a worker takes the turn and is never heard of again
CREATE FUNCTION lose() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	SELECT count(*) INTO n FROM durable.claim('{lossy}', 10, '1 s');
	SET LOCAL durable.clock_offset = 600;
	PERFORM durable.sweep();
	RETURN n;
END $$;
CREATE VIEW runs AS SELECT run_id, status FROM durable.run ORDER BY id;
SELECT durable.register_workflow('letter', 'asks'), durable.register_workflow('lossy', dead_letter_workflow => 'letter');
SELECT durable.register_workflow('fails', 'fails', on_error => '[{"workflow": "letter"}]');
SELECT durable.start('lossy', '1', 'r');
SELECT lose();
CALL durable.work(duration => '0');
SELECT * FROM runs;

\echo the dead run stays while its dead letter is at work
SELECT durable.purge_runs('{"workflow": "lossy"}');
SELECT durable.set_retention('{dead}', max_age => '0') AS policy \gset
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
SELECT durable.set_retention('{dead}', max_age => '0', archive => 'archive') AS policy \gset
SET durable.clock_offset = '1 h';
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
CALL durable.work(duration => '0');
SELECT count(*) FROM archived;
SELECT * FROM runs;
SELECT durable.signal('to dlq:r', '"seen"');
CALL durable.work(duration => '0');
SET durable.clock_offset = '2 h';
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
CALL durable.work(duration => '0');
SELECT doc #>> '{run,run_id}' AS run_id, doc #>> '{run,status}' AS status FROM archived;
SELECT * FROM runs;
SELECT durable.drop_retention(:policy);
RESET durable.clock_offset;

\echo a later run of that id has a dead letter of its own
SELECT durable.start('lossy', '2', 'r'), durable.start('lossy', '3', 'r:2');
SELECT lose();
SELECT run_id, status, input -> 'dead_run_id' AS dead FROM durable.run ORDER BY run_id;
SELECT l.message FROM durable.run_log l;
-- one, though it dies again
SELECT durable.requeue('r');
SELECT lose();
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'dlq%' ORDER BY run_id;
SELECT l.message FROM durable.run_log l;
-- which keeps it, too
SELECT durable.purge_runs('{"workflow": "lossy"}');
SELECT durable.cancel('dlq:r:2');
SELECT durable.purge_runs('{"workflow": "lossy"}');
SELECT run_id, status FROM durable.run ORDER BY run_id;
-- by hand it goes at once
SELECT durable.delete_run('r:2');
SELECT durable.purge_runs('{"namespace": "default"}', force => true);
SELECT count(*) FROM durable.run;

\echo handlers
SELECT durable.start('fails', '1', 'f');
CALL durable.work(duration => '0');
SELECT durable.requeue('f');
CALL durable.work(duration => '0');
SELECT * FROM runs;
SELECT durable.set_retention('{failed,completed,cancelled}', max_age => '0') AS policy \gset
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
SELECT durable.delete_run('f');
SELECT durable.delete_run('onerror:f:2');
SELECT durable.signal('to onerror:f:2', '"mended"');
CALL durable.work(duration => '0');
SELECT * FROM runs;
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
SELECT * FROM runs;
-- by force, with the handler
SELECT durable.drop_retention(:policy);
SELECT durable.start('fails', '1', 'g');
CALL durable.work(duration => '0');
SELECT durable.purge_runs('{"workflow": "letter"}', force => true);
SELECT run_id, status, error ->> 'message' AS error FROM durable.run;
SELECT durable.requeue('g');
CALL durable.work(duration => '0');
SELECT durable.purge_runs('{"workflow": "fails"}', force => true);
SELECT (SELECT count(*) FROM durable.run) AS runs, (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.checkpoint) AS checkpoints,
       (SELECT count(*) FROM durable.waiter) AS waiters, (SELECT count(*) FROM durable.task_ready) AS ready, (SELECT count(*) FROM durable.task_delayed) AS delayed;

\echo an archive function that changes the run keeps it, and that is told
CREATE FUNCTION eats(doc jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO archived VALUES (doc);
	PERFORM durable.delete_run(doc #>> '{run,run_id}');
	RETURN NULL;
END $$;
CREATE FUNCTION revives(doc jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO archived VALUES (doc);
	PERFORM durable.requeue(doc #>> '{run,run_id}');
	RETURN NULL;
END $$;
DELETE FROM archived;
SELECT durable.register_workflow('fails', 'fails');
SELECT durable.start('fails', run_id => 'x', tags => '{eats}'), durable.start('fails', run_id => 'y', tags => '{revives}');
CALL durable.work(duration => '0');
SELECT count(durable.set_retention('{failed}', max_age => '0', tag => t, archive => t)) FROM unnest('{eats,revives}'::text[]) t;
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
CALL durable.work(duration => '0');
SELECT run_id, status, error, failures FROM durable.retention_failures ORDER BY run_id;
SELECT count(*) FROM archived;
SELECT * FROM runs;

SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP VIEW IF EXISTS runs;
DROP FUNCTION asks, fails, archive, lose, eats, revives;
DROP TABLE archived;
