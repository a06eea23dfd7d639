-- What SQL sees of the background workers; they do nothing here. And waiting for a
-- run inside a transaction block.
\set VERBOSITY default
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS durable;
CREATE ROLE durable_test_user;
SELECT durable.grant_usage('durable_test_user');
SET client_min_messages = notice;

-- nobody there, except for one that looks whether it should be
SELECT * FROM durable.workers() WHERE kind <> 'scheduler';

-- pausing is a row, and part of the transaction
SELECT durable.pause(), durable.pause();
SELECT count(*), min(paused_by) = current_user AS by_me FROM durable.worker_pause;
BEGIN;
SELECT durable.resume(), durable.resume();
ROLLBACK;
SELECT count(*) FROM durable.worker_pause;
SELECT durable.resume(), durable.resume();
BEGIN READ ONLY;
SELECT durable.pause();
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.resume();
ROLLBACK;
\set VERBOSITY terse
INSERT INTO durable.worker_pause (only_one, paused_at, paused_by) VALUES (false, now(), 'x');
INSERT INTO durable.worker_pause (only_one, paused_at, paused_by) VALUES (NULL, now(), 'x');
\set VERBOSITY default

-- who may what
SET ROLE durable_test_user;
SELECT count(*) FROM durable.workers() WHERE kind <> 'scheduler';
SELECT durable.pause();
SELECT durable.resume();
SELECT * FROM durable.worker_pause;
SET durable.workers = 1;
SET durable.background = off;
SET durable.worker_idle_timeout = 1;
RESET ROLE;
SET durable.workers = -1;
SET durable.workers = 1001;

-- the name of sessions that work is not for others
SELECT durable.claim('{q}', worker => 'durable.work');
SELECT durable.settle_and_claim('x', gen_random_uuid(), NULL, '{q}', worker => 'durable.work');
SELECT durable.claim('{q}', worker => 'durable.worker');

-- waiting for a run in a transaction block
CREATE FUNCTION worker_body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
SELECT durable.register_workflow('worker_body', 'worker_body');
SELECT durable.start('worker_body', '1', 'worker 1');
CALL durable.work(duration => '0');
BEGIN;
CALL durable.wait_for_run('worker 1');
SELECT durable.start('worker_body', '2', 'worker 2');
CALL durable.wait_for_run('worker 2', '10 ms');
CALL durable.wait_for_run('worker 3', '0');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL durable.wait_for_run('worker 1');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
CALL durable.wait_for_run('worker 1');
ROLLBACK;
-- in a function
DO $$
DECLARE
	s text;
	o jsonb;
	e jsonb;
BEGIN
	CALL durable.wait_for_run('worker 1', '0', true, s, o, e);
	RAISE NOTICE '% %', s, o;
END $$;
BEGIN;
CALL durable.work();
ROLLBACK;

DROP FUNCTION worker_body;
SELECT durable.revoke_usage('durable_test_user');
DROP ROLE durable_test_user;
