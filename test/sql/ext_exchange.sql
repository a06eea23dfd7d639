-- exchange: decisions and results of any claims, and the next claim, in one commit
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA ext_test;
RESET client_min_messages;
SET search_path = ext_test;

CREATE VIEW leftovers AS
SELECT (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready,
       (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.lease) AS leases,
       (SELECT count(*) FROM durable.waiter) AS waiters, (SELECT count(*) FROM durable.signal_buffer) AS buffered;
CREATE VIEW runs AS
SELECT r.run_id, r.status, r.turn_state AS turn, r.output, r.error ->> 'message' AS message,
       (SELECT string_agg(concat_ws(' ', c.seq, c.kind, c.name, c.status, c.output), ', ' ORDER BY c.seq)
          FROM durable.checkpoint c WHERE c.run = r.id) AS history
  FROM durable.run r ORDER BY r.id;
-- what a worker has in hand
CREATE TABLE held (name text, task jsonb);
CREATE FUNCTION keep(tasks jsonb) RETURNS SETOF text LANGUAGE sql AS $$
	INSERT INTO held SELECT coalesce(t ->> 'run_id' || ' ' || (t ->> 'kind'), t ->> 'task_id'), t FROM jsonb_array_elements(tasks) t RETURNING name
$$;
CREATE FUNCTION item(n text, more jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('task_id', task -> 'task_id', 'token', task -> 'token') || more FROM held WHERE name = n
$$;
-- the result of a step, with what its run's turn n would decide then
CREATE FUNCTION after(n text, history_end int, decision jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('turn', jsonb_build_object('token', task -> 'token', 'history_end', history_end, 'decision', decision)) FROM held WHERE name = n
$$;
CREATE FUNCTION call(seq int, name text) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('status', 'continue', 'commands', jsonb_build_array(jsonb_build_object('type', 'call', 'seq', seq, 'name', name)))
$$;
CREATE FUNCTION give(VARIADIC items jsonb[]) RETURNS int[] LANGUAGE sql AS $$
	SELECT results FROM durable.exchange(to_jsonb(items), '{none}', 0)
$$;
CREATE FUNCTION take(queue text, max_tasks int DEFAULT 10) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT keep(tasks) FROM durable.exchange(NULL, ARRAY[queue], max_tasks)
$$;
SELECT durable.register_workflow('w');

--
-- a run of one step: three calls
--
SELECT durable.start('w', '{"a": 1}', 'r1', headers => '{"h": 1}');
SELECT results, jsonb_array_length(tasks) AS n, tasks #>> '{0,kind}' AS kind, tasks #> '{0,input,input}' AS input, keep(tasks)
  FROM durable.exchange('[]', '{w,s}', 10, worker => 'me');
SELECT (SELECT jsonb_agg(key ORDER BY key) FROM jsonb_object_keys(task) key) AS keys, task -> 'headers' AS headers, task ->> 'lease_until' ~ '^\d{4}-' AS until FROM held;
SELECT results, keep(tasks) FROM durable.exchange(jsonb_build_array(item('r1 turn', jsonb_build_object('decision', call(0, 's')))), '{w,s}', 10);
SELECT * FROM runs;
SELECT results, tasks FROM durable.exchange(jsonb_build_array(item('r1 step', '{"output": 5}'
	|| after('r1 turn', 1, '{"status": "completed", "output": "done"}'))), '{w,s}', 10);
SELECT * FROM runs;
-- none of it a second time
SELECT give(item('r1 turn', '{"decision": {"status": "completed"}}'), item('r1 step', '{"output": 6}'), item('r1 step', '{"error": "x"}'));
SELECT * FROM runs;
SELECT * FROM leftovers;
TRUNCATE held;

--
-- a run whose id is a generated one
--
CREATE FUNCTION take_as(q text, id text, shown text) RETURNS SETOF text LANGUAGE sql AS $$ SELECT replace(take(q), id, shown) $$;
SELECT durable.start('w') AS g \gset
SELECT take_as('w', :'g', 'generated');
SELECT give(item(:'g' || ' turn', jsonb_build_object('decision', call(0, 's'))));
SELECT take_as('s', :'g', 'generated');
SELECT give(item(:'g' || ' step', '{"output": 5}' || after(:'g' || ' turn', 1, '{"status": "completed", "output": "done"}')));
SELECT status, turn, output, history FROM runs WHERE run_id = :'g';
-- its step is settled without a decision, and among others
SELECT durable.start('w') AS g \gset
SELECT take_as('w', :'g', 'generated');
SELECT give(item(:'g' || ' turn', jsonb_build_object('decision', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s"}, {"type": "call", "seq": 1, "name": "s"}, {"type": "call", "seq": 2, "name": "s"}]}'::jsonb)));
SELECT task_id AS s1, token FROM durable.claim('{s}', 1) \gset
SELECT durable.complete(:'s1', :'token', '6');
SELECT (array_agg(token))[1] AS token, array_agg(task_id) AS ids FROM durable.claim('{s}', 2) \gset
SELECT count(*) FROM durable.complete_many(:'token', :'ids', '{7,8}');
SELECT status, turn, history FROM runs WHERE run_id = :'g';
SELECT durable.cancel(:'g');
-- its row was deleted by hand: the result of its step is nobody's
SELECT durable.start('w') AS g \gset
SELECT take_as('w', :'g', 'generated');
SELECT give(item(:'g' || ' turn', jsonb_build_object('decision', call(0, 's'))));
SELECT take_as('s', :'g', 'generated');
DELETE FROM durable.task WHERE kind = 'turn' AND run_id = :'g';
DELETE FROM durable.checkpoint c USING durable.run r WHERE r.run_id = :'g' AND c.run = r.id;
DELETE FROM durable.run WHERE run_id = :'g';
SELECT give(item(:'g' || ' step', '{"output": 5}' || after(:'g' || ' turn', 1, '{"status": "completed", "output": "done"}')));
SELECT * FROM leftovers;
-- a child does not take an id that is still to be generated, and joins the run that has one
TRUNCATE held;
SELECT durable.start('w', NULL, 'joins');
SELECT take('w');
SELECT give(item('joins turn', '{"decision": {"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "w", "child_id": "~99999"}]}}'));
SELECT * FROM runs WHERE run_id IN ('joins', '~99999');
SELECT error ->> 'message' AS message, error ->> 'code' AS code FROM durable.checkpoint WHERE name = 'child:~99999';
SELECT durable.start('w') AS g \gset
TRUNCATE held;
SELECT replace(n, :'g', 'generated') FROM take('w') n;
SELECT give(item('joins turn', jsonb_build_object('decision', jsonb_build_object('status', 'continue', 'commands',
	jsonb_build_array(jsonb_build_object('type', 'start_child', 'seq', 1, 'workflow', 'w', 'child_id', :'g'))))));
SELECT give(item(:'g' || ' turn', '{"decision": {"status": "completed", "output": 9}}'));
SELECT status, turn, replace(history, :'g', 'generated') AS history FROM runs WHERE run_id = 'joins';
SELECT durable.cancel('joins');
SELECT * FROM leftovers;
DROP FUNCTION take_as(text, text, text);
DELETE FROM durable.checkpoint;
DELETE FROM durable.run;
TRUNCATE held;

--
-- everything that may be handed in, in any order, of several claims
--
SELECT durable.start('w', NULL, 'm1'), durable.start('w', NULL, 'm2'), durable.start('w', NULL, 'm3');
SELECT durable.dispatch('job', '1', 'j1'), durable.dispatch('job', '2', 'j2'), durable.dispatch('job', '3', 'j3', max_attempts => 2);
SELECT take('w', 2);
SELECT take('w');
SELECT take('job');
SELECT give(item('j3', '{"error": {"message": "no"}}'), item('m3 turn', '{"decision": {"status": "failed", "error": "gone"}}'),
	item('j1', '{"output": [1]}'), item('m1 turn', jsonb_build_object('decision', call(0, 's'))), item('j2', '{}'),
	item('m2 turn', '{"decision": {"status": "completed", "output": 2}}'),
	'{"task_id": "j1", "token": "00000000-0000-0000-0000-000000000001"}',
	item('j1', '{"task_id": "nothing"}'), item('m1 turn', '{"task_id": "j2"}'), item('j2', '{"decision": {"status": "completed"}}'));
SELECT run_id, status, output, message FROM runs WHERE run_id LIKE 'm_';
SELECT t.id, s.status, s.output, s.error FROM unnest('{j1,j2,j3}'::text[]) t(id), durable.task_status(t.id) s;
SELECT count(*) FROM durable.lease;
TRUNCATE held;
SELECT take('s');
-- the turn's token has to be that of the last turn, and the history as long as it was: else the step is settled alone
SELECT give(item('m1 step', '{"output": 1, "turn": {"token": "00000000-0000-0000-0000-000000000001", "history_end": 1, "decision": {"status": "completed"}}}'));
SELECT take('w');
SELECT give(item('m1 turn', jsonb_build_object('decision', call(1, 's'))));
DELETE FROM held WHERE name = 'm1 step';
SELECT take('s');
SELECT give(item('m1 step', '{"output": 2}' || after('m1 turn', 1, '{"status": "completed"}')));
SELECT * FROM runs WHERE run_id = 'm1';
-- a step that failed has no such decision
TRUNCATE held;
SELECT take('w');
SELECT give(item('m1 turn', jsonb_build_object('decision', call(2, 's'))));
SELECT take('s');
SELECT give(item('m1 step', '{"error": "bad"}' || after('m1 turn', 3, '{"status": "completed"}')));
SELECT * FROM runs WHERE run_id = 'm1';
-- neither has one whose run has been told something since
TRUNCATE held;
SELECT take('w');
SELECT give(item('m1 turn', jsonb_build_object('decision', jsonb_set(call(3, 's'), '{commands,1}', '{"type": "wait_signal", "seq": 4, "signal": "go"}'))));
SELECT take('s');
SELECT durable.signal('go', '"on"');
SELECT give(item('m1 step', '{"output": 3}' || after('m1 turn', 5, '{"status": "completed"}')));
SELECT * FROM runs WHERE run_id = 'm1';
-- one decision after the other, without a turn between them; the step in it is dispatched
TRUNCATE held;
SELECT take('w');
SELECT give(item('m1 turn', jsonb_build_object('decision', call(5, 's'))));
SELECT take('s');
SELECT results, keep(tasks) FROM durable.exchange(jsonb_build_array(item('m1 step', '{"output": 4}' || after('m1 turn', 6, call(6, 't')))), '{t}', 10);
DELETE FROM held WHERE task ->> 'name' = 's';
SELECT give(item('m1 step', '{"output": 5}' || after('m1 turn', 7, '{"status": "continue", "commands": [{"type": "sleep", "seq": 7, "ms": 0}]}')));
SELECT * FROM runs WHERE run_id = 'm1';
TRUNCATE held;
SELECT take('w');
-- one that is wrong fails the run as it would in a turn
SELECT give(item('m1 turn', jsonb_build_object('decision', call(8, 's'))));
SELECT take('s');
SELECT give(item('m1 step', '{"output": 6}' || after('m1 turn', 9, '{"status": "continue", "commands": [{"type": "fly"}]}')));
SELECT * FROM runs WHERE run_id = 'm1';
SELECT durable.cancel_task('j3');
SELECT * FROM leftovers;
TRUNCATE held;

-- a run that was cancelled or requeued meanwhile
SELECT durable.start('w', NULL, 'c1'), durable.start('w', NULL, 'c2');
SELECT take('w');
SELECT give(item('c1 turn', jsonb_build_object('decision', call(0, 's'))), item('c2 turn', jsonb_build_object('decision', call(0, 's'))));
SELECT take('s');
SELECT durable.cancel('c1'), durable.requeue('c2');
SELECT give(item('c1 step', '{"output": 1}' || after('c1 turn', 1, '{"status": "completed"}')),
	item('c2 step', '{"output": 1}' || after('c2 turn', 1, '{"status": "completed"}')));
SELECT run_id, status, history FROM runs WHERE run_id LIKE 'c_';
TRUNCATE held;
SELECT durable.cancel('c2');

-- a child tells its parent
SELECT durable.start('w', NULL, 'p1');
SELECT take('w');
SELECT give(item('p1 turn', '{"decision": {"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "w", "child_id": "p1c"}]}}'));
SELECT take('w');
SELECT give(item('p1c turn', jsonb_build_object('decision', call(0, 's'))));
SELECT take('s');
SELECT give(item('p1c step', '{"output": 1}' || after('p1c turn', 1, '{"status": "completed", "output": "kid"}')));
SELECT * FROM runs WHERE run_id LIKE 'p1%';
SELECT durable.cancel('p1');
TRUNCATE held;

--
-- what cannot be understood: nothing of the call is done
--
SELECT durable.dispatch('job', '1', 'k1');
SELECT take('job');
SELECT give('1'), give('{}');
SELECT give(item('k1', '{}'), '{"task_id": "k1"}');
SELECT give(item('k1', '{}'), '{"token": "00000000-0000-0000-0000-000000000001"}');
SELECT give(item('k1', '{}'), item('k1', '{"token": "x"}'));
SELECT give(item('k1', '{}'), item('k1', '{"token": 1}'));
SELECT give(item('k1', '{}'), item('k1', '{"task_id": 1}'));
SELECT give(item('k1', '{}'), item('k1', '{"task_id": ""}'));
SELECT give(item('k1', '{}'), item('k1', '{"result": 1}'));
SELECT give(item('k1', '{}'), item('k1', '{"output": 1, "error": 2}'));
SELECT give(item('k1', '{}'), item('k1', '{"output": 1, "decision": {"status": "completed"}}'));
SELECT give(item('k1', '{}'), item('k1', '{"turn": 1}'));
SELECT give(item('k1', '{}'), item('k1', '{"turn": {"token": "00000000-0000-0000-0000-000000000001"}}'));
SELECT give(item('k1', '{}'), item('k1', '{"turn": {"history_end": "x"}}'));
SELECT give(item('k1', '{}'), item('k1', '{"turn": {"what": 1}}'));
SELECT give(item('k1', '{}'), item('k1', jsonb_build_object('output', repeat('x', 2000000))));
SELECT * FROM durable.exchange('{}', '{job}');
SELECT * FROM durable.exchange('1', '{job}');
SELECT * FROM durable.exchange('[]', '{}');
SELECT * FROM durable.exchange('[]', NULL);
SELECT * FROM durable.exchange('[]', '{job}', -1);
SELECT * FROM durable.exchange('[]', '{job}', 10001);
SELECT * FROM durable.exchange('[]', '{job}', NULL);
SELECT * FROM durable.exchange('[]', '{job}', 1, '0 s');
SELECT * FROM durable.exchange('[]', '{job}', history => -1);
SELECT * FROM durable.exchange('[]', '{"#1"}');
SELECT * FROM durable.exchange((SELECT jsonb_agg(i) FROM generate_series(1, 10001) i), '{job}');
SELECT status FROM durable.task_status('k1');

-- who may not work there, and whose token is of another namespace
SET client_min_messages = warning;
CREATE ROLE ext_exchange_role;
RESET client_min_messages;
GRANT USAGE ON SCHEMA ext_test TO ext_exchange_role;
GRANT ALL ON ALL TABLES IN SCHEMA ext_test TO ext_exchange_role;
SET ROLE ext_exchange_role;
SELECT * FROM durable.exchange('[]', '{job}');
RESET ROLE;
SELECT durable.grant_usage('ext_exchange_role', 'other', '{work}');
SET ROLE ext_exchange_role;
SELECT * FROM durable.exchange('[]', '{job}');
SELECT * FROM durable.exchange('[]', '{job}', namespace => 'other');
SELECT * FROM durable.exchange(jsonb_build_array(item('k1', '{}')), '{job}', namespace => 'other');
RESET ROLE;
-- the same for a turn
SELECT durable.start('w', NULL, 'n1');
SELECT take('w');
SET ROLE ext_exchange_role;
SELECT durable.complete_turn(task ->> 'task_id', (task ->> 'token')::uuid, '{"status": "completed"}') FROM held WHERE name = 'n1 turn';
SELECT durable.record_step(task ->> 'task_id', (task ->> 'token')::uuid, 0, 'x') FROM held WHERE name = 'n1 turn';
RESET ROLE;
-- a token that is good, for another task
SELECT durable.start('w', NULL, 'n2');
SELECT take('w');
SELECT durable.complete_turn(a.task ->> 'task_id', (b.task ->> 'token')::uuid, '{"status": "completed"}') AS other_claim,
       durable.record_step(a.task ->> 'task_id', (b.task ->> 'token')::uuid, 0, 'x') AS other_record
  FROM held a, held b WHERE a.name = 'n1 turn' AND b.name = 'n2 turn';
SELECT run_id, status, history FROM runs WHERE run_id LIKE 'n_';
SELECT durable.cancel('n1'), durable.cancel('n2');
DROP OWNED BY ext_exchange_role;
DROP ROLE ext_exchange_role;

SELECT give(item('k1', '{}'));
UPDATE durable.lease SET lease_until = now() - interval '1 s';
SELECT durable.sweep() IS NOT NULL AS swept;
SELECT * FROM leftovers;
SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA ext_test CASCADE;
