-- workflows: what handlers say about their steps, checks, what is kept of failures, side effects
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_policy;
CREATE ROLE wf_policy_web;
CREATE ROLE wf_policy_worker;
SELECT durable.grant_usage('wf_policy_web', privileges => '{start,read}'), durable.grant_usage('wf_policy_worker') \g /dev/null
GRANT CREATE, USAGE ON SCHEMA wf_policy TO wf_policy_worker;
RESET client_min_messages;
SET search_path = wf_policy;

--
-- the policy of a handler
--
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'PX001'; END $$;
SELECT durable.register_handler('fails', 'wf_policy.fails', retries => 4, backoff => '1 s', backoff_max => '10 s', jitter => true, timeout => '1 min',
	pickup_timeout => '1 h');
SELECT name, retries, backoff, backoff_kind, backoff_max, jitter, timeout, pickup_timeout, input_check, output_check FROM durable.handler;
CREATE FUNCTION calls(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step_async('fails'), durable.step_async('fails', retries => 1, backoff => '0', backoff_kind => 'fixed', jitter => false),
		durable.step_async('fails', backoff_max => '5 s', timeout => '2 s', queue => 'elsewhere'), durable.step_async('free', backoff_max => '7 s', retries => 2);
	PERFORM durable.sleep('1 day');
	RETURN NULL;
END $$;
SELECT durable.register_workflow('calls', 'wf_policy.calls'), durable.start('calls', NULL, 'a1');
CALL durable.work(duration => '0', max_tasks => 1);
SELECT seq, left(queue, 1) = '#' AS own, max_attempts, backoff, backoff_exp, backoff_max, jitter, timeout, pickup_timeout FROM durable.task WHERE kind = 'step' ORDER BY seq;
SELECT durable.cancel('a1');
-- registering again says all anew
SELECT durable.register_handler('fails', 'wf_policy.fails', backoff_kind => 'fixed', retries => 2);
SELECT retries, backoff, backoff_kind, backoff_max, jitter, timeout, pickup_timeout FROM durable.handler;
SELECT durable.register_handler('fails', 'wf_policy.fails', retries => 0);
SELECT durable.register_handler('fails', 'wf_policy.fails', backoff => '-1 s');
SELECT durable.register_handler('fails', 'wf_policy.fails', backoff_kind => 'often');
SELECT durable.register_handler('fails', 'wf_policy.fails', timeout => '0');
SELECT durable.register_handler('fails', 'wf_policy.fails', pickup_timeout => '-1 s');
SELECT durable.register_handler('fails', 'wf_policy.fails', input_check => 'wf_policy.nothing');
SELECT durable.register_handler('fails', 'wf_policy.fails', output_check => 'wf_policy.fails');
SELECT retries, backoff_kind FROM durable.handler;

--
-- checks
--
SET ROLE wf_policy_worker;
CREATE FUNCTION has_n(i jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF i ? 'raise' THEN
		RAISE EXCEPTION 'not that: %', i ->> 'raise' USING ERRCODE = 'PX002', DETAIL = 'the detail';
	END IF;
	RETURN (i ->> 'n')::int > 0;
END $$;
CREATE FUNCTION takes_n(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO wf_policy.effect VALUES ((i ->> 'n')::int);
	RETURN i -> 'out';
END $$;
CREATE FUNCTION is_small(o jsonb) RETURNS boolean LANGUAGE sql STRICT AS $$ SELECT (o #>> '{}')::int < 10 $$;
CREATE TABLE effect (n int);
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step('checked', i);
EXCEPTION WHEN invalid_parameter_value OR SQLSTATE 'PX002' THEN
	RETURN jsonb_build_object('code', sqlstate, 'message', sqlerrm);
END $$;
SELECT durable.register_handler('checked', 'wf_policy.takes_n', input_check => 'wf_policy.has_n', output_check => 'wf_policy.is_small(jsonb)', retries => 3),
	   durable.register_workflow('open', 'wf_policy.body'), durable.register_workflow('guarded', 'wf_policy.body', input_check => 'wf_policy.has_n');
SELECT name, body, input_check FROM durable.workflow ORDER BY name;
SELECT name, input_check, output_check FROM durable.handler ORDER BY name;
SELECT durable.register_workflow('guarded', 'wf_policy.body', input_check => 'wf_policy.body');
SELECT durable.register_workflow('guarded', 'wf_policy.body', input_check => 'wf_policy.fails');
-- in front of a handler and behind it; what is rejected is not tried again, and has no effect
SELECT durable.start('open', '{"n": 1, "out": 3}', 'b1'), durable.start('open', '{"n": 0, "out": 3}', 'b2'), durable.start('open', '{}', 'b3'),
	   durable.start('open', '{"raise": "x"}', 'b4'), durable.start('open', '{"n": 2, "out": 30}', 'b5'), durable.start('open', NULL, 'b6'),
	   durable.start('open', '{"n": 3}', 'b7') \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id LIKE 'b%' ORDER BY run_id;
SELECT r.run_id, c.status, c.attempts, c.error - '{context,attempts}'::text[] AS error FROM durable.run r, durable.history(r.run_id) c WHERE r.run_id LIKE 'b%' ORDER BY 1;
SELECT * FROM effect;
-- in front of a workflow, in the session of who starts it
SET ROLE wf_policy_web;
SELECT durable.start('guarded', '{"n": 1, "out": 1}', 'c1');
SELECT durable.start('guarded', '{"n": 0}', 'c2');
\set VERBOSITY default
SELECT durable.start('guarded', '{"n": 0}', 'c1');		-- before it is looked whether there is one
\set VERBOSITY terse
SELECT durable.start('guarded', '{"raise": "x"}', 'c2');
SELECT durable.start('guarded');
SELECT * FROM durable.start_many('guarded', ARRAY['{"n": 1}', '{"n": 0}']::jsonb[], '{c3,c4}');
SELECT run_id FROM durable.run WHERE run_id LIKE 'c%' ORDER BY 1;
SELECT wf_policy.has_n('{}');
RESET ROLE;
-- it is its owner there, and fenced in
SET ROLE wf_policy_worker;
CREATE FUNCTION curious(i jsonb) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
	said text := '';
	c text;
BEGIN
	said := current_user || ' ' || current_setting('search_path') || E'\n';
	FOREACH c IN ARRAY ARRAY['RESET ROLE', 'SET ROLE wf_policy_web', 'SET SESSION AUTHORIZATION DEFAULT', 'INSERT INTO wf_policy.effect VALUES (0)',
		'CREATE TEMP TABLE t (n int)', 'SELECT durable.start(''open'')', 'SELECT durable.step(''x'')', 'PREPARE p AS SELECT 1', 'LISTEN x', 'SET search_path = wf_policy']
	LOOP
		BEGIN
			EXECUTE c;
			said := said || c || ': ' || current_user || E'\n';
		EXCEPTION WHEN OTHERS THEN
			said := said || c || ': ' || sqlstate || ' ' || sqlerrm || E'\n';
		END;
	END LOOP;
	IF i = '"tell"' THEN
		RAISE EXCEPTION '%', said;
	END IF;
	RETURN true;
END $$;
SELECT durable.register_workflow('curious', 'wf_policy.body', input_check => 'wf_policy.curious');
SET ROLE wf_policy_web;
SELECT durable.start('curious', '"tell"', 'd1');
SELECT durable.start('curious', '{"n": 1, "out": 1}', 'd2');
SELECT current_user, current_setting('search_path') AS path, current_setting('transaction_read_only') AS read_only;
-- the caller is who it was, after an error that it catches, too
DO $$
BEGIN
	PERFORM durable.start('curious', '"tell"', 'd3');
EXCEPTION WHEN OTHERS THEN
	RAISE NOTICE '% % %', current_user, current_setting('search_path'), current_setting('transaction_read_only');
END $$;
RESET ROLE;
-- every turn begins with it: what has been stored may not pass any more; a child's is checked in its first turn
SET ROLE wf_policy_worker;
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.child('guarded', '{"n": 0}');
EXCEPTION WHEN invalid_parameter_value THEN
	RETURN to_jsonb('child: ' || sqlerrm);
END $$;
SELECT durable.register_workflow('parent', 'wf_policy.parent'), durable.start('parent', NULL, 'e1'), durable.start('guarded', '{"n": 5, "out": 5}', 'e2');
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'code' AS code FROM durable.run WHERE run_id LIKE 'e%' ORDER BY run_id;
SELECT durable.start('guarded', '{"n": 5, "out": 5}', 'e3');
CREATE OR REPLACE FUNCTION has_n(i jsonb) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN i ->> 'n' = '6'; END $$;
CALL durable.work(duration => '0');
SELECT status, error FROM durable.get_run('e3');
-- without its check a workflow is executed by nobody, and started by nobody
SELECT durable.start('guarded', '{"n": 6, "out": 5}', 'e4');
DROP FUNCTION has_n(jsonb);
CALL durable.work(duration => '0');
SELECT status, turn_state FROM durable.get_run('e4');
SELECT durable.start('guarded', '{"n": 6, "out": 5}', 'e5');
SELECT durable.cancel('e4');
RESET ROLE;

--
-- what is kept of attempts that failed
--
CREATE FUNCTION moody(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'attempt %', nextval('wf_policy.mood') USING ERRCODE = 'PX003', DETAIL = 'the detail', HINT = 'the hint';
END $$;
CREATE SEQUENCE mood;
CREATE FUNCTION tries(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN i = '"local"' THEN durable.local_step('wf_policy.moody', retries => 3) ELSE durable.step(i #>> '{}', retries => 12) END;
END $$;
SELECT durable.register_workflow('tries', 'wf_policy.tries'), durable.register_handler('moody', 'wf_policy.moody'), durable.start('tries', '"local"', 'f1');
CALL durable.work(duration => '0');
CREATE FUNCTION attempts(run text) RETURNS TABLE (attempt jsonb) LANGUAGE sql AS $$
	SELECT a - 'at' || jsonb_build_object('in order', (a ->> 'at')::timestamptz >= coalesce(lag((a ->> 'at')::timestamptz) OVER (ORDER BY o), '-infinity'))
	  FROM durable.history(run) c, jsonb_array_elements(c.error -> 'attempts') WITH ORDINALITY e(a, o) ORDER BY o
$$;
SELECT seq, attempts, error - '{attempts}'::text[] AS error FROM durable.history('f1');
SELECT * FROM attempts('f1');
-- the last ten
SELECT durable.start('tries', '"moody"', 'f2');
CALL durable.work(duration => '0');
SELECT seq, attempts, error - '{attempts}'::text[] AS error FROM durable.history('f2');
SELECT * FROM attempts('f2');
-- a worker's own words; long ones are cut there
SELECT durable.start('tries', '"out"', 'f3');
CALL durable.work(duration => '0');
SELECT durable.fail(task_id, token, to_jsonb(repeat('é', 1000))) FROM durable.claim('{out}');
SELECT durable.fail(task_id, token, '{"message": "second", "attempts": "mine", "more": [1]}') FROM durable.claim('{out}');
SELECT attempt, error #> '{attempts,1,message}' AS last, octet_length(error #>> '{attempts,0,message}') AS first FROM durable.task WHERE run_id = 'f3' AND kind = 'step';
SELECT durable.fail(task_id, token, '{"message": "third", "code": "E_THIRD", "retryable": false}') FROM durable.claim('{out}');
CALL durable.work(duration => '0');
SELECT attempts, error - '{attempts}'::text[] AS error, jsonb_array_length(error -> 'attempts') AS n FROM durable.history('f3');
-- the code that is none is in the detail
SELECT error - 'context' AS error FROM durable.get_run('f3');
\set VERBOSITY default
SELECT durable.result('f3');
\set VERBOSITY terse
-- tasks of no run keep their error as it was given
SELECT durable.dispatch('out', max_attempts => 2);
SELECT durable.fail(task_id, token, '{"message": "plain"}') FROM durable.claim('{out}');
SELECT durable.fail(task_id, token, '{"message": "plain"}') FROM durable.claim('{out}');
SELECT error FROM durable.task_result;

--
-- side effects
--
CREATE FUNCTION dice(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN jsonb_build_object('thrown', nextval('wf_policy.dice_seq'), 'i', i); END $$;
CREATE SEQUENCE dice_seq;
CREATE FUNCTION gambles(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_array(durable.side_effect('wf_policy.dice', i), durable.local_step('wf_policy.dice', '2'), durable.side_effect('wf_policy.dice'));
END $$;
SELECT durable.register_workflow('gambles', 'wf_policy.gambles'), durable.start('gambles', '1', 'g1');
CALL durable.work(duration => '0');
SELECT status, output FROM durable.get_run('g1');
SELECT seq, kind, name, output FROM durable.history('g1');
SELECT durable.side_effect('wf_policy.dice');

SET client_min_messages = warning;
SELECT durable.revoke_usage('wf_policy_web'), durable.revoke_usage('wf_policy_worker') \g /dev/null
DROP EXTENSION durable CASCADE;
DROP SCHEMA wf_policy CASCADE;
DROP ROLE wf_policy_web, wf_policy_worker;
