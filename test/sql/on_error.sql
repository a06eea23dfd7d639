-- on-error routes: a run that fails hands its failure over to another workflow
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_route_owner, durable_route_user;
CREATE EXTENSION durable;
CREATE SCHEMA route_test;
GRANT USAGE ON SCHEMA route_test TO public;
CREATE ROLE durable_route_owner;
CREATE ROLE durable_route_user;
SELECT durable.grant_usage('durable_route_owner', privileges => '{start,work,read,signal}'), durable.grant_usage('durable_route_user', privileges => '{start,read,signal,manage}') \g /dev/null
GRANT CREATE ON SCHEMA route_test TO durable_route_owner;
RESET client_min_messages;
SET search_path = route_test;
SET ROLE durable_route_owner;

CREATE TABLE broken (step text);
GRANT ALL ON broken TO public;
CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM route_test.broken WHERE step = i ->> 'step') THEN
		RAISE EXCEPTION '%', coalesce(i ->> 'message', 'it broke') USING ERRCODE = coalesce(i ->> 'code', '22012');
	END IF;
	RETURN i;
END $$;
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('route_test.act', '{"step": "first"}', 'first');
	RETURN durable.local_step('route_test.act', i, i ->> 'step');
END $$;
CREATE FUNCTION takes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN jsonb_build_object('taken', i -> 'run_id'); END $$;
CREATE FUNCTION waits(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('go ' || (i ->> 'run_id')); END $$;
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.fail_run('cannot help', 'no_help'); END $$;
CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, workflow text, version text, status text, turn text, output jsonb, error jsonb) LANGUAGE sql AS $$
	SELECT run_id, workflow, version, status, turn_state, output, error - 'context' FROM durable.run WHERE run_id ~ ('^(onerror:)?(' || pattern || ')') ORDER BY run_id COLLATE "C"
$$;
CREATE FUNCTION history(run text) RETURNS TABLE (seq int, kind text, name text, status text, input jsonb, output jsonb, code text) LANGUAGE sql AS $$
	SELECT seq, kind, name, status, input #- '{error,context}' #- '{error,attempts}', output, error ->> 'code' FROM durable.history(run, NULL)
$$;
CREATE VIEW left_over AS SELECT kind, name, run_id FROM durable.task WHERE kind <> 'turn' OR run_id NOT IN (SELECT run_id FROM durable.run WHERE status IN ('pending', 'running', 'suspended'));
SELECT durable.register_workflow('takes', 'route_test.takes'), durable.register_workflow('waits', 'route_test.waits'), durable.register_workflow('fails', 'route_test.fails');

--
-- what can be registered
--
CREATE FUNCTION try(routes jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	state text;
	detail text;
BEGIN
	PERFORM durable.register_workflow('try', 'route_test.body', on_error => routes);
	RETURN 'ok';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, detail = PG_EXCEPTION_DETAIL;
	RETURN format('%s %s: %s', state, sqlerrm, detail);
END $$;
SELECT routes, try(routes::jsonb) FROM unnest(ARRAY[
	NULL, 'null', '1', '"takes"', 'true', '{}', '{"workflow": "takes"}', '[]',
	'[1]', '["takes"]', '[null]', '[[]]', '[{}]', '[{"workflow": "takes"}, {"code": "22012"}]',
	'[{"workflow": null}]', '[{"workflow": 7}]', '[{"workflow": ""}]', '[{"workflow": ["a"]}]', '[{"workflow": "a", "version": 2}]', '[{"workflow": "a", "version": ""}]',
	'[{"workflow": "a", "code": 22012}]', '[{"workflow": "a", "code": []}]', '[{"workflow": "a", "code": ["22012", 1]}]', '[{"workflow": "a", "code": ["22012", ""]}]', '[{"workflow": "a", "code": {}}]', '[{"workflow": "a", "code": null}]',
	'[{"workflow": "a", "step": false}]', '[{"workflow": "a", "step": [[]]}]',
	'[{"workflow": "a", "message": 1}]', '[{"workflow": "a", "message": ["x"]}]', '[{"workflow": "a", "message": "x\\"}]', '[{"workflow": "a", "message": "x\\\\"}]', '[{"workflow": "a", "message": "\\"}]', '[{"workflow": "a", "message": ""}]',
	'[{"workflow": "a", "retryable": "yes"}]', '[{"workflow": "a", "retryable": null}]', '[{"workflow": "a", "when": 1}]', '[{"Workflow": "a"}]',
	'[{"workflow": "a", "version": "2", "code": ["22", "no_help"], "step": "x", "message": "%", "retryable": true}]']) routes;
SELECT try(jsonb_build_array(jsonb_build_object('workflow', repeat('x', 256)))), try(jsonb_build_array(jsonb_build_object('workflow', repeat('x', 255))));
SELECT try(jsonb_agg('{"workflow": "a"}'::jsonb)) FROM generate_series(1, 100);
SELECT try(jsonb_agg('{"workflow": "a"}'::jsonb)) FROM generate_series(1, 101);
SELECT left(try(jsonb_build_array(jsonb_build_object('workflow', 'a', 'message', repeat('x', 2000000)))), 30);
SELECT jsonb_array_length(on_error) FROM durable.workflow WHERE name = 'try';

--
-- a failure is handed over, and the run ends with the handler's outcome
--
SELECT durable.register_workflow('routed', 'route_test.body', on_error => '[{"code": "22012", "workflow": "takes"}]');
INSERT INTO broken VALUES ('a');
SELECT durable.start('routed', '{"step": "a"}', 'r1', priority => 3, headers => '{"traceparent": "x"}'), durable.start('routed', '{"step": "fine"}', 'r0'), durable.start('routed', '{"step": "a", "code": "23505"}', 'r2');
CALL durable.work(max_tasks => 3, duration => '0');
SELECT * FROM runs('r');
SELECT input, priority, headers, parent = (SELECT id FROM durable.run WHERE run_id = 'r1') AS of_run FROM durable.run WHERE run_id = 'onerror:r1:1';
SELECT * FROM history('r1');
SELECT count(*) FROM durable.history('r1');
-- nothing wakes it but its handler
CALL durable.work(duration => '0');
SELECT * FROM runs('r');
SELECT * FROM history('r1');
SELECT durable.result('r1');
SELECT * FROM left_over;

--
-- which route
--
SELECT durable.register_workflow(name, 'route_test.takes') FROM unnest('{by class,by list,by message,by step,final,rest}'::text[]) name \g /dev/null
SELECT durable.register_workflow('choosy', 'route_test.body', on_error => '[
	{"workflow": "by step", "step": ["first", "s"], "code": ["22", "no_stock"]},
	{"workflow": "by message", "message": "card %:\\_%"},
	{"workflow": "by class", "code": "23"},
	{"workflow": "by list", "code": ["40P01", "P0001"], "step": "b"},
	{"workflow": "by list", "code": "54", "message": "nobody has this"},
	{"workflow": "final", "code": "54000"}
]');
INSERT INTO broken VALUES ('b'), ('s');
CREATE TEMP TABLE failure (id text, input jsonb);
INSERT INTO failure VALUES ('class', '{"step": "a", "code": "23514"}'), ('list', '{"step": "b", "code": "P0001"}'), ('list, other step', '{"step": "a", "code": "P0001"}'),
	('message', '{"step": "a", "code": "P0001", "message": "card 12:_34"}'), ('message, wildcards', '{"step": "a", "code": "P0001", "message": "card 12:34"}'),
	('step', '{"step": "s"}'), ('step, other code', '{"step": "s", "code": "P0001"}'), ('last', '{"step": "a", "code": "54000"}'), ('not 5', '{"step": "a", "code": "23P"}'), ('fine', '{"step": "x"}');
SELECT durable.start('choosy', input, 'which ' || id) FROM failure WHERE id <> 'not 5' \g /dev/null
CALL durable.work(duration => '0');
SELECT r.run_id, r.status, r.error ->> 'code' AS code, h.workflow, h.input ->> 'step' AS step FROM durable.run r LEFT JOIN durable.run h ON h.run_id = 'onerror:' || r.run_id || ':1' WHERE r.run_id LIKE 'which%' ORDER BY 1;
-- of a step outside the code that its worker gave, and whether it may be retried
CREATE FUNCTION outside(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('out', i); END $$;
SELECT durable.register_workflow('outside', 'route_test.outside', on_error => '[
	{"workflow": "by list", "code": "declined", "step": "out"}, {"workflow": "final", "retryable": false}, {"workflow": "by class", "code": "WF003"}, {"workflow": "rest"}]');
SELECT durable.start('outside', to_jsonb(id), 'out ' || id) FROM unnest('{1 declined,2 final,3 other,4 silent}'::text[]) id \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.fail(task_id, token, CASE left(input #>> '{}', 1) WHEN '1' THEN '{"message": "no money", "code": "declined"}' WHEN '2' THEN '{"message": "never", "retryable": false}' ELSE '"again"' END::jsonb)
  FROM durable.claim('{out}', 3) ORDER BY input;
CALL durable.work(duration => '0');
SELECT r.run_id, r.status, h.workflow, h.input #>> '{error,code}' AS code, h.input ->> 'step' AS step FROM durable.run r LEFT JOIN durable.run h ON h.run_id = 'onerror:' || r.run_id || ':1' WHERE r.run_id LIKE 'out %' ORDER BY 1;
SELECT durable.cancel('out 4 silent');
-- what the body itself raises, after it caught a step's failure
CREATE FUNCTION own(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('route_test.act', '{"step": "a"}', 'a');
EXCEPTION WHEN division_by_zero THEN
	IF i IS NULL THEN
		RAISE EXCEPTION 'mine';
	END IF;
	PERFORM durable.fail_run('by hand', 'by_hand', i);
END $$;
SELECT durable.register_workflow('own', 'route_test.own', on_error => '[{"workflow": "by step", "step": "a"}, {"workflow": "by message", "message": "mine"}, {"workflow": "by list", "code": "by_hand"}]');
SELECT durable.start('own', NULL, 'own 1'), durable.start('own', '1', 'own 2');
CALL durable.work(duration => '0');
SELECT r.run_id, r.status, h.workflow, h.input ->> 'step' AS step, h.input #> '{error,details}' AS details FROM durable.run r LEFT JOIN durable.run h ON h.run_id = 'onerror:' || r.run_id || ':1' WHERE r.run_id LIKE 'own %' ORDER BY 1;
-- an input that is refused; a body that has changed; a version of the handler; an atomic workflow
CREATE FUNCTION never(i jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
CREATE FUNCTION spawns(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child(i ->> 'workflow', i, durable.run_id() || ' kid'); END $$;
SELECT durable.register_workflow('spawns', 'route_test.spawns'), durable.register_workflow('picky', 'route_test.takes', input_check => 'route_test.never', on_error => '[{"workflow": "takes"}]');
SELECT durable.register_workflow('takes', 'route_test.fails', version => '2');
SELECT durable.register_workflow('versions', 'route_test.body', on_error => '[{"workflow": "takes", "version": "1"}]', atomic => true);
SELECT durable.start('spawns', '{"workflow": "picky"}', 'v1'), durable.start('versions', '{"step": "a"}', 'v2');
CALL durable.work(duration => '0');
SELECT run_id, workflow, version, status, output, error ->> 'message' AS message FROM runs('v\d');
SELECT durable.unregister_workflow('takes', '2');

--
-- a handler that fails, is cancelled, or dies
--
SELECT durable.register_workflow('lossy', NULL), durable.register_workflow('to fails', 'route_test.body', on_error => '[{"workflow": "fails"}]'),
	durable.register_workflow('to waits', 'route_test.body', on_error => '[{"workflow": "waits"}]'), durable.register_workflow('to lossy', 'route_test.body', on_error => '[{"workflow": "lossy"}]');
SELECT durable.start('to fails', '{"step": "a"}', 'f1'), durable.start('to waits', '{"step": "a"}', 'f2'), durable.start('to lossy', '{"step": "a"}', 'f3');
CALL durable.work(duration => '0');
SELECT * FROM runs('f\d$');
SELECT durable.cancel('onerror:f2:1', 'enough');
SELECT name FROM durable.claim('{lossy}', lease => '1 s');
RESET ROLE;
SET durable.clock_offset = 600;
SET durable.max_recovery_attempts = 0;
SELECT durable.sweep() -> 'taken_over' AS taken_over;
RESET durable.max_recovery_attempts;
RESET durable.clock_offset;
SET ROLE durable_route_owner;
SELECT * FROM runs('f\d$');
SELECT run_id, status FROM runs('f\d:');
SELECT * FROM history('f2');
-- again: each failure has a handler of its own, and those before it are kept
SELECT durable.unregister_workflow('lossy');
RESET ROLE;
SET ROLE durable_route_user;
SELECT durable.requeue('f1'), durable.retry('f2');
SET ROLE durable_route_owner;
CALL durable.work(duration => '0');
SELECT run_id, status, turn FROM runs('f\d');
SELECT seq, name, status FROM history('f1');
SELECT seq, name, status FROM history('f2');
SELECT durable.signal('go f2', '"gone"');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('f2$');
-- nobody's failure any more
TRUNCATE broken;
RESET ROLE;
SELECT durable.requeue('f1'), durable.requeue('f3');
SET ROLE durable_route_owner;
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('f\d$');
SELECT seq, kind, name, status FROM history('f1');
INSERT INTO broken VALUES ('a');

--
-- while the handler is at work
--
SELECT durable.start('to waits', '{"step": "a"}', 'w1'), durable.start('to waits', '{"step": "a"}', 'w2'), durable.start('spawns', '{"workflow": "to waits", "step": "a"}', 'w3');
CREATE FUNCTION busy(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step_async('out');
	RETURN durable.local_step('route_test.act', '{"step": "a"}', 'a');
END $$;
SELECT durable.register_workflow('busy', 'route_test.busy', on_error => '[{"workflow": "waits"}]');
SELECT durable.start('busy', NULL, 'w4');
CALL durable.work(duration => '0');
SELECT run_id, workflow, status, turn FROM runs('w\d');
-- what was in flight is not any more
SELECT * FROM left_over;
SELECT name FROM durable.claim('{out}');
RESET ROLE;
SET ROLE durable_route_user;
SELECT durable.retry('w1');
SELECT durable.redispatch('w4');
-- the cancel of the run is that of its handler
SELECT durable.cancel('w1', 'never mind');
SELECT run_id, status, error FROM runs('w1');
SELECT seq, name, status FROM history('w1');
-- a requeue: the body has another try, and the handler is not wanted any more
SELECT durable.requeue('w2');
SELECT run_id, status, turn, error FROM runs('w2');
SELECT seq, name, status FROM history('w2');
SET ROLE durable_route_owner;
TRUNCATE broken;
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('w2$');
SELECT seq, name, status FROM history('w2');
-- a parent waits until the handler has ended
SELECT durable.signal('go w3', '"too early, and nobody waits"') IS NULL AS buffered;
SELECT run_id, status FROM runs('w3');
SELECT durable.signal('go ' || 'w3 kid', '"mended"');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('w3');
SELECT durable.signal('go w4', '4');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('w4');
INSERT INTO broken VALUES ('a');

--
-- no loops
--
SELECT durable.register_workflow('loop', 'route_test.fails', on_error => '[{"workflow": "loop"}]');
SELECT durable.start('loop', '1', 'loop');
CALL durable.work(duration => '0');
SELECT run_id, status, error FROM runs('loop');

--
-- a workflow that is not there
--
SELECT durable.register_workflow('missing', 'route_test.fails', on_error => '[{"workflow": "not there", "code": "no_help"}, {"workflow": "takes"}]'), durable.register_workflow('missing', 'route_test.fails', version => '2', on_error => '[{"workflow": "takes", "version": "7"}]');
SELECT durable.start('missing', NULL, 'm1', version => '1'), durable.start('missing', NULL, 'm2');
CALL durable.work(duration => '0');
SELECT run_id, status, error FROM runs('m\d');
SELECT run_id, seq, level, message FROM durable.run_log l JOIN durable.run r ON r.id = l.run WHERE run_id LIKE 'm_' ORDER BY 1;

--
-- timeouts
--
CREATE FUNCTION nobody(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('nobody', pickup_timeout => '1 min'); END $$;
CREATE FUNCTION silent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('never', '1 min'); END $$;
SELECT durable.register_workflow('nobody', 'route_test.nobody', on_error => '[{"workflow": "by step", "step": "nobody", "code": "WF008"}]'), durable.register_workflow('silent', 'route_test.silent', on_error => '[{"workflow": "by class", "code": "WF"}]');
SELECT durable.start('nobody', NULL, 'late 1'), durable.start('silent', NULL, 'late 2');
CALL durable.work(duration => '0');
RESET ROLE;
SET durable.clock_offset = 600;
SELECT (durable.sweep() ->> 'taken_over') IS NOT NULL AS swept;
SET ROLE durable_route_owner;
CALL durable.work(duration => '0');
RESET ROLE;
RESET durable.clock_offset;
SET ROLE durable_route_owner;
SELECT run_id, workflow, status FROM runs('late');

--
-- turns of external workers
--
SELECT durable.register_workflow('ext', NULL, on_error => '[{"workflow": "ext handler", "step": "pay"}, {"workflow": "takes", "code": "gone"}]'), durable.register_workflow('ext handler', NULL);
SELECT durable.start('ext', '1', 'e1'), durable.start('ext', '2', 'e2'), durable.start('ext', '3', 'e3');
SELECT task_id AS id, token FROM durable.claim('{ext}') \gset
SELECT durable.record_step(:'id', :'token', 0, 'pay', error => '{"message": "no money", "code": "declined"}');
SELECT durable.complete_turn(:'id', :'token', '{"status": "failed", "error": {"message": "no money", "code": "declined"}, "commands": [{"type": "call", "seq": 1, "name": "out", "await": false}]}');
SELECT durable.complete_turn(:'id', :'token', '{"status": "completed"}'), durable.heartbeat(:'id', :'token'), durable.renew(:'token');
SELECT task_id AS id, token FROM durable.claim('{ext}') \gset
SELECT durable.complete_turn(:'id', :'token', '{"status": "failed", "commands": [{"type": "fail_run", "message": "bye", "code": "gone", "details": [1]}]}');
-- two in one round
SELECT task_id AS id, token FROM durable.claim('{ext}') \gset
SELECT durable.complete_turn(:'id', :'token', '{"status": "failed", "error": {"message": "no route"}}');
SELECT run_id, workflow, status, turn, error FROM runs('e\d');
SELECT seq, kind, name, status FROM history('e1');
SELECT name FROM durable.claim('{ext,out}');
SELECT task_id AS id, token, input - 'now' - 'since' AS input FROM durable.claim('{ext handler}') \gset
\echo :input
SELECT durable.complete_turn(:'id', :'token', '{"status": "completed", "output": "refunded"}');
CALL durable.work(duration => '0');
SELECT run_id, workflow, status, turn, output FROM runs('e\d');
-- a round of several, and a requeue of a parked one
SELECT durable.start('ext', to_jsonb(n), 'e' || n) FROM generate_series(4, 6) n;
SELECT string_agg(task_id, ',' ORDER BY created_at) AS ids, min(token::text) AS token FROM durable.claim('{ext}', 3) c JOIN durable.run r USING (run_id) \gset
SELECT durable.complete_turn(split_part(:'ids', ',', 1), :'token', '{"status": "failed", "commands": [{"type": "record_step", "seq": 0, "name": "pay", "error": {"message": "x"}}], "error": {"message": "x"}}');
SELECT run_id, status, turn FROM runs('e4');
SELECT durable.complete_turn(split_part(:'ids', ',', 1), :'token', '{"status": "completed"}'), durable.renew(:'token');
RESET ROLE;
SELECT durable.requeue('e4');
SET ROLE durable_route_owner;
SELECT durable.complete_turn(split_part(:'ids', ',', 1), :'token', '{"status": "completed"}');
SELECT durable.complete_turn(task_id, token, '{"status": "completed", "output": "second try"}'), input -> 'history' AS history FROM durable.claim('{ext}');
SELECT run_id, status, turn, output, error FROM runs('e4');
SELECT durable.complete_turn(split_part(:'ids', ',', 2), :'token', '{"status": "completed"}'), durable.complete_turn(split_part(:'ids', ',', 3), :'token', '{"status": "failed", "error": {"message": "no route"}}');
SELECT run_id, status FROM runs('e\d$');

--
-- nobody else can take part
--
CREATE FUNCTION joins(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('waits', NULL, i #>> '{}'); END $$;
CREATE FUNCTION listens(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('child:onerror:n1:1'); END $$;
SELECT durable.register_workflow('joins', 'route_test.joins'), durable.register_workflow('listens', 'route_test.listens');
SELECT durable.start('listens', NULL, 'listens');
CALL durable.work(duration => '0');
SELECT durable.start('to waits', '{"step": "a"}', 'n1');
CALL durable.work(duration => '0');
SELECT durable.start('joins', '"onerror:n1:1"', 'joins'), durable.start('waits', NULL, 'n2');
SELECT durable.start('waits', NULL, 'onerror:n2:1');
CALL durable.work(duration => '0');
SELECT durable.signal('child:onerror:n1:1', '"forged"');
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'message' AS message FROM runs('') WHERE run_id ~ '^(joins|listens|n1|onerror:n1)';
SELECT durable.signal('go n1', '"real"');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('n1');
SELECT * FROM left_over;
SELECT count(*) FROM durable.lease;

RESET ROLE;
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA route_test CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_route_owner, durable_route_user;
DROP ROLE durable_route_owner, durable_route_user;
