-- schedules whose runs are counted: an override of key and limit, and what becomes of windows that are refused
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SET timezone = 'UTC';
\pset format unaligned
CREATE FUNCTION at(t timestamptz) RETURNS text LANGUAGE sql AS $$
	SELECT set_config('durable.clock_offset', ceil(extract(epoch FROM t - clock_timestamp()))::text, false) $$;
CREATE VIEW state AS SELECT schedule_id AS id, paused, to_char(last_window, 'HH24:MI') AS last, to_char(next_window, 'HH24:MI') AS next, fires, skips, last_run_id AS last_run, last_skip, last_error
	FROM durable.schedules s ORDER BY 1;

SELECT durable.register_workflow('free'), durable.register_workflow('counted', concurrency_key => '$.k', concurrency_limit => 2),
	durable.register_workflow('one', singleton_key => '$.k', singleton_max_queued => 0);
SELECT at('2060-03-01 00:30+00') \g /dev/null

--
-- refused definitions change nothing
--
SELECT durable.create_schedule('x', 'free', every => '1 h', concurrency_key => 'k');
SELECT durable.create_schedule('x', 'free', every => '1 h', concurrency_limit => 1);
SELECT durable.create_schedule('x', 'free', every => '1 h', concurrency_key => '', concurrency_limit => 1);
SELECT durable.create_schedule('x', 'free', every => '1 h', concurrency_key => repeat('x', 256), concurrency_limit => 1);
SELECT durable.create_schedule('x', 'free', every => '1 h', concurrency_key => 'k', concurrency_limit => 3000000000);
SELECT durable.upsert_schedule('x', 'free', every => '1 h', concurrency_key => 'k');
\set VERBOSITY default
SELECT durable.upsert_schedule('x', 'free', every => '1 h', concurrency_limit => 1);
\set VERBOSITY terse
SELECT count(*) FROM durable.schedule;

--
-- a window that the quota refuses is skipped, with the reason, and the schedule goes on
--
SELECT durable.create_schedule('own', 'free', cron => '0 * * * *', concurrency_key => 'k', concurrency_limit => 1) IS NOT NULL AS ok;
SELECT durable.create_schedule('plain', 'free', cron => '0 * * * *') IS NOT NULL AS ok;
SELECT schedule_id, concurrency_key, concurrency_limit FROM durable.schedules ORDER BY 1;
SELECT at('2060-03-01 01:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT * FROM state;
SELECT key, count(*) FROM durable.quota GROUP BY 1;
SELECT at('2060-03-01 02:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT durable.sweep() -> 'fired' AS fired;
SELECT * FROM state;
-- by hand the caller is told
SELECT durable.trigger_schedule('own');
SELECT durable.backfill_schedule('own', '2060-03-01 00:00+00', max_runs => 10);
SELECT count(*) FROM durable.run;
-- the end of the run makes room; what was wrong is over
SELECT durable.cancel(last_run_id) FROM durable.schedule WHERE schedule_id = 'own';
SELECT durable.backfill_schedule('own', '2060-03-01 02:00+00', max_runs => 10);
SELECT durable.trigger_schedule('own');
SELECT durable.cancel(run_id) FROM durable.run WHERE concurrency_key = 'k' AND finished_at IS NULL;
SELECT at('2060-03-01 03:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT * FROM state WHERE id = 'own';
-- runs that others start under the key count, too
SELECT durable.start('free', NULL, 'by-hand', concurrency_key => 'k', concurrency_limit => 1);
SELECT durable.cancel(last_run_id) FROM durable.schedule WHERE schedule_id = 'own';
SELECT durable.start('free', NULL, 'by-hand', concurrency_key => 'k', concurrency_limit => 1);
SELECT at('2060-03-01 04:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT fires, skips, last_skip FROM state WHERE id = 'own';

--
-- a replaced definition; windows that are caught up on: as many as there is room for, then skipped
--
SELECT durable.upsert_schedule('own', 'free', cron => '0 * * * *', catchup => 'all', concurrency_key => 'l', concurrency_limit => 2) IS NOT NULL AS ok;
SELECT at('2060-03-01 09:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT run_id, concurrency_key FROM durable.run WHERE run_id LIKE 'sched:own:%' AND finished_at IS NULL ORDER BY 1;
SELECT * FROM state WHERE id = 'own';
-- without the override nothing is counted; a limit of 0 refuses always
SELECT durable.upsert_schedule('own', 'free', cron => '0 * * * *') IS NOT NULL AS ok;
SELECT durable.upsert_schedule('plain', 'free', cron => '0 * * * *', concurrency_key => 'none', concurrency_limit => 0) IS NOT NULL AS ok;
SELECT at('2060-03-01 10:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT id, last, fires, skips, last_error FROM state;
SELECT durable.delete_schedule('own'), durable.delete_schedule('plain');

--
-- in place of what the workflow says, or for one of the two
--
SELECT durable.create_schedule('key', 'counted', '{"k": "a"}', cron => '0 * * * *', concurrency_key => 'b') IS NOT NULL AS ok;
SELECT durable.create_schedule('limit', 'counted', '{"k": "a"}', cron => '0 * * * *', concurrency_limit => 1) IS NOT NULL AS ok;
SELECT durable.create_schedule('neither', 'counted', '{"k": "a"}', cron => '5 * * * *') IS NOT NULL AS ok;
SELECT durable.create_schedule('queue', 'one', '{"k": "a"}', cron => '0 * * * *') IS NOT NULL AS ok;
SELECT at('2060-03-01 12:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT at('2060-03-01 13:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
SELECT s.schedule_id, r.concurrency_key, s.fires, s.skips, s.last_skip, s.last_error FROM durable.schedule s LEFT JOIN durable.run r ON r.run_id = s.last_run_id ORDER BY 1;
SELECT key, count(*) FROM durable.quota GROUP BY 1 ORDER BY 1;

--
-- a workflow that has lost what the override relies on: the schedule pauses itself
--
SET client_min_messages = error;
SELECT durable.register_workflow('counted');
SELECT at('2060-03-01 14:10+00') \g /dev/null
SELECT durable.sweep() -> 'fired' AS fired;
RESET client_min_messages;
SELECT id, paused, fires, last_error FROM state WHERE id IN ('key', 'limit', 'neither');
SELECT durable.resume_schedule('key');
SELECT durable.trigger_schedule('limit');
SELECT durable.upsert_schedule('key', 'counted', cron => '0 * * * *', paused => false, concurrency_key => 'b', concurrency_limit => 5) IS NOT NULL AS ok;
SELECT id, paused, last_error FROM state WHERE id = 'key';

--
-- a role with no more than it needs
--
SET client_min_messages = warning;
CREATE ROLE regress_planner;
SELECT durable.grant_usage('regress_planner', privileges => '{start,manage,read}') \g /dev/null
SET ROLE regress_planner;
SELECT durable.create_schedule('mine', 'free', every => '1 h', concurrency_key => 'k', concurrency_limit => 1) IS NOT NULL AS ok;
RESET ROLE;
SELECT durable.revoke_usage('regress_planner') \g /dev/null
SET ROLE regress_planner;
SELECT durable.create_schedule('mine2', 'free', every => '1 h', concurrency_key => 'k', concurrency_limit => 1);
RESET ROLE;
DROP EXTENSION durable CASCADE;
DROP FUNCTION at(timestamptz);
DROP ROLE regress_planner;
