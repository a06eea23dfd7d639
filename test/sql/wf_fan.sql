-- workflows: step_all: modes, windows, order, what it costs; await over many handles
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_fan;
RESET client_min_messages;
SET search_path = wf_fan;

CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message' FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY run_id
$$;
CREATE VIEW leftovers AS
SELECT (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready,
	   (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.task_deadline) AS deadlines;

-- the input says everything
CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	inputs jsonb[] := ARRAY(SELECT to_jsonb(n) FROM generate_series(1, (i ->> 'n')::int) n);
	detail text;
	context text;
BEGIN
	RETURN to_jsonb(durable.step_all(coalesce(i ->> 'step', 'out'), inputs, mode => coalesce(i ->> 'mode', 'wait_all'),
		max_in_flight => (i ->> 'k')::int, retries => (i ->> 'retries')::int));
EXCEPTION WHEN division_by_zero OR SQLSTATE 'WF003' THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL, context = PG_EXCEPTION_CONTEXT;
	RETURN jsonb_build_object('caught', sqlerrm, 'code', sqlstate, 'detail', detail, 'context', split_part(context, E'\n', 1),
		'after', durable.local_step('wf_fan.square', '3'));
END $$;
CREATE FUNCTION square(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb((i #>> '{}')::int * (i #>> '{}')::int); END $$;
CREATE FUNCTION inverse(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(100 / ((i #>> '{}')::int - 3)); END $$;
SELECT durable.register_workflow('fan', 'wf_fan.fan'), durable.register_handler('square', 'wf_fan.square'),
	   durable.register_handler('inverse', 'wf_fan.inverse') \g /dev/null

--
-- by a handler in the database
--
SELECT durable.start('fan', '{"n": 5, "step": "square"}', 'a1'), durable.start('fan', '{"n": 0, "step": "square"}', 'a2'),
	   durable.start('fan', '{"n": 1, "step": "square"}', 'a3'), durable.start('fan', '{"n": 5, "step": "square", "k": 2}', 'a4'),
	   durable.start('fan', '{"n": 5, "step": "square", "k": 100, "mode": "settled"}', 'a5'),
	   durable.start('fan', '{"n": 5, "step": "inverse"}', 'a6'), durable.start('fan', '{"n": 5, "step": "inverse", "mode": "fail_fast", "k": 1}', 'a7'),
	   durable.start('fan', '{"n": 5, "step": "inverse", "mode": "settled"}', 'a8') \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id, status, output #- '{2,error,context}' AS output, code, message FROM runs('a%');
SELECT seq, kind, name, status, input, output, error ->> 'message' AS error FROM durable.history('a7');
SELECT count(*) FROM durable.history('a2');
SELECT * FROM leftovers;

--
-- by an external worker: order, barrier, window
--
CREATE TEMP TABLE held (seq int, run_id text, task_id text, token uuid);
-- what the workers claim, and what they say of a position
CREATE FUNCTION pick(run text, n int) RETURNS text LANGUAGE sql AS $$
	WITH c AS (INSERT INTO held SELECT seq, run_id, task_id, token FROM durable.claim('{out}', n) RETURNING seq)
	SELECT string_agg(seq::text, ',' ORDER BY seq) FROM c
$$;
CREATE FUNCTION done(run text, pos int, output jsonb) RETURNS boolean LANGUAGE sql AS $$
	SELECT durable.complete(task_id, token, output) FROM held WHERE run_id = run AND seq = pos
$$;
CREATE FUNCTION broken(run text, pos int, error jsonb) RETURNS boolean LANGUAGE sql AS $$
	SELECT durable.fail(task_id, token, error) FROM held WHERE run_id = run AND seq = pos
$$;
CREATE FUNCTION stands(run text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s/%s on %s, %s ready, next %s of %s-%s', status, turn_state, awaited_on,
		   (SELECT count(*) FROM durable.task_ready WHERE queue = 'out'), fan_next, fan_first, fan_last)
	  FROM durable.get_run(run)
$$;
-- results in any order; the outputs in the order of the inputs; NULL is NULL
SELECT durable.start('fan', '{"n": 4}', 'b1');
CALL durable.work(duration => '0');
SELECT stands('b1');
SELECT pick('b1', 10);
SELECT done('b1', 3, '"d"'), stands('b1');
SELECT done('b1', 0, '"a"'), stands('b1');
SELECT done('b1', 2, NULL), stands('b1');
SELECT done('b1', 1, '"b"'), stands('b1');
CALL durable.work(duration => '0');
SELECT status, output FROM runs('b1');
-- all fail but one: the first in the order of the inputs is raised, after the last has ended
SELECT durable.start('fan', '{"n": 3}', 'b2');
CALL durable.work(duration => '0');
SELECT pick('b2', 10);
SELECT broken('b2', 2, '{"message": "third", "code": "22012"}'), stands('b2');
SELECT done('b2', 0, '1'), stands('b2');
SELECT broken('b2', 1, '{"message": "second", "code": "E_SECOND", "detail": "of three"}'), stands('b2');
CALL durable.work(duration => '0');
SELECT status, jsonb_pretty(output) FROM runs('b2');
-- fail_fast: at once; the others are called off, what their workers say counts no more
SELECT durable.start('fan', '{"n": 5, "mode": "fail_fast"}', 'b3');
CALL durable.work(duration => '0');
SELECT pick('b3', 3);
SELECT done('b3', 1, '1'), stands('b3');
SELECT broken('b3', 2, '{"message": "fast", "code": "22012"}'), stands('b3');
CALL durable.work(duration => '0');
SELECT status, output FROM runs('b3');
SELECT done('b3', 0, '"late"');
SELECT seq, kind, status, output, error FROM durable.history('b3');
SELECT * FROM leftovers;
-- a failure that is tried again is none
SELECT durable.start('fan', '{"n": 2, "mode": "fail_fast", "retries": 2}', 'b4');
CALL durable.work(duration => '0');
SELECT pick('b4', 3);
SELECT broken('b4', 1, '{"message": "once", "code": "22012"}'), stands('b4');
DELETE FROM held WHERE seq = 1;
SELECT pick('b4', 3);
SELECT done('b4', 0, '0'), done('b4', 1, '1');
CALL durable.work(duration => '0');
SELECT status, output FROM runs('b4');

-- a window of two: never more in flight, and no turn between
TRUNCATE held;
SELECT durable.start('fan', '{"n": 6, "k": 2}', 'c1');
CALL durable.work(duration => '0');
SELECT wakes AS wakes_before FROM durable.get_run('c1') \gset
SELECT stands('c1'), (SELECT count(*) FROM durable.task WHERE kind = 'step') AS tasks;
SELECT pick('c1', 10);
SELECT pick('c1', 10);
SELECT done('c1', 1, '1'), stands('c1');
SELECT pick('c1', 10);
SELECT done('c1', 2, '2'), stands('c1');
SELECT pick('c1', 10);
-- one that is tried again keeps its place
SELECT durable.release(token, ARRAY[task_id]) FROM held WHERE seq = 3;
SELECT stands('c1');
DELETE FROM held WHERE seq = 3;
SELECT pick('c1', 10);
SELECT done('c1', 3, '3'), stands('c1');
SELECT pick('c1', 10);
SELECT done('c1', 4, '4'), stands('c1');
SELECT pick('c1', 10);
SELECT done('c1', 5, '5'), stands('c1');
SELECT wakes = :wakes_before AS no_turns FROM durable.get_run('c1');
SELECT done('c1', 0, '0'), stands('c1');
CALL durable.work(duration => '0');
SELECT status, output FROM runs('c1');
-- a rollback takes the next one's place back, too
TRUNCATE held;
SELECT durable.start('fan', '{"n": 3, "k": 1}', 'c2');
CALL durable.work(duration => '0');
SELECT pick('c2', 10);
BEGIN;
SELECT done('c2', 0, '0'), stands('c2');
ROLLBACK;
SELECT stands('c2');
SELECT pick('c2', 10);
SELECT done('c2', 0, '0'), stands('c2');
-- cancelled in the middle of it
SELECT pick('c2', 10);

SELECT durable.cancel('c2');
SELECT done('c2', 1, '1');
SELECT stands('c2'), l.* FROM leftovers l;
-- a window and a failure: nothing follows, and what was not queued is called off
TRUNCATE held;
SELECT durable.start('fan', '{"n": 4, "k": 2, "mode": "fail_fast"}', 'c3');
CALL durable.work(duration => '0');
SELECT pick('c3', 10);
SELECT broken('c3', 0, '{"message": "fast", "code": "22012"}'), stands('c3');
CALL durable.work(duration => '0');
SELECT stands('c3'), l.* FROM leftovers l;
SELECT seq, status FROM durable.history('c3');

--
-- many; nothing is lost, nothing done twice
--
SELECT durable.start('fan', '{"n": 1200}', 'd1'), durable.start('fan', '{"n": 700, "k": 600}', 'd2'), durable.start('fan', '{"n": 300, "k": 7}', 'd3');
CALL durable.work(duration => '0');
SELECT count(*) FROM durable.task_ready WHERE queue = 'out';
DO $$
DECLARE
	ids text[];
	t uuid;
	most int := 0;
BEGIN
	LOOP
		SELECT array_agg(c.task_id), (array_agg(c.token))[1], greatest(most, count(*) FILTER (WHERE run_id = 'd3')) INTO ids, t, most
		  FROM durable.claim('{out}', 500) c;
		EXIT WHEN ids IS NULL;
		IF cardinality(ARRAY(SELECT durable.complete_many(t, ids, ARRAY(SELECT to_jsonb(ta.seq) FROM unnest(ids) WITH ORDINALITY u(id, o)
				JOIN durable.task ta ON '~' || ta.id = u.id ORDER BY o)))) <> cardinality(ids) THEN
			RAISE 'lost';
		END IF;
	END LOOP;
	RAISE NOTICE 'of d3 at most %', most;
END $$;
CALL durable.work(duration => '0');
SELECT run_id, status, jsonb_array_length(output) AS n, (SELECT bool_and(v = to_jsonb(o - 1)) FROM jsonb_array_elements(output) WITH ORDINALITY e(v, o)) AS in_order
  FROM runs('d%');
SELECT * FROM leftovers;

--
-- the positions around it
--
CREATE FUNCTION around(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a int := durable.step_async('out', '"async"');
	o jsonb[];
	empty jsonb[];
BEGIN
	o := durable.step_all('square', '{1,2,NULL,4}');
	empty := durable.step_all('square', '{}');
	PERFORM durable.step_all('square', '{{5,6},{7,8}}', 'settled', 1);
	RETURN jsonb_build_object('o', to_jsonb(o), 'empty', to_jsonb(empty), 'a', durable.await(a), 'cube', durable.step('square', '9'));
END $$;
CREATE OR REPLACE FUNCTION square(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb((i #>> '{}')::int * (i #>> '{}')::int); END $$;
SELECT durable.register_workflow('around', 'wf_fan.around'), durable.start('around', NULL, 'e1');
CALL durable.work(duration => '0');
TRUNCATE held;
-- its result, which nobody waits for yet, released nothing and woke nobody too early
SELECT pick('e1', 1);
SELECT done('e1', 0, '"it"');
CALL durable.work(duration => '0');
SELECT status, output FROM runs('e1');
SELECT seq, name, status, input, output FROM durable.history('e1');

-- a fan that has changed is another history
CREATE OR REPLACE FUNCTION around(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step_all('out', ARRAY(SELECT to_jsonb(n) FROM generate_series(1, (SELECT count(*)::int FROM wf_fan.size)) n));
	RETURN durable.step('out');
END $$;
CREATE TABLE size (n int);
INSERT INTO size VALUES (1), (2);
SELECT durable.start('around', NULL, 'e2');
CALL durable.work(duration => '0');
INSERT INTO size VALUES (3);
TRUNCATE held;
SELECT pick('e2', 10);
SELECT done('e2', 0, '0'), done('e2', 1, '1');
CALL durable.work(duration => '0');
SELECT status, code, message FROM runs('e2');
SELECT error ->> 'detail' FROM durable.get_run('e2');

--
-- what cannot be
--
CREATE FUNCTION wrong(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	c text;
	said text[];
BEGIN
	FOREACH c IN ARRAY ARRAY['NULL, ''{}''', ''''', ''{}''', '''x'', NULL', '''x'', ''{1}'', NULL', '''x'', ''{1}'', ''some''', '''x'', ''{1}'', max_in_flight => 0',
		'''x'', ''{1}'', retries => 0', '''x'', ''{1}'', backoff => ''-1 s''', '''x'', ''{1}'', backoff_kind => ''no''', '''x'', ''{1}'', timeout => ''0''',
		'''x'', ''{1}'', pickup_timeout => ''-1 s''', '''x'', ''{1}'', pickup_timeout => ''1000000 days''', '''x'', ''{1}'', queue => ''#1''',
		'''x'', array_fill(''1''::jsonb, ''{100001}'')', 'repeat(''x'', 256), ''{1}''']
	LOOP
		BEGIN
			EXECUTE 'SELECT durable.step_all(' || c || ')';
		EXCEPTION WHEN OTHERS THEN
			said := said || (sqlstate || ' ' || c || ': ' || sqlerrm);
		END;
	END LOOP;
	RETURN to_jsonb(said);
END $$;
SELECT durable.register_workflow('wrong', 'wf_fan.wrong'), durable.start('wrong', NULL, 'f1');
CALL durable.work(duration => '0');
SELECT jsonb_array_elements_text(output) AS said FROM durable.get_run('f1');
SELECT count(*) FROM durable.history('f1');
SELECT durable.step_all('x', '{1}');
-- an element that is too large, and nothing of the fan is there
CREATE FUNCTION large(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step_all('out', ARRAY['1'::jsonb, to_jsonb(repeat('x', 20000000))]);
	RETURN NULL;
END $$;
SELECT durable.register_workflow('large', 'wf_fan.large'), durable.start('large', NULL, 'f2');
CALL durable.work(duration => '0');
SELECT status, code, message FROM runs('f2');
SELECT count(*) FROM durable.history('f2');

--
-- await over many
--
CREATE FUNCTION halves(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	odd int[];
	even int[];
	first int;
BEGIN
	FOR n IN 1..20 LOOP
		IF n % 2 = 0 THEN
			even := even || durable.step_async('out', to_jsonb(n));
		ELSE
			odd := odd || durable.step_async('out', to_jsonb(n));
		END IF;
	END LOOP;
	PERFORM durable.await_all(odd);
	PERFORM durable.set_event('odd', 'true');
	first := durable.await_any(even);
	PERFORM durable.set_event('first', to_jsonb(first));
	PERFORM durable.await_all(even);
	RETURN jsonb_build_array(first, durable.await_any(even), durable.await_any(ARRAY[first]));
END $$;
SELECT durable.register_workflow('halves', 'wf_fan.halves'), durable.start('halves', NULL, 'g1');
CALL durable.work(duration => '0');
TRUNCATE held;
SELECT pick('g1', 20) IS NOT NULL;
-- neither one of the others nor one of the odd ones before the last wakes it
SELECT done('g1', 19, '1'), done('g1', 17, '1'), done('g1', 0, '1'), stands('g1');
SELECT bool_and(done('g1', n, '1')) FROM generate_series(2, 16, 2) n;
SELECT stands('g1');
SELECT done('g1', 18, '1'), stands('g1');
CALL durable.work(duration => '0');
SELECT durable.get_event('g1', 'odd'), durable.get_event('g1', 'first');
-- others end too; the choice stays
SELECT bool_and(done('g1', n, '1')) FROM generate_series(1, 15, 2) n;
CALL durable.work(duration => '0');
SELECT status, output FROM runs('g1');
SELECT seq, name, output FROM durable.history('g1', 19);

--
-- tasks that are gone
--
TRUNCATE held;
SELECT durable.start('fan', '{"n": 3}', 'h1'), durable.start('fan', '{"n": 4, "k": 2}', 'h2'), durable.start('fan', '{"n": 4, "k": 2}', 'h3');
CALL durable.work(duration => '0');
SELECT durable.redispatch('h1'), durable.redispatch('unknown'), durable.redispatch('g1');
DELETE FROM durable.task WHERE kind = 'step' AND (run_id = 'h2' OR (run_id = 'h1' AND seq = 1) OR (run_id = 'h3' AND seq IN (0, 3)));
DELETE FROM durable.task_ready r WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = r.id);
SELECT durable.redispatch('h1') AS h1, durable.redispatch('h2') AS h2, durable.redispatch('h3') AS h3;
SELECT durable.redispatch(NULL);
CALL durable.work(duration => '0');
SELECT durable.redispatch('h1') AS h1, durable.redispatch('h2') AS h2, durable.redispatch('h3') AS h3;
SELECT run_id, count(*) FROM durable.task t JOIN durable.task_ready r USING (id) WHERE kind = 'step' GROUP BY 1 ORDER BY 1;
DO $$
DECLARE
	r record;
BEGIN
	LOOP
		SELECT * INTO r FROM durable.claim('{out}');
		EXIT WHEN NOT FOUND;
		IF NOT durable.complete(r.task_id, r.token, r.input) THEN
			RAISE 'not held';
		END IF;
	END LOOP;
END $$;
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('h%');
SELECT * FROM leftovers;

-- all claims are void: what was claimed is queued, what waits for its place or for a result is not
SELECT durable.start('fan', '{"n": 5, "k": 2}', 'i1');
CALL durable.work(duration => '0');
TRUNCATE held;
SELECT pick('i1', 1), stands('i1');
SELECT durable.activate();
SELECT stands('i1'), (SELECT count(*) FROM durable.task_ready) AS all_ready;
SELECT done('i1', 0, '0');
TRUNCATE held;
SELECT pick('i1', 10), done('i1', 1, '1'), stands('i1');
SELECT durable.cancel('i1');

-- a fan with a window, in the turn that calls off the fan before it
CREATE FUNCTION again(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.step_all('out', '{1,2,3}', mode => 'fail_fast');
	EXCEPTION WHEN SQLSTATE 'WF003' THEN
	END;
	RETURN to_jsonb(durable.step_all('out', '{4,5,6,7,8}', max_in_flight => 2));
END $$;
SELECT durable.register_workflow('again', 'wf_fan.again');
SELECT durable.start('again', NULL, 'j1');
CALL durable.work(duration => '0');
TRUNCATE held;
SELECT pick('j1', 10), broken('j1', 1, '{"message": "no", "retryable": false}');
CALL durable.work(duration => '0');
SELECT stands('j1');
TRUNCATE held;
SELECT pick('j1', 10), done('j1', 3, '"a"'), done('j1', 4, '"b"'), stands('j1');
TRUNCATE held;
SELECT pick('j1', 10), done('j1', 5, '"c"'), done('j1', 6, '"d"');
TRUNCATE held;
SELECT pick('j1', 10), done('j1', 7, '"e"');
CALL durable.work(duration => '0');
SELECT status, output FROM runs('j1');
SELECT * FROM leftovers;

-- somebody who may not
CREATE ROLE wf_fan_nobody;
SET ROLE wf_fan_nobody;
SELECT durable.step_all('x', '{1}');
RESET ROLE;
SELECT durable.grant_usage('wf_fan_nobody', privileges => '{read}');
SET ROLE wf_fan_nobody;
SELECT durable.redispatch('h1');
RESET ROLE;
SELECT durable.revoke_usage('wf_fan_nobody');
DROP ROLE wf_fan_nobody;

SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA wf_fan CASCADE;
