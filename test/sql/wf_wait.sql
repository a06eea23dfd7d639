-- workflows: what a run waits for: time, signals, dispatched steps, children
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_test;
RESET client_min_messages;
SET search_path = wf_test;

CREATE TABLE effect (n serial, run text, step text, input jsonb);
CREATE FUNCTION note(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO wf_test.effect (run, step, input) VALUES (durable.run_id(), 'note', i);
	RETURN jsonb_build_object('n', (i ->> 'n')::int + 1);
END $$;
CREATE FUNCTION boom(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no %', i USING ERRCODE = 'division_by_zero'; END $$;
CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message' FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY run_id
$$;
CREATE VIEW leftovers AS
SELECT (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready,
       (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.lease) AS leases,
       (SELECT count(*) FROM durable.waiter) AS waiters, (SELECT count(*) FROM durable.signal_buffer) AS buffered;

--
-- time
--
CREATE FUNCTION sleeps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	began timestamptz := durable.now();
BEGIN
	PERFORM durable.sleep('30 days');
	PERFORM durable.local_step('wf_test.note', i);
	PERFORM durable.sleep_until(began + interval '60 days');
	PERFORM durable.sleep_until('2001-01-01');
	PERFORM durable.sleep('0');
	RETURN to_jsonb(durable.now() - began BETWEEN interval '60 days' AND interval '61 days');
END $$;
SELECT durable.register_workflow('sleeps', 'wf_test.sleeps');
SELECT durable.start('sleeps', '{"n": 1}', 's1');
CALL durable.work(duration => '0');
SELECT status, turn_state, round(extract(epoch FROM wake_at - durable.engine_now()) / 86400) AS days FROM durable.get_run('s1');
SELECT count(*) FROM effect;
SET durable.clock_offset = 2592060;
CALL durable.work(duration => '0');
SELECT status, turn_state, round(extract(epoch FROM wake_at - durable.engine_now()) / 86400) AS days FROM durable.get_run('s1');
SELECT count(*) FROM effect;
SET durable.clock_offset = 5184060;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('s1');
SELECT seq, kind, name, status FROM durable.history('s1');
SELECT count(*) FROM effect;

--
-- values: the same on every replay
--
CREATE FUNCTION keeps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	t timestamptz := durable.now();
	r float8 := durable.random();
	u uuid := durable.uuid();
BEGIN
	PERFORM durable.set_event('progress', '1');
	PERFORM durable.upsert_search_attributes('{"a": 1, "b": 2}');
	PERFORM durable.log('info', 'before', '{"x": 1}');
	PERFORM durable.local_step('wf_test.note', jsonb_build_object('n', 1, 't', t, 'r', r, 'u', u));
	PERFORM durable.log('info', 'between');
	PERFORM durable.log('warning', 'twice');
	PERFORM durable.log('warning', 'twice');
	PERFORM durable.set_event('progress', '2');
	PERFORM durable.set_event('other', NULL);
	PERFORM durable.upsert_search_attributes('{"b": 3}');
	PERFORM durable.wait_for_signal('keeps');
	PERFORM durable.set_event('progress', '3');
	PERFORM durable.log('info', 'after');
	RETURN jsonb_build_object('t', t, 'r', r, 'u', u, 'r2', durable.random() <> r, 'u2', durable.uuid() <> u, 't2', durable.now() >= t);
END $$;
SELECT durable.register_workflow('keeps', 'wf_test.keeps');
SELECT durable.start('keeps', NULL, 'k1', search_attributes => '{"z": 0}');
CALL durable.work(duration => '0');
SELECT durable.get_event('k1', 'progress'), durable.get_event('k1', 'other'), durable.get_event('k1', 'none'), durable.get_event('none', 'none');
SELECT durable.signal('keeps');
CALL durable.work(duration => '0');
SELECT output -> 'r2', output -> 'u2', output -> 't2', search_attributes FROM durable.get_run('k1');
SELECT e.input ->> x = r.output ->> x FROM effect e, durable.get_run('k1') r, unnest('{t,r,u}'::text[]) x WHERE run = 'k1';
SELECT durable.get_event('k1', 'progress');
SELECT seq, number, level, message, data FROM durable.run_log ORDER BY seq, number;

-- a log before a wait that takes no position
CREATE FUNCTION logs(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a int := durable.step_async('outside');
	b int := durable.step_async('outside');
BEGIN
	PERFORM durable.log('info', 'waiting for a');
	PERFORM durable.await(a);
	PERFORM durable.log('info', 'waiting for b');
	PERFORM durable.await(b);
	RETURN NULL;
END $$;
SELECT durable.register_workflow('logs', 'wf_test.logs');
SELECT durable.start('logs', NULL, 'logs');
CALL durable.work(duration => '0');
SELECT durable.complete(task_id, token) FROM durable.claim('{outside}');
CALL durable.work(duration => '0');
SELECT durable.complete(task_id, token) FROM durable.claim('{outside}');
CALL durable.work(duration => '0');
SELECT status, seq, number, message FROM durable.run_log l JOIN durable.run r ON r.id = l.run AND run_id = 'logs' ORDER BY seq, number;

--
-- signals
--
CREATE FUNCTION waits(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	got jsonb := '[]';
BEGIN
	FOR n IN 1..(i ->> 'n')::int LOOP
		BEGIN
			got := got || jsonb_build_array(durable.wait_for_signal(i ->> 'token', (i ->> 'timeout')::interval));
		EXCEPTION WHEN SQLSTATE 'WF004' THEN
			got := got || to_jsonb(sqlerrm);
		END;
	END LOOP;
	RETURN got;
END $$;
SELECT durable.register_workflow('waits', 'wf_test.waits');
-- before anybody waits: first in, first out
SELECT durable.signal('early', '1'), durable.signal('early', NULL), durable.signal('early', '{"three": 3}');
SELECT durable.start('waits', '{"token": "early", "n": 3}', 'early');
CALL durable.work(duration => '0');
SELECT * FROM runs('early');
-- while somebody waits; between two waits
SELECT durable.start('waits', '{"token": "t", "n": 3}', 'during');
CALL durable.work(duration => '0');
SELECT * FROM runs('during');
SELECT token, seq FROM durable.waiter;
SELECT durable.signal('t', '1'), durable.signal('t', '2');
CALL durable.work(duration => '0');
SELECT durable.signal('t', '3', 'elsewhere');		-- tokens belong to a namespace
CALL durable.work(duration => '0');
SELECT * FROM runs('during');
BEGIN;
SELECT durable.signal('t', '"rolled back"');
ROLLBACK;
SELECT durable.signal('t', '3');
CALL durable.work(duration => '0');
SELECT * FROM runs('during');
SELECT durable.signal('t', '4');
-- a wait that ends in time, one that does not, one whose signal is late but there
SELECT durable.start('waits', '{"token": "timed", "n": 2, "timeout": "1 hour"}', 'timed');
CALL durable.work(duration => '0');
SELECT durable.signal('timed', '"in time"');
CALL durable.work(duration => '0');
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
SELECT * FROM runs('timed');
SELECT seq, kind, name, status, output, error ->> 'code' AS code FROM durable.history('timed');
SELECT durable.signal('timed', '"too late"');
RESET durable.clock_offset;
SELECT durable.start('waits', '{"token": "timed", "n": 1, "timeout": "0"}', 'timed2');
CALL durable.work(duration => '0');
SELECT * FROM runs('timed2');
SELECT durable.start('waits', '{"token": "timed", "n": 1, "timeout": "0"}', 'timed3');
CALL durable.work(duration => '0');
SELECT * FROM runs('timed3');
-- a signal that comes after the deadline, before the run is woken
SELECT durable.start('waits', '{"token": "both", "n": 2, "timeout": "1 hour"}', 'both');
CALL durable.work(duration => '0');
SET durable.clock_offset = 3700;
SELECT durable.signal('both', '"first"');
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT run_id, status FROM runs('both');
SELECT durable.cancel('both');
-- the last waiter for a token wins
SELECT durable.start('waits', '{"token": "shared", "n": 1}', 'shared' || n) FROM generate_series(1, 2) n;
CALL durable.work(duration => '0');
SELECT durable.signal('shared', '1');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('shared%');
SELECT durable.cancel('shared1');
SELECT durable.signal(NULL);
SELECT durable.signal('');
SELECT durable.signal('x', to_jsonb(repeat('x', 11000000)));
DELETE FROM durable.signal_buffer;
SELECT * FROM leftovers;

--
-- dispatched steps
--
CREATE FUNCTION dispatches(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
BEGIN
	BEGIN
		a := durable.step(i ->> 'step', i, retries => coalesce((i ->> 'retries')::int, 1), backoff => coalesce((i ->> 'backoff')::interval, '0'));
	EXCEPTION WHEN division_by_zero OR SQLSTATE 'WF003' THEN
		RETURN jsonb_build_object('caught', sqlstate, 'message', sqlerrm);
	END;
	RETURN jsonb_build_object('got', a);
END $$;
SELECT durable.register_workflow('dispatches', 'wf_test.dispatches');
SELECT durable.register_handler('add', 'wf_test.note');
SELECT durable.register_handler('divide', 'wf_test.boom');
SELECT durable.register_handler('gone', 'wf_test.gone');
CREATE FUNCTION gone(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
SELECT durable.register_handler('gone', 'wf_test.gone');
DROP FUNCTION gone(jsonb);
SELECT durable.start('dispatches', jsonb_build_object('step', s, 'n', 1, 'retries', 2), 'x_' || s) FROM unnest('{add,divide,gone,outside}'::text[]) s;
TRUNCATE effect;
CALL durable.work(duration => '0');
SELECT * FROM runs('x\_%');
SELECT seq, kind, status, attempts, name, input, task IS NOT NULL AS task FROM durable.history('x_outside');
SELECT run, input FROM effect;
-- by an external worker: claim tells the run and the position
SELECT task_id, token, kind, name, queue, run_id, seq, attempt, input FROM durable.claim('{outside}') \gset c_
SELECT :'c_kind', :'c_name', :'c_run_id', :'c_seq', :'c_attempt', :'c_input';
SELECT durable.fail(:'c_task_id', :'c_token', '{"message": "try again"}');
SELECT task_id, token, attempt FROM durable.claim('{outside}') \gset c_
SELECT :'c_attempt';
BEGIN;
SELECT durable.complete(:'c_task_id', :'c_token', '"rolled back"');
ROLLBACK;
SELECT durable.heartbeat(:'c_task_id', :'c_token', '1'), durable.renew(:'c_token'), durable.release(:'c_token');
SELECT durable.complete(:'c_task_id', :'c_token', '"late"');
SELECT task_id, token, attempt FROM durable.claim('{outside}') \gset c_
SELECT durable.complete(:'c_task_id', :'c_token', '{"by": "me"}'), durable.complete(:'c_task_id', :'c_token', '2'), durable.fail(:'c_task_id', :'c_token', '"x"');
CALL durable.work(duration => '0');
SELECT * FROM runs('x_outside');
SELECT count(*) FROM durable.task_result;		-- the result is the run's
-- failures: with a code of ours, of theirs, for good
SELECT durable.start('dispatches', '{"step": "outside", "retries": 5, "n": 1}', 'y' || n) FROM generate_series(1, 4) n;
CALL durable.work(duration => '0');
SELECT run_id, task_id, token FROM durable.claim('{outside}', 4) ORDER BY run_id \g /dev/null
SELECT durable.start('dispatches', '{"step": "outside2", "n": 1}', 'z' || n) FROM generate_series(1, 4) n;
CALL durable.work(duration => '0');
SELECT durable.fail(task_id, token, CASE run_id
	WHEN 'z1' THEN '{"message": "sql", "code": "22012"}'
	WHEN 'z2' THEN '{"message": "theirs", "code": "E_CARD"}'
	WHEN 'z3' THEN '"only text"'
	ELSE '{"message": "not caught", "code": "23505", "retryable": false}' END::jsonb) FROM durable.claim('{outside2}', 4);
CALL durable.work(duration => '0');
SELECT * FROM runs('z%');
SELECT durable.cancel(run_id) FROM durable.run WHERE run_id LIKE 'y%' ORDER BY run_id;
SELECT tasks, ready, delayed FROM leftovers;
-- the claim of the cancelled ones is worth nothing
SELECT count(*) FROM durable.claim('{outside}', 4);
-- a retry that waits
SELECT durable.start('dispatches', '{"step": "divide", "n": 1, "retries": 2, "backoff": "1 hour"}', 'w1');
CALL durable.work(duration => '0');
SELECT * FROM runs('w1');
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
SELECT * FROM runs('w1');
RESET durable.clock_offset;
-- queue and priority
CREATE FUNCTION routed(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('s', i, queue => 'elsewhere', priority => 7); END $$;
SELECT durable.register_workflow('routed', 'wf_test.routed');
SELECT durable.start('routed', '1', 'routed', priority => 3);
CALL durable.work(duration => '0');
SELECT name, queue, priority, run_id, seq FROM durable.task WHERE kind = 'step';
SELECT durable.complete(task_id, token, input) FROM durable.claim('{elsewhere}');
CALL durable.work(duration => '0');
SELECT * FROM runs('routed');

--
-- fans
--
CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	h int[] := '{}';
	o jsonb[];
BEGIN
	FOR n IN 1..(i ->> 'n')::int LOOP
		h := h || durable.step_async(i ->> 'step', jsonb_build_object('n', n));
	END LOOP;
	o := durable.await_all(h);
	RETURN jsonb_build_array(cardinality(o), (SELECT sum((x ->> 'n')::int) FROM unnest(o) x), o[1], o[cardinality(o)]);
END $$;
CREATE FUNCTION gaps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	h int[];
	first int;
	failed text;
BEGIN
	FOR n IN 1..5 LOOP
		h := h || durable.step_async('many', to_jsonb(n));
	END LOOP;
	IF durable.await_all(ARRAY[h[5], h[1], h[1]]) <> '{5,1,1}'::jsonb[] THEN
		RETURN '"wrong"';
	END IF;
	PERFORM durable.set_event('stage', '"two of five"');
	first := durable.await_any(h[2:4]);
	PERFORM durable.set_event('stage', to_jsonb('first ' || first));
	BEGIN
		PERFORM durable.await_all(h);
	EXCEPTION WHEN division_by_zero THEN
		failed := sqlerrm;
	END;
	RETURN jsonb_build_array(first, failed, durable.await(h[2]), durable.await_any(h), cardinality(durable.await_all('{}')));
END $$;
SELECT durable.register_workflow('fan', 'wf_test.fan'), durable.register_workflow('gaps', 'wf_test.gaps') \g /dev/null
SELECT durable.start('fan', '{"n": 200, "step": "add"}', 'fan');
CALL durable.work(duration => '0');
SELECT * FROM runs('fan');
SELECT count(*), count(DISTINCT input) FROM effect WHERE run = 'fan';
SELECT durable.start('fan', '{"n": 0, "step": "add"}', 'empty'), durable.start('fan', '{"n": 100, "step": "many"}', 'external');
CALL durable.work(duration => '0');
SELECT * FROM runs('e%');
SELECT turn_state, awaited_on FROM durable.get_run('external');
SELECT count(*) FROM (SELECT durable.complete_many(token, array_agg(task_id), array_agg(jsonb_build_object('n', 1))) FROM durable.claim('{many}', 99) GROUP BY token) c;
SELECT turn_state, awaited_on FROM durable.get_run('external');
SELECT durable.complete(task_id, token, '{"n": 1}') FROM durable.claim('{many}');
SELECT turn_state, awaited_on FROM durable.get_run('external');
CALL durable.work(duration => '0');
SELECT * FROM runs('external');
-- not all of what is pending is awaited
SELECT durable.start('gaps', NULL, 'gaps');
CALL durable.work(duration => '0');
CREATE TEMP TABLE held AS SELECT * FROM durable.claim('{many}', 5);
SELECT durable.complete(task_id, token, '1') FROM held WHERE seq = 0;
CALL durable.work(duration => '0');
SELECT durable.get_event('gaps', 'stage');
SELECT durable.complete(task_id, token, '5') FROM held WHERE seq = 4;
CALL durable.work(duration => '0');
SELECT durable.get_event('gaps', 'stage');
SELECT durable.complete(task_id, token, '3') FROM held WHERE seq = 2;
CALL durable.work(duration => '0');
SELECT durable.get_event('gaps', 'stage');
SELECT durable.fail(task_id, token, '{"message": "three", "code": "22012"}') FROM held WHERE seq = 3;
CALL durable.work(duration => '0');
SELECT * FROM runs('gaps');
SELECT durable.complete(task_id, token, '2') FROM held WHERE seq = 1;
CALL durable.work(duration => '0');
SELECT * FROM runs('gaps');
DROP TABLE held;
SELECT tasks, ready, delayed, waiters FROM leftovers;

--
-- children
--
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
BEGIN
	BEGIN
		a := durable.child(i ->> 'child', i -> 'input', i ->> 'id');
	EXCEPTION WHEN division_by_zero OR SQLSTATE 'WF003' THEN
		a := jsonb_build_array('caught', sqlstate, sqlerrm);
	END;
	RETURN jsonb_build_object('child', a, 'again', durable.run_id());
END $$;
CREATE FUNCTION kid(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.note', i); END $$;
CREATE FUNCTION bad_kid(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.boom', i); END $$;
CREATE FUNCTION deep(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN i = '0' THEN '"bottom"' ELSE durable.child('deep', to_jsonb(i::int - 1)) END;
END $$;
CREATE FUNCTION nanny(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a text := durable.start_child('kid', '{"n": 1}');
	b text := durable.start_child('kid', '{"n": 10}', 'named kid');
	c text := durable.start_child('unknown');
BEGIN
	PERFORM durable.sleep('1 hour');
	RETURN jsonb_build_array(a, b, c, durable.child('kid', NULL, a), durable.child('kid', NULL, 'named kid'));
END $$;
SELECT durable.register_workflow(w, 'wf_test.' || w) FROM unnest('{parent,kid,bad_kid,deep,nanny}'::text[]) w \g /dev/null
SELECT durable.register_workflow('kid', 'wf_test.kid', namespace => 'elsewhere');
SELECT durable.start('kid', '{"n": 100}', 'foreign', namespace => 'elsewhere');
SELECT durable.start('parent', jsonb_build_object('child', c, 'input', '{"n": 1}'::jsonb), 'f_' || c) FROM unnest('{kid,bad_kid,unknown}'::text[]) c;
SELECT durable.start('parent', '{"child": "kid", "id": "named", "input": {"n": 5}}', 'f_named' || n) FROM generate_series(1, 2) n;
SELECT durable.start('parent', '{"child": "kid", "id": "foreign"}', 'f_foreign');
SELECT durable.start('parent', '{"child": "kid", "id": "f_self"}', 'f_self');
SELECT durable.start('deep', '3', 'f_deep'), durable.start('deep', '50', 'f_too_deep'), durable.start('nanny', NULL, 'f_nanny');
CALL durable.work(duration => '0');
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT run_id, status, output, left(message, 100) AS message FROM runs('f\_%') WHERE run_id NOT LIKE 'f_too_deep.%';
SELECT status, count(*) FROM runs('f_too_deep%') GROUP BY 1;
SELECT c.run_id, p.run_id AS parent, c.parent_seq FROM durable.run c JOIN durable.run p ON p.id = c.parent WHERE c.run_id NOT LIKE '%deep%' ORDER BY 1;
SELECT seq, kind, name, status FROM durable.history('f_nanny');

--
-- cancel, in every state
--
CREATE FUNCTION family(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step_async('outside'), durable.step_async('outside');
	PERFORM durable.start_child('waits', '{"token": "c", "n": 1}', 'c_grandchild');
	RETURN durable.child('parent', '{"child": "waits", "input": {"token": "d", "n": 1}}', 'c_child');
END $$;
SELECT durable.register_workflow('family', 'wf_test.family');
SELECT durable.start('kid', NULL, 'c_pending'), durable.cancel('c_pending', 'not needed'), durable.cancel('c_pending');
SELECT durable.start('kid', NULL, 'c_delayed', start_at => clock_timestamp() + interval '1 hour'), durable.cancel('c_delayed');
SELECT durable.start('sleeps', '{"n": 1}', 'c_sleeps'), durable.start('waits', '{"token": "cancelled", "n": 1}', 'c_waits'), durable.start('waits', '{"token": "cancelled2", "n": 1, "timeout": "1 h"}', 'c_timed'),
	durable.start('dispatches', '{"step": "outside", "n": 1}', 'c_step'), durable.start('dispatches', '{"step": "outside", "n": 1}', 'c_claimed', priority => 1), durable.start('family', NULL, 'c_family'),
	durable.start('kid', '{"n": 1}', 'c_completed');
CALL durable.work(duration => '0');
SELECT run_id, task_id, token FROM durable.claim('{outside}') \gset c_
SELECT :'c_run_id';
BEGIN;
SELECT durable.cancel('c_waits');
ROLLBACK;
SELECT run_id, status FROM runs('c\_%');
SELECT run_id, durable.cancel(run_id) FROM unnest('{c_sleeps,c_waits,c_timed,c_step,c_claimed,c_family,c_completed,unknown}'::text[]) run_id;
SELECT durable.heartbeat(:'c_task_id', :'c_token'), durable.complete(:'c_task_id', :'c_token'), durable.fail(:'c_task_id', :'c_token', '"x"');
CALL durable.work(duration => '0');
SELECT * FROM runs('c\_%');
SELECT durable.signal('cancelled', '1'), durable.signal('c', '1');
SELECT durable.result('c_pending');
SELECT durable.cancel(NULL);
SET durable.clock_offset = 100000;
SELECT durable.sweep() IS NOT NULL \g /dev/null
SELECT count(*) FROM durable.claim('{outside}', 100);
RESET durable.clock_offset;
DELETE FROM durable.signal_buffer;
SELECT * FROM leftovers;
-- a child that is cancelled fails in its parent
SELECT durable.start('parent', '{"child": "waits", "id": "kidnapped", "input": {"token": "x", "n": 1}}', 'g1');
CALL durable.work(duration => '0');
SELECT durable.cancel('kidnapped', 'by somebody');
CALL durable.work(duration => '0');
SELECT * FROM runs('g1');

-- fail_run: nothing stops it
CREATE FUNCTION gives_up(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.local_step('wf_test.note', '{"n": 1}');
		PERFORM durable.fail_run('given up', i ->> 'code', i -> 'details');
	EXCEPTION WHEN OTHERS THEN
		RETURN '"caught"';
	END;
	RETURN '"went on"';
END $$;
SELECT durable.register_workflow('gives_up', 'wf_test.gives_up');
SELECT durable.start('gives_up', '{}', 'h1'), durable.start('gives_up', '{"code": "22012", "details": [1]}', 'h2');
CALL durable.work(duration => '0');
SELECT run_id, status, output, error FROM durable.run WHERE run_id LIKE 'h_';
SELECT * FROM leftovers;

SET client_min_messages = warning;
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
