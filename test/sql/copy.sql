-- A copy of a database hands out no work until somebody says so; and what is
-- written by SQL, as a restore does, is seen like anything else.
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SELECT count(*) FROM durable.dispatch_many('a', '{1,2,3,4}', task_ids => '{a1,a2,a3,a4}');
SELECT durable.dispatch('a', task_id => 'a5', run_at => durable.engine_now() + '1 hour') \g /dev/null
SELECT token FROM durable.claim('{a}', 2) LIMIT 1 \gset
SELECT durable.complete('a1', :'token');
SELECT token AS read FROM durable.claim_results('{a}') \gset
CREATE TEMP TABLE original AS SELECT * FROM durable.identity;

-- what a clone looks like: the row names another database
UPDATE durable.identity SET database = 1;
SELECT * FROM durable.claim('{a}');
\set VERBOSITY sqlstate
SELECT * FROM durable.claim('{a}');
SELECT * FROM durable.settle_and_claim('a2', :'token', '1', '{a}');
SELECT * FROM durable.claim_results('{a}');
CALL durable.wait_for_work('{a}', '0');
CALL durable.wait_and_claim('{a}', timeout => '0');
SELECT durable.sweep();
\set VERBOSITY terse
-- looking, queueing and settling go on: none of it repeats work
SELECT status FROM durable.task_status('a2');
SELECT ready, claimed FROM durable.queue_depth('a');
SELECT durable.dispatch('a', task_id => 'a6');
SELECT durable.heartbeat('a2', :'token'), durable.renew(:'token');
-- back at home
UPDATE durable.identity SET database = o.database FROM original o;
SELECT task_id FROM durable.claim('{a}');

-- what a restored dump looks like: a second row, or none
INSERT INTO durable.identity (system_identifier, database) SELECT system_identifier, database FROM original;
SELECT task_id FROM durable.claim('{a}');
BEGIN;
TRUNCATE durable.identity;
SELECT task_id FROM durable.claim('{a}');
ROLLBACK;
-- rolled back, it is not activated
BEGIN;
SELECT durable.activate();
SELECT task_id FROM durable.claim('{a}');
ROLLBACK;
SELECT task_id FROM durable.claim('{a}');
-- activated: claims and taken results go back, and the old tokens are worth nothing
SELECT durable.activate();
SELECT count(*) AS identities, count(*) FILTER (WHERE i.database = o.database AND i.system_identifier = o.system_identifier) AS here
  FROM durable.identity i, original o;
SELECT durable.complete('a2', :'token'), durable.renew(:'token'), durable.ack_results(:'read');
SELECT task_id, attempt, reclaims FROM durable.claim('{a}', 10);
SELECT task_id FROM durable.claim_results('{a}');
-- again: all that is claimed goes back once more, uncounted
SELECT durable.activate();
SELECT task_id, reclaims FROM durable.claim('{a}', 10);
SET durable.clock_offset = '2h';
SELECT task_id FROM durable.claim('{a}', 10, '1 day') WHERE task_id = 'a5';
RESET durable.clock_offset;

-- rows that SQL writes are found at once, behind those already claimed too
SET client_min_messages = warning;
DROP EXTENSION durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SELECT count(*) FROM durable.dispatch_many('b', '{1,2,3,4,5}', task_ids => '{b1,b2,b3,b4,b5}');
SELECT task_id FROM durable.claim('{b}', 4, '1 day');
SELECT task_id FROM durable.claim('{b}', 4, '1 day');
SELECT count(*) FROM durable.claim('{b}');
INSERT INTO durable.task_ready SELECT id, priority, namespace, queue FROM durable.task WHERE task_id = 'b2';
SELECT task_id FROM durable.claim('{b}');
INSERT INTO durable.task_delayed SELECT id, durable.engine_now() - interval '1 s', priority, namespace, queue FROM durable.task WHERE task_id = 'b1';
SELECT task_id FROM durable.claim('{b}');
UPDATE durable.lease SET lease_until = claimed_at - interval '1 s' WHERE ids && ARRAY(SELECT id FROM durable.task WHERE task_id = 'b5');
SELECT task_id, reclaims FROM durable.claim('{b}');
-- an entry without its task is dropped, and does not end the claim
SELECT durable.dispatch('c', task_id => 'c1') \g /dev/null
INSERT INTO durable.task_ready VALUES (-1, 9, 'default', 'c'), (9223372036854775806, 9, 'default', 'c');
SELECT task_id FROM durable.claim('{c}');
SELECT count(*) FROM durable.task_ready;
SELECT rescued FROM durable.scan_hints();
