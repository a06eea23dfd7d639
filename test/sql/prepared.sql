-- Two-phase commit: what is prepared is neither done nor undone.
-- (prepared_1.out is for servers with max_prepared_transactions = 0.)
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SELECT current_setting('max_prepared_transactions')::int = 0 AS skip \gset
\if :skip
\quit
\endif

-- dispatched
BEGIN;
SELECT durable.dispatch('a', task_id => 'a1') \g /dev/null
PREPARE TRANSACTION 'durable_test';
SELECT count(*) FROM durable.claim('{a}');
SELECT count(*) FROM durable.claim('{a}');
SELECT durable.dispatch('a', task_id => 'a2') \g /dev/null
SELECT task_id FROM durable.claim('{a}');
SELECT count(*) FROM durable.claim('{a}');
COMMIT PREPARED 'durable_test';
SELECT task_id FROM durable.claim('{a}');
BEGIN;
SELECT durable.dispatch('a', task_id => 'a3') \g /dev/null
PREPARE TRANSACTION 'durable_test';
ROLLBACK PREPARED 'durable_test';
SELECT count(*) FROM durable.claim('{a}');

-- claimed: not in the way of others, and back after a rollback
SELECT count(*) FROM durable.dispatch_many('b', '{1,2,3}', task_ids => '{b1,b2,b3}');
BEGIN;
SELECT token FROM durable.claim('{b}') \gset
PREPARE TRANSACTION 'durable_test';
SELECT durable.complete('b1', :'token');
SELECT task_id FROM durable.claim('{b}');
ROLLBACK PREPARED 'durable_test';
SELECT task_id FROM durable.claim('{b}');
SELECT task_id FROM durable.claim('{b}');
SELECT durable.dispatch('b', task_id => 'b4') \g /dev/null
BEGIN;
SELECT token FROM durable.claim('{b}') \gset
PREPARE TRANSACTION 'durable_test';
SELECT count(*) FROM durable.claim('{b}');
COMMIT PREPARED 'durable_test';
SELECT count(*) FROM durable.claim('{b}');
SELECT durable.complete('b4', :'token');

-- completed
SELECT durable.dispatch('c', task_id => 'c1') \g /dev/null
SELECT token FROM durable.claim('{c}', lease => '10 s') \gset
BEGIN;
SELECT durable.complete('c1', :'token', '1');
PREPARE TRANSACTION 'durable_test';
SELECT status FROM durable.task_status('c1');
-- nobody takes over what is being settled, nor waits for it
SET durable.clock_offset = 60;
SELECT count(*) FROM durable.claim('{c}');
SELECT durable.sweep() \g /dev/null
SELECT status, reclaims FROM durable.task_status('c1');
ROLLBACK PREPARED 'durable_test';
SELECT task_id, reclaims FROM durable.claim('{c}');
SELECT durable.complete('c1', :'token', '1');
RESET durable.clock_offset;
