-- Everything is part of the caller's transaction, whatever kind it is.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

CREATE FUNCTION state() RETURNS TABLE (task_id text, status text, attempt int, reclaims int) LANGUAGE sql AS $$
	SELECT v.id, s.status, s.attempt, s.reclaims
	  FROM unnest('{ready,delayed,claimed,done}'::text[]) v (id), durable.task_status(v.id) s
$$;
SELECT durable.dispatch('ready', task_id => 'ready'), durable.dispatch('delayed', task_id => 'delayed', run_at => durable.engine_now() + '1 hour'),
       durable.dispatch('claimed', task_id => 'claimed', max_attempts => 9), durable.dispatch('done', task_id => 'done') \g /dev/null
SELECT token FROM durable.claim('{claimed}', lease => '1 day') \gset
SELECT durable.complete('done', t.token) FROM durable.claim('{done}') t;
SELECT * FROM state();

-- a worker's whole life, undone
BEGIN;
SELECT durable.dispatch('new', task_id => 'new') \g /dev/null
SELECT count(*) FROM durable.claim('{new,ready}', 10);
SELECT durable.fail('claimed', :'token', '1');
SELECT durable.cancel_task('delayed');
SELECT durable.ack_results(r.token) FROM durable.claim_results('{done}') r;
SELECT durable.pause_queue('ready');
SELECT * FROM state();
ROLLBACK;
SELECT * FROM state();
SELECT status FROM durable.task_status('new');
SELECT count(*) FROM durable.queue;
SELECT count(*) FROM durable.lease;

-- the same in subtransactions, one after the other
BEGIN;
SAVEPOINT s;
SELECT durable.complete('claimed', :'token');
ROLLBACK TO s;
SELECT durable.fail('claimed', :'token', '1');
ROLLBACK TO s;
SELECT durable.release(:'token');
ROLLBACK TO s;
SELECT durable.renew(:'token', '1 s');
ROLLBACK TO s;
SELECT durable.heartbeat('claimed', :'token', '1');
ROLLBACK TO s;
SELECT durable.cancel_task('claimed');
ROLLBACK TO s;
SET LOCAL durable.clock_offset = '2d';
SELECT durable.sweep() ->> 'taken_over' AS taken_over;
ROLLBACK TO s;
SELECT * FROM state();
COMMIT;
SELECT * FROM state();
SELECT progress FROM durable.task_status('claimed');
SELECT lease_until - claimed_at AS lease FROM durable.lease;

-- an exception block is a subtransaction too
DO $$
BEGIN
	BEGIN
		PERFORM durable.dispatch('block', task_id => 'lost');
		PERFORM durable.dispatch('ready', task_id => '~bad');
	EXCEPTION WHEN invalid_parameter_value THEN
		PERFORM durable.dispatch('block', task_id => 'kept');
	END;
END $$;
SELECT task_id FROM durable.claim('{block}', 10);

-- released and claimed again, many times within one transaction
BEGIN;
SELECT durable.dispatch('ping', task_id => 'ping', max_attempts => 100) \g /dev/null
DO $$
DECLARE t uuid; n int := 0;
BEGIN
	FOR i IN 1..20 LOOP
		SELECT token INTO t FROM durable.claim('{ping}');
		IF i % 2 = 0 THEN n := n + durable.release(t); ELSE n := n + durable.fail('ping', t, '1')::int; END IF;
	END LOOP;
	RAISE INFO '% times', n;
END $$;
SELECT attempt, reclaims FROM durable.claim('{ping}');
COMMIT;

-- a queue that is filled and emptied in one transaction
BEGIN;
SELECT count(*) FROM durable.dispatch_many('bulk', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 1000) i));
SELECT count(*) FROM (SELECT token, array_agg(task_id) AS ids FROM durable.claim('{bulk}', 1000) GROUP BY token) c, durable.complete_many(token, ids);
SELECT count(*) FROM durable.claim('{bulk}', 1000);
COMMIT;
SELECT ready, claimed FROM durable.queue_depth('bulk');

-- a statement sees what it did itself
SELECT d, (SELECT count(*) FROM durable.claim(ARRAY[d])) FROM durable.dispatch('itself', task_id => 'itself', queue => 'itself') d;
WITH d AS (SELECT durable.dispatch('cte', task_id => 'cte') AS id)
SELECT c.task_id FROM d, LATERAL durable.claim(ARRAY[d.id]) c;

-- read-only transactions may look, and no more
\set VERBOSITY sqlstate
SELECT token AS any FROM durable.lease LIMIT 1 \gset
SET default_transaction_read_only = on;
SELECT durable.dispatch('a');
SELECT * FROM durable.dispatch_many('a', '{1}');
SELECT * FROM durable.claim('{a}');
SELECT * FROM durable.settle_and_claim(NULL, NULL, NULL, '{a}');
SELECT durable.renew(:'any');
SELECT durable.release(:'any');
SELECT durable.complete('a', :'any');
SELECT * FROM durable.complete_many(:'any', '{a}');
SELECT durable.fail('a', :'any', '1');
SELECT durable.heartbeat('a', :'any');
SELECT durable.cancel_task('a');
SELECT * FROM durable.claim_results('{a}');
SELECT durable.ack_results(:'any');
CALL durable.wait_for_work('{a}', '0');
CALL durable.wait_and_claim('{a}', timeout => '0');
SELECT durable.pause_queue('a');
SELECT durable.resume_queue('a');
SELECT durable.sweep();
SELECT durable.activate();
SELECT durable.grant_usage('pg_monitor');
SELECT durable.revoke_usage('pg_monitor');
\set VERBOSITY terse
SELECT durable.dispatch('a');
SELECT status FROM durable.task_status('claimed');
SELECT ready FROM durable.queue_depth('ready');
SELECT durable.has_access('default', 'work'), durable.require_access('default', 'read'), durable.engine_now() IS NOT NULL AS now;
RESET default_transaction_read_only;
SELECT * FROM state();
DROP FUNCTION state;
