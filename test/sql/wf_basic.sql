-- workflows: definitions, starting, the turn, local steps, what a body may not do
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
CREATE FUNCTION boom(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO wf_test.effect (run, step, input) VALUES (durable.run_id(), 'boom', i);
	RAISE EXCEPTION 'no %', i USING ERRCODE = 'division_by_zero', DETAIL = 'the detail', HINT = 'the hint';
END $$;
-- what happened to a run, in one line each
CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message' FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY run_id
$$;

--
-- definitions
--
CREATE FUNCTION hello(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
	b jsonb;
BEGIN
	a := durable.local_step('wf_test.note', i);
	b := durable.local_step('wf_test.note', a, 'second');
	RETURN jsonb_build_object('a', a, 'b', b, 'run', durable.run_id(), 'namespace', durable.run_namespace());
END $$;
SELECT durable.register_workflow('hello', 'wf_test.hello');
SELECT durable.register_workflow('hello', 'wf_test.hello(jsonb)', '2', tags => '{greeting}', atomic => true);
SELECT durable.register_workflow('hello', 'hello', '10');		-- by the search path
SELECT namespace, name, version, atomic, body, queue = '#' || 'postgres'::regrole::oid AS own_queue, tags FROM durable.workflow
 ORDER BY version;
SELECT durable.register_workflow(NULL, 'wf_test.hello');
SELECT durable.register_workflow('', 'wf_test.hello');
SELECT durable.register_workflow(repeat('x', 256), 'wf_test.hello');
SELECT durable.register_workflow('hello', 'wf_test.hello', NULL);
SELECT durable.register_workflow('hello', 'wf_test.nothing');
SELECT durable.register_workflow('hello', 'wf_test.runs');
SELECT durable.register_workflow('hello', 'pg_catalog.jsonb_pretty(jsonb)');
SELECT durable.register_workflow('hello', 'pg_catalog.now()');
SELECT durable.register_workflow('hello', 'not a ( name');
SELECT durable.register_workflow('hello', 'wf_test.hello', queue => '#1');
SELECT durable.register_handler('add', 'wf_test.note');
SELECT durable.register_handler('add', 'wf_test.note(jsonb)');	-- again: replaced
SELECT durable.register_handler('add', NULL);
SELECT durable.register_handler(NULL, 'wf_test.note');
SELECT durable.register_handler('add', 'wf_test.runs(text)');
SELECT namespace, name, handler FROM durable.handler;
BEGIN READ ONLY;
SELECT durable.register_workflow('hello', 'wf_test.hello');
ROLLBACK;
SELECT durable.unregister_handler('add'), durable.unregister_handler('add'), durable.unregister_workflow('none');

--
-- start
--
SELECT durable.start('hello', '{"n": 1}', 'a1'), durable.start('hello', '{"n": 5}', 'a1');	-- idempotent by id
SELECT durable.start('hello', '{"n": 10}', 'a2', version => '2', tags => '{mine,greeting}', search_attributes => '{"k": 1}', headers => '{"h": 1}');
SELECT durable.start('hello', '{"n": 1}', 'a3', version => '3');
SELECT durable.start('unknown', '{"n": 1}', 'a3');
SELECT durable.start(NULL);
SELECT durable.start('hello', run_id => '');
SELECT durable.start('hello', run_id => '~1');
SELECT durable.start('hello', run_id => repeat('x', 256));
SELECT durable.start('hello', start_at => 'infinity');
SELECT durable.start('hello', namespace => 'elsewhere');
SELECT durable.start('hello') LIKE '~%' AS generated;
BEGIN;
SELECT durable.start('hello', NULL, 'rolled back');
ROLLBACK;
SELECT version, status, turn_state, tags, input, headers, search_attributes, parent FROM durable.run ORDER BY id;
SELECT durable.result('a1');			-- not yet
SELECT durable.result('rolled back');
SELECT durable.result(NULL);
SELECT durable.get_run('rolled back') IS NULL AS unknown_is_null, (durable.get_run('a1')).status;

CALL durable.work(duration => '0');
SELECT * FROM runs('a%');
SELECT durable.result('a1');
SELECT started_at IS NOT NULL AND finished_at >= started_at FROM durable.get_run('a2');
SELECT seq, kind, name, status, attempts, input, output, error FROM durable.history('a1');
SELECT seq, name FROM durable.history('a1', 0);
SELECT count(*) FROM durable.history('unknown');
SELECT run, step, input FROM effect WHERE run NOT LIKE '~%' ORDER BY n;
SELECT durable.start('hello', '{"n": 1}', 'a1');		-- an ended run keeps its id
SELECT count(*) FROM durable.run WHERE run_id = 'a1';
-- nothing is left of the work
SELECT (SELECT count(*) FROM durable.task), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.lease);

-- many
SELECT * FROM durable.start_many('hello', '{"{\"n\": 1}", null}', '{m1,m2}');
SELECT count(*), count(DISTINCT s) FROM durable.start_many('hello', array_fill('{"n": 1}'::jsonb, '{50}')) s;
SELECT * FROM durable.start_many('hello', '{}');
SELECT * FROM durable.start_many('hello', NULL);
SELECT * FROM durable.start_many('hello', '{1,2}', '{m1}');
SELECT * FROM durable.start_many('hello', '{1}', '{NULL}');
SELECT * FROM durable.start_many('hello', '{1,2}', '{m5,m5}');	-- one run
CALL durable.work(duration => '0', max_tasks => 10);
SELECT count(*) FILTER (WHERE status = 'completed') AS done, count(*) FILTER (WHERE status = 'pending') AS pending FROM durable.run WHERE run_id NOT LIKE 'a%' AND input IS NOT NULL;
CALL durable.work(duration => '0');
SELECT status, count(*) FROM durable.run GROUP BY 1;

-- later, and by priority
CREATE FUNCTION quick(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;
SELECT durable.register_workflow('quick', 'wf_test.quick');
SELECT durable.start('quick', '1', 'l1', start_at => clock_timestamp() + interval '30 days');
SELECT durable.start('quick', '1', 'l2', start_at => '-infinity');
SELECT durable.start('quick', '1', 'l3', start_at => '2001-01-01');
CALL durable.work(duration => '0');
SELECT * FROM runs('l%');
SET durable.clock_offset = 2592010;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('l%');
SELECT durable.start('quick', '1', 'p' || p, priority => p) FROM generate_series(1, 3) p;
CALL durable.work(duration => '0', max_tasks => 1);
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'p%' ORDER BY 1;
CALL durable.work(duration => '0');

--
-- bodies of several kinds
--
CREATE FUNCTION in_sql(i jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT durable.local_step('wf_test.note', durable.local_step('wf_test.note', i), 'outer')
$$;
CREATE FUNCTION strict_body(i jsonb) RETURNS jsonb LANGUAGE plpgsql STRICT AS $$ BEGIN RETURN '"called"'; END $$;
CREATE FUNCTION nulls(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF durable.local_step('wf_test.null_step', i) IS NOT NULL OR durable.local_step('wf_test.strict_body', NULL) IS NOT NULL THEN
		RETURN '"not null"';
	END IF;
	RETURN NULL;
END $$;
CREATE FUNCTION null_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN i; END $$;
CREATE FUNCTION json_null(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.null_step', 'null'); END $$;
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'body fails' USING ERRCODE = 'PX001', DETAIL = 'd', HINT = 'h'; END $$;
CREATE FUNCTION helper(n int) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.note', jsonb_build_object('n', n)); END $$;
CREATE FUNCTION with_helper(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN jsonb_build_array(wf_test.helper(1), wf_test.helper(2)); END $$;
CREATE FUNCTION recursive(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN (i ->> 'n')::int >= 5 THEN i ELSE wf_test.recursive(durable.local_step('wf_test.note', i)) END;
END $$;
CREATE FUNCTION endless(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN wf_test.endless(i); END $$;
SELECT durable.register_workflow(w, 'wf_test.' || w) FROM unnest('{in_sql,strict_body,nulls,json_null,fails,with_helper,recursive,endless}'::text[]) w \g /dev/null
SELECT durable.start(w, '{"n": 1}', 'b_' || w) FROM unnest('{in_sql,json_null,fails,with_helper,recursive}'::text[]) w;
SELECT durable.start('strict_body', NULL, 'b_strict'), durable.start('strict_body', '1', 'b_strict2'), durable.start('nulls', NULL, 'b_nulls');
SET max_stack_depth = '100kB';
SELECT durable.start('endless', NULL, 'b_endless');
CALL durable.work(duration => '0');
RESET max_stack_depth;
SELECT * FROM runs('b\_%');
SELECT output IS NULL FROM durable.get_run('b_nulls');
SELECT error - 'context' FROM durable.get_run('b_fails');
SELECT error ->> 'context' LIKE 'PL/pgSQL function %fails(jsonb) line 1 at RAISE%' FROM durable.get_run('b_fails');
SELECT seq, name, output FROM durable.history('b_nulls');
\set VERBOSITY default
SELECT durable.result('b_fails');
\set VERBOSITY terse
SELECT durable.result('b_nulls') IS NULL;

--
-- failures of steps: raised into the body with all they tell; retries
--
CREATE FUNCTION catches(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	d text;
	h text;
BEGIN
	BEGIN
		PERFORM durable.local_step('wf_test.boom', i, retries => 3);
	EXCEPTION WHEN division_by_zero THEN
		GET STACKED DIAGNOSTICS d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT;
		RETURN jsonb_build_array(sqlstate, sqlerrm, d, h, durable.local_step('wf_test.note', i));
	END;
	RETURN '"not raised"';
END $$;
CREATE FUNCTION does_not_catch(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		RETURN durable.local_step('wf_test.boom', i);
	EXCEPTION WHEN unique_violation THEN
		RETURN '"wrong"';
	END;
END $$;
CREATE FUNCTION others(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
BEGIN
	BEGIN
		a := durable.local_step('wf_test.note', i);
		PERFORM durable.sleep('1 hour');
		PERFORM durable.local_step('wf_test.boom', a);
	EXCEPTION WHEN OTHERS THEN
		RETURN jsonb_build_array('caught', sqlstate, a, durable.local_step('wf_test.note', a, 'in the handler'));
	END;
	RETURN '"wrong"';
END $$;
CREATE FUNCTION swallows(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.local_step('wf_test.note', i);
	EXCEPTION WHEN query_canceled THEN
		NULL;
	END;
	RETURN '"swallowed"';
END $$;
CREATE FUNCTION swallows_all(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	FOR n IN 1..3 LOOP
		BEGIN
			PERFORM durable.local_step('wf_test.note', i, 's' || n);
		EXCEPTION WHEN query_canceled OR OTHERS THEN
			NULL;
		END;
	END LOOP;
	RAISE EXCEPTION 'after all';
END $$;
SELECT durable.register_workflow(w, 'wf_test.' || w) FROM unnest('{catches,does_not_catch,others,swallows,swallows_all}'::text[]) w \g /dev/null
TRUNCATE effect;
SELECT durable.start(w, '{"n": 1}', 'c_' || w) FROM unnest('{catches,does_not_catch,others,swallows,swallows_all}'::text[]) w;
CALL durable.work(duration => '0');
SET durable.clock_offset = 3610;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('c\_%');
SELECT seq, kind, name, status, attempts, error - '{context,attempts}'::text[] AS error FROM durable.history('c_catches');
SELECT jsonb_path_query(error, '$.attempts[*]') - 'at' AS attempt FROM durable.history('c_catches');
SELECT run, step, input FROM effect ORDER BY run, n;
-- the steps that failed left nothing, and no swallower got its step done
SELECT count(*) FROM effect WHERE step = 'boom' OR run LIKE 'c_swallows%';

-- a retry waits, and nothing is held meanwhile
CREATE SEQUENCE tries;
CREATE FUNCTION heals(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('wf_test.tries') < (i ->> 'after')::int THEN
		RAISE EXCEPTION 'not yet';
	END IF;
	RETURN '"healed"';
END $$;
CREATE FUNCTION retries(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.local_step('wf_test.heals', i, retries => 4, backoff => '1 minute', backoff_kind => 'exp', backoff_max => '3 minutes');
END $$;
SELECT durable.register_workflow('retries', 'wf_test.retries');
SELECT durable.start('retries', '{"after": 4}', 'r1');
CALL durable.work(duration => '0');
SELECT status, turn_state, round(extract(epoch FROM wake_at - durable.engine_now()) / 10) * 10 AS wait FROM durable.get_run('r1');
SELECT status, attempts, error ->> 'message' AS error FROM durable.history('r1');
SET durable.clock_offset = 61;
CALL durable.work(duration => '0');
SELECT status, round(extract(epoch FROM wake_at - durable.engine_now()) / 10) * 10 AS wait FROM durable.get_run('r1');
SET durable.clock_offset = 182;
CALL durable.work(duration => '0');
SELECT status, round(extract(epoch FROM wake_at - durable.engine_now()) / 10) * 10 AS wait FROM durable.get_run('r1');
SET durable.clock_offset = 363;
CALL durable.work(duration => '0');
SELECT * FROM runs('r1');
SELECT status, attempts, output, error FROM durable.history('r1');
RESET durable.clock_offset;

--
-- what a body may not do
--
CREATE FUNCTION writes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN INSERT INTO wf_test.effect (run) VALUES ('written'); RETURN '1'; END $$;
CREATE FUNCTION writes_caught(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		INSERT INTO wf_test.effect (run) VALUES ('written');
	EXCEPTION WHEN read_only_sql_transaction THEN
		RETURN '"refused"';
	END;
	RETURN '"written"';
END $$;
CREATE FUNCTION writable(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN SET LOCAL transaction_read_only = off; INSERT INTO wf_test.effect (run) VALUES ('written'); RETURN '1'; END $$;
CREATE FUNCTION starts(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(durable.start('quick')); END $$;
CREATE FUNCTION signals(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(durable.signal('x')); END $$;
CREATE FUNCTION works(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN CALL durable.work(duration => '0'); RETURN '1'; END $$;
CREATE FUNCTION commits(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN COMMIT; RETURN '1'; END $$;
CREATE FUNCTION steps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.' || (i ->> 'step'), i); END $$;
CREATE FUNCTION nested(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.note', i); END $$;
CREATE FUNCTION bad_json(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN '{"a": '; END $$;
CREATE FUNCTION starts_more(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(durable.start('quick', i, 'started by ' || durable.run_id())); END $$;
SELECT durable.register_workflow(w, 'wf_test.' || w) FROM unnest('{writes,writes_caught,writable,starts,signals,works,commits,steps,bad_json}'::text[]) w \g /dev/null
SELECT durable.start(w, '{"n": 1}', 'd_' || w) FROM unnest('{writes,writes_caught,writable,starts,signals,works,commits,bad_json}'::text[]) w \g /dev/null
SELECT durable.start('steps', jsonb_build_object('step', s), 'd_step_' || s) FROM unnest('{nested,works,commits,bad_json,missing,starts_more}'::text[]) s \g /dev/null
TRUNCATE effect;
CALL durable.work(duration => '0');
SELECT * FROM runs('d\_%');
SELECT error ->> 'hint' AS hint FROM durable.get_run('d_writes');
SELECT * FROM effect;
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'started by%';
SELECT durable.signal('x') IS NULL AS nothing_waits;

-- outside a body
SELECT durable.local_step('wf_test.note', '1');
SELECT durable.step('x');
SELECT durable.step_async('x');
SELECT durable.await(1);
SELECT durable.await_all('{1}');
SELECT durable.await_any('{1}');
SELECT durable.await(NULL);
SELECT durable.sleep('1 s');
SELECT durable.sleep_until(now());
SELECT durable.wait_for_signal('x');
SELECT durable.child('x');
SELECT durable.start_child('x');
SELECT durable.now();
SELECT durable.random();
SELECT durable.uuid();
SELECT durable.patched('x');
SELECT durable.set_event('x', '1');
SELECT durable.upsert_search_attributes('{}');
SELECT durable.log('info', 'x');
SELECT durable.fail_run('x');
SELECT durable.run_id();
SELECT durable.run_namespace();
\set VERBOSITY sqlstate
SELECT durable.sleep('1 s');
\set VERBOSITY default
SELECT durable.sleep('1 s');
\set VERBOSITY terse

-- work() commits as it goes
BEGIN;
CALL durable.work(duration => '0');
ROLLBACK;
CALL durable.work(duration => NULL);
CALL durable.work(duration => '-1 s');
CALL durable.work(max_tasks => 0);
CALL durable.work(queues => '{}');
CALL durable.work(queues => '{NULL}');
CALL durable.wait_for_run('nothing', '0');
CALL durable.wait_for_run(NULL);
CALL durable.wait_for_run('a1', NULL);
CALL durable.wait_for_run('a1', '0');
CALL durable.wait_for_run('b_fails', '0', true, NULL, NULL, NULL);
SELECT durable.start('retries', '{"after": 100}', 'w1');
CALL durable.wait_for_run('w1', '10 ms');
CALL durable.work(duration => '0');
CALL durable.wait_for_run('w1', '10 s', false);

-- invalid arguments are errors in the body, and take no position
CREATE FUNCTION careless(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	said text[] := '{}';
	command text;
BEGIN
	FOREACH command IN ARRAY ARRAY[
		'durable.local_step(NULL)', 'durable.local_step('''')', 'durable.local_step(''wf_test.note'', retries => 0)',
		'durable.local_step(''wf_test.note'', backoff => ''-1 s'')', 'durable.local_step(''wf_test.note'', backoff_kind => ''odd'')',
		'durable.local_step(''wf_test.note'', name => '''')', 'durable.step(NULL)', 'durable.step(''x'', retries => -1)',
		'durable.step(''x'', queue => ''#1'')', 'durable.step_async(NULL)', 'durable.await(17)', 'durable.await(NULL)', 'durable.await_all(NULL)',
		'durable.await_all(''{NULL}'')', 'durable.await_any(''{}'')', 'durable.await_any(NULL)', 'durable.sleep(NULL)', 'durable.sleep(''-1 s'')',
		'durable.sleep_until(NULL)', 'durable.sleep_until(''infinity'')', 'durable.wait_for_signal(NULL)', 'durable.wait_for_signal('''')',
		'durable.wait_for_signal(''x'', ''-1 s'')', 'durable.child(NULL)', 'durable.child(''quick'', child_id => '''')',
		'durable.child(''quick'', child_id => ''careless'')', 'durable.start_child(NULL)', 'durable.patched(NULL)', 'durable.set_event(NULL, ''1'')',
		'durable.upsert_search_attributes(NULL)', 'durable.upsert_search_attributes(''1'')', 'durable.log(NULL, ''x'')', 'durable.log(''info'', NULL)',
		'durable.fail_run(NULL)']
	LOOP
		BEGIN
			EXECUTE 'SELECT ' || command;
			said := said || (command || ': nothing');
		EXCEPTION WHEN OTHERS THEN
			said := said || (sqlstate || ' ' || command || ': ' || sqlerrm);
		END;
	END LOOP;
	PERFORM durable.local_step('wf_test.note', i);
	RETURN to_jsonb(said);
END $$;
SELECT durable.register_workflow('careless', 'wf_test.careless');
SELECT durable.start('careless', '{"n": 1}', 'careless');
CALL durable.work(duration => '0');
SELECT jsonb_array_elements_text(output) FROM durable.get_run('careless');
SELECT seq, kind, name FROM durable.history('careless');
SELECT durable.result('careless') -> 0;

-- large values
CREATE FUNCTION large(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(length(durable.local_step('wf_test.null_step', to_jsonb(repeat('x', (i ->> 'n')::int))) #>> '{}'));
END $$;
SELECT durable.register_workflow('large', 'wf_test.large');
SELECT durable.start('large', '{"n": 500000}', 'large1'), durable.start('large', '{"n": 11000000}', 'large2');
SELECT durable.start('quick', to_jsonb(repeat('x', 11000000)), 'large3');
CALL durable.work(duration => '0');
SELECT * FROM runs('large%');

-- many positions
CREATE FUNCTION loops(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	s int := 0;
BEGIN
	FOR n IN 1..300 LOOP
		s := s + (durable.local_step('wf_test.note', jsonb_build_object('n', n)) ->> 'n')::int;
	END LOOP;
	RETURN to_jsonb(s);
END $$;
TRUNCATE effect;
SELECT durable.register_workflow('loops', 'wf_test.loops');
SELECT durable.start('loops', NULL, 'loops');
CALL durable.work(duration => '0');
SELECT * FROM runs('loops');
SELECT count(*), count(DISTINCT input) FROM effect;
SELECT count(*), min(seq), max(seq) FROM durable.history('loops');

SELECT (SELECT count(*) FROM durable.task WHERE run_id <> 'w1'), (SELECT count(*) FROM durable.task_ready), (SELECT count(*) FROM durable.lease);
SET client_min_messages = warning;
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
