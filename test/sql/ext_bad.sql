-- external workflows: decisions that cannot be understood, or do not fit, fail their run and say why
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA ext_test;
RESET client_min_messages;
SET search_path = ext_test;

SELECT durable.register_workflow('w');
-- A run with four checkpoints, whose next turn comes to this.
CREATE FUNCTION bad(decision jsonb, OUT status text, OUT code text, OUT message text) LANGUAGE plpgsql AS $$
DECLARE
	r text := durable.start('w');
	t record;
	e jsonb;
BEGIN
	SELECT * INTO t FROM durable.claim('{w}');
	PERFORM durable.complete_turn(t.task_id, t.token, '{"status": "continue", "commands": [
		{"type": "record_step", "seq": 0, "name": "a"}, {"type": "call", "seq": 1, "name": "b"},
		{"type": "wait_signal", "seq": 2, "signal": "c"}, {"type": "patched", "seq": 3, "id": "d"}]}');
	PERFORM durable.signal('c');
	SELECT * INTO t FROM durable.claim('{w}');
	IF NOT durable.complete_turn(t.task_id, t.token, decision) THEN
		RAISE 'not applied';
	END IF;
	SELECT g.status, g.error ->> 'code', replace(concat_ws(' / ', g.error ->> 'message', g.error ->> 'detail'), r, '~N') INTO status, code, message
	  FROM durable.get_run(r) g;
	IF EXISTS (SELECT FROM durable.history(r, 3)) OR EXISTS (SELECT FROM durable.run_log) THEN
		RAISE 'something of it was applied';
	END IF;
	PERFORM durable.cancel(r);
END $$;
CREATE FUNCTION bad_command(command jsonb) RETURNS TABLE (status text, code text, message text) LANGUAGE sql AS $$
	SELECT b.* FROM bad(jsonb_build_object('status', 'continue', 'commands', jsonb_build_array(
		'{"type": "set_event", "seq": 4, "key": "k"}'::jsonb, '{"type": "log", "seq": 5, "level": "info", "message": "m"}'::jsonb, command))) b
$$;

-- the decision
SELECT left(d::text, 70) AS decision, b.* FROM unnest(ARRAY['1', 'null', '[]', '"completed"', '{}', '{"status": null}', '{"status": 1}', '{"status": "done"}', '{"status": "Completed"}',
	'{"commands": []}', '{"status": "continue"}', '{"status": "continue", "commands": []}', '{"status": "continue", "commands": null}',
	'{"status": "continue", "commands": {}}', '{"status": "continue", "commands": 1}', '{"status": "completed", "result": 1}',
	'{"status": "continue", "await_all": 1}', '{"status": "continue", "await_all": [1]}', '{"status": "continue", "await_all": [2, 1]}',
	'{"status": "continue", "await_all": [-1, 1]}', '{"status": "continue", "await_all": [1, 1e400]}', '{"status": "continue", "await_all": [1.5, 2]}']::jsonb[]) d, bad(d) b;

-- a command as such
SELECT left(c::text, 90) AS command, b.* FROM unnest(ARRAY['1', 'null', '[]', '{}', '{"type": 1}', '{"type": "fly"}', '{"type": "Call"}',
	'{"type": "call"}', '{"type": "call", "seq": 5}', '{"type": "call", "seq": null, "name": "x"}', '{"type": "call", "seq": "5", "name": "x"}',
	'{"type": "call", "seq": 5.5, "name": "x"}', '{"type": "call", "seq": -2, "name": "x"}', '{"type": "call", "seq": 1e30, "name": "x"}',
	'{"type": "call", "seq": 5, "name": ""}', '{"type": "call", "seq": 5, "name": ["x"]}', '{"type": "call", "seq": 5, "name": "x", "timeout": 1}',
	'{"type": "call", "seq": 5, "name": "x", "queue": "#1"}', '{"type": "call", "seq": 5, "name": "x", "priority": 1.5}',
	'{"type": "call", "seq": 5, "name": "x", "retries": 0}', '{"type": "call", "seq": 5, "name": "x", "backoff_ms": -1}',
	'{"type": "call", "seq": 5, "name": "x", "backoff_kind": "wild"}', '{"type": "call", "seq": 5, "name": "x", "jitter": 1}',
	'{"type": "record_step", "seq": 5}', '{"type": "record_step", "seq": 5, "name": "x", "attempts": 0}',
	'{"type": "record_step", "seq": 5, "name": "x", "started_at": "now"}', '{"type": "record_step", "seq": 5, "name": "x", "finished_at": 9e15}',
	'{"type": "sleep", "seq": 5}', '{"type": "sleep", "seq": 5, "ms": "1 s"}', '{"type": "sleep", "seq": 5, "ms": 1e14}', '{"type": "sleep_until", "seq": 5, "until": 1e400}',
	'{"type": "wait_signal", "seq": 5}', '{"type": "wait_signal", "seq": 5, "signal": "x", "timeout_ms": -1}',
	'{"type": "start_child", "seq": 5, "workflow": ""}', '{"type": "start_child", "seq": 5, "workflow": "w", "await": "no"}',
	'{"type": "set_event", "seq": 5, "value": 1}', '{"type": "upsert_search_attributes", "seq": 5, "attributes": [1]}', '{"type": "patched", "seq": 5}',
	'{"type": "now", "seq": 5, "value": 5}', '{"type": "now", "seq": 5, "value": "today"}', '{"type": "now", "seq": 5, "value": "99999999999999999999"}',
	'{"type": "random", "seq": 5, "value": "1"}', '{"type": "random", "seq": 5, "value": "nan"}', '{"type": "uuid", "seq": 5, "value": "x"}',
	'{"type": "uuid", "seq": 5, "value": "00000000-0000-0000-0000-0000-0000000"}',
	'{"type": "log", "seq": 5, "level": "info"}', '{"type": "fail_run"}', '{"type": "fail_run", "message": 1}']::jsonb[]) c, bad_command(c) b;

-- positions
SELECT left(c::text, 90) AS command, b.* FROM unnest(ARRAY['{"type": "call", "seq": 0, "name": "a"}', '{"type": "record_step", "seq": 0, "name": "A"}', '{"type": "call", "seq": 1, "name": "x"}',
	'{"type": "sleep", "seq": 2, "ms": 1}', '{"type": "wait_signal", "seq": 2, "signal": "x"}', '{"type": "patched", "seq": 3, "id": "x"}',
	'{"type": "start_child", "seq": 1, "workflow": "w"}', '{"type": "call", "seq": 4, "name": "twice"}', '{"type": "call", "seq": 6, "name": "gap"}',
	'{"type": "call", "seq": 2147483647, "name": "far"}']::jsonb[]) c, bad_command(c) b;

-- what is too large
SELECT b.* FROM bad(jsonb_build_object('status', 'completed', 'output', repeat('x', 2000000))) b;
SELECT b.* FROM bad(jsonb_build_object('status', 'failed', 'error', repeat('x', 2000000))) b;
SELECT b.* FROM bad_command(jsonb_build_object('type', 'record_step', 'seq', 5, 'name', 'x', 'output', repeat('x', 2000000))) b;
SELECT b.* FROM bad_command(jsonb_build_object('type', 'call', 'seq', 5, 'name', 'x', 'input', repeat('x', 2000000))) b;
SELECT b.* FROM bad_command(jsonb_build_object('type', 'log', 'seq', 5, 'level', 'info', 'message', repeat('x', 2000000))) b;
SELECT b.status, b.code, left(b.message, 60) FROM bad_command(jsonb_build_object('type', 'call', 'seq', 5, 'name', repeat('x', 256))) b;
-- but not all of it together
SELECT durable.start('w', NULL, 'big');
SELECT task_id, token FROM durable.claim('{w}') \gset b_
SELECT durable.complete_turn(:'b_task_id', :'b_token', (SELECT jsonb_build_object('status', 'continue', 'commands', jsonb_agg(jsonb_build_object(
	'type', 'record_step', 'seq', i, 'name', 's', 'output', repeat('x', 900000)))) FROM generate_series(0, 59) i));
SELECT status FROM durable.get_run('big');
-- a history that is larger than what a turn comes with
SELECT input -> 'history_end' AS end, (input -> 'history_from')::int BETWEEN 20 AND 40 AS from,
       jsonb_array_length(input -> 'history') = 60 - (input -> 'history_from')::int AS rest
  FROM durable.claim('{w}');
SELECT durable.cancel('big');

-- ids of children
SELECT durable.start('w', NULL, repeat('r', 250)) \gset c_
SELECT task_id, token FROM durable.claim('{w}') \gset b_
SELECT durable.complete_turn(:'b_task_id', :'b_token', '{"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "w"}]}');
SELECT status, error ->> 'message' AS message FROM durable.get_run(:'c_start');
SELECT durable.start('w', NULL, 'self');
SELECT task_id, token FROM durable.claim('{w}') \gset b_
SELECT durable.complete_turn(:'b_task_id', :'b_token', '{"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "w", "child_id": "self"}]}');
SELECT status, error ->> 'message' AS message FROM durable.get_run('self');

-- fail_run ends the run whatever else the decision says, with what was done
SELECT durable.start('w', NULL, 'f1'), durable.start('w', NULL, 'f2');
SELECT durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "record_step", "seq": 0, "name": "x", "output": 1},
	{"type": "fail_run", "message": "no use", "details": {"d": 1}}]}') FROM durable.claim('{w}');
SELECT durable.complete_turn(task_id, token, '{"status": "completed", "output": 1, "commands": [{"type": "fail_run", "message": "no use", "code": "23514"}]}') FROM durable.claim('{w}');
SELECT run_id, status, output, error FROM durable.run WHERE run_id LIKE 'f_' ORDER BY id;
SELECT seq, name, output FROM durable.history('f1');

-- a turn that was cancelled meanwhile
SELECT durable.start('w', NULL, 'c1');
SELECT task_id, token FROM durable.claim('{w}') \gset c_
SELECT durable.cancel('c1');
SELECT durable.heartbeat(:'c_task_id', :'c_token'), durable.record_step(:'c_task_id', :'c_token', 0, 'x'),
       durable.complete_turn(:'c_task_id', :'c_token', '{"status": "completed"}'), durable.renew(:'c_token');
SELECT status, (SELECT count(*) FROM durable.history('c1')) AS checkpoints FROM durable.get_run('c1');

UPDATE durable.lease SET lease_until = now() - interval '1 s';
SELECT durable.sweep() IS NOT NULL AS swept;
SELECT (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready,
       (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.lease) AS leases,
       (SELECT count(*) FROM durable.waiter) AS waiters, (SELECT count(*) FROM durable.signal_buffer) AS buffered;

SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA ext_test CASCADE;
