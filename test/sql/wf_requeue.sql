-- workflows: runs that are tried again; runs that are lost again and again
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA wf_test;
DROP ROLE IF EXISTS durable_wf_boss;
DROP ROLE IF EXISTS durable_wf_user;
RESET client_min_messages;
SET search_path = wf_test;

CREATE TABLE effect (n serial, run text, step text);
CREATE TABLE broken (step text);
CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO wf_test.effect (run, step) VALUES (durable.run_id(), i #>> '{}');
	IF EXISTS (SELECT FROM wf_test.broken WHERE step = i #>> '{}') THEN
		RAISE EXCEPTION '% is broken', i USING ERRCODE = '22012';
	END IF;
	RETURN i;
END $$;
CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text, recovered int)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message', recovery_attempts FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY run_id
$$;
CREATE FUNCTION history(run text) RETURNS TABLE (seq int, kind text, name text, status text, attempts int, output jsonb, code text, has_task boolean)
LANGUAGE sql AS $$
	SELECT seq, kind, name, status, attempts, output, error ->> 'code', task IS NOT NULL FROM durable.history(run)
$$;
-- anything to do for the external worker "out"
CREATE FUNCTION settle_out(output jsonb, error jsonb DEFAULT NULL) RETURNS SETOF jsonb LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT * FROM durable.claim('{out}', 10) ORDER BY seq LOOP
		RETURN NEXT c.input;
		IF error IS NULL THEN
			PERFORM durable.complete(c.task_id, c.token, output);
		ELSE
			PERFORM durable.fail(c.task_id, c.token, error);
		END IF;
	END LOOP;
END $$;

--
-- a local step that failed is executed again, one that was completed is not
--
CREATE FUNCTION three(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_array(durable.local_step('wf_test.act', '"a"', 'a'), durable.local_step('wf_test.act', '"b"', 'b', retries => 2),
		durable.local_step('wf_test.act', '"c"', 'c'));
END $$;
SELECT durable.register_workflow('three', 'wf_test.three');
INSERT INTO broken VALUES ('b');
SELECT durable.start('three', NULL, 't1'), durable.start('three', NULL, 't2');
CALL durable.work(duration => '0');
SELECT * FROM runs('t_');
SELECT * FROM history('t1');
SELECT started_at AS t1_started FROM durable.get_run('t1') \gset
-- nothing wakes a failed run by itself
CALL durable.work(duration => '0');
SELECT durable.requeue('t1'), durable.retry('t2');
SELECT * FROM runs('t_');
SELECT finished_at, wake_at, error, started_at = :'t1_started' AS begun_once FROM durable.get_run('t1');
SELECT * FROM history('t1');
-- again in vain: the attempts are counted anew
CALL durable.work(duration => '0');
SELECT * FROM runs('t_');
SELECT * FROM history('t1');
TRUNCATE broken;
SELECT durable.requeue('t1'), durable.requeue('t2'), durable.requeue('t2');
CALL durable.work(duration => '0');
SELECT * FROM runs('t_');
SELECT * FROM history('t1');
SELECT run, string_agg(step, ',' ORDER BY n) FROM effect GROUP BY run ORDER BY run;
SELECT started_at = :'t1_started' AS begun_once FROM durable.get_run('t1');

--
-- what cannot be tried again, and what is not there
--
SELECT durable.requeue('t1');
SELECT durable.retry('t1');
SELECT durable.start('three', NULL, 'gone', start_at => now() + interval '1 day'), durable.cancel('gone');
SELECT durable.requeue('gone');
SELECT durable.retry('gone');
\set VERBOSITY default
SELECT durable.retry('gone');
\set VERBOSITY terse
SELECT durable.requeue('unknown') IS NULL, durable.requeue('') IS NULL;
SELECT durable.retry('unknown');
SELECT durable.retry_with_input('unknown', '1');
SELECT durable.requeue(NULL);
SELECT durable.retry(NULL);
SELECT durable.retry_with_input(NULL, '1');
BEGIN READ ONLY;
SELECT durable.requeue('t1');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.retry('t1');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.retry_with_input('t1', '1');
ROLLBACK;
SELECT * FROM runs('t1');

--
-- runs that have not ended look again at once
--
CREATE FUNCTION sleeps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.sleep('1 hour'); RETURN '"slept"'; END $$;
CREATE FUNCTION asks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal(durable.run_id()); END $$;
SELECT durable.register_workflow('sleeps', 'wf_test.sleeps'), durable.register_workflow('asks', 'wf_test.asks');
SELECT durable.start('sleeps', NULL, 'l sleeps'), durable.start('asks', NULL, 'l asks'), durable.start('three', NULL, 'l later', start_at => now() + interval '1 day');
CALL durable.work(duration => '0');
SELECT wake_at AS until FROM durable.get_run('l sleeps') \gset
SELECT durable.start('three', NULL, 'l new');
SELECT durable.retry('l sleeps');
SELECT run_id, durable.requeue(run_id) FROM durable.run WHERE run_id LIKE 'l %' ORDER BY 1;
SELECT * FROM runs('l %');
SELECT count(*) AS queued FROM durable.task_ready;
CALL durable.work(duration => '0');
SELECT * FROM runs('l %');
SELECT wake_at = :'until' AS same_time FROM durable.get_run('l sleeps');
SELECT durable.signal('l asks', '1');
SET durable.clock_offset = 3700;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('l %');

--
-- dispatched steps: those that failed, and those that were in flight
--
CREATE FUNCTION far(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	h int[] := ARRAY[durable.step_async('out', '1'), durable.step_async('out', '2', retries => 2), durable.step_async('out', '3')];
	first jsonb := durable.await(h[1]);
BEGIN
	PERFORM durable.local_step('wf_test.act', '"far"');
	RETURN to_jsonb(durable.await_all(h));
END $$;
SELECT durable.register_workflow('far', 'wf_test.far');
SELECT durable.start('far', NULL, 'far');
CALL durable.work(duration => '0');
SELECT task_id AS id1, token AS token1 FROM durable.claim('{out}') \gset
SELECT task_id AS id2, token AS token2 FROM durable.claim('{out}') \gset
SELECT task_id AS id3, token AS token3 FROM durable.claim('{out}') \gset
SELECT durable.complete(:'id1', :'token1', '"one"');
INSERT INTO broken VALUES ('far');
CALL durable.work(duration => '0');
SELECT * FROM runs('far');
-- they are gone with the run
SELECT durable.complete(:'id2', :'token2', '"late"'), (SELECT count(*) FROM durable.task WHERE run_id = 'far');
SELECT durable.requeue('far');
-- late results change nothing, before and after they are dispatched anew
SELECT durable.fail(:'id3', :'token3', '"late"');
SELECT * FROM history('far');
TRUNCATE broken;
CALL durable.work(duration => '0');
SELECT durable.complete(:'id2', :'token2', '"late"'), durable.complete(:'id3', :'token3', '"late"');
SELECT * FROM history('far');
SELECT settle_out(NULL, '{"message": "no", "code": "22012", "retryable": false}');
CALL durable.work(duration => '0');
SELECT * FROM runs('far');
SELECT durable.requeue('far');
CALL durable.work(duration => '0');
SELECT settle_out('"at last"');
CALL durable.work(duration => '0');
SELECT * FROM runs('far');
SELECT count(*) FROM effect WHERE step = 'far';

-- a handler of this database, and a child: all the way down
CREATE FUNCTION leaf(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('act', '"leaf"'); END $$;
CREATE FUNCTION branch(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_array(durable.local_step('wf_test.act', '"branch"'), durable.child('leaf', NULL, i ->> 'leaf'));
END $$;
CREATE FUNCTION trunk(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN jsonb_build_array('trunk', durable.child('branch', i, i ->> 'branch'));
END $$;
SELECT durable.register_workflow(w, 'wf_test.' || w) FROM unnest('{leaf,branch,trunk}'::text[]) w \g /dev/null
SELECT durable.register_handler('act', 'wf_test.act');
INSERT INTO broken VALUES ('leaf');
SELECT durable.start('trunk', '{"branch": "x branch", "leaf": "x leaf"}', 'x trunk');
CALL durable.work(duration => '0');
SELECT * FROM runs('x %');
TRUNCATE broken;
SELECT durable.requeue('x trunk');
SELECT * FROM runs('x %');
SELECT count(*) FROM durable.waiter;
CALL durable.work(duration => '0');
SELECT * FROM runs('x %');
SELECT run, step, count(*) FROM effect WHERE run LIKE 'x %' GROUP BY 1, 2 ORDER BY 1, 2;
-- the child alone: its parent stays failed, and takes the result when it is requeued itself
INSERT INTO broken VALUES ('leaf');
SELECT durable.start('trunk', '{"branch": "y branch", "leaf": "y leaf"}', 'y trunk');
CALL durable.work(duration => '0');
TRUNCATE broken;
SELECT durable.requeue('y leaf');
CALL durable.work(duration => '0');
SELECT run_id, status FROM runs('y %');
SELECT durable.requeue('y trunk');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('y %');
-- the child was tried with another input, and that came out well
INSERT INTO broken VALUES ('leaf');
SELECT durable.start('trunk', '{"branch": "z branch", "leaf": "z leaf"}', 'z trunk');
CALL durable.work(duration => '0');
TRUNCATE broken;
SELECT durable.retry_with_input('z leaf', '{"other": 1}') AS retry \gset
SELECT :'retry' ~ '^z leaf~retry~[0-9a-f]{8}$' AS id_is_told;
CALL durable.work(duration => '0');
SELECT status, input, output, parent FROM durable.get_run(:'retry');
SELECT durable.requeue('z trunk');
CALL durable.work(duration => '0');
SELECT run_id, status, output FROM runs('z %') WHERE run_id NOT LIKE '%retry%';
-- a child that was cancelled is not resurrected
SELECT durable.start('trunk', '{"branch": "c branch", "leaf": "c leaf"}', 'c trunk');
CALL durable.work(duration => '0', max_tasks => 2);
SELECT durable.cancel('c branch');
CALL durable.work(duration => '0');
SELECT run_id, status, message FROM runs('c %');
SELECT durable.requeue('c trunk');
CALL durable.work(duration => '0');
SELECT run_id, status, message FROM runs('c %');
-- runs that wait for each other
CREATE FUNCTION joins(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.act', i, 'joins');
	RETURN durable.child('joins', NULL, i ->> 'joins');
END $$;
SELECT durable.register_workflow('joins', 'wf_test.joins');
SELECT durable.start('joins', '{"joins": "k2"}', 'k1'), durable.start('joins', '{"joins": "k1"}', 'k2');
CALL durable.work(duration => '0');
-- (by hand: both failed because of the other)
UPDATE durable.checkpoint SET status = 'failed', error = '{"message": "x"}' WHERE kind = 'child' AND run IN (SELECT id FROM durable.run WHERE run_id LIKE 'k_');
UPDATE durable.run SET status = 'failed', finished_at = now(), turn_state = 'none', error = '{"message": "x"}' WHERE run_id LIKE 'k_';
DELETE FROM durable.task WHERE run_id LIKE 'k_';
DELETE FROM durable.waiter;
SELECT durable.requeue('k2');
SELECT run_id, status, turn FROM runs('k_');
CALL durable.work(duration => '0');
SELECT run_id, status, turn FROM runs('k_');
SELECT durable.cancel('k1'), durable.cancel('k2');

--
-- waits; a failure that the body has dealt with
--
CREATE FUNCTION waits(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.wait_for_signal('never', timeout => '1 s');
	EXCEPTION WHEN SQLSTATE 'WF004' THEN
		PERFORM durable.local_step('wf_test.act', '"timed out"', 'out');
	END;
	RETURN durable.local_step('wf_test.act', '"waits"');
END $$;
CREATE FUNCTION copes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	BEGIN
		PERFORM durable.local_step('wf_test.act', '"copes"', 'one');
	EXCEPTION WHEN division_by_zero THEN
		PERFORM durable.local_step('wf_test.act', '"instead"', 'instead');
		RAISE;
	END;
	RETURN durable.local_step('wf_test.act', '"two"', 'two');
END $$;
SELECT durable.register_workflow('waits', 'wf_test.waits'), durable.register_workflow('copes', 'wf_test.copes');
INSERT INTO broken VALUES ('waits'), ('copes');
SELECT durable.start('waits', NULL, 'w waits'), durable.start('copes', NULL, 'w copes');
CALL durable.work(duration => '0');
SET durable.clock_offset = 10;
CALL durable.work(duration => '0');
SELECT * FROM runs('w %');
TRUNCATE broken;
SELECT durable.requeue('w waits'), durable.requeue('w copes');
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('w %');
SELECT run, string_agg(step, ',' ORDER BY n) FROM effect WHERE run LIKE 'w %' GROUP BY run ORDER BY run;
-- a mismatch is nothing recorded: mend the body, and requeue
CREATE OR REPLACE FUNCTION copes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step('wf_test.act', '"copes"', 'one');
	RETURN durable.local_step('wf_test.act', '"instead"', 'instead');
END $$;
SELECT durable.requeue('w copes');
CALL durable.work(duration => '0');
SELECT * FROM runs('w copes');

--
-- a version that is gone; a step of the run itself
--
INSERT INTO broken VALUES ('b');
SELECT durable.start('three', NULL, 'v1');
CALL durable.work(duration => '0');
SELECT durable.unregister_workflow('three', '1');
SELECT durable.requeue('v1');
SELECT durable.retry_with_input('v1', NULL);
SELECT * FROM runs('v1');
SELECT durable.register_workflow('three', 'wf_test.three', '2');
SELECT durable.requeue('v1');
-- another input takes the newest version
SELECT durable.start('three', '1', 'v2', tags => '{mine}', priority => 7, search_attributes => '{"k": 1}', headers => '{"h": 1}');
SELECT durable.retry_with_input('v2', '2') AS retry \gset
SELECT durable.retry_with_input('v1', NULL) AS retry1 \gset
SELECT version, input, tags, priority, search_attributes, headers, status FROM durable.get_run(:'retry');
SELECT version, input, tags, priority, search_attributes, headers, status FROM durable.get_run(:'retry1');
SELECT durable.start('three', '1', repeat('y', 250));
SELECT durable.retry_with_input(repeat('y', 250), '2');
SELECT durable.retry_with_input('v2', to_jsonb(repeat('x', 11000000)));
TRUNCATE broken;
CALL durable.work(duration => '0');
CREATE FUNCTION own(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO wf_test.effect (run, step) VALUES (durable.run_id(), 'own');
	EXECUTE format('SELECT durable.%s(%L)', i ->> 'do', coalesce(i ->> 'run', durable.run_id()));
	RETURN '"done"';
END $$;
CREATE FUNCTION does_own(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN i ? 'far' THEN durable.step('own', i) ELSE durable.local_step('wf_test.own', i) END;
END $$;
CREATE FUNCTION fathers(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('does_own', i, i ->> 'child'); END $$;
SELECT durable.register_workflow('does_own', 'wf_test.does_own'), durable.register_workflow('fathers', 'wf_test.fathers'), durable.register_handler('own', 'wf_test.own');
SELECT durable.start('does_own', '{"do": "cancel"}', 'o1'), durable.start('does_own', '{"do": "requeue"}', 'o2'),
	durable.start('does_own', '{"do": "cancel", "far": 1}', 'o3'), durable.start('does_own', '{"do": "requeue", "far": 1}', 'o4'),
	durable.start('fathers', '{"do": "cancel", "run": "o5", "child": "o6"}', 'o5');
CALL durable.work(duration => '0');
SELECT * FROM runs('o_');
SELECT count(*) FROM effect WHERE step = 'own';
-- another run is another matter
SELECT durable.start('sleeps', NULL, 'victim'), durable.start('does_own', '{"do": "cancel", "run": "victim"}', 'o7');
CALL durable.work(duration => '0');
SELECT * FROM runs('victim') UNION ALL SELECT * FROM runs('o7');

--
-- runs that are lost: this session claims their turns and never comes back
--
CREATE FUNCTION lose(times int, skip int) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	said text := '';
BEGIN
	FOR n IN 1..times LOOP
		PERFORM durable.claim('{lossy}', 10, '1 s');
		PERFORM set_config('durable.clock_offset', (skip + n * 10)::text, false);
		PERFORM durable.sweep();
		said := said || (SELECT string_agg(format('%s %s %s', run_id, status, recovery_attempts), ', ' ORDER BY run_id) FROM durable.run WHERE run_id LIKE 'lost%') || E'\n';
	END LOOP;
	RETURN said;
END $$;
SELECT durable.register_workflow('lossy', 'wf_test.three', queue => 'lossy');
SELECT durable.start('lossy', NULL, 'lost1');
SELECT lose(2, 0);
-- progress: what is bounded by max_reclaims begins anew, what is bounded by max_recovery_attempts does not
CALL durable.work(queues => '{lossy}', duration => '0');
SELECT * FROM runs('lost1');
SELECT durable.start('lossy', NULL, 'lost2');
SELECT lose(4, 100);
SELECT * FROM runs('lost2');
SELECT durable.result('lost2');
SELECT durable.requeue('lost2');
SELECT * FROM runs('lost2');
SET durable.max_recovery_attempts = 1;
SELECT lose(2, 200);
SELECT * FROM runs('lost2');
SELECT * FROM history('lost2');
SELECT durable.retry('lost2');
SET durable.max_recovery_attempts = 0;
SELECT lose(1, 300);
SELECT durable.requeue('lost2');
RESET durable.max_recovery_attempts;
CALL durable.work(queues => '{lossy}', duration => '0');
SELECT * FROM runs('lost2');
-- a parent learns
CREATE FUNCTION waits_for(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.child('lossy', NULL, 'lost3');
EXCEPTION WHEN SQLSTATE 'WF003' THEN
	RETURN to_jsonb(sqlerrm);
END $$;
SELECT durable.register_workflow('waits_for', 'wf_test.waits_for');
SELECT durable.start('waits_for', NULL, 'parent');
CALL durable.work(duration => '0');
SET durable.max_recovery_attempts = 0;
SELECT lose(1, 400);
RESET durable.max_recovery_attempts;
CALL durable.work(duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('lost3') UNION ALL SELECT * FROM runs('parent');
SET durable.max_recovery_attempts = -2;
SET durable.max_recovery_attempts = 'x';
-- an old token of a run that has been dead does not hold its new turn
SELECT durable.start('lossy', NULL, 'lost4');
SELECT task_id AS id, token FROM durable.claim('{lossy}', lease => '1 s') \gset
SET durable.max_recovery_attempts = 0;
SET durable.clock_offset = 10;
SELECT durable.sweep() -> 'taken_over' AS taken_over;
RESET durable.max_recovery_attempts;
SELECT durable.requeue('lost4');
SELECT durable.renew(:'token'), durable.release(:'token'), durable.heartbeat(:'id', :'token');
CALL durable.work(queues => '{lossy}', duration => '0');
RESET durable.clock_offset;
SELECT * FROM runs('lost4');

--
-- privileges
--
CREATE ROLE durable_wf_boss;
CREATE ROLE durable_wf_user;
SELECT durable.grant_usage('durable_wf_boss', 'default', '{manage}'), durable.grant_usage('durable_wf_boss', 'far', '{start}'), durable.grant_usage('durable_wf_user');
INSERT INTO broken VALUES ('b');
SELECT durable.register_workflow('three', 'wf_test.three', namespace => 'far');
SELECT durable.start('three', NULL, 'p1'), durable.start('three', NULL, 'p2', namespace => 'far');
CALL durable.work(duration => '0');
SET ROLE durable_wf_user;
SELECT durable.requeue('p1');
SELECT durable.retry('p1');
SELECT durable.retry_with_input('p1', NULL);
SET ROLE durable_wf_boss;
SELECT durable.requeue('p2');
SELECT durable.retry('p2');
SELECT durable.retry_with_input('p2', NULL);
SELECT durable.requeue('p1'), durable.retry_with_input('p1', NULL) LIKE 'p1~retry~%';
SELECT durable.cancel('p1');
RESET ROLE;
SELECT run_id, status FROM runs('p_');

-- nothing is left behind
TRUNCATE broken;
CALL durable.work(duration => '0');
SELECT run_id, status FROM durable.run WHERE finished_at IS NULL;
SELECT t.kind, t.run_id FROM durable.task t WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.run_id = t.run_id AND r.finished_at IS NULL);
SELECT count(*) FROM durable.waiter;
SET client_min_messages = warning;
DROP SCHEMA wf_test CASCADE;
DROP EXTENSION durable;
DROP ROLE durable_wf_boss, durable_wf_user;
