-- workflows: a fan that failed fast, or whose run was lost, is tried again
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_test;
RESET client_min_messages;
SET search_path = wf_test;

CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(durable.step_all('out', ARRAY['1', '2', '3', '4', '5']::jsonb[], i ->> 'mode', (i ->> 'window')::int));
END $$;
SELECT durable.register_workflow('fan', 'wf_test.fan');
CREATE FUNCTION history(run text) RETURNS TABLE (seq int, status text, output jsonb, message text, has_task boolean)
LANGUAGE sql AS $$
	SELECT seq, status, output, error ->> 'message', task IS NOT NULL FROM durable.history(run)
$$;
-- one of the claimable steps ends; which
CREATE FUNCTION settle(fails boolean) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	SELECT * INTO STRICT c FROM durable.claim('{out}');
	IF fails THEN
		PERFORM durable.fail(c.task_id, c.token, '{"message": "broken", "retryable": false}');
	ELSE
		PERFORM durable.complete(c.task_id, c.token, to_jsonb(10 * (c.seq + 1)));
	END IF;
	RETURN c.seq;
END $$;

-- the first is done, the second fails, the rest is called off
SELECT durable.start('fan', '{"mode": "fail_fast", "window": 2}', 'f1');
CALL durable.work(duration => '0');
SELECT settle(false), settle(true);
CALL durable.work(duration => '0');
SELECT status, fan_next, awaited_on FROM durable.get_run('f1');
SELECT * FROM history('f1');
SELECT durable.requeue('f1');
SELECT status, turn_state, fan_first, fan_next, fan_last, awaited_on, fail_fast FROM durable.get_run('f1');
CALL durable.work(duration => '0');
-- two at a time again
SELECT ready, claimed FROM durable.queue_depth('out');
SELECT settle(false);
SELECT ready, claimed FROM durable.queue_depth('out');
SELECT settle(false), settle(false), settle(false);
CALL durable.work(duration => '0');
SELECT status, output FROM durable.get_run('f1');

-- requeued while it waits: nothing is done twice, and the last result still wakes it
SELECT durable.start('fan', '{"mode": "wait_all", "window": 2}', 'f2');
CALL durable.work(duration => '0');
SELECT settle(false), settle(false);
SELECT durable.requeue('f2');
SELECT settle(false);
CALL durable.work(duration => '0');
SELECT settle(false);
SELECT durable.requeue('f2');
CALL durable.work(duration => '0');
SELECT settle(false);
CALL durable.work(duration => '0');
SELECT status, output FROM durable.get_run('f2');
SELECT count(*) FROM durable.task;

SET client_min_messages = warning;
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
