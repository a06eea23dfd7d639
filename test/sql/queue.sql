-- pause_queue, resume_queue, queue_depth, wait_for_work, sweep
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

--
-- pause and resume
--
SELECT count(*) FROM durable.dispatch_many('a', '{1,2,3}', task_ids => '{a1,a2,a3}');
SELECT durable.dispatch('b', task_id => 'b1') \g /dev/null
SELECT token FROM durable.claim('{a}') \gset
SELECT durable.pause_queue('a');
SELECT durable.pause_queue('a');
SELECT namespace, queue, paused_at IS NOT NULL AS paused, paused_by = current_user AS by_me FROM durable.queue;
-- nothing is handed out, of this queue
SELECT task_id FROM durable.claim('{a}', 10);
SELECT task_id FROM durable.claim('{a,b}', 10);
-- all else goes on: dispatching, settling, renewing, failing, releasing
SELECT durable.dispatch('a', task_id => 'a4');
SELECT durable.renew(:'token'), durable.complete('a1', :'token');
SELECT ready, claimed FROM durable.queue_depth('a');
SELECT durable.cancel_task('a2');
CALL durable.wait_for_work('{a}', '0');
SELECT durable.resume_queue('a');
SELECT durable.resume_queue('a');
CALL durable.wait_for_work('{a}', '0');
SELECT task_id FROM durable.claim('{a}', 10);
SELECT count(*) FROM durable.queue;
-- a queue that nobody ever used
SELECT durable.pause_queue('nosuch'), durable.resume_queue('nosuch'), durable.resume_queue('never');
-- of one namespace only
SELECT durable.dispatch('c', task_id => 'c1'), durable.dispatch('c', task_id => 'c2', namespace => 'other') \g /dev/null
SELECT durable.pause_queue('c', 'other');
SELECT task_id FROM durable.claim('{c}');
SELECT task_id FROM durable.claim('{c}', namespace => 'other');
SELECT durable.resume_queue('c'), durable.resume_queue('c', 'other');
SELECT task_id FROM durable.claim('{c}', namespace => 'other');
-- rolled back, in both directions; with a savepoint too
SELECT durable.dispatch('d', task_id => 'd1'), durable.dispatch('d', task_id => 'd2') \g /dev/null
BEGIN;
SELECT durable.pause_queue('d');
SELECT count(*) FROM durable.claim('{d}');
SAVEPOINT s;
SELECT durable.resume_queue('d');
SELECT task_id FROM durable.claim('{d}');
ROLLBACK TO s;
SELECT count(*) FROM durable.claim('{d}');
ROLLBACK;
SELECT task_id FROM durable.claim('{d}');
SELECT durable.pause_queue('d');
BEGIN;
SELECT durable.resume_queue('d');
ROLLBACK;
SELECT count(*) FROM durable.claim('{d}');
SELECT durable.resume_queue('d');
-- a delayed and a lapsed task of a paused queue come back, and wait there
SELECT durable.dispatch('e', task_id => 'e1', run_at => durable.engine_now() + '1 min'), durable.dispatch('e', task_id => 'e2') \g /dev/null
SELECT count(*) FROM durable.claim('{e}', lease => '10 s');
SELECT durable.pause_queue('e');
SET durable.clock_offset = '2min';
SELECT s ->> 'promoted' AS promoted, s ->> 'taken_over' AS taken_over FROM durable.sweep() s;
SELECT count(*) FROM durable.claim('{e}');
SELECT ready, claimed, delayed FROM durable.queue_depth('e');
SELECT durable.resume_queue('e');
SELECT task_id, reclaims FROM durable.claim('{e}', 10);
RESET durable.clock_offset;

--
-- queue_depth
--
SELECT * FROM durable.queue_depth('nosuch');
SELECT count(*) FROM durable.dispatch_many('f', '{1,2,3,4,5}', task_ids => '{f1,f2,f3,f4,f5}', queue => 'depth');
SELECT durable.dispatch('g', task_id => 'f6', queue => 'depth', run_at => durable.engine_now() + '1 hour', priority => 3),
       durable.dispatch('g', task_id => 'f7', queue => 'depth', priority => 3),
       durable.dispatch('g', task_id => 'f8', queue => 'depth', namespace => 'other'),
       durable.dispatch('g', task_id => 'f9', queue => 'depth 2') \g /dev/null
SELECT ready, claimed, delayed, parked, oldest_ready BETWEEN '0' AND '1 hour' AS age FROM durable.queue_depth('depth');
SELECT token FROM durable.claim('{depth}', 3) LIMIT 1 \gset
SELECT ready, claimed, delayed, parked FROM durable.queue_depth('depth');
SELECT durable.complete('f1', :'token'), durable.fail('f2', :'token', '1');
SELECT ready, claimed, delayed, parked FROM durable.queue_depth('depth');
SELECT ready, claimed, delayed, parked FROM durable.queue_depth('depth', 'other');
-- a claim of several queues is counted where its tasks belong
SELECT count(*) FROM durable.claim('{depth,depth 2}', 10);
SELECT ready, claimed, delayed, oldest_ready FROM durable.queue_depth('depth');
SELECT ready, claimed, delayed, oldest_ready FROM durable.queue_depth('depth 2');
-- the age is that of the oldest, whatever its priority
SELECT durable.dispatch('age', task_id => 'age1', priority => -5) \g /dev/null
SET durable.clock_offset = '1h';
SELECT durable.dispatch('age', task_id => 'age2', priority => 5) \g /dev/null
SET durable.clock_offset = '3h';
SELECT ready, date_trunc('hour', oldest_ready) AS age FROM durable.queue_depth('age');
SELECT task_id FROM durable.claim('{age}');
SELECT date_trunc('hour', oldest_ready) AS age FROM durable.queue_depth('age');
RESET durable.clock_offset;

--
-- wait_for_work: here only what needs no waiting
--
CALL durable.wait_for_work('{w}', '0');
SELECT durable.dispatch('w', task_id => 'w1') \g /dev/null
CALL durable.wait_for_work('{w}', '0');
CALL durable.wait_for_work('{v,w}', '2 s');
CALL durable.wait_for_work(queues => '{w}', timeout => '100 years');
CALL durable.wait_for_work('{w}', '0', 'other');
CALL durable.wait_for_work('{w}', '0', NULL, true);
CALL durable.wait_for_work('{v}', '0', NULL, true);
-- it only looks
SELECT status FROM durable.task_status('w1');
SELECT token FROM durable.claim('{w}') \gset
CALL durable.wait_for_work('{w}', '1 ms');
SELECT durable.release(:'token');
CALL durable.wait_for_work('{w}', '2 s');
-- what has become due, and what has lapsed, is work
SELECT count(*) FROM durable.claim('{w}', lease => '10 s');
SELECT durable.dispatch('later', task_id => 'w2', run_at => durable.engine_now() + '10 s') \g /dev/null
SET durable.clock_offset = 5;
CALL durable.wait_for_work('{w,later}', '0');
SET durable.clock_offset = 20;
CALL durable.wait_for_work('{later}', '2 s');
CALL durable.wait_for_work('{w}', '2 s');
RESET durable.clock_offset;
-- in a transaction block
BEGIN;
CALL durable.wait_for_work('{w}', '2 s');
CALL durable.wait_for_work('{v}', '0');
SELECT durable.dispatch('v', task_id => 'v1') \g /dev/null
CALL durable.wait_for_work('{v}', '2 s');
ROLLBACK;
BEGIN;
SELECT count(*) FROM durable.claim('{w}', 10, lease => '10 s');
COMMIT;
SET durable.clock_offset = '1h';
BEGIN;
CALL durable.wait_for_work('{w}', '2 s');
ROLLBACK;
RESET durable.clock_offset;
-- in a DO block, a function and a procedure
DO $$
DECLARE r boolean;
BEGIN
	CALL durable.wait_for_work('{later}', '2 s', NULL, r);
	RAISE INFO 'ready: %', r;
	CALL durable.wait_for_work('{v}', '1 ms', NULL, r);
	RAISE INFO 'ready: %', r;
END $$;
CREATE FUNCTION waits() RETURNS boolean LANGUAGE plpgsql AS
$$ DECLARE r boolean; BEGIN CALL durable.wait_for_work('{later}', '2 s', NULL, r); RETURN r; END $$;
SELECT waits();
DROP FUNCTION waits;
-- it would see nothing new in the snapshot of the transaction
\set VERBOSITY default
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL durable.wait_for_work('{w}', '0');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
CALL durable.wait_for_work('{w}', '0');
ROLLBACK;
\set VERBOSITY sqlstate
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL durable.wait_for_work('{later}', '2 s');
ROLLBACK;
\set VERBOSITY terse
-- outside a block the level does not matter
SET default_transaction_isolation = 'repeatable read';
CALL durable.wait_for_work('{later}', '2 s');
CALL durable.wait_for_work('{v}', '1 ms');
SET default_transaction_isolation = 'serializable';
CALL durable.wait_for_work('{later}', '2 s');
RESET default_transaction_isolation;
-- a longer wait can be interrupted
\set VERBOSITY sqlstate
SET statement_timeout = '50ms';
CALL durable.wait_for_work('{v}', '2 s');
BEGIN;
CALL durable.wait_for_work('{v}', '2 s');
ROLLBACK;
RESET statement_timeout;
\set VERBOSITY terse
CALL durable.wait_for_work('{later}', '2 s');

--
-- wait_and_claim: the same, and the claim in the same round trip
--
CALL durable.wait_and_claim('{x}', timeout => '0');
CALL durable.wait_and_claim('{x}', timeout => '1 ms', tasks => '[]');
SELECT count(*) FROM durable.dispatch_many('x', '{1,null,3}', task_ids => '{x1,x2,x3}', headers => '{"h": 1}', priority => 7);
CALL durable.wait_and_claim('{y,x}', 2, '1 hour', '2 s', 'w1') \gset
SELECT jsonb_array_length(:'tasks') AS n, :'tasks'::jsonb #>> '{0,token}' AS token \gset
SELECT :'n' AS tasks;
SELECT t - '{token,lease_until}'::text[] AS task FROM jsonb_array_elements(:'tasks') t;
SELECT array_agg(k ORDER BY k) AS keys FROM jsonb_object_keys(:'tasks'::jsonb -> 0) k;
SELECT count(DISTINCT t ->> 'token') AS tokens, bool_and((t ->> 'lease_until')::timestamptz = l.lease_until) AS lease_until, worker, l.lease_until - l.claimed_at AS lease
  FROM jsonb_array_elements(:'tasks') t, durable.lease l WHERE l.token = (t ->> 'token')::uuid GROUP BY worker, 4;
SELECT * FROM durable.complete_many(:'token', '{x1,x2,x3}', '{10,20,30}');
-- what is claimed is what claim would have returned
CALL durable.wait_and_claim('{x}', 10) \gset
SELECT t ->> 'task_id' AS task_id FROM jsonb_array_elements(:'tasks') t;
CALL durable.wait_and_claim('{x}', 10, timeout => '0');
-- of a paused queue, another namespace, due and lapsed
SELECT durable.dispatch('x', task_id => 'x4'), durable.dispatch('x', task_id => 'x5', namespace => 'other') \g /dev/null
SELECT durable.pause_queue('x');
CALL durable.wait_and_claim('{x}', timeout => '0');
SELECT durable.resume_queue('x');
CALL durable.wait_and_claim('{x}', 10, '10 s', '2 s', namespace => 'other') \gset
SELECT t ->> 'task_id' AS task_id FROM jsonb_array_elements(:'tasks') t;
CALL durable.wait_and_claim('{x}', 10, '10 s') \gset
SELECT durable.dispatch('x', task_id => 'x6', run_at => durable.engine_now() + '1 min') \g /dev/null
SET durable.clock_offset = '2min';
CALL durable.wait_and_claim('{x}', 10, '10 s', '2 s') \gset
SELECT t ->> 'task_id' AS task_id, t -> 'reclaims' AS reclaims FROM jsonb_array_elements(:'tasks') t;
RESET durable.clock_offset;
-- in a block: claimed with it, and undone with it
SELECT durable.dispatch('z', task_id => 'z1') \g /dev/null
BEGIN;
CALL durable.wait_and_claim('{z}', timeout => '2 s') \gset
SELECT t ->> 'task_id' AS task_id FROM jsonb_array_elements(:'tasks') t;
CALL durable.wait_and_claim('{z}', timeout => '0');
ROLLBACK;
SELECT status FROM durable.task_status('z1');
BEGIN ISOLATION LEVEL REPEATABLE READ;
CALL durable.wait_and_claim('{z}', timeout => '0');
ROLLBACK;
DO $$
DECLARE r jsonb;
BEGIN
	CALL durable.wait_and_claim('{z}', timeout => '2 s', tasks => r);
	RAISE INFO '% %', r #>> '{0,task_id}', durable.complete(r #>> '{0,task_id}', (r #>> '{0,token}')::uuid);
	CALL durable.wait_and_claim('{z}', timeout => '0', tasks => r);
	RAISE INFO '%', r;
END $$;
\set VERBOSITY sqlstate
SET statement_timeout = '50ms';
CALL durable.wait_and_claim('{z}', timeout => '2 s');
RESET statement_timeout;
\set VERBOSITY terse

--
-- sweep
--
SELECT durable.dispatch('s', task_id => 's' || i, run_at => durable.engine_now() + make_interval(mins => i)) FROM generate_series(1, 5) i \g /dev/null
SELECT durable.sweep() ->> 'promoted' AS promoted;
SET durable.clock_offset = '4min';
SELECT durable.sweep(1) ->> 'promoted' AS promoted;
SELECT task_id FROM durable.task JOIN durable.task_ready USING (id) WHERE name = 's';
SELECT durable.sweep(2) ->> 'promoted' AS promoted;
SELECT durable.sweep(2) ->> 'promoted' AS promoted;
SELECT durable.sweep(2) ->> 'promoted' AS promoted;
SELECT ready, delayed FROM durable.queue_depth('s');
-- it tells what it did
SELECT key, jsonb_typeof(value) AS type FROM jsonb_each(durable.sweep()) ORDER BY key COLLATE "C";
-- the order is priority and age, not when they became due
SELECT task_id FROM durable.claim('{s}', 10);
RESET durable.clock_offset;
