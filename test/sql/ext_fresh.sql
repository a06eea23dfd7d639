-- exchange claims the steps that it dispatches, as if they had stood in their list
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA fresh_test;
CREATE ROLE fresh_role;
RESET client_min_messages;
SELECT durable.grant_usage('fresh_role', 'default', '{work,start,read}');
GRANT ALL ON SCHEMA fresh_test TO fresh_role;
SELECT durable.register_workflow('w');
SET search_path = fresh_test;
SET ROLE fresh_role;

CREATE TABLE held (name text, task jsonb);
CREATE FUNCTION keep(tasks jsonb) RETURNS SETOF text LANGUAGE sql AS $$
	INSERT INTO held SELECT concat_ws(' ', t ->> 'run_id', t ->> 'name', CASE WHEN t ->> 'kind' <> 'turn' THEN t ->> 'input' END), t FROM jsonb_array_elements(tasks) t RETURNING name
$$;
CREATE FUNCTION take(queue text, max_tasks int DEFAULT 100, worker text DEFAULT NULL) RETURNS SETOF text LANGUAGE sql AS $$
	SELECT keep(tasks) FROM durable.exchange(NULL, ARRAY[queue], max_tasks, worker => worker)
$$;
-- a step that run r asks for
CREATE FUNCTION call(seq int, name text, input int, more jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('type', 'call', 'seq', seq, 'name', name, 'input', input) || more
$$;
CREATE FUNCTION turn(r text, VARIADIC commands jsonb[]) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('task_id', task -> 'task_id', 'token', task -> 'token', 'decision',
		jsonb_build_object('status', 'continue', 'commands', to_jsonb(commands)))
	  FROM held WHERE task ->> 'run_id' = r AND task ->> 'kind' = 'turn'
$$;
CREATE FUNCTION result(n text, after jsonb DEFAULT '{}') RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('task_id', task -> 'task_id', 'token', task -> 'token', 'output', 1) || after FROM held WHERE name = n
$$;
-- hand in, claim, and say how often a task was put into the list of ready ones meanwhile
CREATE FUNCTION go(items jsonb[], queues text[], max_tasks int, worker text DEFAULT NULL) RETURNS TABLE (results int[], took text, listed bigint)
LANGUAGE plpgsql AS $$
DECLARE
	before bigint := pg_stat_get_xact_tuples_inserted('durable.task_ready'::regclass);
	tasks jsonb;
BEGIN
	SELECT e.results, e.tasks INTO results, tasks FROM durable.exchange(to_jsonb(items), queues, max_tasks, worker => worker) e;
	SELECT string_agg(k, ', ') INTO took FROM keep(tasks) k;
	listed := pg_stat_get_xact_tuples_inserted('durable.task_ready'::regclass) - before;
	RETURN NEXT;
END $$;
RESET ROLE;
CREATE VIEW ready AS SELECT t.name, t.input, t.priority FROM durable.task_ready r JOIN durable.task t USING (id) ORDER BY r.priority DESC, r.id;
CREATE VIEW unlisted AS
SELECT t.name, t.input FROM durable.task t
 WHERE t.kind = 'step' AND NOT EXISTS (SELECT FROM durable.task_ready r WHERE r.id = t.id)
   AND NOT EXISTS (SELECT FROM durable.task_limited r WHERE r.id = t.id)
   AND NOT EXISTS (SELECT FROM durable.lease l WHERE t.id = ANY (l.ids) AND l.lease_until > now()) ORDER BY t.id;
GRANT SELECT ON ready, unlisted TO fresh_role;
GRANT USAGE ON SCHEMA durable TO fresh_role;
SET ROLE fresh_role;

--
-- the step is there, held, and was in no list
--
SELECT durable.start('w', NULL, 'r1');
SELECT take('w');
SELECT * FROM go(ARRAY[turn('r1', call(0, 's', 1))], '{w,s}', 10);
SELECT task ->> 'kind' AS kind, task ->> 'queue' AS queue, task -> 'input' AS input, task ->> 'run_id' AS run, task -> 'seq' AS seq, task -> 'attempt' AS attempt
  FROM held WHERE name = 'r1 s 1';
SELECT status FROM durable.task_status((SELECT task ->> 'task_id' FROM held WHERE name = 'r1 s 1'));
SELECT take('s');
SELECT durable.heartbeat(task ->> 'task_id', (task ->> 'token')::uuid) IS NOT NULL AS beats FROM held WHERE name = 'r1 s 1';
SELECT * FROM go(ARRAY[result('r1 s 1')], '{s}', 10);
SELECT seq, kind, name, status, attempts FROM durable.history('r1');
-- given back it is in its list
TRUNCATE held;
SELECT take('w');
SELECT * FROM go(ARRAY[turn('r1', call(1, 's', 2))], '{s}', 10);
SELECT durable.release((task ->> 'token')::uuid, ARRAY[task ->> 'task_id']) FROM held WHERE name = 'r1 s 2';
SELECT * FROM ready;
SELECT take('s');
SELECT durable.cancel('r1');
SELECT * FROM unlisted;
TRUNCATE held;

--
-- the order is that of priority and age, whoever was there first
--
SELECT durable.dispatch('s', '10');
SELECT durable.start('w', NULL, 'o1'), durable.start('w', NULL, 'o2'), durable.start('w', NULL, 'o3');
SELECT take('w');
-- an older one first; the new ones stand behind it
SELECT * FROM go(ARRAY[turn('o1', call(0, 's', 1))], '{s}', 1);
SELECT * FROM ready;
-- the highest priority first, among the new ones and those in the list
SELECT durable.dispatch('s', '11', priority => 3);
SELECT * FROM go(ARRAY[turn('o2', call(0, 's', 2, '{"priority": 2}'), call(1, 's', 4, '{"priority": 4}'), call(2, 's', 0))], '{s}', 3);
SELECT * FROM ready;
-- of two queues the new ones are merged like the others
SELECT durable.dispatch('t', '12', priority => 1);
SELECT * FROM go(ARRAY[turn('o3', call(0, 's', 5, '{"priority": 2}'), call(1, 't', 6), call(2, 'u', 7))], '{t,s}', 2);
SELECT * FROM ready;
SELECT * FROM unlisted;
SELECT durable.cancel('o1'), durable.cancel('o2'), durable.cancel('o3');
SELECT * FROM ready;
TRUNCATE held;

--
-- who does not claim there: no room, another queue, a paused one, another namespace, what the worker cannot do
--
SELECT durable.start('w', NULL, 'q' || i) FROM generate_series(1, 6) i;
SELECT take('w');
SELECT * FROM go(ARRAY[turn('q1', call(0, 'a', 1))], '{a}', 0);
SELECT * FROM go(ARRAY[turn('q2', call(0, 'a', 2))], '{b}', 10);
RESET ROLE;
SELECT durable.pause_queue('a');
SET ROLE fresh_role;
SELECT * FROM go(ARRAY[turn('q3', call(0, 'a', 3))], '{a}', 10);
RESET ROLE;
SELECT durable.resume_queue('a');
SELECT durable.grant_usage('fresh_role', 'other', '{work}');
SELECT durable.announce_worker('w1', '{a}', capabilities => '{}') ->> 'outcome' AS plain,
       durable.announce_worker('w2', '{a}', capabilities => '{gpu}') ->> 'outcome' AS gpu;
SET ROLE fresh_role;
SELECT results, tasks FROM durable.exchange(jsonb_build_array(turn('q4', call(0, 'a', 4))), '{a}', 10, namespace => 'other');
SELECT * FROM ready;
SELECT * FROM go(ARRAY[turn('q5', call(0, 'a', 5, '{"requires": ["gpu"], "priority": 1}'))], '{a}', 1, 'w1');
SELECT * FROM ready;
SELECT * FROM go(ARRAY[turn('q6', call(0, 'a', 6, '{"requires": ["gpu"], "priority": 1}'))], '{a}', 2, 'w2');
SELECT * FROM ready;
SELECT * FROM unlisted;
SELECT durable.cancel('q' || i) FROM generate_series(1, 6) i;
TRUNCATE held;

--
-- fans: as many as there is room for, the rest in the list; behind a bound they follow as others end
--
SELECT durable.start('w', NULL, 'f1'), durable.start('w', NULL, 'f2');
SELECT take('w');
SELECT * FROM go(ARRAY[turn('f1', '{"type": "call_all", "seq": 0, "name": "s", "inputs": [0, 1, 2, 3, 4]}')], '{s}', 3);
SELECT * FROM ready;
SELECT * FROM go(ARRAY[result('f1 s 0')], '{s}', 10);
SELECT * FROM go(ARRAY[turn('f2', '{"type": "call_all", "seq": 0, "name": "s", "inputs": [0, 1, 2, 3], "max_in_flight": 2}')], '{s}', 10);
SELECT * FROM ready;
SELECT * FROM go(ARRAY[result('f2 s 1')], '{s}', 10);
SELECT durable.cancel('f1'), durable.cancel('f2');
TRUNCATE held;

--
-- a window for being picked up, a limiter
--
RESET ROLE;
SELECT durable.register_limiter('one', concurrency => 1);
SET ROLE fresh_role;
SELECT durable.start('w', NULL, 'd1'), durable.start('w', NULL, 'd2');
SELECT take('w');
SELECT * FROM go(ARRAY[turn('d1', call(0, 's', 1, '{"pickup_timeout_ms": 3600000, "timeout_ms": 1800000}'))], '{s}', 10);
SELECT * FROM go(ARRAY[turn('d2', call(0, 's', 2, '{"limiter": "one"}'), call(1, 's', 3, '{"limiter": "one"}'))], '{s}', 10);
RESET ROLE;
SELECT t.input, d.due_at - now() BETWEEN interval '29 min' AND interval '30 min' AS silence FROM durable.task_deadline d JOIN durable.task t USING (id);
SET ROLE fresh_role;
SELECT * FROM unlisted;
SELECT durable.cancel('d1'), durable.cancel('d2');
RESET ROLE;
SELECT count(*) FROM durable.task_deadline;
SET ROLE fresh_role;
TRUNCATE held;

--
-- what the same call dispatches and drops: nobody gets it
--
SELECT durable.start('w', NULL, 'x1'), durable.start('w', NULL, 'x2');
SELECT take('w');
SELECT * FROM go(ARRAY[turn('x1', call(0, 's', 1), call(1, 's', 2))], '{s}', 10);
SELECT * FROM go(ARRAY[
	result('x1 s 1', jsonb_build_object('turn', jsonb_build_object('token', turn('x1', '{}') -> 'token', 'history_end', 2,
		'decision', jsonb_build_object('status', 'continue', 'commands', jsonb_build_array(call(2, 's', 3)))))),
	result('x1 s 2', jsonb_build_object('turn', jsonb_build_object('token', turn('x1', '{}') -> 'token', 'history_end', 3,
		'decision', '{"status": "failed", "error": "no"}'::jsonb))),
	turn('x2', call(0, 's', 4))], '{s}', 10);
SELECT seq, name, status FROM durable.history('x1');
SELECT * FROM ready;
SELECT * FROM unlisted;
SELECT durable.cancel('x2');
TRUNCATE held;

--
-- taken back with the command
--
SELECT durable.start('w', NULL, 'b1');
SELECT take('w');
BEGIN;
SAVEPOINT s;
SELECT * FROM go(ARRAY[turn('b1', call(0, 's', 1))], '{s}', 10);
ROLLBACK TO s;
SELECT * FROM go(ARRAY[turn('b1', call(0, 's', 2))], '{s}', 10);
COMMIT;
SELECT seq, name, status, input FROM durable.history('b1');
SELECT durable.cancel('b1');
RESET ROLE;
SELECT count(*) AS tasks FROM durable.task WHERE kind <> 'task';
SET client_min_messages = warning;
DROP OWNED BY fresh_role CASCADE;
DROP EXTENSION durable CASCADE;
DROP SCHEMA fresh_test CASCADE;
DROP ROLE fresh_role;
