-- start-time quotas: at most so many active runs under a key, exactly
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
DROP SCHEMA IF EXISTS quota CASCADE;
CREATE SCHEMA quota;
RESET client_min_messages;
SET search_path = quota;
CREATE FUNCTION waits(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.wait_for_signal('go:' || durable.run_id()); RETURN i; END $$;
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.fail_run('no'); RETURN i; END $$;

SELECT durable.register_workflow('w', 'quota.waits', concurrency_key => '$.tenant', concurrency_limit => 2),
	durable.register_workflow('v', 'quota.waits', concurrency_key => '$.tenant', concurrency_limit => 3),
	durable.register_workflow('free', 'quota.waits'), durable.register_workflow('fails', 'quota.fails', concurrency_key => '$.tenant', concurrency_limit => 1);
SELECT durable.start('w', '{"tenant": "t"}', 'w1'), durable.start('w', '{"tenant": "t"}', 'w2');
\set VERBOSITY default
SELECT durable.start('w', '{"tenant": "t"}', 'w3');
\set VERBOSITY terse
-- the keys are of the namespace, not of the workflow; each start has the limit of its own workflow
SELECT durable.start('v', '{"tenant": "t"}', 'v1');
SELECT durable.start('v', '{"tenant": "t"}', 'v2');
SELECT durable.start('w', '{"tenant": "other"}', 'w4');
SELECT durable.register_workflow('w', 'quota.waits', namespace => 'elsewhere', concurrency_key => '$.tenant', concurrency_limit => 1);
SELECT durable.start('w', '{"tenant": "t"}', 'w5', namespace => 'elsewhere');
SELECT namespace, key, count(*) FROM durable.quota GROUP BY 1, 2 ORDER BY 1, 2;
SELECT run_id, concurrency_key FROM durable.run ORDER BY id;
-- one that exists is never refused
SELECT durable.start('w', '{"tenant": "t"}', 'w1'), durable.start('w', '{}', 'w1'), durable.start('w', '{"tenant": "t"}', 'w1', concurrency_limit => 0);
-- a run counts as long as it has not ended: running, suspended, delayed
CALL durable.work(duration => '0');
SELECT durable.start('w', '{"tenant": "t"}', 'w3');
SELECT durable.cancel('w1'), durable.cancel('v1');
SELECT durable.start('w', '{"tenant": "t"}', 'w3', start_at => now() + '1 hour');
SELECT durable.start('w', '{"tenant": "t"}', 'w6');
SELECT durable.signal('go:w2');
CALL durable.work(duration => '0');
SELECT durable.start('w', '{"tenant": "t"}', 'w6');
BEGIN;
SELECT durable.cancel('w6');
SELECT durable.start('w', '{"tenant": "t"}', 'w7');
SELECT durable.start('w', '{"tenant": "t"}', 'w8');
ROLLBACK;
SELECT durable.start('w', '{"tenant": "t"}', 'w7');
-- nothing is left of what was refused
SELECT count(*) FROM durable.run WHERE run_id IN ('w7', 'w8', 'v2');
-- per start
SELECT durable.start('free', NULL, 'f1', concurrency_key => 'k', concurrency_limit => 1);
SELECT durable.start('free', NULL, 'f2', concurrency_key => 'k', concurrency_limit => 1);
SELECT durable.start('free', NULL, 'f2', concurrency_key => 'k', concurrency_limit => 2);
SELECT durable.start('w', '{"tenant": "t"}', 'f3', concurrency_limit => 3);
SELECT durable.start('w', '{"tenant": "t"}', 'f4', concurrency_key => 'own');
SELECT durable.start('w', '{}', 'f5', concurrency_key => 'own');
SELECT durable.start('w', '{}', 'f6', concurrency_key => 'own');
SELECT durable.start('free', NULL, 'f7', concurrency_key => 'none', concurrency_limit => 0);
SELECT durable.start('free', NULL, 'f7', concurrency_key => 'none', concurrency_limit => -5);
SELECT durable.start('free', NULL, 'f7', concurrency_key => 'k');
SELECT durable.start('free', NULL, 'f7', concurrency_limit => 5);
SELECT durable.start('free', NULL, 'f7', concurrency_key => '', concurrency_limit => 5);
SELECT durable.start('free', NULL, 'f7', concurrency_key => repeat('x', 256), concurrency_limit => 5);
SELECT run_id, concurrency_key FROM durable.run WHERE run_id LIKE 'f_' ORDER BY id;
SELECT durable.start_many('free', ARRAY[NULL, NULL, NULL]::jsonb[], '{m1,m2,m3}', concurrency_key => 'many', concurrency_limit => 2);
SELECT count(*) FROM durable.run WHERE run_id LIKE 'm_';
SELECT durable.start_many('free', ARRAY[NULL, NULL]::jsonb[], '{m1,m2}', concurrency_key => 'many', concurrency_limit => 2);
-- a run that is replaced counts under its new key
SELECT durable.start('w', '{"tenant": "r1"}', 'r1'), durable.start('w', '{"tenant": "r2"}', 'r1', on_conflict => 'replace');
SELECT key, count(*) FROM durable.quota WHERE key LIKE 'r_' GROUP BY 1;
SELECT durable.cancel('r1');
-- keys and definitions that make no sense
SELECT durable.start('w', '{"tenant": null}');
SELECT durable.start('w');
SELECT durable.register_workflow('bad', 'quota.waits', concurrency_key => '$.k');
SELECT durable.register_workflow('bad', 'quota.waits', concurrency_key => '$.k', concurrency_limit => -1);
SELECT durable.register_workflow('zero', 'quota.waits', concurrency_key => '$.k', concurrency_limit => 0);
SELECT durable.start('zero', '{"k": 1}');
-- a failed run counts no more, and counts again when it is requeued, which is not refused
SELECT durable.start('fails', '{"tenant": "z"}', 'z1');
CALL durable.work(duration => '0');
SELECT durable.start('fails', '{"tenant": "z"}', 'z2');
SELECT durable.requeue('z1');
SELECT key, count(*) FROM durable.quota WHERE key = 'z' GROUP BY 1;
CALL durable.work(duration => '0');
SELECT key, count(*) FROM durable.quota WHERE key = 'z' GROUP BY 1;
SELECT durable.retry_with_input('z1', '{"tenant": "z"}') LIKE 'z1~%' AS started;
SELECT durable.retry_with_input('z1', '{"tenant": "z"}');
CALL durable.work(duration => '0');
-- a child that may not be started fails its step
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.child('w', i);
EXCEPTION WHEN SQLSTATE 'WF011' THEN
	RETURN jsonb_build_object('caught', SQLERRM);
END $$;
SELECT durable.register_workflow('parent', 'quota.parent');
SELECT durable.start('parent', '{"tenant": "own"}', 'p1');
CALL durable.work(duration => '0');
SELECT durable.result('p1');
-- a run that takes a failure is never refused: its input gives no key, or the quota is used up
CREATE FUNCTION takes(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.wait_for_signal('go:' || durable.run_id()); RETURN '"taken"'; END $$;
SELECT durable.register_workflow('takes', 'quota.takes', singleton_key => '$.nothing', concurrency_key => '"failures"', concurrency_limit => 0),
	durable.register_workflow('broken', 'quota.fails', on_error => '[{"code": "WF007", "workflow": "takes"}]');
SELECT durable.start('broken', NULL, 'b1');
CALL durable.work(duration => '0');
SELECT run_id, status, singleton_key, concurrency_key FROM durable.run WHERE workflow IN ('broken', 'takes') ORDER BY id;
SELECT durable.cancel(run_id) FROM durable.run WHERE finished_at IS NULL \g /dev/null
SELECT count(*) FROM durable.quota;

SET client_min_messages = warning;
DROP SCHEMA quota CASCADE;
DROP EXTENSION durable;
