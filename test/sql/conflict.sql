-- dispatch and dispatch_many: what happens when the id is taken
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

CREATE VIEW state AS
SELECT t.task_id, s.status, t.input, t.name, t.queue, t.priority AS prio, t.attempt AS att, t.max_attempts AS max,
       t.replaced, t.headers, t.error ->> 'message' AS error,
       (SELECT count(*) FROM durable.task_ready r WHERE r.id = t.id) + (SELECT count(*) FROM durable.task_delayed d WHERE d.id = t.id) AS listed
  FROM durable.task t, durable.task_status(t.task_id) s ORDER BY t.id;
CREATE PROCEDURE at(minutes int) LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('durable.clock_offset', (60 * minutes)::text, false); END $$;

-- return is what it always was
SELECT durable.dispatch('mail', '1', 'a', on_conflict => 'return');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'return'), durable.dispatch('mail', '3', 'a', on_conflict => NULL);
SELECT * FROM state;

-- reject: whether it is ready, delayed, claimed, or its result is unread
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'reject');
SELECT durable.dispatch('mail', '2', 'd', run_at => '2999-01-01', on_conflict => 'reject');
SELECT durable.dispatch('mail', '2', 'd', on_conflict => 'reject');
SELECT token FROM durable.claim('{mail}') \gset
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'reject');
SELECT durable.complete('a', :'token', '"one"');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'reject');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'reject', namespace => 'other');
SELECT durable.ack_results(token) FROM durable.claim_results('{mail}');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'reject');
-- in a batch: NULL for those, the others are queued; of two the first counts
SELECT * FROM durable.dispatch_many('mail', '{1,2,3,4,5}', task_ids => ARRAY['b', 'a', 'b', NULL, 'c'], on_conflict => 'reject');
SELECT task_id, input FROM durable.task WHERE namespace = 'default' ORDER BY id;
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease, durable.task_result;

-- replace: everything but its number, and with it its place
SELECT durable.dispatch('mail', '1', 'a', headers => '{"h": 1}', max_attempts => 3, backoff => '1 s');
SELECT durable.dispatch('mail', '2', 'b');
SELECT id AS a FROM durable.task WHERE task_id = 'a' \gset
SELECT durable.dispatch('post', '3', 'a', queue => 'mail', priority => 0, on_conflict => 'replace');
SELECT id = :a AS same_number, backoff FROM durable.task WHERE task_id = 'a';
SELECT * FROM state;
SELECT durable.dispatch('post', '4', 'a', queue => 'letters', priority => 7, headers => '{"h": 2}', on_conflict => 'replace');
SELECT * FROM state;
-- into the future, and back
SELECT durable.dispatch('mail', '5', 'a', run_at => '2999-01-01', on_conflict => 'replace');
SELECT * FROM state WHERE task_id = 'a';
SELECT durable.dispatch('mail', '6', 'a', run_at => '2999-01-02', on_conflict => 'replace_keep_time');
SELECT run_at::date, input FROM durable.task WHERE task_id = 'a';
SELECT run_at::date FROM durable.task_delayed;
SELECT durable.dispatch('mail', '7', 'a', on_conflict => 'replace');
SELECT * FROM state WHERE task_id = 'a';
-- a NULL replaces, too
SELECT durable.dispatch('mail', task_id => 'a', on_conflict => 'replace');
SELECT input IS NULL AS none FROM durable.task WHERE task_id = 'a';
SELECT task_id, input FROM durable.claim('{mail}', 5);
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease;

-- while it is claimed: the claim goes on, and then the newest request is executed
SELECT durable.dispatch('mail', '1', 'a', max_attempts => 2);
SELECT token, input FROM durable.claim('{mail}') \gset
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'replace');
SELECT durable.dispatch('mail', '3', 'a', max_attempts => 4, on_conflict => 'replace');
SELECT * FROM state;
SELECT durable.heartbeat('a', :'token'), durable.renew(:'token'), (SELECT claimed FROM durable.queue_depth('mail'));
SELECT durable.complete('a', :'token', '"of 1"');
SELECT durable.complete('a', :'token', '"again"'), durable.heartbeat('a', :'token');
SELECT * FROM state;
SELECT count(*) FROM durable.task_result;
-- the same when the attempt fails: the new one has all its attempts
SELECT token, input, attempt FROM durable.claim('{mail}') \gset
SELECT durable.fail('a', :'token', '{"message": "first"}');
SELECT * FROM state;
SELECT token, input, attempt FROM durable.claim('{mail}') \gset
SELECT durable.dispatch('mail', '4', 'a', max_attempts => 4, on_conflict => 'replace');
SELECT durable.fail('a', :'token', '{"message": "second", "retryable": false}');
SELECT * FROM state;
-- released, lapsed
SELECT token FROM durable.claim('{mail}') \gset
SELECT durable.dispatch('mail', '5', 'a', on_conflict => 'replace');
SELECT durable.release(:'token');
SELECT * FROM state;
SELECT token FROM durable.claim('{mail}', lease => '1 min') \gset
SELECT durable.dispatch('mail', '6', 'a', on_conflict => 'replace');
CALL at(2);
SELECT token, input, attempt, reclaims FROM durable.claim('{mail}') \gset new_
SELECT :new_input AS input, :new_attempt AS attempt, :new_reclaims AS reclaims, durable.complete('a', :'token') AS old_token;
CALL at(0);
-- by settle_and_claim and complete_many
SELECT durable.dispatch('mail', '7', 'a', on_conflict => 'replace');
SELECT task_id, token, input FROM durable.settle_and_claim('a', :'new_token', '1', '{mail}') \gset
SELECT :input AS input;
SELECT durable.dispatch('mail', '8', 'b');
SELECT durable.dispatch('mail', '9', 'a', on_conflict => 'replace');
SELECT durable.complete_many(:'token', '{a}');
SELECT * FROM state;
SELECT DISTINCT token FROM durable.claim('{mail}', 2) \gset
SELECT durable.dispatch('mail', '10', 'a', on_conflict => 'replace');
SELECT * FROM durable.complete_many(:'token', '{a,b}', '{1,2}') ORDER BY 1;
SELECT * FROM state;
SELECT task_id, output FROM durable.task_result;
-- cancelled: what runs and what comes after it
SELECT token FROM durable.claim('{mail}') \gset
SELECT durable.dispatch('mail', '11', 'a', on_conflict => 'replace');
SELECT durable.cancel_task('a'), durable.complete('a', :'token');
SELECT task_id, status, input FROM durable.task_result ORDER BY 1;
-- an unread result makes room
SELECT durable.dispatch('mail', '12', 'a', on_conflict => 'replace');
SELECT task_id, status FROM durable.task_result;
SELECT token FROM durable.claim_results('{mail}') \gset results_
SELECT durable.dispatch('mail', '13', 'b', on_conflict => 'replace');
SELECT durable.ack_results(:'results_token');
SELECT * FROM state;
-- in one transaction
BEGIN;
SELECT durable.dispatch('mail', '14', 'x');
SELECT durable.dispatch('mail', '15', 'x', on_conflict => 'replace');
SELECT token, input FROM durable.claim('{mail}', 10) WHERE task_id = 'x' \gset
SELECT :input AS input, durable.dispatch('mail', '16', 'x', on_conflict => 'replace');
SELECT durable.complete('x', :'token');
SELECT * FROM state WHERE task_id = 'x';
SAVEPOINT s;
SELECT durable.dispatch('mail', '17', 'x', on_conflict => 'replace', priority => 9);
ROLLBACK TO s;
SELECT * FROM state WHERE task_id = 'x';
COMMIT;
SELECT * FROM state WHERE task_id = 'x';
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease, durable.task_result;

-- a batch: the last of two counts, none disturbs the others
SELECT durable.dispatch('mail', '0', 'a'), durable.dispatch('mail', '0', 'c', run_at => '2999-01-01');
SELECT token FROM durable.claim('{mail}') \gset
SELECT * FROM durable.dispatch_many('mail', '{1,2,3,4,5}', task_ids => '{a,b,c,b,a}', on_conflict => 'replace');
SELECT * FROM state;
SELECT count(*) FROM (SELECT array_agg(to_jsonb(n)) AS inputs, array_agg('n' || n % 700) AS ids FROM generate_series(1, 2000) n) x,
       durable.dispatch_many('many', x.inputs, task_ids => x.ids, on_conflict => 'replace');
SELECT count(*), count(*) FILTER (WHERE input::int > 1300), sum(input::int) FROM durable.task WHERE name = 'many';
SELECT count(*) FROM durable.claim('{many}', 1000);
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease;

-- debounce: each call pushes it out
SELECT durable.dispatch('sync', '1', 'd', debounce => '5 min');
CALL at(4);
SELECT durable.dispatch('sync', '2', 'd', debounce => '5 min');
CALL at(8);
SELECT count(*) FROM durable.claim('{sync}');
SELECT durable.dispatch('sync', '3', 'd', debounce => '5 min');
SELECT round(extract(epoch FROM run_at - created_at) / 60) AS minutes FROM durable.task;
CALL at(14);
SELECT task_id, input FROM durable.claim('{sync}');
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease;
-- but not for ever
CALL at(0);
SELECT durable.dispatch('sync', '1', 'd', debounce => '5 min', debounce_max => '7 min');
CALL at(4);
SELECT durable.dispatch('sync', '2', 'd', debounce => '5 min', debounce_max => '7 min');
SELECT round(extract(epoch FROM run_at - created_at) / 60) AS minutes FROM durable.task;
CALL at(8);
SELECT durable.dispatch('sync', '3', 'd', debounce => '5 min', debounce_max => '7 min');
SELECT token, input FROM durable.claim('{sync}', lease => '1 h') \gset
-- while it is claimed another burst begins
SELECT :input AS input, durable.dispatch('sync', '4', 'd', debounce => '5 min', debounce_max => '7 min');
SELECT durable.dispatch('sync', '5', 'd', debounce => '5 min', debounce_max => '7 min');
SELECT durable.complete('d', :'token');
SELECT status, input, round(extract(epoch FROM t.run_at - t.created_at) / 60) AS minutes FROM durable.task t, durable.task_status('d') s;
CALL at(12);
SELECT durable.dispatch('sync', '6', 'd', debounce => '5 min', debounce_max => '7 min');
SELECT input, round(extract(epoch FROM run_at - created_at) / 60) AS minutes FROM durable.task;
-- what waits for another attempt is another request as well
CALL at(16);
SELECT token FROM durable.claim('{sync}', lease => '1 h') \gset
SELECT durable.fail('d', :'token', '"no"');
SELECT durable.dispatch('sync', '7', 'd', max_attempts => 2, debounce => '5 min', debounce_max => '7 min');
CALL at(22);
SELECT token FROM durable.claim('{sync}', lease => '1 h') \gset
SELECT durable.fail('d', :'token', '"no"');
SELECT durable.dispatch('sync', '8', 'd', debounce => '5 min', debounce_max => '7 min');
SELECT input, attempt, error, round(extract(epoch FROM run_at - created_at) / 60) AS minutes FROM durable.task;
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease, durable.task_result;

-- throttle: the first call says when, the last one what
CALL at(0);
SELECT durable.dispatch('sync', '1', 't', throttle => '5 min');
CALL at(4);
SELECT durable.dispatch('sync', '2', 't', throttle => '5 min');
SELECT round(extract(epoch FROM run_at - created_at) / 60) AS minutes FROM durable.task;
CALL at(6);
SELECT token, input FROM durable.claim('{sync}', lease => '1 h') \gset
SELECT :input AS input, durable.dispatch('sync', '3', 't', throttle => '5 min');
SELECT durable.complete('t', :'token');
CALL at(10);
SELECT durable.dispatch('sync', '4', 't', throttle => '5 min'), (SELECT count(*) FROM durable.claim('{sync}'));
CALL at(12);
SELECT input FROM durable.claim('{sync}');
-- a call while it waits for another attempt is a first one
SELECT durable.dispatch('retry', '1', 'again', max_attempts => 3, backoff => '1 h');
SELECT token FROM durable.claim('{retry}') \gset
SELECT durable.fail('again', :'token', '"no"');
SELECT durable.dispatch('retry', '2', 'again', throttle => '5 min');
SELECT input, attempt, round(extract(epoch FROM run_at - durable.engine_now()) / 60) AS minutes FROM durable.task WHERE task_id = 'again';
-- a restored task that was replaced while it was claimed is as any other
CALL at(0);
SELECT durable.dispatch('back', '1', 'back');
SELECT count(*) FROM durable.claim('{back}');
SELECT durable.dispatch('back', '2', 'back', on_conflict => 'replace');
UPDATE durable.identity SET database = 1;
SELECT durable.activate();
SELECT replaced FROM durable.task;
SELECT input, attempt FROM durable.claim('{back}');
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease;

-- errors, nothing changed
SELECT durable.dispatch('mail', '1', 'a');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'other');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => '');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'debounce');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'throttle');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'replace', debounce => '1 s');
SELECT durable.dispatch('mail', '2', 'a', on_conflict => 'return', throttle => '1 s');
SELECT durable.dispatch('mail', '2', 'a', debounce => '1 s', throttle => '1 s');
SELECT durable.dispatch('mail', '2', 'a', debounce => '0');
SELECT durable.dispatch('mail', '2', 'a', debounce => '-1 s');
SELECT durable.dispatch('mail', '2', 'a', debounce => '1000 years');
SELECT durable.dispatch('mail', '2', 'a', throttle => '0');
SELECT durable.dispatch('mail', '2', 'a', debounce_max => '1 s');
SELECT durable.dispatch('mail', '2', 'a', debounce => '2 s', debounce_max => '1 s');
SELECT durable.dispatch('mail', '2', 'a', throttle => '2 s', debounce_max => '1 s');
SELECT durable.dispatch('mail', '2', 'a', debounce => '2 s', run_at => now());
SELECT durable.dispatch('mail', '2', on_conflict => 'replace');
SELECT durable.dispatch('mail', '2', debounce => '1 s');
SELECT durable.dispatch('mail', '2', on_conflict => 'reject');
SELECT durable.dispatch_many('mail', '{1,2}', on_conflict => 'replace');
SELECT durable.dispatch_many('mail', '{1,2}', task_ids => ARRAY['a', NULL], throttle => '1 s');
SELECT durable.dispatch_many('mail', '{}', task_ids => '{}', throttle => '1 s');
SELECT * FROM state WHERE task_id = 'a';

-- a role that may dispatch in its namespace replaces there and nowhere else
CREATE ROLE conflict_user;
SELECT durable.grant_usage('conflict_user', 'mine');
SET ROLE conflict_user;
SELECT durable.dispatch('mail', '3', 'a', on_conflict => 'replace');
SELECT durable.dispatch('mail', '3', 'a', namespace => 'mine'), durable.dispatch('mail', '4', 'a', namespace => 'mine', on_conflict => 'replace');
RESET ROLE;
SELECT namespace, input FROM durable.task ORDER BY 1;
SELECT durable.revoke_usage('conflict_user', 'mine');
DROP ROLE conflict_user;

DROP VIEW state;
DROP PROCEDURE at(int);
