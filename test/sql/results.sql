-- claim_results, ack_results, and how long results are kept
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- n tasks of a name, settled one by one in that order
CREATE PROCEDURE settle(name text, n int) LANGUAGE plpgsql AS $$
DECLARE
	t uuid;
	id text;
BEGIN
	FOR i IN 1..n LOOP
		PERFORM durable.dispatch(name, to_jsonb(i), name || i);
		SELECT c.token, c.task_id INTO t, id FROM durable.claim(ARRAY[name]) c;
		PERFORM durable.complete(id, t, to_jsonb(i * 10));
		COMMIT;
	END LOOP;
END $$;

-- all columns
SELECT durable.dispatch('x', '{"n": 1}', 'x1', 'qx') \g /dev/null
SELECT token FROM durable.claim('{qx}') \gset
SELECT durable.complete('x1', :'token', '{"ok": 1}', '["e"]');
SELECT task_id, token IS NOT NULL AS has_token, name, queue, namespace, status, output, error, events, attempt,
       created_at < finished_at AS times, lease_until - finished_at BETWEEN '29 s' AND '10 min' AS lease
  FROM durable.claim_results('{x}') \gx
SELECT kind, namespace, worker, cardinality(ids) AS results FROM durable.lease;

-- every end is a result
SELECT count(*) FROM durable.dispatch_many('ends', '{1,2,3,4}', task_ids => '{ends1,ends2,ends3,ends4}');
SELECT token FROM durable.claim('{ends}', 4) LIMIT 1 \gset
SELECT durable.complete('ends1', :'token', '1'), durable.fail('ends2', :'token', '{"message": "m"}'), durable.cancel_task('ends3');
SELECT task_id, status, output, error FROM durable.claim_results('{ends}');

-- oldest first, of the named ones only, no more than asked for
CALL settle('a', 4);
CALL settle('b', 3);
CALL settle('c', 1);
SELECT task_id, output FROM durable.claim_results('{b,a,b,nosuch}', 5);
SELECT task_id, output FROM durable.claim_results('{a,b}', 5);
SELECT task_id FROM durable.claim_results('{a,b}');
SELECT task_id FROM durable.claim_results('{c}');

-- acknowledged ones are gone; with the token that took them, and only with that
CALL settle('d', 5);
SELECT token FROM durable.claim_results('{d}', 3) LIMIT 1 \gset
SELECT token AS t2 FROM durable.claim_results('{d}') LIMIT 1 \gset
SELECT durable.ack_results(:'token', '{d4,nosuch}'), durable.ack_results(gen_random_uuid()), durable.ack_results('00000000-0000-0000-0000-000000000000');
SELECT durable.ack_results(:'token', '{d2,d2,d5}');
SELECT v.id, s.status FROM unnest('{d1,d2,d3,d4,d5}'::text[]) v (id), durable.task_status(v.id) s;
SELECT durable.ack_results(:'token', '{d2}'), durable.ack_results(:'token', '{}');
SELECT durable.ack_results(:'token');
SELECT durable.ack_results(:'token');
SELECT durable.ack_results(:'t2');
SELECT count(*) FROM durable.task_result WHERE name = 'd';
-- by generated ids too
SELECT count(*) FROM durable.dispatch_many('gen', '{1,2,3}');
SELECT count(*) FROM (SELECT token, array_agg(task_id) AS ids FROM durable.claim('{gen}', 3) GROUP BY token) c, durable.complete_many(token, ids);
SELECT token, min(task_id) AS one FROM durable.claim_results('{gen}') GROUP BY 1 \gset
SELECT durable.ack_results(:'token', ARRAY[:'one', '~0' || substr(:'one', 2)]);
SELECT durable.ack_results(:'token');
-- a worker's token acknowledges nothing, and a reader's token settles nothing
CALL settle('e', 1);
SELECT durable.dispatch('e', task_id => 'e2') \g /dev/null
SELECT token AS work FROM durable.claim('{e}') \gset
SELECT token AS read FROM durable.claim_results('{e}') \gset
SELECT durable.ack_results(:'work'), durable.complete('e2', :'read'), durable.complete('e1', :'read'), durable.release(:'read'), durable.heartbeat('e2', :'read');
SELECT durable.complete('e2', :'work'), durable.ack_results(:'read');

-- not acknowledged in time: they come again, and the late acknowledgement does nothing
CALL settle('f', 3);
SELECT token FROM durable.claim_results('{f}', lease => '10 s') LIMIT 1 \gset
SELECT durable.ack_results(:'token', '{f2}');
SELECT count(*) FROM durable.claim_results('{f}');
SET durable.clock_offset = 20;
SELECT token AS t2, count(*) FROM durable.claim_results('{f}', lease => '1 day') GROUP BY token \gset
SELECT :'count' AS again;
SELECT durable.ack_results(:'token');
SELECT durable.ack_results(:'t2');
RESET durable.clock_offset;
-- renewed, they stay away
CALL settle('g', 1);
SELECT token FROM durable.claim_results('{g}', lease => '10 s') \gset
SELECT durable.renew(:'token', '1 hour');
SET durable.clock_offset = 20;
SELECT count(*) FROM durable.claim_results('{g}');
SELECT durable.ack_results(:'token');
SELECT durable.renew(:'token');
RESET durable.clock_offset;

-- in the reader's transaction: rolled back, nothing was taken or acknowledged
CALL settle('h', 2);
BEGIN;
SELECT token FROM durable.claim_results('{h}') LIMIT 1 \gset
SELECT durable.ack_results(:'token');
ROLLBACK;
SELECT durable.ack_results(:'token');
SELECT token, count(*) FROM durable.claim_results('{h}') GROUP BY token \gset
SELECT :'count' AS again;
BEGIN;
SELECT durable.ack_results(:'token');
ROLLBACK;
SELECT durable.ack_results(:'token');

-- an unacknowledged result keeps its id taken, an acknowledged one frees it
CALL settle('i', 1);
SELECT durable.dispatch('i', task_id => 'i1') \g /dev/null
SELECT status FROM durable.task_status('i1');
SELECT durable.ack_results(token) FROM durable.claim_results('{i}');
SELECT status FROM durable.task_status('i1');
SELECT durable.dispatch('i', task_id => 'i1') \g /dev/null
SELECT status FROM durable.task_status('i1');

-- nobody reads them: the sweep deletes what is older than durable.result_retention
SELECT count(*) AS left_over FROM durable.task_result;
SELECT durable.sweep() ->> 'results_expired' AS results_expired;
SET durable.clock_offset = '8d';
-- (what was taken and not acknowledged becomes unread first)
SELECT durable.sweep() -> 'results_expired' AS results_expired;
SELECT count(*) AS left_over FROM durable.task_result;
RESET durable.clock_offset;
CALL settle('j', 5);
SET durable.clock_offset = '30min';
CALL settle('k', 5);
SET durable.clock_offset = '61min';
SET durable.result_retention = '1h';
SELECT durable.sweep(3) ->> 'results_expired' AS results_expired;
SELECT durable.sweep(3) ->> 'results_expired' AS results_expired;
SELECT durable.sweep(3) ->> 'results_expired' AS results_expired;
SELECT name, count(*) FROM durable.task_result GROUP BY name;
-- of several names and namespaces
SELECT durable.dispatch('l', task_id => 'l1', namespace => 'other'), durable.dispatch('m', task_id => 'm1', namespace => 'other') \g /dev/null
SELECT durable.cancel_task('l1', 'other'), durable.cancel_task('m1', 'other');
SET durable.clock_offset = '1d';
SET durable.result_retention = -1;
SELECT durable.sweep() ->> 'results_expired' AS results_expired;
-- what a reader holds is not deleted under it
SELECT token FROM durable.claim_results('{k}', 2) LIMIT 1 \gset
SET durable.result_retention = 0;
SELECT durable.sweep() ->> 'results_expired' AS results_expired;
SELECT name, count(*) FROM durable.task_result GROUP BY name;
SELECT durable.ack_results(:'token');
RESET durable.result_retention;
RESET durable.clock_offset;
DROP PROCEDURE settle;
