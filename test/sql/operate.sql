-- sweep part by part, keep_sweeping, the jobs for pg_cron, health, queues
\set VERBOSITY default
\set SHOW_CONTEXT never
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
SET timezone = 'UTC';
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT i';
SELECT durable.register_workflow('w', 'body');
CREATE FUNCTION sweep(max_work int DEFAULT 1000) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(k || ' ' || v, ', ' ORDER BY k) FROM jsonb_each_text(durable.sweep(max_work)) e(k, v) WHERE v <> '0' $$;

-- a part that fails leaves nothing, and the others are done; here an index of an administrator
CREATE UNIQUE INDEX only_one ON durable.task_ready (priority) WHERE priority = 99;
SELECT count(durable.dispatch('d', priority => 99, run_at => now() + interval '1 hour')) FROM generate_series(1, 3);
SELECT durable.create_schedule('hourly', 'w', every => '1 h') IS NOT NULL AS created;
SET durable.clock_offset = '2 h';
SELECT sweep();
SELECT part, failures, code, message, since = at AS first FROM durable.sweep_failure;
SELECT count(*) FROM durable.task_delayed;
SELECT sweep();
SELECT part, failures, code, since < at AS later FROM durable.sweep_failure;
SELECT name, level, CASE unit WHEN 's' THEN round(value / 60) * 60 ELSE value END AS value, unit, hint, detail -> 'delayed tasks' ->> 'message' AS message FROM durable.health() WHERE level <> 'ok';
-- also within an open transaction, and inside a function that catches errors
BEGIN;
SELECT sweep();
SELECT count(*) FROM durable.task;
COMMIT;
DO $$ BEGIN PERFORM sweep(); EXCEPTION WHEN unique_violation THEN RAISE WARNING 'not caught by the sweep'; END $$;
-- the third failure in a row is critical
SELECT level, value FROM durable.health() WHERE name = 'sweep_failures';
DROP INDEX durable.only_one;
SELECT sweep();
SELECT count(*) AS failures FROM durable.sweep_failure;
-- the end of the statement ends the sweep
BEGIN;
CREATE FUNCTION cancel() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE query_canceled USING MESSAGE = 'enough'; END $$;
CREATE TRIGGER cancel BEFORE DELETE ON durable.task_result FOR EACH ROW EXECUTE FUNCTION cancel();
SELECT durable.dispatch('old') AS id \gset
SELECT token FROM durable.claim('{old}') \gset
SELECT durable.complete(:'id', :'token');
SET durable.clock_offset = '30 d';
SELECT sweep();
ROLLBACK;
RESET durable.clock_offset;
-- idle, it writes nothing: who swept is noted at most every 15 seconds
SELECT sweep();
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written FROM sweep();
SELECT by_role = current_user AS by_me, pid = pg_backend_pid() AS here, jsonb_typeof(done) FROM durable.last_sweep;
UPDATE durable.last_sweep SET at = at - interval '20 s';
BEGIN;
SELECT sweep();
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written, now() - at < '10 s' AS noted FROM durable.last_sweep;
COMMIT;
-- a clock that was put back does not keep it from being noted
UPDATE durable.last_sweep SET at = at + interval '1 day';
SELECT sweep();
SELECT at < now() + interval '1 min' AS noted FROM durable.last_sweep;
-- nor does an idle sweep make sessions read the access rights again
SELECT count(*) AS grants FROM durable.namespace_access;

\echo keep_sweeping
SELECT count(durable.dispatch('k', run_at => now() + interval '1 hour')) FROM generate_series(1, 5);
SET durable.clock_offset = '2 h';
CALL durable.keep_sweeping('0', max_work => 2);
RESET durable.clock_offset;
CALL durable.keep_sweeping('50 ms', '10 ms');
BEGIN;
CALL durable.keep_sweeping('0');
ROLLBACK;
DO $$ DECLARE j jsonb; BEGIN CALL durable.keep_sweeping('0', done => j); RAISE WARNING 'failed: %', j -> 'failed'; END $$;
CREATE FUNCTION in_function() RETURNS jsonb LANGUAGE plpgsql AS $$ DECLARE j jsonb; BEGIN CALL durable.keep_sweeping('0', done => j); RETURN j; END $$;
SELECT in_function();
DROP FUNCTION in_function();
CALL durable.keep_sweeping(NULL);
CALL durable.keep_sweeping('-1 s');
CALL durable.keep_sweeping('0', NULL);
CALL durable.keep_sweeping('0', '0');
CALL durable.keep_sweeping('0', '1 s', 0);
SET default_transaction_read_only = on;
CALL durable.keep_sweeping('0');
RESET default_transaction_read_only;
SET statement_timeout = '100 ms';
CALL durable.keep_sweeping('1 h', '10 ms');
RESET statement_timeout;

\echo the jobs for pg_cron
SELECT version, every, kind, schedule, command
  FROM (VALUES ('1.4-1', '5 seconds'), ('1.4-1', '00:00:59'), ('1.4-1', '1 minute'), ('1.4-1', '10 min'), ('1.5', '1 s'), ('1.6', '59'), ('1.10', '7 s'),
               ('2.0', '60 s'), ('1.6', '1 h'), ('what', '5 s'), (NULL, '5 s')) v (version, every), durable.cron_jobs(every, version) ORDER BY version, every, kind;
SELECT DISTINCT job_name = format('durable %s database %s', CASE kind WHEN 'sweep' THEN 'sweep of' ELSE 'work in' END, (SELECT oid FROM pg_database WHERE datname = current_database())) AS named FROM durable.cron_jobs('5 s', '1.6');
CREATE FUNCTION try(every text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.schedule_sweeps(every);
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ' ' || SQLERRM;
END $$;
SELECT e, try(e) FROM unnest(ARRAY['5 s', '0', '-5 s', '0.5 s', '1.5 s', '59.5 s', '61 s', '7 min', '61 min', '2 h', '1 month', 'never', '', NULL, repeat('9', 40)]) e;
SELECT durable.schedule_sweeps('often');
-- there is no pg_cron here
SELECT durable.schedule_sweeps();
SELECT durable.unschedule_sweeps();
-- it lives elsewhere: what has to be executed there
SET cron.database_name = 'else where';
SELECT regexp_replace(durable.cron_database(), 'else', 'some');
\set VERBOSITY terse
DO $$
DECLARE hint text; detail text;
BEGIN
	PERFORM durable.schedule_sweeps('5 s', '{sweep}');
EXCEPTION WHEN feature_not_supported THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT, detail = PG_EXCEPTION_DETAIL;
	RAISE WARNING '% | % | %', SQLERRM, detail, regexp_replace(regexp_replace(hint, 'database \d+', 'database N'), '''(\* \* \* \* \*|5 seconds)'', ''[^;]*sweep[^;]*'', ''durable', '...', 'g');
END $$;
DO $$
DECLARE hint text;
BEGIN
	PERFORM durable.unschedule_sweeps();
EXCEPTION WHEN feature_not_supported THEN
	GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
	RAISE WARNING '% | %', SQLERRM, regexp_replace(hint, '\d+', 'N', 'g');
END $$;
\set VERBOSITY default
-- it would live here, but was not created
SELECT set_config('cron.database_name', current_database(), false) = current_database() AS here;
SELECT durable.schedule_sweeps();
SELECT durable.unschedule_sweeps();
\set VERBOSITY terse
-- a schema of that name that somebody else has laid out is not taken for it
CREATE SCHEMA cron;
CREATE FUNCTION cron.schedule(job_name text, schedule text, command text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
SELECT durable.schedule_sweeps();
DROP SCHEMA cron CASCADE;
RESET cron.database_name;
\set VERBOSITY default
SELECT durable.schedule_sweeps('5 s', '{}');
SELECT durable.schedule_sweeps('5 s', '{sweep,NULL}');
SELECT durable.schedule_sweeps('5 s', '{rest}');
-- each role gets the jobs that it may execute
CREATE ROLE durable_test_worker LOGIN;
CREATE ROLE durable_test_nologin;
CREATE ROLE durable_test_reader;
SELECT durable.grant_usage('durable_test_worker', privileges => '{work,read}');
SELECT durable.grant_usage('durable_test_nologin', privileges => '{work}');
SELECT durable.grant_usage('durable_test_reader', 'tenant', '{read}');
SET ROLE durable_test_worker;
SELECT durable.cron_kinds(NULL);
SELECT durable.schedule_sweeps('5 s', '{sweep}');
SELECT durable.schedule_sweeps();
SET ROLE durable_test_reader;
SELECT durable.schedule_sweeps();
SELECT durable.unschedule_sweeps();
RESET ROLE;

\echo health
SELECT name, unit FROM durable.health();
SELECT count(*) AS checks, count(*) FILTER (WHERE level NOT IN ('ok', 'warn', 'critical')) AS unknown, count(*) FILTER (WHERE (level = 'ok') <> (hint IS NULL)) AS odd FROM durable.health();
-- every check can be made to complain, and none by itself
SELECT string_agg(name, ' ') AS complaints FROM durable.health();
SELECT string_agg(name || ' ' || level, ', ') AS complaints FROM durable.health() WHERE level <> 'ok';
SELECT string_agg(name, ' ') AS not_critical FROM durable.health((SELECT jsonb_object_agg(name, '[-2, -1]'::jsonb) FROM durable.health())) WHERE level <> 'critical';
SELECT string_agg(name, ' ') AS not_warned FROM durable.health((SELECT jsonb_object_agg(name, '[-1, 1e300]'::jsonb) FROM durable.health())) WHERE level <> 'warn';
-- bad thresholds
SELECT * FROM durable.health(NULL);
SELECT * FROM durable.health('[]');
SELECT * FROM durable.health('{"timers": 5}');
SELECT * FROM durable.health('{"timers": [5]}');
SELECT * FROM durable.health('{"timers": [5, "6"]}');
SELECT * FROM durable.health('{"timer": [5, 6]}');
-- what is late, by the engine's clock; of each queue the worst
DELETE FROM durable.task_ready;
DELETE FROM durable.task_delayed;
DELETE FROM durable.task;
DELETE FROM durable.schedule;
SELECT count(durable.dispatch('a', queue => 'a')), count(durable.dispatch('b', queue => 'b', namespace => 'tenant')), count(durable.dispatch('c', queue => 'c', run_at => now() + interval '1 h')) FROM generate_series(1, 2);
SELECT durable.dispatch('l', queue => 'l') \g /dev/null
SELECT count(*) FROM durable.claim('{l}', lease => '10 min');
SELECT durable.create_schedule('s', 'w', every => '1 h') IS NOT NULL AS created;
SET durable.clock_offset = '2 h';
SELECT name, level, value BETWEEN 3000 AND 7260 AS about FROM durable.health() WHERE level <> 'ok';
SELECT t ->> 'namespace' AS namespace, t ->> 'queue' AS queue FROM durable.health(), jsonb_array_elements(detail) t WHERE name = 'oldest_ready' ORDER BY 1, 2;
SELECT t ->> 'namespace' AS namespace, t ->> 'queue' AS queue FROM durable.health(), jsonb_array_elements(detail) t WHERE name = 'timers';
SELECT detail FROM durable.health() WHERE name = 'lapsed_claims';
SELECT namespace, queue, paused, ready, delayed, claimed, oldest_ready > '1 h 59 min' AS old, next_due < durable.engine_now() AS due FROM durable.queues;
-- a paused queue is another matter
SELECT durable.pause_queue('a'), durable.pause_queue('b', 'tenant'), durable.pause();
SELECT level, value FROM durable.health() WHERE name = 'oldest_ready';
SELECT level, value > 0 AS paused, detail FROM durable.health('{"paused": [0.000001, 100]}') WHERE name = 'paused';
SELECT durable.resume_queue('b', 'tenant'), durable.resume();
RESET durable.clock_offset;
-- a run that slept for long has not been ready for long
CREATE FUNCTION sleeper(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.sleep('30 days'); RETURN i; END $$;
SELECT durable.register_workflow('sleeper', 'sleeper');
SELECT durable.resume_queue('a');
DELETE FROM durable.task_ready;
DELETE FROM durable.task_delayed;
SELECT durable.start('sleeper', run_id => 'sleeper');
CALL durable.work(duration => '0');
SELECT status FROM durable.get_run('sleeper');
SET durable.clock_offset = '2592010 s';
SELECT durable.sweep() \g /dev/null
SELECT level FROM durable.health() WHERE name = 'oldest_ready';
RESET durable.clock_offset;
-- a schedule that has paused itself
SELECT durable.create_schedule('gone', 'w', every => '1 h') IS NOT NULL AS created;
UPDATE durable.schedule SET workflow = 'no more' WHERE schedule_id = 'gone';
SET durable.clock_offset = '3 h';
SELECT durable.sweep() \g /dev/null
RESET durable.clock_offset;
SELECT level, value, detail FROM durable.health() WHERE name = 'schedules_paused';
-- a transaction that stays open, prepared or not, is seen by its age; autovacuum off; a copy
ALTER TABLE durable.task SET (autovacuum_enabled = off);
SELECT level, value, detail FROM durable.health() WHERE name = 'autovacuum';
ALTER TABLE durable.task RESET (autovacuum_enabled);
BEGIN;
UPDATE durable.identity SET system_identifier = 1;
SELECT level, hint FROM durable.health() WHERE name = 'activation';
ROLLBACK;
-- a check that cannot be made does not keep the others
BEGIN;
ALTER TABLE durable.schedule RENAME TO no_schedule;
SELECT name, level, value, hint, detail FROM durable.health() WHERE name LIKE 'schedules%';
SELECT count(*) FROM durable.health();
ROLLBACK;

\echo who sees what
CREATE ROLE durable_test_monitor IN ROLE pg_monitor;
CREATE ROLE durable_test_nobody;
INSERT INTO durable.sweep_failure VALUES ('delayed tasks', now(), now(), 1, 'XX000', 'of a tenant''s secret', 'context');
SELECT durable.dispatch('x', queue => 'x'), durable.dispatch('y', queue => 'y', namespace => 'tenant') \g /dev/null
SET durable.clock_offset = '2 h';
SET ROLE durable_test_monitor;
SELECT count(*) FROM durable.health();
RESET ROLE;
GRANT USAGE ON SCHEMA durable TO durable_test_monitor;
GRANT EXECUTE ON FUNCTION durable.health, durable.queue_list TO durable_test_monitor;
GRANT SELECT ON durable.queues TO durable_test_monitor;
SET ROLE durable_test_monitor;
SELECT count(*) FROM durable.health();
SELECT namespace, queue FROM durable.queues WHERE queue IN ('x', 'y');
SELECT detail -> 'delayed tasks' ->> 'message' AS message FROM durable.health() WHERE name = 'sweep_failures';
SELECT count(*) FROM durable.task;
SET ROLE durable_test_reader;
SELECT namespace, queue FROM durable.queues WHERE queue IN ('x', 'y');
SELECT detail FROM durable.health() WHERE name = 'sweep_failures';
SELECT DISTINCT t ->> 'namespace' AS namespace FROM durable.health(), jsonb_array_elements(detail) t WHERE name IN ('oldest_ready', 'timers');
SELECT detail ? 'by' AS tells_who FROM durable.health() WHERE name = 'last_sweep';
SELECT value FROM durable.health() WHERE name = 'schedules_paused';
SELECT * FROM durable.health_checks(NULL, true, '{}');
SELECT * FROM durable.queue_counts(NULL);
SELECT * FROM durable.last_sweep;
SET ROLE durable_test_nobody;
SELECT * FROM durable.health();
SELECT * FROM durable.queues;
RESET ROLE;
-- the functions may be granted one by one, and then say what is missing
GRANT USAGE ON SCHEMA durable TO durable_test_nobody;
GRANT EXECUTE ON FUNCTION durable.health TO durable_test_nobody;
SET ROLE durable_test_nobody;
SELECT * FROM durable.health();
RESET ROLE;
REVOKE ALL ON SCHEMA durable FROM durable_test_nobody;
REVOKE ALL ON FUNCTION durable.health FROM durable_test_nobody;
REVOKE ALL ON SCHEMA durable FROM durable_test_monitor;
REVOKE ALL ON FUNCTION durable.health, durable.queue_list FROM durable_test_monitor;
REVOKE ALL ON durable.queues FROM durable_test_monitor;
SELECT durable.revoke_usage('durable_test_worker'), durable.revoke_usage('durable_test_nologin'), durable.revoke_usage('durable_test_reader', 'tenant');
DROP ROLE durable_test_worker, durable_test_nologin, durable_test_reader, durable_test_monitor, durable_test_nobody;

DROP FUNCTION try(text), sweep(int), body(jsonb), sleeper(jsonb);
