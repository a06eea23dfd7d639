-- external workflows: turns are claimed, decisions applied
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA ext_test;
RESET client_min_messages;
SET search_path = ext_test;

CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message' FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY id
$$;
CREATE VIEW leftovers AS
SELECT (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready,
       (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.lease) AS leases,
       (SELECT count(*) FROM durable.waiter) AS waiters, (SELECT count(*) FROM durable.signal_buffer) AS buffered;
-- One turn of the queue: claims, shows the last of what it was handed, decides.
CREATE FUNCTION turn(decision jsonb, queue text DEFAULT 'w') RETURNS TABLE (run text, history text, applied boolean)
LANGUAGE plpgsql AS $$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT * FROM durable.claim(ARRAY[queue]) LOOP
		run := t.run_id;
		history := (SELECT string_agg(concat_ws(' ', h ->> 'seq', h ->> 'kind', h ->> 'name', h ->> 'status',
				h -> 'output', h #>> '{error,message}'), ', ' ORDER BY n)
			FROM jsonb_array_elements(t.input -> 'history') WITH ORDINALITY a(h, n)
			WHERE n > jsonb_array_length(t.input -> 'history') - 3);
		applied := durable.complete_turn(t.task_id, t.token, decision);
		RETURN NEXT;
	END LOOP;
END $$;

--
-- what a turn is
--
SELECT durable.register_workflow('w');
SELECT name, version, body, queue, atomic FROM durable.workflow;
SELECT durable.start('w', '{"a": [1, null]}', 'r1', priority => 3, headers => '{"traceparent": "00-1"}');
SELECT task_id, token, kind, name, queue, namespace, run_id, seq, attempt, reclaims, priority, headers, input - '{now,since}'::text[] AS input,
       jsonb_typeof(input -> 'now') AS now
  FROM durable.claim('{w}', worker => 'me') \gset t_
SELECT :'t_task_id' ~ '^~\d+$' AS task_id, :'t_kind' AS kind, :'t_name' AS name, :'t_queue' AS queue, :'t_run_id' AS run_id,
       :'t_priority' AS priority, :'t_headers' AS headers, :'t_input'::jsonb AS input, :'t_now' AS now;
-- nobody else has it
SELECT count(*) FROM durable.claim('{w}');
-- it is settled by a decision and by nothing else
SELECT durable.complete(:'t_task_id', :'t_token', '1'), durable.fail(:'t_task_id', :'t_token', '"no"');
SELECT durable.complete_turn(:'t_task_id', gen_random_uuid(), '{"status": "completed"}') AS other_token,
       durable.complete_turn('~999999', :'t_token', '{"status": "completed"}') AS other_task;
SELECT * FROM runs('r1');
SELECT durable.heartbeat(:'t_task_id', :'t_token', '{"at": 1}'), durable.renew(:'t_token');
SELECT durable.complete_turn(:'t_task_id', :'t_token', '{"status": "completed", "output": {"b": null}}');
SELECT durable.complete_turn(:'t_task_id', :'t_token', '{"status": "completed", "output": 2}') AS again,
       durable.heartbeat(:'t_task_id', :'t_token'), durable.renew(:'t_token'), durable.release(:'t_token');
SELECT * FROM runs('r1');
SELECT started_at IS NOT NULL AS started, finished_at IS NOT NULL AS finished FROM durable.get_run('r1');
SELECT durable.result('r1');
SELECT * FROM leftovers;

-- no output, a failure, a cancellation
SELECT durable.start('w', NULL, 'r2'), durable.start('w', NULL, 'r3'), durable.start('w', NULL, 'r4'), durable.start('w', NULL, 'r5');
SELECT * FROM turn('{"status": "completed"}');
SELECT * FROM turn('{"status": "failed", "error": {"message": "no", "code": "22012", "details": [1]}, "output": 1}');
SELECT * FROM turn('{"status": "failed", "error": "just so"}');
SELECT * FROM turn('{"status": "cancelled", "commands": [{"type": "record_step", "seq": 0, "name": "did", "output": 1}]}');
SELECT * FROM runs('r_');
SELECT seq, kind, name, status, output FROM durable.history('r5');
SELECT durable.result('r3');
SELECT * FROM leftovers;

--
-- commands: everything that a body can ask for
--
SELECT durable.register_workflow('w', version => '2', queue => 'w2');
SELECT durable.start('w', '1', 'c1', headers => '{"traceparent": "00-2"}', search_attributes => '{"a": 1}');
SELECT * FROM turn('{"status": "continue", "commands": [
	{"type": "record_step", "seq": 0, "name": "local", "input": {"x": 1}, "output": {"y": 2}, "attempts": 3, "started_at": 1700000000000.5, "finished_at": 1700000001000},
	{"type": "record_step", "seq": 1, "name": "broken", "error": {"message": "bad", "code": "P0001"}},
	{"type": "set_event", "seq": 2, "key": "state", "value": "begun"},
	{"type": "upsert_search_attributes", "seq": 3, "attributes": {"b": 2}},
	{"type": "patched", "seq": 4, "id": "p1"},
	{"type": "now", "seq": 5, "value": "700000000000000"},
	{"type": "random", "seq": 6, "value": "0.25"},
	{"type": "uuid", "seq": 7, "value": "00000000-0000-4000-8000-000000000000"},
	{"type": "log", "seq": 8, "level": "info", "message": "here", "data": {"n": 1}},
	{"type": "log", "seq": 8, "level": "info", "message": "and here"},
	{"type": "call", "seq": 8, "name": "send", "input": {"to": "ada"}, "queue": "mail", "priority": 7, "retries": 3, "backoff_ms": 1500, "backoff_max_ms": 60000, "jitter": true},
	{"type": "sleep", "seq": 9, "ms": 60000},
	{"type": "wait_signal", "seq": 10, "signal": "go", "timeout_ms": 30000},
	{"type": "start_child", "seq": 11, "workflow": "w", "version": "2", "input": {"c": 1}},
	{"type": "start_child", "seq": 12, "workflow": "w", "version": "2", "child_id": "kid", "await": false, "priority": 9}]}', 'w2');
SELECT seq, kind, name, status, attempts, input, output, error, round(extract(epoch FROM wake_at - durable.engine_now()) / 10) * 10 AS wakes_in
  FROM durable.history('c1');
SELECT started_at, finished_at FROM durable.checkpoint WHERE name = 'local';
SELECT seq, number, level, message, data FROM durable.run_log;
SELECT status, turn_state, search_attributes, round(extract(epoch FROM wake_at - durable.engine_now()) / 10) * 10 AS wakes_in FROM durable.get_run('c1');
SELECT queue, name, kind, run_id, seq, priority, max_attempts, backoff, backoff_max, backoff_exp, jitter, headers, input
  FROM durable.task WHERE kind = 'step';
SELECT run_id, priority, input, parent_seq, status FROM durable.run WHERE parent IS NOT NULL ORDER BY id;
SELECT token, seq FROM durable.waiter ORDER BY seq;
SELECT durable.get_event('c1', 'state');
-- nothing to do until something comes
SELECT count(*) FROM durable.claim('{w2}', max_tasks => 10) WHERE run_id = 'c1';
UPDATE durable.lease SET lease_until = now() - interval '1 s';
-- results, one after the other; the turn is handed out with what is there
SELECT durable.signal('go', '{"by": "hand"}');
SELECT * FROM (SELECT * FROM durable.claim('{w2}', max_tasks => 10)) c WHERE run_id = 'c1' \gset c_
SELECT jsonb_array_length(:'c_input'::jsonb -> 'history') AS n, :'c_input'::jsonb -> 'history_from' AS from, :'c_input'::jsonb -> 'history_end' AS end;
SELECT h - 'wake_at' AS h, h ? 'wake_at' AS wakes FROM jsonb_array_elements(:'c_input'::jsonb -> 'history') h;
-- a step's result while the turn is out: no second turn, but the next one at once
SELECT task_id, token FROM durable.claim('{mail}') \gset m_
SELECT durable.complete(:'m_task_id', :'m_token', '{"sent": 1}');
SELECT count(*) FROM durable.claim('{w2}') WHERE run_id = 'c1';
SELECT durable.complete_turn(:'c_task_id', :'c_token', '{"status": "continue", "commands": [
	{"type": "call", "seq": 8, "name": "send"}, {"type": "sleep", "seq": 9, "ms": 1}, {"type": "start_child", "seq": 11, "workflow": "w"}]}');
SELECT durable.complete_turn(:'c_task_id', :'c_token', '{"status": "completed"}') AS superseded;
SELECT status, turn_state FROM durable.get_run('c1');
SELECT run_id, input #> '{history,8,output}' AS send FROM durable.claim('{w2}', max_tasks => 10) WHERE run_id = 'c1';
SELECT durable.cancel('c1'), durable.cancel('kid');
SELECT * FROM runs('c1%');
UPDATE durable.lease SET lease_until = now() - interval '1 s';
SELECT durable.sweep() IS NOT NULL AS swept;
SELECT * FROM leftovers;

--
-- waiting for one thing after the other
--
SELECT durable.unregister_workflow('w', '2');
SELECT durable.start('w', NULL, 'q1');
-- a sleep
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "sleep", "seq": 0, "ms": 3600000}]}');
SELECT * FROM turn('{"status": "completed"}');
SET durable.clock_offset = 3700;
-- a time in the past is over at once
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "sleep_until", "seq": 1, "until": 0}]}');
-- a signal that is there already; one that comes; one that does not
SELECT durable.signal('s1', '1');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "wait_signal", "seq": 2, "signal": "s1"}]}');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "wait_signal", "seq": 3, "signal": "s2", "timeout_ms": 100000}]}');
SELECT durable.signal('s2', '2');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "wait_signal", "seq": 4, "signal": "s3", "timeout_ms": 100000}]}');
SELECT * FROM turn('{"status": "completed"}');
SET durable.clock_offset = 3900;
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "wait_signal", "seq": 4, "signal": "s3", "timeout_ms": 100000}]}');
SELECT count(*) FROM durable.waiter;
-- a child that is there, one that is not registered, one that fails
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "start_child", "seq": 5, "workflow": "nobody"}]}');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "start_child", "seq": 6, "workflow": "w", "child_id": "q2"}]}');
SELECT * FROM turn('{"status": "failed", "error": {"message": "child"}}');
-- steps: all of them before the next turn
SELECT * FROM turn('{"status": "continue", "await_all": [7, 9], "commands": [{"type": "call", "seq": 7, "name": "s"},
	{"type": "call", "seq": 8, "name": "s"}, {"type": "call", "seq": 9, "name": "s"}]}');
SELECT durable.complete(task_id, token, to_jsonb(seq)), count(*) OVER () FROM durable.claim('{s}', 2);
SELECT * FROM turn('{"status": "completed"}');
SELECT durable.fail(task_id, token, '"no"') FROM durable.claim('{s}', 2);
-- what is recorded stays, also with the end
SELECT * FROM turn('{"status": "completed", "output": "done", "commands": [{"type": "record_step", "seq": 10, "name": "last", "output": 1},
	{"type": "sleep", "seq": 11, "ms": 1000}, {"type": "call", "seq": 12, "name": "s", "await": false}, {"type": "set_event", "seq": 13, "key": "k", "value": 1}]}');
SELECT * FROM runs('q%');
SELECT seq, kind, name, status, output, error FROM durable.history('q1', 6);
SELECT durable.complete(task_id, token) FROM durable.claim('{s}');
RESET durable.clock_offset;
SELECT * FROM leftovers;

--
-- a round of several turns: each is fenced for itself
--
SELECT durable.start_many('w', '{1,2,3}', '{m1,m2,m3}');
CREATE TEMP TABLE round AS SELECT * FROM durable.claim('{w}', 3);
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "wait_signal", "seq": 0, "signal": "m"}]}')
  FROM round WHERE run_id = 'm1';
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "completed"}') AS twice FROM round WHERE run_id = 'm1';
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "record_step", "seq": 0, "name": "x"}]}')
  FROM round WHERE run_id = 'm2';
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "completed"}') AS twice FROM round WHERE run_id = 'm2';
SELECT durable.renew(token) FROM round LIMIT 1;
SELECT durable.release(token, ARRAY[task_id]) AS back FROM round WHERE run_id = 'm3';
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "completed"}') AS too_late FROM round WHERE run_id = 'm3';
SELECT run_id, reclaims FROM durable.claim('{w}', 3);
-- a parked one is not brought back by a lapse
SELECT * FROM runs('m_');
UPDATE durable.lease SET lease_until = now() - interval '1 s';
SELECT run_id, reclaims FROM durable.claim('{w}', 3);
SELECT durable.cancel('m1'), durable.cancel('m2'), durable.cancel('m3');
UPDATE durable.lease SET lease_until = now() - interval '1 s';
SELECT durable.sweep() IS NOT NULL AS swept;
SELECT * FROM leftovers;

-- a turn that lapses again and again is dead; one that made progress begins anew
SELECT durable.start('w', NULL, 'l1');
DO $$
BEGIN
	FOR i IN 0 .. 3 LOOP
		PERFORM FROM durable.claim('{w}');
		UPDATE durable.lease SET lease_until = now() - interval '1 s';
	END LOOP;
END $$;
SELECT count(*) FROM durable.claim('{w}');
SELECT * FROM runs('l1');
SELECT durable.start('w', NULL, 'l2');
DO $$
DECLARE
	t record;
BEGIN
	FOR i IN 0 .. 9 LOOP
		SELECT * INTO t FROM durable.claim('{w}');
		PERFORM durable.record_step(t.task_id, t.token, i, 'step ' || i, to_jsonb(i));
		UPDATE durable.lease SET lease_until = now() - interval '1 s';
	END LOOP;
END $$;
SELECT * FROM turn('{"status": "completed"}');
SELECT * FROM leftovers;

--
-- record_step
--
SELECT durable.start('w', NULL, 'k1');
SELECT task_id, token FROM durable.claim('{w}') \gset k_
SELECT durable.record_step(:'k_task_id', :'k_token', 1, 'b', '{"n": 1}', input => '{"i": 1}', attempts => 2,
	started_at => '2020-01-01', finished_at => '2020-01-02');
SELECT durable.record_step(:'k_task_id', :'k_token', 1, 'b', '{"n": 2}') AS again;
SELECT durable.record_step(:'k_task_id', :'k_token', 1, 'c');
SELECT durable.record_step(:'k_task_id', :'k_token', -1, 'c');
SELECT durable.record_step(:'k_task_id', :'k_token', 100000, 'c');
SELECT durable.record_step(:'k_task_id', :'k_token', NULL, 'c');
SELECT durable.record_step(:'k_task_id', :'k_token', 2, NULL);
SELECT durable.record_step(:'k_task_id', :'k_token', 2, 'c', attempts => 0);
SELECT durable.record_step(:'k_task_id', :'k_token', 2, 'c', to_jsonb(repeat('x', 2000000)));
SELECT durable.record_step(:'k_task_id', gen_random_uuid(), 2, 'c');
SELECT durable.record_step(:'k_task_id', :'k_token', 2, 'c', error => '"bad"');
SELECT seq, name, status, attempts, input, output, error, finished_at < '2021-01-01' AS early FROM durable.history('k1');
SELECT started_at, finished_at FROM durable.history('k1') WHERE seq = 1;
-- the position before it comes with the decision, and what is recorded already is skipped
SELECT durable.complete_turn(:'k_task_id', :'k_token', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "a"},
	{"type": "record_step", "seq": 1, "name": "b", "output": 5}, {"type": "record_step", "seq": 3, "name": "d"}]}');
SELECT durable.record_step(:'k_task_id', :'k_token', 4, 'e') AS too_late;
SELECT seq, kind, name, status, output FROM durable.history('k1');
SELECT durable.complete(task_id, token, '"a"') FROM durable.claim('{a}');
SELECT * FROM turn('{"status": "completed"}');

--
-- how much history a turn comes with
--
SELECT durable.start('w', NULL, 'h1');
SELECT * FROM turn((SELECT jsonb_build_object('status', 'continue', 'commands', jsonb_agg(jsonb_build_object(
	'type', 'record_step', 'seq', i, 'name', 's' || i, 'output', i))) FROM generate_series(0, 99) i));
SELECT input -> 'history_from' AS from, input -> 'history_end' AS end, jsonb_array_length(input -> 'history') AS n, durable.release(token)
  FROM durable.claim('{w}');
SELECT input -> 'history_from' AS from, input -> 'history_end' AS end, input -> 'history' AS history, durable.release(token)
  FROM durable.claim('{w}', history => 2);
SELECT input -> 'history_from' AS from, input -> 'history_end' AS end, input -> 'history' AS history, durable.release(token)
  FROM durable.claim('{w}', history => 0);
SELECT input -> 'history_from' AS from, jsonb_array_length(input -> 'history') AS n, durable.release(token)
  FROM durable.settle_and_claim(NULL, NULL, NULL, '{w}', history => 1);
CALL durable.wait_and_claim('{w}', history => 3) \gset w_
SELECT jsonb_array_length(:'w_tasks'::jsonb #> '{0,input,history}') AS n;
SELECT durable.release((:'w_tasks'::jsonb #>> '{0,token}')::uuid);
SELECT durable.claim('{w}', history => -1);
CALL durable.wait_and_claim('{w}', history => -1);
SELECT seq FROM durable.history('h1', 97);
SELECT * FROM turn('{"status": "completed"}');
SELECT * FROM runs('h1');
SELECT * FROM leftovers;

--
-- what is refused
--
SELECT durable.complete_turn(NULL, gen_random_uuid(), '{}');
SELECT durable.complete_turn('~1', NULL, '{}');
SELECT durable.complete_turn('~1', gen_random_uuid(), NULL);
SELECT durable.register_workflow('w', atomic => true);
SELECT durable.register_workflow('#1');
-- a workflow that has a body is not decided by others
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
SELECT durable.register_workflow('inside', 'ext_test.body', queue => 'in');
SELECT durable.start('inside', '1', 'i1');
SELECT task_id, token FROM durable.claim('{in}') \gset i_
SELECT durable.complete_turn(:'i_task_id', :'i_token', '{"status": "completed"}');
SELECT durable.record_step(:'i_task_id', :'i_token', 0, 'x');
SELECT durable.release(:'i_token');
CALL durable.work('{in}', '0');
SELECT * FROM runs('i1');
-- nor is a task or a step a turn
SELECT durable.dispatch('task') AS id \gset
SELECT task_id, token FROM durable.claim('{task}') \gset t_
SELECT durable.complete_turn(:'t_task_id', :'t_token', '{"status": "completed"}'), durable.record_step(:'t_task_id', :'t_token', 0, 'x');
SELECT durable.complete(:'t_task_id', :'t_token');

-- rolled back, it is as if it had not been
SELECT durable.start('w', NULL, 'b1');
SELECT task_id, token FROM durable.claim('{w}') \gset b_
BEGIN;
SELECT durable.record_step(:'b_task_id', :'b_token', 0, 'x');
SELECT durable.complete_turn(:'b_task_id', :'b_token', '{"status": "completed", "output": 1}');
SELECT durable.complete_turn(:'b_task_id', :'b_token', '{"status": "completed", "output": 2}') AS twice;
ROLLBACK;
SELECT count(*) FROM durable.history('b1');
SELECT durable.complete_turn(:'b_task_id', :'b_token', '{"status": "completed", "output": 3}');
SELECT * FROM runs('b1');
SELECT * FROM leftovers;

--
-- who may
--
SET client_min_messages = warning;
CREATE ROLE ext_worker;
CREATE ROLE ext_starter;
SELECT durable.grant_usage('ext_worker', privileges => '{work}');
SELECT durable.grant_usage('ext_starter', privileges => '{start,read,signal}');
SELECT durable.grant_usage('ext_starter', 'other', privileges => '{start,read,signal,work}');
RESET client_min_messages;
SET ROLE ext_worker;
SELECT durable.register_workflow('mine');
RESET ROLE;
SET ROLE ext_starter;
SELECT durable.start('mine', NULL, 'p1'), durable.start('mine', NULL, 'p2');
SET ROLE ext_worker;
SELECT task_id, token FROM durable.claim('{mine}') \gset p_
SELECT durable.record_step(:'p_task_id', :'p_token', 0, 'x', '1');
SET ROLE ext_starter;
-- the token is known, the namespace is another's
SELECT durable.complete_turn(:'p_task_id', :'p_token', '{"status": "completed"}');
SELECT durable.record_step(:'p_task_id', :'p_token', 1, 'x', '1');
SELECT durable.heartbeat(:'p_task_id', :'p_token');
SELECT durable.register_workflow('mine', namespace => 'other');
SELECT durable.start('mine', NULL, 'p3', namespace => 'other');
SELECT task_id, token FROM durable.claim('{mine}', namespace => 'other') \gset o_
SELECT durable.complete_turn(:'p_task_id', :'o_token', '{"status": "completed"}') AS token_of_another_claim;
SET ROLE ext_worker;
SELECT durable.complete_turn(:'p_task_id', :'p_token', '{"status": "completed", "output": "ok"}');
SELECT durable.complete_turn(:'o_task_id', :'o_token', '{"status": "completed"}');
RESET ROLE;
CREATE ROLE ext_nobody;
SET ROLE ext_nobody;
SELECT durable.complete_turn(:'p_task_id', :'p_token', '{"status": "completed"}');
SELECT durable.record_step(:'p_task_id', :'p_token', 1, 'x', '1');
RESET ROLE;
SELECT * FROM runs('p_');

SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA ext_test CASCADE;
DROP OWNED BY ext_worker, ext_starter, ext_nobody;
DROP ROLE ext_worker, ext_starter, ext_nobody;
