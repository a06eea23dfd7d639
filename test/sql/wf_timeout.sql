-- workflows: steps that nobody picks up and steps that fall silent
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_timeout;
RESET client_min_messages;
SET search_path = wf_timeout;

CREATE FUNCTION one(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step(coalesce(i ->> 'step', 'out'), i, retries => (i ->> 'retries')::int, backoff => (i ->> 'backoff')::interval,
		timeout => (i ->> 'timeout')::interval, pickup_timeout => (i ->> 'pickup')::interval);
EXCEPTION WHEN SQLSTATE 'WF008' THEN
	RETURN to_jsonb(sqlerrm);
END $$;
CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(durable.step_all('out', '{1,2,3}', mode => 'settled', max_in_flight => 1, timeout => '10 s'));
END $$;
SELECT durable.register_workflow('one', 'wf_timeout.one'), durable.register_workflow('fan', 'wf_timeout.fan') \g /dev/null
-- the time of the test: seconds since it began
CREATE FUNCTION now_is(seconds int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('durable.clock_offset', seconds::text, false);
END $$;
-- who looks is a sweep, or whoever executes the turns
CREATE FUNCTION swept() RETURNS text LANGUAGE sql AS $$ SELECT durable.sweep() ->> 'timed_out' $$;
CREATE FUNCTION at(run text, seconds int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM now_is(seconds);
	RETURN format('%s s: %s timed out; %s', seconds, swept(),
		(SELECT string_agg(format('%s %s attempt %s%s', c.seq, c.status, coalesce(t.attempt, c.attempts),
				CASE WHEN d.id IS NULL THEN '' WHEN d.lease IS NULL THEN ', to be picked up' ELSE ', watched' END), '; ' ORDER BY c.seq)
		   FROM durable.history(run) c LEFT JOIN durable.task t ON t.id = c.task LEFT JOIN durable.task_deadline d ON d.id = c.task));
END $$;
CREATE TEMP TABLE held (n serial, seq int, task_id text, token uuid);
CREATE FUNCTION pick() RETURNS text LANGUAGE sql AS $$
	WITH c AS (INSERT INTO held (seq, task_id, token) SELECT seq, task_id, token FROM durable.claim('{out}', lease => '1 day') RETURNING seq)
	SELECT string_agg(seq::text, ',' ORDER BY seq) FROM c
$$;
-- the last one picked
CREATE FUNCTION beats() RETURNS boolean LANGUAGE sql AS $$ SELECT durable.heartbeat(task_id, token) FROM held ORDER BY n DESC LIMIT 1 $$;
CREATE FUNCTION done() RETURNS boolean LANGUAGE sql AS $$ SELECT durable.complete(task_id, token, '"done"') FROM held ORDER BY n DESC LIMIT 1 $$;
CREATE FUNCTION ends(run text) RETURNS text LANGUAGE sql AS $$ SELECT format('%s %s %s', status, output, error ->> 'code') FROM durable.get_run(run) $$;

--
-- nobody picks it up
--
SELECT durable.start('one', '{"timeout": "10 s", "pickup": "30 s"}', 'a1');
CALL durable.work(duration => '0');
SELECT at('a1', 29);
SELECT at('a1', 31);
SELECT pick();
CALL durable.work(duration => '0');
SELECT ends('a1'), (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready;
-- with a timeout alone that is the limit
SELECT now_is(0), durable.start('one', '{"timeout": "10 s"}', 'a2');
CALL durable.work(duration => '0');
SELECT at('a2', 9);
SELECT at('a2', 11);
-- and again, by the policy; the pause does not count
SELECT now_is(0), durable.start('one', '{"pickup": "10 s", "retries": 3, "backoff": "20 s"}', 'a3');
CALL durable.work(duration => '0');
SELECT at('a3', 11);
SELECT at('a3', 29);
SELECT at('a3', 40);
SELECT at('a3', 42);
-- picked up, there is no limit any more
SELECT now_is(63);
SELECT pick();
SELECT at('a3', 10000), done();
CALL durable.work(duration => '0');
SELECT ends('a2'), ends('a3');
SELECT attempts, error FROM durable.history('a3');

--
-- it falls silent
--
SELECT now_is(0), durable.start('one', '{"timeout": "10 s", "pickup": "1000 s", "retries": 2}', 'b1');
CALL durable.work(duration => '0');
SELECT at('b1', 900);
SELECT pick(), at('b1', 909);
SELECT at('b1', 911);
SELECT done(), beats();
-- the second attempt beats, every one of its beats counts from its own time
SELECT pick();
SELECT at('b1', 920), beats(), at('b1', 929), beats(), at('b1', 931), at('b1', 938), beats(), at('b1', 947);
-- beats are stored only so often: a quarter of the limit is added
SELECT at('b1', 949);
SELECT at('b1', 951);
SELECT done();
CALL durable.work(duration => '0');
SELECT ends('b1');
SELECT attempts, error #- '{attempts,0,at}' #- '{attempts,1,at}' AS error FROM durable.history('b1');
-- in time
SELECT now_is(0), durable.start('one', '{"timeout": "10 s"}', 'b2');
CALL durable.work(duration => '0');
SELECT pick(), at('b2', 9), done();
SELECT count(*) AS deadlines FROM durable.task_deadline;
CALL durable.work(duration => '0');
SELECT ends('b2');
-- released, lapsed: it waits to be picked up again
SELECT now_is(0), durable.start('one', '{"timeout": "10 s", "pickup": "20 s"}', 'b3');
CALL durable.work(duration => '0');
SELECT pick(), at('b3', 5);
SELECT durable.release(token) FROM held ORDER BY n DESC LIMIT 1;
SELECT at('b3', 24);
SELECT pick(), at('b3', 33);
UPDATE durable.lease SET lease_until = '2001-01-01';
SELECT at('b3', 33);
SELECT at('b3', 52);
SELECT at('b3', 54);
CALL durable.work(duration => '0');
SELECT ends('b3');

--
-- cancelled: nothing is left; a rollback leaves everything
--
SELECT now_is(0), durable.start('one', '{"timeout": "10 s"}', 'c1');
CALL durable.work(duration => '0');
BEGIN;
SELECT at('c1', 11);
ROLLBACK;
SELECT now_is(0);
SELECT at('c1', 5);
SELECT durable.cancel('c1');
SELECT count(*) AS deadlines FROM durable.task_deadline;

--
-- each place in a fan has its own time, from when it is queued
--
SELECT now_is(0), durable.start('fan', NULL, 'd1');
CALL durable.work(duration => '0');
SELECT at('d1', 5), pick(), at('d1', 14), done();
SELECT at('d1', 14);
SELECT at('d1', 25);
SELECT pick(), done();
SELECT count(*) AS deadlines FROM durable.task_deadline;
CALL durable.work(duration => '0');
SELECT ends('d1');

--
-- a handler that looks itself and finds that its own time is up: nothing of it is left
--
CREATE FUNCTION slow(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	-- while it works an hour passes, and somebody looks
	PERFORM wf_timeout.now_is(3600);
	PERFORM durable.sweep();
	INSERT INTO wf_timeout.effect VALUES (1);
	RETURN i;
END $$;
CREATE TABLE effect (n int);
SELECT durable.register_handler('slow', 'wf_timeout.slow');
SELECT now_is(0), durable.start('one', '{"step": "slow", "timeout": "10 s", "retries": 2}', 'e1');
CALL durable.work(duration => '0', max_tasks => 2);
SELECT ends('e1'), (SELECT count(*) FROM effect) AS effects;

--
-- who executes the turns looks, too; a stale row goes
--
SELECT durable.cancel('e1');
SELECT now_is(0), durable.start('one', '{"pickup": "10 s"}', 'f1');
CALL durable.work(duration => '0');
INSERT INTO durable.task_deadline SELECT 1000000, '2001-01-01', NULL, namespace, queue FROM durable.task_deadline;
SELECT now_is(11);
CALL durable.work(duration => '0');
SELECT ends('f1'), (SELECT count(*) FROM durable.task_deadline) AS deadlines;
-- a step without limits has no row
SELECT now_is(0), durable.start('one', '{}', 'f2');
CALL durable.work(duration => '0');
SELECT (SELECT count(*) FROM durable.task_deadline) AS deadlines, pick(), at('f2', 80000), done();
-- a restored copy: who claimed is not known any more; it waits to be picked up
SELECT now_is(0), durable.start('one', '{"timeout": "10 s"}', 'f3');
CALL durable.work(duration => '0');
SELECT pick();
TRUNCATE durable.lease;
UPDATE durable.task SET last_lease = nextval('durable.lease_seq') WHERE kind = 'step';
INSERT INTO durable.task_ready SELECT id, priority, namespace, queue FROM durable.task WHERE kind = 'step';
SELECT at('f3', 11);
SELECT at('f3', 22);

SELECT now_is(0);
SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA wf_timeout CASCADE;
