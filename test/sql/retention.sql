-- retention: which runs go when; archive functions; deleting by hand
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
DROP SCHEMA IF EXISTS ret_test CASCADE;
DROP ROLE IF EXISTS durable_ret_boss;
CREATE SCHEMA ret_test;
RESET client_min_messages;
SET search_path = ret_test;
SET timezone = 'UTC';
CREATE ROLE durable_ret_boss;
GRANT ALL ON SCHEMA ret_test TO durable_ret_boss;
SELECT durable.grant_usage('durable_ret_boss', privileges => '{start,signal,work,read,manage}');
SELECT durable.grant_usage('durable_ret_boss', 'tenant', '{start,signal,work,read,manage}');

-- what is there, and what is left of what is not
CREATE FUNCTION runs() RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(run_id, ' ' ORDER BY id), '(none)') FROM durable.run
$$;
CREATE FUNCTION leftovers() RETURNS TABLE (place text, n bigint) LANGUAGE sql AS $$
	SELECT * FROM (
	SELECT 'checkpoint', count(*) FROM durable.checkpoint c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'run_log', count(*) FROM durable.run_log c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'waiter', count(*) FROM durable.waiter c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'task', count(*) FROM durable.task t WHERE t.run_id IS NOT NULL AND NOT EXISTS (SELECT FROM durable.run r WHERE r.run_id = t.run_id)
	UNION ALL SELECT 'task_ready', count(*) FROM durable.task_ready x WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = x.id)
	UNION ALL SELECT 'task_deadline', count(*) FROM durable.task_deadline x WHERE NOT EXISTS (SELECT FROM durable.task t WHERE t.id = x.id)
	UNION ALL SELECT 'retention_member', count(*) FROM durable.retention_member c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'retention_archive', count(*) FROM durable.retention_archive c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)
	UNION ALL SELECT 'retention_due', count(*) FROM durable.retention_due c WHERE NOT EXISTS (SELECT FROM durable.run r WHERE r.id = c.run)) x (place, n) WHERE n > 0
$$;
-- everything that retention has to do now
CREATE FUNCTION sweep() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint := 0;
BEGIN
	FOR i IN 1 .. 100 LOOP
		n := n + (durable.sweep() ->> 'runs_deleted')::bigint;
		EXIT WHEN i > 3 AND NOT EXISTS (SELECT FROM durable.retention_due WHERE look_at <= durable.engine_now())
			AND NOT EXISTS (SELECT FROM durable.retention_state WHERE changed OR scanned < scan_to)
			AND NOT EXISTS (SELECT FROM durable.retention_policy WHERE dropped);
	END LOOP;
	RETURN n;
END $$;

SET ROLE durable_ret_boss;
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.log('info', 'here');
	IF i ? 'child' THEN
		RETURN durable.child('w', i -> 'input', child_id => i ->> 'child');
	ELSIF i ? 'spawn' THEN
		PERFORM durable.start_child('w', i -> 'input', child_id => i ->> 'spawn');
	ELSIF i ? 'fail' THEN
		RAISE EXCEPTION 'failed';
	ELSIF i ? 'wait' THEN
		RETURN durable.wait_for_signal(i ->> 'wait');
	ELSIF i ? 'forget' THEN
		PERFORM durable.step_async('outside', queue => 'outside', timeout => '1 h');
	END IF;
	RETURN i;
END $$;
SELECT durable.register_workflow('w', 'body');
SELECT durable.register_workflow('other', 'body', tags => '{kept}');
SELECT durable.register_workflow('w', 'body', namespace => 'tenant');

-- no policy: everything stays, and a sweep has nothing to do
SELECT durable.start('w', run_id => 'a' || i) FROM generate_series(1, 3) i;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();

-- by age, measured on the end; nothing goes early
SET ROLE durable_ret_boss;
SELECT durable.set_retention('{completed}', max_age => '1 day') > 0 AS set;
SELECT durable.start('w', '{"fail": 1}', run_id => 'failed');
SELECT durable.start('w', '{"wait": "x"}', run_id => 'live');
SELECT durable.start('w', run_id => 'tenant', namespace => 'tenant');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SET durable.clock_offset = '23 h';
SET ROLE durable_ret_boss;
SELECT durable.start('w', run_id => 'later');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SET durable.clock_offset = '25 h';
SELECT sweep(), runs();
SELECT * FROM leftovers();
SET ROLE durable_ret_boss;
SELECT namespace, statuses, workflow, tag, max_age, max_count, archive, owner, deleted, waiting, failing, last_error FROM durable.retention;

-- the same scope: replaced; shorter, it looks at what has ended before
SELECT durable.set_retention('{completed,completed}', max_age => '1 h') > 0 AS set;
SELECT namespace, statuses, max_age, deleted FROM durable.retention;
RESET ROLE;
SELECT sweep(), runs();
SET ROLE durable_ret_boss;
SELECT durable.signal('x');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SET durable.clock_offset = '27 h';
SELECT sweep(), runs();

-- several policies: the first that is due; statuses, workflow, tag, namespace
SET ROLE durable_ret_boss;
SELECT durable.drop_retention(id) FROM durable.retention;
SELECT count(durable.set_retention('{failed,dead,cancelled}', max_age => '2 h')),
	count(durable.set_retention('{completed}', max_age => '2 h', workflow => 'other')),
	count(durable.set_retention('{completed}', max_age => '4 h', tag => 'short')),
	count(durable.set_retention('{completed}', max_age => '2 h', namespace => 'tenant'));
SELECT durable.start('w', run_id => 'plain'), durable.start('other', run_id => 'other'), durable.start('w', run_id => 'tagged', tags => '{short}'),
	durable.start('other', run_id => 'both', tags => '{short}'), durable.start('w', run_id => 'tenant2', namespace => 'tenant'),
	durable.start('w', '{"wait": "y"}', run_id => 'cancelled');
CALL durable.work(duration => '0');
SELECT durable.cancel('cancelled');
RESET ROLE;
-- those that ended before the policies came, too
SELECT sweep(), runs();
SET durable.clock_offset = '30 h';
SELECT sweep(), runs();
SET durable.clock_offset = '32 h';
SELECT sweep(), runs();
SELECT * FROM leftovers();
SELECT count(*) FROM durable.retention_due;

-- by count: the newest by creation stay, whenever they ended
SET ROLE durable_ret_boss;
SELECT durable.drop_retention(id) FROM durable.retention;
SELECT durable.set_retention('{completed,failed}', max_count => 2, workflow => 'w') > 0 AS set;
SELECT durable.start('w', '{"wait": "z"}', run_id => 'c1');
SELECT durable.start(w, i::jsonb, run_id => id) FROM (VALUES ('w', '{}', 'c2'), ('w', '{"fail": 1}', 'c3'), ('w', '{}', 'c4'), ('other', '{}', 'o1'), ('other', '{}', 'o2'), ('other', '{}', 'o3')) v (w, i, id);
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SET ROLE durable_ret_boss;
-- the oldest ends last, and goes at once
SELECT durable.signal('z');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
-- ties with the last one that is kept stay
UPDATE durable.run SET created_at = '2000-01-01' WHERE run_id IN ('c3', 'c4');
SET ROLE durable_ret_boss;
SELECT durable.set_retention('{completed,failed}', max_count => 1, workflow => 'w') > 0 AS set;
RESET ROLE;
SELECT sweep(), runs();
-- a run that is tried again is not counted
SET ROLE durable_ret_boss;
SELECT durable.start('w', '{"fail": 1}', run_id => 'd1');
CALL durable.work(duration => '0');
SELECT durable.requeue('d1');
RESET ROLE;
SELECT sweep(), runs();
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
-- none at all
SET ROLE durable_ret_boss;
SELECT durable.set_retention('{completed,failed}', max_count => 0, workflow => 'w') > 0 AS set;
RESET ROLE;
SELECT sweep(), runs();
-- past either
SET ROLE durable_ret_boss;
SELECT durable.drop_retention(id) FROM durable.retention;
SELECT durable.set_retention('{completed}', max_age => '1 h', max_count => 2, workflow => 'other') > 0 AS set;
RESET ROLE;
SELECT sweep(), runs();
SET durable.clock_offset = '34 h';
SELECT sweep(), runs();
SELECT * FROM leftovers();

-- trees: children go with the run that started them, and not before it
SET ROLE durable_ret_boss;
SELECT durable.drop_retention(id) FROM durable.retention;
SELECT durable.set_retention('{completed}', max_age => '0') > 0 AS set;
SELECT durable.start('w', '{"child": "k1", "input": {"child": "k2"}}', run_id => 'p1');
SELECT durable.start('w', '{"child": "k3", "input": {"fail": 1}}', run_id => 'p2');
SELECT durable.start('w', '{"spawn": "k4", "input": {"wait": "k4"}}', run_id => 'p3');
CALL durable.work(duration => '0');
SELECT run_id, status FROM durable.run ORDER BY id;
RESET ROLE;
-- p2 has failed, of p3 a run has not ended
SELECT sweep(), runs();
SET ROLE durable_ret_boss;
SELECT durable.signal('k4');
CALL durable.work(duration => '0');
RESET ROLE;
-- looked at again after a while
SELECT sweep(), runs();
SET durable.clock_offset = '35 h';
SELECT sweep(), runs();
SELECT * FROM leftovers();

-- delete_run
SET ROLE durable_ret_boss;
SELECT durable.drop_retention(id) FROM durable.retention;
SELECT durable.delete_run('p2'), durable.delete_run('p2'), durable.delete_run('nobody');
SELECT durable.start('w', '{"wait": "q"}', run_id => 'q1'), durable.start('w', '{"spawn": "q3", "input": {"wait": "q3"}}', run_id => 'q2'),
	durable.start('w', '{"forget": 1}', run_id => 'q4');
CALL durable.work(duration => '0');
\set VERBOSITY default
SELECT durable.delete_run('q1');
SELECT durable.delete_run('q2');
\set VERBOSITY terse
-- a signal that nobody took, and a task that is out, go along
SELECT durable.signal('child:q4');
SELECT t.name, t.run_id, d.id IS NOT NULL AS deadline FROM durable.task t LEFT JOIN durable.task_deadline d USING (id) WHERE t.kind = 'step';
SELECT durable.delete_run('q4'), (SELECT count(*) FROM durable.signal_buffer) AS signals;
RESET ROLE;
SELECT runs();
SELECT * FROM leftovers();
-- the id is free
SET ROLE durable_ret_boss;
SELECT durable.start('w', run_id => 'q4');
CALL durable.work(duration => '0');
SELECT durable.cancel('q1'), durable.cancel('q3');
SELECT durable.delete_run('q1'), durable.delete_run('q2'), durable.delete_run('q4');
-- a child by itself; its parent, tried again, starts it anew
SELECT durable.start('w', '{"child": "s2", "input": {"fail": 1}}', run_id => 's1');
CALL durable.work(duration => '0');
SELECT durable.delete_run('s2');
SELECT durable.requeue('s1');
CALL durable.work(duration => '0');
SELECT run_id, status, error ->> 'message' AS error FROM durable.run ORDER BY id;
SELECT durable.delete_run('s1');
RESET ROLE;
SELECT runs();
SELECT * FROM leftovers();
SELECT count(*) FROM durable.retention_due;

-- purge_runs
SET ROLE durable_ret_boss;
SELECT count(durable.start('w', run_id => 'x' || i, tags => ARRAY['t' || i % 2], search_attributes => jsonb_build_object('n', i))) FROM generate_series(1, 10) i;
SELECT durable.start('other', '{"fail": 1}', run_id => 'y1'), durable.start('other', '{"wait": "y"}', run_id => 'y2'),
	durable.start('other', '{"child": "y4", "input": {"spawn": "y5", "input": {"wait": "y5"}}}', run_id => 'y3'),
	durable.start('w', run_id => 'z1', namespace => 'tenant');
CALL durable.work(duration => '0');
SELECT durable.purge_runs('{"tag": "t1", "search_attributes": {"n": 3}}'), durable.purge_runs('{"workflow": "w", "tag": ["t1", "nothing"]}', max_runs => 2),
	durable.purge_runs('{"workflow": "w", "tag": ["t1", "nothing"]}', max_runs => 10), durable.purge_runs('{"workflow": "w", "tag": ["t1", "nothing"]}');
RESET ROLE; SELECT runs(); SET ROLE durable_ret_boss;
SELECT durable.purge_runs('{"older_than": "1 h"}'), durable.purge_runs('{"created_before": "2000-01-01"}'), durable.purge_runs('{"version": ["2"]}'),
	durable.purge_runs('{"status": "failed", "workflow": ["other"], "older_than": "0"}');
-- live ones and their trees are kept, or cancelled first
SELECT durable.purge_runs('{"namespace": "default", "status": ["completed", "suspended"], "workflow": "other"}');
RESET ROLE; SELECT runs(); SET ROLE durable_ret_boss;
SELECT durable.purge_runs('{"namespace": "default"}', force => true), durable.purge_runs('{"namespace": "default"}', force => true);
SELECT durable.purge_runs('{"namespace": "tenant"}');
RESET ROLE;
SELECT runs();
SELECT * FROM leftovers();
SELECT count(*) FROM durable.task;

-- archive functions: as the owner, in its sessions, in the transaction of the deletion
SET ROLE durable_ret_boss;
CREATE TABLE archive (run_id text PRIMARY KEY, who text, doc jsonb);
CREATE FUNCTION keep(doc jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO ret_test.archive VALUES (doc -> 'run' ->> 'run_id', session_user || ' ' || current_user, doc);
	IF doc -> 'run' ->> 'run_id' = 'bad' AND NOT EXISTS (SELECT FROM ret_test.archive WHERE run_id = 'allowed') THEN
		RAISE EXCEPTION 'not this one';
	END IF;
	RETURN NULL;
END $$;
SELECT durable.set_retention('{completed,failed}', max_age => '1 h', archive => 'keep(jsonb)') > 0 AS set;
SELECT durable.start('w', run_id => 'bad'), durable.start('w', '{"child": "g2", "input": {"a": 1}}', run_id => 'g1', tags => '{t}', priority => 3), durable.start('w', run_id => 'g3');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SET durable.clock_offset = '37 h';
SELECT sweep(), runs();
-- the sweep calls nothing
SELECT kind, namespace, queue = '#' || 'durable_ret_boss'::regrole::oid AS owners FROM durable.task;
SELECT count(*) FROM archive;
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SELECT run_id, who = session_user || ' durable_ret_boss' AS as_owner FROM archive ORDER BY run_id;
SELECT jsonb_pretty(jsonb_set(jsonb_set(doc, '{policy}', '0'), '{children}', jsonb_path_query_array(doc, '$.children[*].run.run_id'))
	#- '{run,created_at}' #- '{run,started_at}' #- '{run,finished_at}' #- '{history,0,started_at}' #- '{history,0,finished_at}' #- '{log,0,at}') AS doc
  FROM archive WHERE run_id = 'g1';
SELECT jsonb_path_query_array(doc, '$.children[*].run.parent'), jsonb_path_query_array(doc, '$.children[*].log[*].message'),
	(doc #>> '{run,finished_at}')::timestamptz BETWEEN now() AND now() + '38 h' AS ended FROM archive WHERE run_id = 'g1';
-- what failed is kept and says why; nothing that the function did is left
SET ROLE durable_ret_boss;
SELECT deleted, waiting, failing, last_error, last_error_run FROM durable.retention;
SELECT run_id, status, error, failures, next_try > failed_at AS later FROM durable.retention_failures;
SELECT count(*) FROM durable.task;
RESET ROLE;
-- not again at once, but later
SELECT sweep();
SELECT count(*) FROM durable.task;
SET durable.clock_offset = '38 h';
SELECT sweep();
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
SELECT run_id, error, failures FROM durable.retention_failures;
INSERT INTO archive VALUES ('allowed');
RESET ROLE;
SET durable.clock_offset = '39 h';
SELECT sweep();
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
SELECT deleted, waiting, failing, last_error FROM durable.retention;
RESET ROLE;
SELECT runs();
SELECT * FROM leftovers();
-- a run that was tried again meanwhile is not archived; nor one of a policy that is gone
SET ROLE durable_ret_boss;
SELECT durable.start('w', '{"fail": 1}', run_id => 'h1'), durable.start('w', run_id => 'h2');
CALL durable.work(duration => '0');
RESET ROLE;
SET durable.clock_offset = '41 h';
SELECT sweep();
SET ROLE durable_ret_boss;
SELECT durable.requeue('h1');
RESET ROLE;
SELECT name, kind FROM durable.task ORDER BY id;
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT runs();
SET durable.clock_offset = '43 h';
SELECT sweep();
SET ROLE durable_ret_boss;
SELECT durable.drop_retention(id) FROM durable.retention;
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();
SELECT count(*) FROM durable.retention_archive;
SELECT count(*) FROM durable.retention_state;
SELECT count(*) FROM durable.task;
-- the function is gone, or its owner must not any more
SET ROLE durable_ret_boss;
SELECT durable.set_retention('{failed}', max_age => '0', archive => 'keep(jsonb)') > 0 AS set;
DROP FUNCTION keep(jsonb);
RESET ROLE;
SELECT sweep();
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
SELECT waiting, failing, last_error FROM durable.retention;
CREATE FUNCTION keep(doc jsonb) RETURNS jsonb LANGUAGE sql AS $$ INSERT INTO ret_test.archive VALUES (doc -> 'run' ->> 'run_id'); SELECT NULL::jsonb $$;
RESET ROLE;
SELECT durable.revoke_usage('durable_ret_boss', privileges => '{manage}');
SET durable.clock_offset = '44 h';
SELECT sweep();
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
SELECT waiting, failing, last_error FROM durable.retention;
SELECT count(*) FROM archive WHERE run_id = 'h1';
RESET ROLE;
SELECT durable.grant_usage('durable_ret_boss', privileges => '{manage}');
SET durable.clock_offset = '46 h';
SELECT sweep();
SET ROLE durable_ret_boss;
CALL durable.work(duration => '0');
SELECT waiting, failing, last_error FROM durable.retention;
SELECT count(*) FROM archive WHERE run_id = 'h1';

-- all namespaces: only who owns the extension
SELECT durable.set_retention('{completed,failed}', max_age => '0', namespace => '*');
RESET ROLE;
SELECT durable.set_retention('{completed,failed}', max_age => '0', namespace => '*') > 0 AS set;
SET ROLE durable_ret_boss;
SELECT durable.start('w', run_id => 'n1', namespace => 'tenant');
CALL durable.work(duration => '0');
RESET ROLE;
SELECT sweep(), runs();

-- signals that nobody takes
SET ROLE durable_ret_boss;
SELECT durable.signal('s' || i) FROM generate_series(1, 3) i;
RESET ROLE;
SET durable.clock_offset = '1000 h';
SELECT durable.sweep() -> 'signals_expired' AS expired;
SET durable.signal_retention = '10 d';
SELECT durable.sweep(max_work => 2) -> 'signals_expired' AS expired;
SET ROLE durable_ret_boss;
SELECT durable.signal('s4');
RESET ROLE;
SELECT durable.sweep() -> 'signals_expired' AS expired;
SELECT count(*) FROM durable.signal_buffer;

-- a transaction with one snapshot leaves retention to others
SET ROLE durable_ret_boss;
SELECT durable.start('w', run_id => 'n2');
CALL durable.work(duration => '0');
RESET ROLE;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
COMMIT;
SELECT durable.sweep() -> 'runs_deleted' AS deleted;
SELECT * FROM leftovers();

SET client_min_messages = warning;
DROP SCHEMA ret_test CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_ret_boss;
DROP ROLE durable_ret_boss;
