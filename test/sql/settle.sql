-- complete, complete_many, release, renew, heartbeat: the token is the right
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
\set stranger 00000000-0000-0000-0000-000000000000

--
-- complete
--
SELECT durable.dispatch('a', '{"n": 1}', 'a1', headers => '{"h": 1}');
SELECT token FROM durable.claim('{a}') \gset
SELECT durable.engine_now() AS before \gset
SELECT durable.complete('a1', :'token', '{"ok": true}', '[{"event": "sent"}]');
SELECT durable.engine_now() AS after \gset
SELECT status, output, error, attempt, reclaims, name, queue, priority, run_at, progress
  FROM durable.task_status('a1');
SELECT status, namespace, queue, name, task_id, output, error, events, attempt, reclaims, lease_id,
       finished_at BETWEEN :'before' AND :'after' AS finished_now, created_at < finished_at AS in_order
  FROM durable.task_result \gx
-- settled once
SELECT durable.complete('a1', :'token', '{"ok": false}');
SELECT durable.fail('a1', :'token', '"too late"');
SELECT durable.release(:'token');
SELECT durable.renew(:'token');
SELECT durable.heartbeat('a1', :'token');
SELECT output FROM durable.task_status('a1');
SELECT count(*) FROM durable.task;
SELECT count(*) FROM durable.lease;

-- without output, with a JSON null, and with a large one
SELECT count(*) FROM durable.dispatch_many('a', '{1,2,3}', task_ids => '{n1,n2,n3}');
SELECT token FROM durable.claim('{a}', 3) LIMIT 1 \gset
SELECT durable.complete('n1', :'token'), durable.complete('n2', :'token', 'null'),
       durable.complete('n3', :'token', (SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 5000) i));
SELECT v.id, s.status, s.output IS NULL AS no_output, left(s.output::text, 36) AS output
  FROM (VALUES ('n1'), ('n2'), ('n3')) v (id), durable.task_status(v.id) s;

-- by a generated id
SELECT durable.dispatch('g') AS gid \gset
SELECT task_id = :'gid' AS same, token FROM durable.claim('{g}') \gset
SELECT :'same'::boolean;
SELECT durable.complete('~0' || substr(:'gid', 2), :'token');
SELECT durable.complete(substr(:'gid', 2), :'token');
SELECT durable.complete(:'gid', :'token', '1');
SELECT status, output FROM durable.task_status(:'gid');
-- a generated form never names a task with an id of its own
SELECT durable.dispatch('g', task_id => 'own') \gset
SELECT '~' || id AS number FROM durable.task WHERE task_id = 'own' \gset
SELECT token FROM durable.claim('{g}') \gset
SELECT durable.complete(:'number', :'token'), durable.heartbeat(:'number', :'token'),
       durable.fail(:'number', :'token', '1'), durable.release(:'token', ARRAY[:'number']);
SELECT status FROM durable.task_status('own');
SELECT durable.complete('own', :'token');

-- a token that is not the claim's settles nothing
SELECT durable.dispatch('b', '1', 'b1'), durable.dispatch('b', '2', 'b2') \g /dev/null
SELECT durable.complete('b1', :'stranger');
SELECT token AS t1 FROM durable.claim('{b}') \gset
SELECT token AS t2 FROM durable.claim('{b}') \gset
SELECT durable.complete('b1', :'t2'), durable.complete('b2', :'t1'), durable.complete('b1', :'stranger'),
       durable.complete('nosuch', :'t1'), durable.complete('~999999', :'t1');
-- nor one that differs in its last digit
SELECT durable.complete('b1', (left(:'t1', 35) || CASE right(:'t1', 1) WHEN '0' THEN '1' ELSE '0' END)::uuid);
SELECT v.id, s.status, s.output FROM (VALUES ('b1'), ('b2')) v (id), durable.task_status(v.id) s;
SELECT durable.complete('b1', :'t1'), durable.complete('b2', :'t2');

--
-- in the same transaction as the worker's own work: both or neither
--
CREATE TABLE effect (id text);
SELECT durable.dispatch('pay', task_id => 'pay') \g /dev/null
SELECT token FROM durable.claim('{pay}') \gset
BEGIN;
INSERT INTO effect VALUES ('lost');
SELECT durable.complete('pay', :'token', '"lost"');
SELECT status FROM durable.task_status('pay');
ROLLBACK;
SELECT status FROM durable.task_status('pay');
BEGIN;
INSERT INTO effect VALUES ('paid');
SAVEPOINT s;
SELECT durable.complete('pay', :'token', '"never"');
ROLLBACK TO s;
SELECT durable.complete('pay', :'token', '"paid"');
COMMIT;
SELECT status, output FROM durable.task_status('pay');
SELECT * FROM effect;
DROP TABLE effect;
-- twice in one transaction
SELECT durable.dispatch('twice', task_id => 'twice') \g /dev/null
BEGIN;
SELECT token FROM durable.claim('{twice}') \gset
SELECT durable.complete('twice', :'token', '1'), durable.complete('twice', :'token', '2');
SELECT durable.complete('twice', :'token', '3');
COMMIT;
SELECT output FROM durable.task_status('twice');

--
-- complete_many
--
SELECT count(*) FROM durable.dispatch_many('m', '{1,2,3,4,5,6}', task_ids => '{m1,m2,m3,m4,m5,m6}');
SELECT token FROM durable.claim('{m}', 5) LIMIT 1 \gset
-- in the order given, each once, only what the token holds
SELECT * FROM durable.complete_many(:'token', '{m4,nosuch,m2,m2,m6,~1,m5}', '{"\"4\"",0,null,"\"2b\"",6,7,"\"5\""}');
SELECT v.id, s.status, s.output FROM unnest('{m1,m2,m3,m4,m5,m6}'::text[]) v (id), durable.task_status(v.id) s;
SELECT durable.renew(:'token');
-- outputs may be left out; nothing to do is fine
SELECT * FROM durable.complete_many(:'token', '{}');
SELECT * FROM durable.complete_many(:'token', '{m1,m3}');
SELECT * FROM durable.complete_many(:'token', '{m1,m3}');
SELECT * FROM durable.complete_many(:'stranger', '{m6}', '{1}');
-- all of a large round
SELECT count(*) FROM durable.dispatch_many('large', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 2500) i));
CREATE TEMP TABLE held AS SELECT * FROM durable.claim('{large}', 10000);
SELECT count(*) FROM (SELECT token, array_agg(task_id ORDER BY input) AS ids, array_agg(input ORDER BY input) AS inputs FROM held GROUP BY token) h,
       durable.complete_many(token, ids, inputs);
SELECT count(*) FROM held h JOIN durable.task_result r ON '~' || r.id = h.task_id AND r.output = h.input AND r.name = 'large' AND r.status = 'completed';

--
-- release: back to the queue, uncounted, at once
--
SELECT count(*) FROM durable.dispatch_many('r', '{1,2,3}', task_ids => '{r1,r2,r3}', priority => 4);
SELECT token FROM durable.claim('{r}', 3) LIMIT 1 \gset
SELECT durable.release(:'token', '{r2}');
SELECT v.id, s.status, s.attempt, s.reclaims, s.priority FROM unnest('{r1,r2,r3}'::text[]) v (id), durable.task_status(v.id) s;
-- the old token no longer holds it, whoever does now
SELECT durable.complete('r2', :'token'), durable.heartbeat('r2', :'token'), durable.fail('r2', :'token', '1');
SELECT token AS t2 FROM durable.claim('{r}') \gset
SELECT durable.complete('r2', :'token'), durable.release(:'token', '{r2}');
SELECT durable.renew(:'token'), durable.renew(:'t2');
SELECT durable.release(:'token', '{}');
SELECT durable.release(:'token', '{r1,r1,nosuch}');
SELECT durable.release(:'token');
SELECT durable.release(:'token');
SELECT durable.release(:'stranger');
SELECT task_id, attempt, reclaims, priority FROM durable.claim('{r}', 10);
SELECT durable.complete('r2', :'t2');
-- released ones keep their place
SELECT durable.dispatch('place', to_jsonb(i), 'pl' || i) FROM generate_series(1, 3) i \g /dev/null
SELECT token FROM durable.claim('{place}') \gset
SELECT durable.release(:'token');
SELECT task_id FROM durable.claim('{place}', 3);

--
-- renew: the round, whatever it holds
--
SELECT count(*) FROM durable.dispatch_many('renew', '{1,2,3}', task_ids => '{w1,w2,w3}');
SELECT token FROM durable.claim('{renew}', 3, '10 s') LIMIT 1 \gset
SELECT durable.renew(:'token', '1 hour');
SELECT lease_until - claimed_at > interval '59 min' AS renewed FROM durable.lease WHERE token = :'token';
SELECT durable.complete('w2', :'token');
SELECT durable.renew(:'token');
-- renewing may also shorten
SELECT lease_until - claimed_at < interval '5 min' AS shortened FROM durable.lease WHERE token = :'token';
SELECT durable.cancel_task('w1');
SELECT durable.renew(:'token');
SELECT durable.complete('w3', :'token');
SELECT durable.renew(:'token');
SELECT durable.renew(:'stranger');
-- what was renewed does not lapse
SELECT durable.dispatch('keep', task_id => 'keep') \g /dev/null
SELECT token FROM durable.claim('{keep}', lease => '10 s') \gset
SELECT durable.renew(:'token', '1 hour');
SET durable.clock_offset = '30min';
SELECT count(*) FROM durable.claim('{keep}');
SELECT durable.renew(:'token', '1 hour');
SET durable.clock_offset = '80min';
SELECT count(*) FROM durable.claim('{keep}');
SELECT durable.complete('keep', :'token');
RESET durable.clock_offset;

--
-- heartbeat
--
SELECT durable.dispatch('beat', task_id => 'beat') \g /dev/null
SELECT durable.heartbeat('beat', :'stranger');
SELECT token FROM durable.claim('{beat}', lease => '1 day') \gset
SELECT durable.heartbeat('beat', :'token');
SELECT progress, heartbeat_at IS NOT NULL AS seen FROM durable.task_status('beat');
-- the first progress is stored at once, further beats at most every durable.heartbeat_interval
SELECT durable.heartbeat('beat', :'token', '{"done": 1}');
SELECT progress FROM durable.task_status('beat');
SELECT durable.heartbeat('beat', :'token', '{"done": 2}');
SELECT progress FROM durable.task_status('beat');
SET durable.clock_offset = 11;
SELECT durable.heartbeat('beat', :'token', '{"done": 3}');
SELECT progress FROM durable.task_status('beat');
SET durable.heartbeat_interval = 0;
SELECT durable.heartbeat('beat', :'token', '{"done": 4}');
SELECT progress FROM durable.task_status('beat');
-- a beat without progress keeps the last
SELECT durable.heartbeat('beat', :'token');
SELECT progress FROM durable.task_status('beat');
-- it does not renew
SELECT lease_until - claimed_at AS lease FROM durable.lease WHERE token = :'token';
RESET durable.heartbeat_interval;
RESET durable.clock_offset;
-- it tells of a cancel, and of another one's task
SELECT durable.heartbeat('nosuch', :'token'), durable.heartbeat('beat', :'stranger');
SELECT durable.cancel_task('beat');
SELECT durable.heartbeat('beat', :'token', '{"done": 5}');
SELECT status, progress FROM durable.task_status('beat');
-- the first beat of a new claim is stored at once, whenever the last claim's was
SELECT durable.dispatch('again', task_id => 'again', max_attempts => 2) \g /dev/null
SELECT token FROM durable.claim('{again}') \gset
SELECT durable.heartbeat('again', :'token', '{"attempt": 1}'), durable.fail('again', :'token', '1');
SELECT token FROM durable.claim('{again}') \gset
SELECT durable.heartbeat('again', :'token', '{"attempt": 2}');
SELECT progress FROM durable.task_status('again');
SELECT durable.heartbeat('again', :'token', '{"attempt": 2, "beat": 2}');
SELECT progress FROM durable.task_status('again');
SELECT durable.complete('again', :'token');
-- and what it left goes with the sweep
SELECT count(*) FROM durable.task_progress;
SELECT durable.sweep() -> 'heartbeats_expired' AS heartbeats_expired;
SELECT count(*) FROM durable.task_progress;

-- a round of which nothing is left goes when its lease lapses, as does any other
SET durable.clock_offset = '2d';
SELECT durable.sweep() \g /dev/null
SELECT count(*) FROM durable.lease;
