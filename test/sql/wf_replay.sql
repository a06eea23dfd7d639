-- replaying: the arguments of steps that are recorded are not evaluated
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
DROP SCHEMA IF EXISTS wf_test CASCADE;
CREATE SCHEMA wf_test;
RESET client_min_messages;
SET search_path = wf_test, pg_catalog;

CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF i = '"fails"' THEN
		RAISE EXCEPTION 'it fails' USING ERRCODE = 'AP001', HINT = 'no';
	END IF;
	RETURN nullif(i, '"nothing"');
END $$;
SELECT durable.register_handler('act', 'act');
-- says when it is evaluated; a position of its own would be out of order on replay
CREATE FUNCTION said(i anyelement) RETURNS jsonb STABLE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'evaluated: %', i; RETURN to_jsonb(i); END $$;
CREATE FUNCTION said_volatile(i anyelement) RETURNS jsonb VOLATILE LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'evaluated: %', i; RETURN to_jsonb(i); END $$;

CREATE FUNCTION loop(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	all_of jsonb := '[]';
BEGIN
	FOR i IN 1..4 LOOP
		all_of := all_of || durable.local_step('wf_test.act', said(i));
	END LOOP;
	RETURN all_of;
END $$;
SELECT durable.register_workflow('loop', 'loop');
SELECT durable.start('loop', run_id => 'loop') \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.result('loop');

-- one commit for all
SELECT durable.register_workflow('loop_atomic', 'loop', atomic => true);
SELECT durable.start('loop_atomic', run_id => 'loop-atomic') \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.result('loop-atomic');

-- dispatched steps, names, NULL, failures, and a call for its effect only
CREATE FUNCTION mixed(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
	b jsonb;
	c jsonb := '"not caught"';
	step text := 'act';
	message text;
BEGIN
	PERFORM durable.local_step('wf_test.act', said('performed'::text));
	a := durable.step(step, said('dispatched'::text));
	b := durable.local_step('wf_test.' || step, said('nothing'::text), 'named');
	BEGIN
		c := durable.local_step(input => said('fails'::text), handler => 'wf_test.act', retries => 1);
	EXCEPTION WHEN SQLSTATE 'AP001' THEN
		GET STACKED DIAGNOSTICS message = PG_EXCEPTION_HINT;
		c := to_jsonb(SQLERRM || ', ' || message);
	END;
	step := 'name ' || step;
	RETURN jsonb_build_array(a, b IS NULL, c, durable.local_step('wf_test.act', said('last'::text), name => step));
END $$;
SELECT durable.register_workflow('mixed', 'mixed');
SELECT durable.start('mixed', run_id => 'mixed') \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.result('mixed');
SELECT seq, kind, name, status, output FROM durable.history('mixed');

-- what might be seen is evaluated each time: volatile functions, other steps, subqueries
CREATE FUNCTION careful(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
BEGIN
	a := durable.local_step('wf_test.act', said_volatile('volatile'::text));
	a := durable.local_step('wf_test.act', durable.local_step('wf_test.act', said('inner'::text)), 'outer');
	a := durable.local_step('wf_test.act', (SELECT said('subquery'::text)));
	a := durable.local_step('wf_test.act', said('name given by an expression'::text), input ->> 'name');
	RETURN a;
END $$;
SELECT durable.register_workflow('careful', 'careful');
SELECT durable.start('careful', '{"name": "x"}', run_id => 'careful') \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.result('careful');
SELECT seq, name, output FROM durable.history('careful');

-- arguments that raise an error, which the body catches, take no position, on no replay
CREATE FUNCTION catches(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	trace text := '';
	k int := 0;
	r jsonb;
BEGIN
	LOOP
		BEGIN
			r := durable.local_step('wf_test.act', to_jsonb(10 / k));
			EXIT WHEN k = 3;
			trace := trace || ' ' || k;
		EXCEPTION WHEN division_by_zero THEN
			trace := trace || ' by-zero';
		END;
		k := k + 1;
	END LOOP;
	FOR i IN 0..1 LOOP
		BEGIN
			r := durable.local_step('wf_test.act', '7', retries => i);
		EXCEPTION WHEN invalid_parameter_value THEN
			-- the planner does not look into this one
			trace := trace || ' retries:' || (durable.local_step('wf_test.act', said_volatile(i)) #>> '{}');
		END;
	END LOOP;
	RETURN to_jsonb(trace || durable.local_step('wf_test.act', '8'));
END $$;
SELECT durable.register_workflow('catches', 'catches');
SELECT durable.start('catches', run_id => 'catches') \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.result('catches');
SELECT seq, name, output FROM durable.history('catches');

-- helpers that hide a step in an argument
CREATE FUNCTION hides(i jsonb) RETURNS jsonb STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('wf_test.act', i, 'hidden'); END $$;
CREATE FUNCTION outer(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	r jsonb := '0';
BEGIN
	FOR i IN 1..3 LOOP
		r := durable.local_step('wf_test.act', hides(said(i)));
	END LOOP;
	RETURN r;
END $$;
SELECT durable.register_workflow('outer', 'outer');
SELECT durable.start('outer', run_id => 'outer') \g /dev/null
CALL durable.work(duration => '0');
SELECT durable.result('outer');
SELECT seq, name, output FROM durable.history('outer');

-- a body that has changed is still found out
CREATE FUNCTION changing(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.act', said('old'::text));
	PERFORM durable.wait_for_signal('go-on');
	RETURN '1';
END $$;
SELECT durable.register_workflow('changing', 'changing');
SELECT durable.start('changing', run_id => 'changing-name') \g /dev/null
CALL durable.work(duration => '0');
CREATE OR REPLACE FUNCTION changing(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.act', said('new'::text), 'another name');
	RETURN '2';
END $$;
SELECT durable.signal('go-on') \g /dev/null
CALL durable.work(duration => '0');
SELECT status, error ->> 'code' AS code, error ->> 'detail' AS detail FROM durable.get_run('changing-name');

-- a swallowed end of the turn
CREATE FUNCTION swallows(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.sleep('1 day');
	EXCEPTION WHEN query_canceled THEN
	END;
	RETURN durable.local_step('wf_test.act', said('never'::text));
END $$;
SELECT durable.register_workflow('swallows', 'swallows');
SELECT durable.start('swallows', run_id => 'swallows') \g /dev/null
CALL durable.work(duration => '0');
SELECT status, wake_at IS NOT NULL AS sleeps FROM durable.get_run('swallows');

-- called by hand
SELECT durable.is_recorded(0), durable.is_recorded(NULL), durable.is_recorded(-1);
SELECT durable.recorded('x');
CREATE FUNCTION by_hand(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.act', '1', 'it');
	RETURN durable.wait_for_signal('go-on ' || durable.run_id());
END $$;
SELECT durable.register_workflow('by_hand', 'by_hand');
SELECT count(*) FROM durable.start_many('by_hand', '{"\"it\"","\"other\"",null,"\"\""}', '{h1,h2,h3,h4}');
CALL durable.work(duration => '0');
CREATE OR REPLACE FUNCTION by_hand(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_array(durable.is_recorded(0), durable.recorded(input #>> '{}'));
END $$;
SELECT count(durable.signal('go-on h' || n)) FROM generate_series(1, 4) n;
SELECT durable.start('by_hand', '"early"', 'h5') \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'code' AS code, error ->> 'message' AS message FROM durable.run WHERE workflow = 'by_hand' ORDER BY id;

-- who may call only the step itself, calls it
CREATE ROLE durable_test_replay;
GRANT USAGE ON SCHEMA durable, wf_test TO durable_test_replay;
GRANT EXECUTE ON FUNCTION durable.local_step TO durable_test_replay;
SET ROLE durable_test_replay;
SELECT durable.is_recorded(0);
SELECT durable.recorded('x');
SELECT durable.local_step('wf_test.act');
RESET ROLE;
DROP OWNED BY durable_test_replay;
DROP ROLE durable_test_replay;
DROP SCHEMA wf_test CASCADE;
