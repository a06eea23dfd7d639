-- claims that lapse: takeover, the bound, and what the late worker can still do
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- a lapsed claim is taken over by the next claim, and counted
SELECT durable.dispatch('a', '{"n": 1}', 'a1', priority => 3, headers => '{"h": 1}') \g /dev/null
SELECT token FROM durable.claim('{a}', lease => '30 s') \gset
SET durable.clock_offset = 29;
SELECT count(*) FROM durable.claim('{a}');
SET durable.clock_offset = 31;
-- until somebody takes it over it is still the worker's
SELECT status, reclaims FROM durable.task_status('a1');
SELECT durable.heartbeat('a1', :'token');
SELECT token AS t2, task_id, attempt, reclaims, input, priority, headers FROM durable.claim('{a}', lease => '30 s') \gset
SELECT :'task_id' AS task_id, :'attempt' AS attempt, :'reclaims' AS reclaims, :'input' AS input, :'priority' AS priority, :'headers' AS headers;
-- the worker that was frozen and thaws changes nothing
SELECT durable.complete('a1', :'token', '"late"'), durable.fail('a1', :'token', '"late"'), durable.heartbeat('a1', :'token', '"late"'),
       durable.renew(:'token'), durable.release(:'token'), durable.release(:'token', '{a1}');
SELECT * FROM durable.complete_many(:'token', '{a1}', '{"\"late\""}');
SELECT status, attempt, reclaims, error, progress FROM durable.task_status('a1');
SELECT durable.complete('a1', :'t2', '"in time"');
SELECT status, output, reclaims FROM durable.task_status('a1');
RESET durable.clock_offset;

-- a lapsed claim that nobody took over can still be settled, renewed or released
SELECT count(*) FROM durable.dispatch_many('b', '{1,2,3}', task_ids => '{b1,b2,b3}');
SELECT token FROM durable.claim('{b}', 3, '10 s') LIMIT 1 \gset
SET durable.clock_offset = 60;
SELECT durable.complete('b1', :'token'), durable.release(:'token', '{b2}');
SELECT durable.renew(:'token', '10 s');
SELECT task_id, reclaims FROM durable.claim('{b}', 10, '1 day');
SELECT durable.complete('b3', :'token');
RESET durable.clock_offset;

-- what was claimed together lapses together, and is handed out in the old order
SELECT count(*) FROM durable.dispatch_many('c', '{1,2,3,4}', task_ids => '{c1,c2,c3,c4}');
SELECT token FROM durable.claim('{c}', 4, '10 s') LIMIT 1 \gset
SELECT durable.complete('c3', :'token');
SET durable.clock_offset = 20;
SELECT task_id, attempt, reclaims FROM durable.claim('{c}', 2, '1 day');
SELECT task_id, attempt, reclaims FROM durable.claim('{c}', 9, '1 day');
SELECT durable.complete('c1', :'token'), durable.renew(:'token');
SELECT status FROM durable.task_status('c3');
RESET durable.clock_offset;

-- the sweep takes over, of every queue and namespace; a claim of another queue does not
SELECT durable.dispatch('d', task_id => 'd1'), durable.dispatch('d', task_id => 'd2', namespace => 'other') \g /dev/null
SELECT count(*) FROM durable.claim('{d}', lease => '10 s');
SELECT count(*) FROM durable.claim('{d}', lease => '10 s', namespace => 'other');
SET durable.clock_offset = 20;
SELECT durable.sweep() ->> 'taken_over' AS taken_over;
SELECT s.status, s.reclaims FROM durable.task_status('d1') s UNION ALL SELECT s.status, s.reclaims FROM durable.task_status('d2', 'other') s;
SELECT durable.sweep() ->> 'taken_over' AS taken_over;
SELECT count(*) FROM durable.claim('{d}', lease => '10 s');
SET durable.clock_offset = 40;
SELECT count(*) FROM durable.claim('{something else}');
SELECT status, reclaims FROM durable.task_status('d1');
SELECT task_id, reclaims FROM durable.claim('{something else,d}');
RESET durable.clock_offset;

-- a round of several queues is found by a claim of any of them
SELECT count(*) FROM durable.dispatch_many('m', '{1,2}', 'm1', task_ids => '{m1-1,m1-2}');
SELECT count(*) FROM durable.dispatch_many('m', '{1,2}', 'm2', task_ids => '{m2-1,m2-2}');
SELECT queue, count(*) FROM durable.claim('{m1,m2}', 10, '10 s') GROUP BY queue ORDER BY queue;
SET durable.clock_offset = 20;
BEGIN;
SELECT task_id, reclaims FROM durable.claim('{m2}', 10, '1 hour');
ROLLBACK;
SELECT task_id, reclaims FROM durable.claim('{m2}', 10, '1 hour');
SELECT task_id, reclaims FROM durable.claim('{m1}', 10, '1 hour');
RESET durable.clock_offset;

-- the sweep does at most what it is asked to, rounds of one
SELECT count(*) FROM durable.dispatch_many('e', '{1,2,3,4,5}');
SELECT count(*), count(DISTINCT token) FROM generate_series(1, 5) i, durable.claim(ARRAY['e', 'other ' || i], lease => '10 s');
SET durable.clock_offset = 20;
SELECT durable.sweep(2) ->> 'taken_over' AS taken_over;
SELECT durable.sweep(2) ->> 'taken_over' AS taken_over;
SELECT durable.sweep(2) ->> 'taken_over' AS taken_over;
SELECT ready, claimed FROM durable.queue_depth('e');
RESET durable.clock_offset;

-- a claim that is rolled back was no claim: nothing to take over
SELECT durable.dispatch('f', task_id => 'f1') \g /dev/null
BEGIN;
SELECT count(*) FROM durable.claim('{f}', lease => '1 s');
ROLLBACK;
SET durable.clock_offset = 20;
SELECT task_id, reclaims FROM durable.claim('{f}');
-- a takeover that is rolled back was no takeover
SET durable.clock_offset = 100;
BEGIN;
SELECT task_id, reclaims FROM durable.claim('{f}');
ROLLBACK;
SELECT status, reclaims FROM durable.task_status('f1');
SELECT task_id, reclaims FROM durable.claim('{f}');
RESET durable.clock_offset;

-- a claim of one queue is not put off by what lapsed in others, in a block or not,
-- and however often it is rolled back
SELECT count(*) FROM durable.dispatch_many('others', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 25) i));
SELECT count(*) FROM generate_series(1, 25) i, durable.claim(ARRAY['others', 'x' || i], lease => '1 s');
SELECT count(*) FROM durable.dispatch_many('g', '{1,2,3}', task_ids => '{g1,g2,g3}');
SELECT count(*) FROM generate_series(1, 2) i, durable.claim(ARRAY['g', 'x' || i], lease => '2 s');
SET durable.clock_offset = 20;
BEGIN;
SELECT task_id, reclaims FROM durable.claim('{g}', 10);
ROLLBACK;
BEGIN;
CALL durable.wait_for_work('{g}', '0');
SELECT task_id, reclaims FROM durable.claim('{g}');
ROLLBACK;
BEGIN;
SELECT task_id, reclaims FROM durable.claim('{g}', 2, lease => '1 hour');
COMMIT;
SELECT task_id, reclaims FROM durable.claim('{g}', lease => '1 hour');
SELECT task_id, reclaims FROM durable.claim('{g}', lease => '1 hour');
SELECT count(*) FROM durable.claim('{g}');
CALL durable.wait_for_work('{g}', '0');
RESET durable.clock_offset;

--
-- the bound: three takeovers, and the next one ends it
--
CREATE PROCEDURE lapse(queue text, INOUT task_id text, OUT attempt int, OUT reclaims int) LANGUAGE plpgsql AS $$
BEGIN
	task_id := NULL;
	SELECT c.task_id, c.attempt, c.reclaims INTO task_id, attempt, reclaims FROM durable.claim(ARRAY[queue], lease => '10 s') c;
	PERFORM set_config('durable.clock_offset', (extract(epoch FROM current_setting('durable.clock_offset')::interval)::int + 20)::text, false);
END $$;
SET durable.clock_offset = 0;
SELECT durable.dispatch('poison', '{"n": 1}', 'p1') \g /dev/null
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
SELECT status, error, output, attempt, reclaims FROM durable.task_status('p1');
SELECT input, events FROM durable.task_result WHERE task_id = 'p1';

-- with attempts left, the next attempt begins, and counts from nothing
SELECT durable.dispatch('poison', task_id => 'p2', max_attempts => 2, backoff => '1 hour') \g /dev/null
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
SELECT status, error, attempt, reclaims FROM durable.task_status('p2');
SET durable.clock_offset = 10000;
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
SELECT status, error, attempt, reclaims FROM durable.task_status('p2');

-- handing back is not counted, failing begins anew
SELECT durable.dispatch('poison', task_id => 'p3', max_attempts => 2) \g /dev/null
CALL lapse('poison', NULL, NULL, NULL);
CALL lapse('poison', NULL, NULL, NULL);
SELECT token, reclaims FROM durable.claim('{poison}') \gset
SELECT :'reclaims' AS reclaims, durable.release(:'token');
SELECT token, reclaims FROM durable.claim('{poison}') \gset
SELECT :'reclaims' AS reclaims, durable.fail('p3', :'token', '"x"');
SELECT task_id, attempt, reclaims FROM durable.claim('{poison}', lease => '1 day');

-- the bound is a setting; 0 allows no takeover at all
SET durable.max_reclaims = 0;
SELECT durable.dispatch('strict', task_id => 'p4') \g /dev/null
CALL lapse('strict', NULL, NULL, NULL);
CALL lapse('strict', NULL, NULL, NULL);
SELECT status, error, reclaims FROM durable.task_status('p4');
SET durable.max_reclaims = 1;
SELECT durable.dispatch('strict', task_id => 'p5') \g /dev/null
CALL lapse('strict', NULL, NULL, NULL);
CALL lapse('strict', NULL, NULL, NULL);
CALL lapse('strict', NULL, NULL, NULL);
SELECT status, error, reclaims FROM durable.task_status('p5');
RESET durable.max_reclaims;
DROP PROCEDURE lapse;

-- the result of a poisoned task is read like any other
SELECT task_id, status, error, attempt FROM durable.claim_results('{poison,strict}');

-- an interval of calendar units
SELECT durable.dispatch('cal', task_id => 'cal-' || i) FROM generate_series(1, 3) i \g /dev/null
SELECT (SELECT lease_until - durable.engine_now() BETWEEN interval '27 days' AND '31 days' FROM durable.claim('{cal}', lease => '1 month')) AS month,
       (SELECT lease_until - durable.engine_now() BETWEEN interval '364 days' AND '366 days' FROM durable.claim('{cal}', lease => '1 year')) AS year,
       (SELECT lease_until - durable.engine_now() BETWEEN interval '0' AND '1 hour' FROM durable.claim('{cal}', lease => '1 day -23:00:00')) AS mixed;
