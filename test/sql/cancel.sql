-- cancel_task, in every state a task can be in
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- ready
SELECT durable.dispatch('a', '{"n": 1}', 'ready', headers => '{"h": 1}') \g /dev/null
SELECT durable.cancel_task('ready');
SELECT status, output, error, attempt, run_at, finished_at IS NOT NULL AS finished FROM durable.task_status('ready');
SELECT status, input, headers, output, error, events FROM durable.task_result;
SELECT count(*) FROM durable.claim('{a}');
SELECT ready, claimed, delayed FROM durable.queue_depth('a');
-- again, and one that never was
SELECT durable.cancel_task('ready'), durable.cancel_task('nosuch'), durable.cancel_task('~999');

-- the neighbours stay
SELECT count(*) FROM durable.dispatch_many('a', '{1,2,3}', task_ids => '{n1,n2,n3}', priority => 7);
SELECT durable.cancel_task('n2');
SELECT task_id FROM durable.claim('{a}', 10);

-- delayed
SELECT durable.dispatch('b', task_id => 'delayed', run_at => durable.engine_now() + interval '1 hour'),
       durable.dispatch('b', task_id => 'delayed-2', run_at => durable.engine_now() + interval '1 hour') \g /dev/null
SELECT durable.cancel_task('delayed');
SELECT status, run_at FROM durable.task_status('delayed');
SELECT ready, claimed, delayed FROM durable.queue_depth('b');
SET durable.clock_offset = '2h';
-- due, but nobody looked yet
SELECT status FROM durable.task_status('delayed-2');
SELECT durable.cancel_task('delayed-2');
SELECT count(*) FROM durable.claim('{b}', 10);
SELECT count(*) FROM durable.task_delayed;
RESET durable.clock_offset;

-- claimed: the worker loses it, and is told so
SELECT durable.dispatch('c', task_id => 'claimed'), durable.dispatch('c', task_id => 'claimed-2') \g /dev/null
SELECT token FROM durable.claim('{c}', 2) LIMIT 1 \gset
SELECT durable.heartbeat('claimed', :'token');
SELECT durable.cancel_task('claimed');
SELECT durable.heartbeat('claimed', :'token'), durable.complete('claimed', :'token', '1'), durable.fail('claimed', :'token', '1'),
       durable.release(:'token', '{claimed}');
SELECT durable.renew(:'token');
SELECT status FROM durable.task_status('claimed');
SELECT durable.complete('claimed-2', :'token');
-- all of a round: renewing says so
SELECT durable.dispatch('c', task_id => 'alone') \g /dev/null
SELECT token FROM durable.claim('{c}') \gset
SELECT durable.cancel_task('alone');
SELECT durable.renew(:'token');
-- and nothing comes back when its lease lapses
SET durable.clock_offset = '1h';
SELECT count(*) FROM durable.claim('{c}', 10);
SELECT durable.sweep() \g /dev/null
SELECT count(*) FROM durable.lease WHERE token = :'token';
SELECT status, reclaims FROM durable.task_status('alone');
RESET durable.clock_offset;

-- waiting for its next attempt
SELECT durable.dispatch('d', task_id => 'retrying', max_attempts => 3, backoff => '1 min') \g /dev/null
SELECT token FROM durable.claim('{d}') \gset
SELECT durable.fail('retrying', :'token', '{"message": "first"}');
SELECT durable.cancel_task('retrying');
SELECT status, attempt, error FROM durable.task_status('retrying');
SELECT ready, claimed, delayed FROM durable.queue_depth('d');

-- released, and taken over
SELECT durable.dispatch('e', task_id => 'released'), durable.dispatch('e', task_id => 'lapsed') \g /dev/null
SELECT token FROM durable.claim('{e}') \gset
SELECT durable.release(:'token');
SELECT durable.cancel_task('released');
SELECT token FROM durable.claim('{e}', lease => '1 s') \gset
SET durable.clock_offset = '1min';
SELECT durable.sweep() \g /dev/null
SELECT status, reclaims FROM durable.task_status('lapsed');
SELECT durable.cancel_task('lapsed');
SELECT status, reclaims FROM durable.task_status('lapsed');
SELECT count(*) FROM durable.claim('{e}', 10);
RESET durable.clock_offset;

-- over: what ended stays as it ended
SELECT count(*) FROM durable.dispatch_many('f', '{1,2}', task_ids => '{completed,failed}');
SELECT token FROM durable.claim('{f}', 2) LIMIT 1 \gset
SELECT durable.complete('completed', :'token', '"x"'), durable.fail('failed', :'token', '{"message": "y"}');
SELECT durable.cancel_task('completed'), durable.cancel_task('failed');
SELECT v.id, s.status, s.output, s.error FROM (VALUES ('completed'), ('failed')) v (id), durable.task_status(v.id) s;
-- read, but not acknowledged
SELECT token FROM durable.claim_results('{f}') LIMIT 1 \gset
SELECT durable.cancel_task('completed');
SELECT durable.ack_results(:'token');
SELECT durable.cancel_task('completed');

-- by a generated id, whose other spellings name nothing
SELECT durable.dispatch('g') AS id \gset
SELECT durable.cancel_task('~0' || substr(:'id', 2)), durable.cancel_task(substr(:'id', 2)), durable.cancel_task(:'id' || ' ');
SELECT durable.cancel_task(:'id');
SELECT status FROM durable.task_status(:'id');
-- a task with an id of its own has no other
SELECT durable.dispatch('g', task_id => 'own') \g /dev/null
SELECT durable.cancel_task('~' || id) FROM durable.task WHERE task_id = 'own';

-- only in its namespace
SELECT durable.dispatch('h', task_id => 'ns', namespace => 'other'), durable.dispatch('h', namespace => 'other') AS id \gset
SELECT durable.cancel_task('ns'), durable.cancel_task(:'id');
SELECT durable.cancel_task('ns', 'other'), durable.cancel_task(:'id', 'other');

-- rolled back: nothing happened to it, wherever it was
SELECT durable.dispatch('i', task_id => 'i1'), durable.dispatch('i', task_id => 'i2', run_at => '2999-01-01'), durable.dispatch('i2', task_id => 'i3') \g /dev/null
SELECT token FROM durable.claim('{i2}') \gset
BEGIN;
SELECT durable.cancel_task('i1'), durable.cancel_task('i2'), durable.cancel_task('i3');
SELECT v.id, s.status FROM (VALUES ('i1'), ('i2'), ('i3')) v (id), durable.task_status(v.id) s;
ROLLBACK;
SELECT v.id, s.status FROM (VALUES ('i1'), ('i2'), ('i3')) v (id), durable.task_status(v.id) s;
SELECT task_id FROM durable.claim('{i}', 10);
SELECT durable.complete('i3', :'token');
-- dispatched, cancelled and dispatched again
BEGIN;
SELECT durable.dispatch('j', '1', 'j1') \g /dev/null
SELECT durable.cancel_task('j1');
SELECT durable.dispatch('j', '2', 'j1') \g /dev/null
COMMIT;
SELECT status FROM durable.task_status('j1');
SELECT count(*) FROM durable.claim('{j}');
SELECT ready FROM durable.queue_depth('j');

-- a cancelled task has a result like any other
SELECT task_id, status, output, error FROM durable.claim_results('{j,i,d}');

-- the lists hold nothing that is gone
SELECT count(*) FROM durable.task_ready r WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = r.id);
SELECT count(*) FROM durable.task_delayed d WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = d.id);
