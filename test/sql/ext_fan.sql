-- external workflows: fans with their modes, choices, and turns that go round
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA ext_test;
RESET client_min_messages;
SET search_path = ext_test;

CREATE VIEW runs AS
SELECT r.run_id, r.status, r.turn_state AS turn, concat_ws('-', r.awaited_first, r.awaited_last) AS awaited, r.fail_fast AS fast, r.fan_next AS next,
       r.error ->> 'code' AS code, r.error ->> 'message' AS message, r.error ->> 'detail' AS detail
  FROM durable.run r WHERE finished_at IS NULL OR status = 'failed' ORDER BY r.id;
CREATE VIEW fan AS
SELECT r.run_id, string_agg(concat_ws(' ', c.seq, c.name, c.status, c.output, c.error ->> 'message'), ', ' ORDER BY c.seq) AS history,
       (SELECT count(*) FROM durable.task_ready q JOIN durable.task t USING (id) WHERE t.kind = 'step' AND t.run_id = r.run_id) AS ready,
       (SELECT count(*) FROM durable.task t WHERE t.kind = 'step' AND t.run_id = r.run_id) AS tasks
  FROM durable.run r JOIN durable.checkpoint c ON c.run = r.id GROUP BY r.run_id ORDER BY 1;
CREATE FUNCTION turn(decision jsonb) RETURNS TABLE (run text, pending text, attempt int, applied boolean) LANGUAGE plpgsql AS $$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT * FROM durable.claim('{w}') LOOP
		run := t.run_id;
		attempt := t.attempt;
		pending := (SELECT string_agg(h ->> 'seq', ',') FROM jsonb_array_elements(t.input -> 'history') h WHERE h ->> 'status' = 'pending');
		applied := durable.complete_turn(t.task_id, t.token, decision);
		RETURN NEXT;
	END LOOP;
END $$;
CREATE FUNCTION waits(VARIADIC commands jsonb[]) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('status', 'continue', 'commands', to_jsonb(commands))
$$;
SELECT durable.register_workflow('w');

--
-- wait_all: the run is woken when all are there
--
SELECT durable.start('w', NULL, 'a');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, null, {"x": 3}], "retries": 2, "priority": 4}'));
SELECT seq, name, input, status, attempts FROM durable.history('a');
SELECT seq, queue, priority, max_attempts, input FROM durable.task WHERE kind = 'step';
SELECT * FROM runs;
SELECT durable.complete(task_id, token, '1') FROM durable.claim('{s}');
SELECT durable.complete(task_id, token, '2') FROM durable.claim('{s}');
SELECT * FROM runs;
SELECT durable.fail(task_id, token, '{"message": "no", "retryable": false}') FROM durable.claim('{s}');
SELECT * FROM runs;
SELECT * FROM turn('{"status": "completed"}');
-- one that is asked for again waits for what is left, whatever else comes
SELECT durable.start('w', NULL, 'b');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2]}', '{"type": "wait_signal", "seq": 2, "signal": "sig"}'));
SELECT * FROM runs;
SELECT durable.complete(task_id, token, '1') FROM durable.claim('{s}');
SELECT durable.signal('sig');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "count": 2}'));
SELECT * FROM runs;
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "count": 2}'));
SELECT durable.complete(task_id, token, '2') FROM durable.claim('{s}');
SELECT * FROM turn('{"status": "completed"}');

--
-- max_in_flight
--
SELECT durable.start('w', NULL, 'c');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2, 3, 4], "max_in_flight": 2, "mode": "settled"}'));
SELECT * FROM runs;
SELECT * FROM fan WHERE run_id = 'c';
SELECT durable.fail(task_id, token, '{"message": "no"}') FROM durable.claim('{s}');
SELECT * FROM fan WHERE run_id = 'c';
SELECT * FROM runs;
-- no other one meanwhile
SELECT * FROM turn(waits('{"type": "sleep", "seq": 4, "ms": 1}'));
SELECT durable.signal('x');
SELECT durable.start('w', NULL, 'c2');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2], "max_in_flight": 1}', '{"type": "call_all", "seq": 2, "name": "s", "inputs": [1, 2], "max_in_flight": 1}'));
SELECT code, message FROM runs WHERE run_id = 'c2';
SELECT durable.complete(task_id, token, to_jsonb(seq)) FROM durable.claim('{s}', 10);
SELECT durable.complete(task_id, token, to_jsonb(seq)) FROM durable.claim('{s}', 10);
SELECT * FROM fan WHERE run_id = 'c';
SELECT * FROM turn('{"status": "completed"}');

-- a run that completes before its fan: what it has asked for is done, in its order
SELECT durable.start('w', NULL, 'c3');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2, 3, 4], "max_in_flight": 2, "await": false}', '{"type": "wait_signal", "seq": 4, "signal": "x3"}'));
SELECT durable.signal('x3');
SELECT * FROM turn('{"status": "completed"}');
SELECT ready, tasks FROM fan WHERE run_id = 'c3';
SELECT durable.complete(task_id, token, to_jsonb(seq)) FROM durable.claim('{s}');
SELECT ready, tasks FROM fan WHERE run_id = 'c3';
SELECT durable.fail(task_id, token, '{"message": "no"}') FROM durable.claim('{s}');
SELECT ready, tasks FROM fan WHERE run_id = 'c3';
SELECT durable.complete(task_id, token, to_jsonb(seq)) FROM durable.claim('{s}', 10);
SELECT ready, tasks FROM fan WHERE run_id = 'c3';
-- … of which nothing is out, since a failure has stopped it
SELECT durable.start('w', NULL, 'c4');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2, 3], "max_in_flight": 1, "mode": "fail_fast"}'));
SELECT durable.fail(task_id, token, '{"message": "no"}') FROM durable.claim('{s}');
SELECT ready, tasks FROM fan WHERE run_id = 'c4';
SELECT * FROM turn('{"status": "completed"}');
SELECT ready, tasks FROM fan WHERE run_id = 'c4';
SELECT durable.complete(task_id, token, to_jsonb(seq)) FROM durable.claim('{s}', 10);
SELECT durable.complete(task_id, token, to_jsonb(seq)) FROM durable.claim('{s}', 10);
SELECT ready, tasks FROM fan WHERE run_id = 'c4';
-- … and of one that fails nothing is left
SELECT durable.start('w', NULL, 'c5');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2, 3], "max_in_flight": 1, "await": false}', '{"type": "sleep", "seq": 3, "ms": 0}'));
SELECT * FROM turn('{"status": "failed"}');
SELECT ready, tasks FROM fan WHERE run_id = 'c5';

--
-- fail_fast: the first failure wakes the run, which calls the rest off
--
SELECT durable.start('w', NULL, 'd');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2, 3, 4, 5], "max_in_flight": 2, "mode": "fail_fast"}'));
SELECT * FROM runs WHERE run_id = 'd';
SELECT durable.complete(task_id, token, '1') FROM durable.claim('{s}');
SELECT * FROM runs WHERE run_id = 'd';
SELECT durable.fail(task_id, token, '{"message": "no"}') FROM durable.claim('{s}');
SELECT * FROM turn(waits('{"type": "call_off", "seq": 0, "name": "s", "count": 5}', '{"type": "call", "seq": 5, "name": "t"}'));
SELECT * FROM runs WHERE run_id = 'd';
SELECT * FROM fan WHERE run_id = 'd';
SELECT durable.complete(task_id, token, '1') FROM durable.claim('{t}');
SELECT input #>> '{history,4,status}' AS status, input #>> '{history,4,error,message}' AS message, durable.complete_turn(task_id, token, '{"status": "completed"}') FROM durable.claim('{w}');
-- what comes while the turn is out must not be missed: another turn, and nothing of the decision
SELECT durable.start('w', NULL, 'e');
SELECT * FROM turn(waits('{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2, 3], "mode": "fail_fast"}'));
SELECT task_id AS t1, token AS k1 FROM durable.claim('{s}') \gset
SELECT durable.fail(task_id, token, '{"message": "no"}') FROM durable.claim('{s}');
SELECT task_id AS t2, token AS k2 FROM durable.claim('{w}') \gset
SELECT durable.fail(:'t1', :'k1', '{"message": "no, no"}');
SELECT durable.complete_turn(:'t2', :'k2', '{"status": "failed", "error": "of the second", "commands": [{"type": "call_off", "seq": 0, "name": "s", "count": 3}]}');
SELECT * FROM fan WHERE run_id = 'e';
SELECT * FROM runs WHERE run_id = 'e';
SELECT * FROM turn('{"status": "failed", "error": "of the first", "commands": [{"type": "call_off", "seq": 0, "name": "s", "count": 3}]}');
SELECT * FROM fan WHERE run_id = 'e';
SELECT status, message FROM runs WHERE run_id = 'e';

--
-- the first of several
--
SELECT durable.start('w', NULL, 'f');
SELECT * FROM turn(waits('{"type": "call", "seq": 0, "name": "s"}', '{"type": "call", "seq": 1, "name": "t"}'));
SELECT durable.complete(task_id, token, '1') FROM durable.claim('{t}');
SELECT * FROM turn(waits('{"type": "await_any", "seq": 2, "handle": 1}', '{"type": "call", "seq": 0, "name": "s"}'));
SELECT seq, kind, name, status, output FROM durable.history('f');
SELECT durable.cancel('f');

--
-- malformed ones say which command, and why
--
CREATE FUNCTION bad(VARIADIC commands jsonb[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	r text := durable.start('w');
	t record;
BEGIN
	PERFORM turn('{"status": "continue", "commands": [{"type": "call_all", "seq": 0, "name": "s", "inputs": [1, 2]}, {"type": "wait_signal", "seq": 2, "signal": "never"}, {"type": "sleep", "seq": 3, "ms": 0}]}');
	SELECT * INTO t FROM durable.claim('{w}');
	PERFORM durable.complete_turn(t.task_id, t.token, waits(VARIADIC commands));
	RETURN (SELECT replace(concat_ws(' / ', status, error ->> 'code', error ->> 'message', error ->> 'detail'), r, '~N') FROM durable.get_run(r));
END $$;
SELECT c, bad(c) FROM unnest(ARRAY[
	'{"type": "call_all"}', '{"type": "call_all", "seq": 4, "name": "s"}', '{"type": "call_all", "seq": 4, "name": "s", "inputs": 1}',
	'{"type": "call_all", "seq": 4, "name": "s", "inputs": []}', '{"type": "call_all", "seq": 4, "name": "s", "inputs": [1], "count": 1}',
	'{"type": "call_all", "seq": 4, "name": "s", "inputs": [1], "mode": "any"}', '{"type": "call_all", "seq": 4, "name": "s", "inputs": [1], "max_in_flight": 0}',
	'{"type": "call_all", "seq": 4, "name": "s", "inputs": [1], "input": 1}', '{"type": "call_all", "seq": 4, "name": "s", "inputs": [1], "queue": "#1"}',
	'{"type": "call_all", "seq": 4, "name": "s", "count": 3}', '{"type": "call_all", "seq": 5, "name": "s", "inputs": [1]}',
	'{"type": "call_all", "seq": 4, "name": "s", "count": 100001}', '{"type": "call_all", "seq": 2147483647, "name": "s", "inputs": [1]}',
	'{"type": "call_all", "seq": 0, "name": "s", "count": 3}', '{"type": "call_all", "seq": 0, "name": "x", "count": 2}', '{"type": "call_all", "seq": 3, "name": "s", "inputs": [1, 2]}',
	'{"type": "call_off", "seq": 0, "name": "s"}', '{"type": "call_off", "seq": 0, "name": "s", "count": 0}', '{"type": "call_off", "seq": 0, "name": "s", "count": 3}',
	'{"type": "call_off", "seq": 2, "name": "s", "count": 1}', '{"type": "call_off", "seq": 4, "name": "s", "count": 1}',
	'{"type": "await_any", "seq": 4}', '{"type": "await_any", "seq": 4, "handle": 4}', '{"type": "await_any", "seq": 4, "handle": -1}',
	'{"type": "await_any", "seq": 4, "handle": 0}', '{"type": "await_any", "seq": 4, "handle": 3}']::jsonb[]) c;
SELECT bad('{"type": "call_all", "seq": 4, "name": "s", "inputs": [1, 2]}', '{"type": "call", "seq": 5, "name": "s"}');
SELECT bad('{"type": "call", "seq": 0, "name": "s"}', '{"type": "call_all", "seq": 1, "name": "s", "inputs": [1, 2]}');
SELECT left(bad(jsonb_build_object('type', 'call_all', 'seq', 4, 'name', 's', 'inputs', jsonb_build_array(1, repeat('x', 2000000)))), 200);

--
-- a worker that waits for what is there: once more at once, then slower and slower, and at last the run fails
--
DELETE FROM durable.run_log;
SELECT durable.start('w', NULL, 'g');
SELECT * FROM turn(waits('{"type": "call", "seq": 0, "name": "u"}'));
SELECT durable.complete(task_id, token, '1') FROM durable.claim('{u}');
SELECT * FROM turn(waits('{"type": "call", "seq": 0, "name": "u"}'));
SELECT turn FROM runs WHERE run_id = 'g';
SELECT * FROM turn(waits('{"type": "call", "seq": 0, "name": "u"}'));
SELECT status, turn_state, wake_at <= durable.engine_now() + interval '100 ms' AS soon FROM durable.run WHERE run_id = 'g';
-- anything new counts from the beginning
SET durable.clock_offset = 100;
SELECT * FROM turn(waits('{"type": "set_event", "seq": 1, "key": "k"}', '{"type": "call", "seq": 0, "name": "u"}'));
CREATE FUNCTION go_round(times int) RETURNS TABLE (n int, attempt int, as_long_as_that boolean) LANGUAGE plpgsql AS $$
DECLARE
	waits float8;
BEGIN
	FOR i IN 1 .. times LOOP
		n := i;
		PERFORM set_config('durable.clock_offset', (100 + 20 * i)::text, false);
		attempt := (SELECT t.attempt FROM turn(waits('{"type": "call", "seq": 0, "name": "u"}')) t);
		waits := (SELECT extract(epoch FROM wake_at - durable.engine_now()) FROM durable.run WHERE run_id = 'g' AND turn_state = 'delayed');
		-- 0.1 s, 0.2 s, ... 10 s
		as_long_as_that := i > 1 AND waits <= least(0.1 * 2 ^ (i - 2), 10) AND waits > least(0.1 * 2 ^ (i - 2), 10) - 5;
		RETURN NEXT;
	END LOOP;
END $$;
SELECT * FROM go_round(22);
SELECT status, code, message, detail FROM runs WHERE run_id = 'g';
RESET durable.clock_offset;

--
-- a session leaves the turns alone, and does what else is on the queue
--
CREATE FUNCTION h(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"h"'::jsonb $$;
SELECT durable.register_handler('h', 'ext_test.h');
SELECT durable.start('w', NULL, 'z1'), durable.start('w', NULL, 'z2');
SELECT count(*) FROM turn(waits('{"type": "call", "seq": 0, "name": "h", "queue": "w"}'));
CALL durable.work('{w}', duration => '0');
SELECT * FROM fan WHERE run_id LIKE 'z%';
SELECT run_id, status, turn FROM runs WHERE run_id LIKE 'z%';
SELECT count(*) AS delayed FROM durable.task_delayed;
SELECT run_id FROM durable.claim('{w}', 10);
-- those of a body that has such a queue are executed
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"body"'::jsonb $$;
SELECT durable.register_workflow('inside', 'ext_test.body', queue => 'w');
SELECT durable.start('w', NULL, 'z3'), durable.start('inside', NULL, 'z4');
CALL durable.work('{w}', duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id IN ('z3', 'z4') ORDER BY id;
SELECT run_id FROM durable.claim('{w}', 10);

SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA ext_test CASCADE;
