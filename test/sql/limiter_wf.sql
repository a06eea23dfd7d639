-- limiters in workflows: dispatched steps, fans, local steps, external turns
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
CREATE SCHEMA limiter_wf;
RESET client_min_messages;
SET search_path = limiter_wf;

CREATE TABLE effect (n serial, what text);
CREATE TEMP TABLE held (n serial, run_id text, seq int, task_id text, token uuid);
CREATE FUNCTION take(queue text, max int DEFAULT 10) RETURNS text LANGUAGE sql AS $$
	WITH c AS (INSERT INTO held (run_id, seq, task_id, token)
			   SELECT run_id, seq, task_id, token FROM durable.claim(ARRAY[queue], max, '1 day') RETURNING n, run_id, seq)
	SELECT string_agg(run_id || ':' || seq, ' ' ORDER BY n) FROM c
$$;
CREATE FUNCTION done(run text, pos int DEFAULT 0) RETURNS boolean LANGUAGE sql AS $$
	SELECT durable.complete(task_id, token, to_jsonb(run_id)) FROM held WHERE run_id = run AND seq = pos ORDER BY n DESC LIMIT 1
$$;
CREATE FUNCTION usage(lim text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s running, %s waiting', running, waiting) FROM durable.limiters WHERE name = lim
$$;
CREATE FUNCTION runs() RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(format('%s %s %s%s', run_id, status, turn_state, ' ' || (output #>> '{}')), ', ' ORDER BY id) FROM durable.run
$$;
CREATE FUNCTION now_is(seconds int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('durable.clock_offset', seconds::text, false);
END $$;
SELECT durable.register_limiter('one', concurrency => 1), durable.register_limiter('fair', concurrency => 2, fairness => 'key');

-- dispatched steps; the key is the run's id unless said otherwise
CREATE FUNCTION stepping(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step('out', i, limiter => i ->> 'limiter', fairness_key => i ->> 'key', retries => 2, backoff => '1 hour');
END $$;
CREATE FUNCTION fanning(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(cardinality(durable.step_all('out', (SELECT array_agg(to_jsonb(g)) FROM generate_series(1, 5) g),
		max_in_flight => (i ->> 'window')::int, limiter => 'fair')));
END $$;
SELECT durable.register_workflow('stepping', 'limiter_wf.stepping'), durable.register_workflow('fanning', 'limiter_wf.fanning') \g /dev/null
SELECT durable.start('stepping', '{"limiter": "one"}', 'r' || i) FROM generate_series(1, 3) i \g /dev/null
CALL durable.work(duration => '0');
SELECT runs();
SELECT DISTINCT limiter_key FROM durable.task WHERE kind = 'step' ORDER BY 1;
SELECT take('out'), usage('one');
SELECT done('r1'), take('out'), usage('one');
-- a run that is cancelled gives its slot back, and its place in the waiting
SELECT durable.cancel('r2'), take('out'), usage('one');
SELECT durable.start('stepping', '{"limiter": "one", "key": "mine"}', 'r4') \g /dev/null
CALL durable.work(duration => '0');
SELECT limiter_key FROM durable.task WHERE run_id = 'r4' AND kind = 'step';
SELECT usage('one'), durable.cancel('r4'), usage('one');
-- an attempt that backs off holds nothing
SELECT durable.fail(task_id, token, '{"message": "again"}'), usage('one') FROM held WHERE run_id = 'r3';
SELECT now_is(4000), durable.sweep() ->> 'promoted' AS promoted, usage('one'), take('out'), done('r3'), usage('one'), now_is(0);
CALL durable.work(duration => '0');
SELECT runs();
-- unknown: the body may catch it
CREATE FUNCTION unknown(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step('out', i, limiter => 'none');
EXCEPTION WHEN undefined_object THEN
	RETURN to_jsonb(sqlerrm);
END $$;
SELECT durable.register_workflow('unknown', 'limiter_wf.unknown'), durable.start('unknown', '{}', 'u1'), durable.start('stepping', '{"limiter": "none"}', 'u2') \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'message' AS message, error ->> 'code' AS code FROM durable.run WHERE run_id LIKE 'u_' ORDER BY id;

-- fans
SELECT durable.start('fanning', '{}', 'f1'), durable.start('fanning', '{"window": 2}', 'f2') \g /dev/null
CALL durable.work(duration => '0');
SELECT usage('fair'), take('out'), usage('fair');
SELECT done('f1', 0), take('out'), done('f2', 0), take('out'), usage('fair');
DO $$
DECLARE
	h record;
BEGIN
	LOOP
		SELECT run_id, seq INTO h FROM held JOIN durable.limiter_slot ON task_id = '~' || id WHERE run_id LIKE 'f_' ORDER BY n LIMIT 1;
		EXIT WHEN NOT FOUND;
		PERFORM limiter_wf.done(h.run_id, h.seq);
		PERFORM limiter_wf.take('out');
	END LOOP;
END $$;
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id LIKE 'f_' ORDER BY 1;
SELECT usage('fair');

-- local steps: a slot before the handler runs, back with the checkpoint
CREATE FUNCTION touch(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect (what) VALUES (i #>> '{}');
	RETURN to_jsonb((SELECT running FROM durable.limiters WHERE name = 'one'));
END $$;
CREATE FUNCTION local(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a jsonb;
	b jsonb;
BEGIN
	a := durable.local_step('limiter_wf.touch', to_jsonb(durable.run_id() || ' a'), limiter => 'one');
	b := durable.local_step('limiter_wf.touch', to_jsonb(durable.run_id() || ' b'), limiter => 'one');
	RETURN jsonb_build_array(a, b, durable.local_step('limiter_wf.touch', to_jsonb(durable.run_id() || ' free')));
END $$;
SELECT durable.register_workflow('local', 'limiter_wf.local'), durable.register_workflow('atomic', 'limiter_wf.local', atomic => true) \g /dev/null
SELECT durable.start('local', NULL, 'l1'), durable.start('local', NULL, 'l2'), durable.start('atomic', NULL, 'l3') \g /dev/null
CALL durable.work(duration => '0');
SELECT what FROM effect ORDER BY n;
SELECT run_id, status, output FROM durable.run WHERE run_id LIKE 'l_' ORDER BY 1;
SELECT usage('one');
-- while somebody else has the slot the run waits; a signal does not get it in
CREATE FUNCTION either(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.local_step('limiter_wf.touch', i, limiter => 'one', fairness_key => 'x');
END $$;
SELECT durable.register_workflow('either', 'limiter_wf.either') \g /dev/null
SELECT durable.dispatch('job', NULL, 'job', limiter => 'one') \g /dev/null
SELECT take('job'), usage('one');
SELECT durable.start('either', '"e1"', 'e1'), durable.start('either', '"e2"', 'e2') \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id, status, turn_state FROM durable.run WHERE run_id LIKE 'e_' ORDER BY 1;
SELECT usage('one'), (SELECT parked FROM durable.queue_depth('#' || (SELECT oid FROM pg_roles WHERE rolname = current_user)));
SELECT durable.requeue('e1');
CALL durable.work(duration => '0');
SELECT run_id, status, turn_state FROM durable.run WHERE run_id LIKE 'e_' ORDER BY 1;
SELECT usage('one'), durable.cancel('e2'), usage('one');
SELECT durable.cancel_task('job'), usage('one');
CALL durable.work(duration => '0');
SELECT run_id, status, turn_state, output FROM durable.run WHERE run_id LIKE 'e_' ORDER BY 1;
SELECT usage('one');
-- an attempt that fails gives it back, also when it will be tried again
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'no';
END $$;
CREATE FUNCTION failing(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.local_step('limiter_wf.fails', i, limiter => 'one', retries => 2, backoff => '1 hour');
EXCEPTION WHEN raise_exception THEN
	RETURN to_jsonb(sqlerrm);
END $$;
SELECT durable.register_workflow('failing', 'limiter_wf.failing'), durable.start('failing', NULL, 'n1') \g /dev/null
CALL durable.work(duration => '0');
SELECT status, turn_state, usage('one') FROM durable.run WHERE run_id = 'n1';
SELECT now_is(4000);
CALL durable.work(duration => '0');
SELECT status, output, usage('one') FROM durable.run WHERE run_id = 'n1';
SELECT now_is(0);
-- two limiters in turn, and one that is not there
CREATE FUNCTION in_turn(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('limiter_wf.touch', '"b1"', limiter => 'one');
	PERFORM durable.local_step('limiter_wf.touch', '"b2"', limiter => 'fair');
	RETURN durable.local_step('limiter_wf.touch', '"b3"', limiter => 'none');
END $$;
SELECT durable.register_workflow('in_turn', 'limiter_wf.in_turn'), durable.start('in_turn', NULL, 'b') \g /dev/null
CALL durable.work(duration => '0');
SELECT status, error ->> 'message' AS message, usage('one'), usage('fair') FROM durable.run WHERE run_id = 'b';

-- a handler inside the database
SELECT durable.register_handler('inside', 'limiter_wf.touch') \g /dev/null
CREATE FUNCTION handled(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step('inside', i, limiter => 'one');
END $$;
SELECT durable.register_workflow('handled', 'limiter_wf.handled'), durable.start('handled', '"h1"', 'h1'), durable.start('handled', '"h2"', 'h2') \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM durable.run WHERE run_id LIKE 'h_' ORDER BY 1;

-- turns outside
SELECT durable.register_workflow('outside', queue => 'turns') \g /dev/null
SELECT durable.start('outside', NULL, 'o1'), durable.start('outside', NULL, 'o2'), durable.start('outside', NULL, 'o3') \g /dev/null
CREATE TEMP TABLE turn AS SELECT run_id, task_id, token FROM durable.claim('{turns}', 10);
SELECT durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "out", "limiter": "one", "fairness_key": "k"}]}')
  FROM turn WHERE run_id <> 'o3' ORDER BY 1;
SELECT durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "out", "limiter": "none"}]}')
  FROM turn WHERE run_id = 'o3';
SELECT run_id, status FROM durable.run WHERE run_id LIKE 'o_' ORDER BY 1;
-- the step has failed, as the worker learns in its next turn
SELECT status, error ->> 'message' AS message, error ->> 'code' AS code FROM durable.history('o3');
SELECT usage('one'), take('out'), usage('one'), done('o1'), take('out'), done('o2'), usage('one');
SELECT durable.complete_turn(task_id, token, '{"status": "continue", "commands": [{"type": "call", "seq": 1, "name": "out", "fairness_key": "k"}]}')
  FROM durable.claim('{turns}', 10) WHERE run_id = 'o1';
SELECT run_id, status, error ->> 'message' AS message FROM durable.run WHERE run_id = 'o1';

SELECT count(*) FROM durable.limiter_slot;
SELECT rescued FROM durable.scan_hints();
SET client_min_messages = warning;
DROP SCHEMA limiter_wf CASCADE;
