-- Schedules: who may create, change, see and fire them.
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_test_manager, durable_test_other, durable_test_starter, durable_test_reader, durable_test_nobody, durable_test_tenant;
CREATE EXTENSION durable;
RESET client_min_messages;
SET timezone = 'UTC';
CREATE ROLE durable_test_manager;
CREATE ROLE durable_test_other;
CREATE ROLE durable_test_starter;
CREATE ROLE durable_test_reader;
CREATE ROLE durable_test_nobody;
CREATE ROLE durable_test_tenant;
SELECT durable.grant_usage('durable_test_manager', privileges => '{start,manage,read}');
SELECT durable.grant_usage('durable_test_other', privileges => '{start,manage}');
SELECT durable.grant_usage('durable_test_starter', privileges => '{start}');
SELECT durable.grant_usage('durable_test_reader', privileges => '{read}');
SELECT durable.grant_usage('durable_test_tenant', 'tenant', '{start,manage,read}');
CREATE FUNCTION report(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
SELECT durable.register_workflow('report', 'report');
SELECT durable.register_workflow('report', 'report', namespace => 'tenant');

-- what a role can do with the manager's schedule, found by doing it; every try is undone
CREATE FUNCTION try(role text, id text DEFAULT 'mine', namespace text DEFAULT 'default') RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	name text;
	command text;
	allowed text[] := '{}';
BEGIN
	FOR name, command IN VALUES
		('create', format('SELECT durable.create_schedule(''new'', ''report'', every => ''1 h'', namespace => %L)', namespace)),
		('upsert new', format('SELECT durable.upsert_schedule(''new'', ''report'', every => ''1 h'', namespace => %L)', namespace)),
		('upsert', format('SELECT durable.upsert_schedule(%L, ''report'', every => ''1 h'', namespace => %L)', id, namespace)),
		('pause', format('SELECT durable.pause_schedule(%L)', id)),
		('resume', format('SELECT durable.resume_schedule(%L)', id)),
		('trigger', format('SELECT durable.trigger_schedule(%L)', id)),
		('backfill', format('SELECT durable.backfill_schedule(%L, max_runs => 1)', id)),
		('delete', format('SELECT durable.delete_schedule(%L)', id)),
		('next_fires', 'SELECT durable.next_fires(''@daily'')'),
		('view', 'SELECT * FROM durable.schedules'),
		('table', 'SELECT * FROM durable.schedule'),
		('sweep', 'SELECT durable.sweep()'),
		('write', 'UPDATE durable.schedule SET paused = false'),
		('insert', 'INSERT INTO durable.schedule SELECT * FROM durable.schedule'),
		('remove', 'DELETE FROM durable.schedule')
	LOOP
		BEGIN
			EXECUTE format('SET LOCAL ROLE %I', role);
			EXECUTE command;
			allowed := allowed || name;
			RAISE EXCEPTION USING ERRCODE = 'UNDO1', MESSAGE = 'undo';
		EXCEPTION
			WHEN SQLSTATE 'UNDO1' THEN NULL;
			WHEN insufficient_privilege THEN NULL;
		END;
	END LOOP;
	RETURN array_to_string(allowed, ', ');
END $$;

SET ROLE durable_test_manager;
SELECT durable.create_schedule('mine', 'report', cron => '0 0 1 1 *') IS NOT NULL AS created;
RESET ROLE;
SELECT role, try(role) FROM unnest('{durable_test_manager,durable_test_other,durable_test_starter,durable_test_reader,durable_test_nobody,durable_test_tenant}'::text[]) role;
SELECT try('durable_test_tenant', 'mine', 'tenant');
-- the owner, who manages the namespace no more, and whoever is a member of the owner
SELECT durable.revoke_usage('durable_test_manager', privileges => '{manage}');
SELECT try('durable_test_manager');
GRANT durable_test_manager TO durable_test_starter;
SELECT try('durable_test_starter');
REVOKE durable_test_manager FROM durable_test_starter;
-- without start, a schedule cannot be
SELECT durable.revoke_usage('durable_test_other', privileges => '{start}');
SELECT try('durable_test_other');
SET ROLE durable_test_other;
SELECT durable.create_schedule('theirs', 'report', every => '1 h');
SELECT durable.upsert_schedule('mine', 'report', every => '1 h');
SELECT durable.pause_schedule('mine', 'by the operator');
SELECT durable.trigger_schedule('mine') LIKE 'sched:mine:manual:%' AS for_its_owner;
RESET ROLE;
-- who replaces a definition without being its owner becomes that
SELECT durable.grant_usage('durable_test_other', privileges => '{start}');
SET ROLE durable_test_other;
SELECT durable.upsert_schedule('mine', 'report', cron => '0 0 1 1 *');
RESET ROLE;
SELECT owner, paused, note FROM durable.schedules;
SELECT try('durable_test_manager');
-- errors say what is missing
SET ROLE durable_test_manager;
SELECT durable.delete_schedule('mine');
SELECT durable.create_schedule('new', 'report', every => '1 h');
SET ROLE durable_test_nobody;
SELECT durable.pause_schedule('mine');
SET ROLE durable_test_reader;
SELECT durable.pause_schedule('mine');
RESET ROLE;

-- each sees the schedules of its namespaces
SELECT durable.create_schedule('at_the_tenant', 'report', every => '1 h', namespace => 'tenant') IS NOT NULL AS created;
SET ROLE durable_test_reader;
SELECT schedule_id, namespace, last_run_status FROM durable.schedules;
SET ROLE durable_test_tenant;
SELECT schedule_id, namespace FROM durable.schedules;
SELECT schedule_id FROM durable.schedule;
RESET ROLE;
-- fired with the rights of the owner, whoever sweeps: right until they are taken back
SELECT durable.upsert_schedule('mine', 'report', every => '1 h', paused => false) IS NOT NULL AS resumed;
UPDATE durable.schedule SET owner = 'durable_test_other';
DELETE FROM durable.schedule WHERE schedule_id <> 'mine';
SET durable.clock_offset = '1 h';
SELECT durable.sweep() -> 'fired' AS fired;
SELECT durable.revoke_usage('durable_test_other', privileges => '{start}');
SET durable.clock_offset = '2 h';
SELECT durable.sweep() -> 'fired' AS fired;
SELECT paused, last_error FROM durable.schedules;
RESET durable.clock_offset;
-- through a role
SELECT durable.upsert_schedule('mine', 'report', every => '1 h', paused => false) IS NOT NULL AS resumed;
GRANT durable_test_starter TO durable_test_other;
SELECT durable.resume_schedule('mine') IS NOT NULL AS resumed;
SELECT count(durable.revoke_usage(r::regrole, n)) FROM unnest('{durable_test_manager,durable_test_other,durable_test_starter,durable_test_reader,durable_test_tenant}'::text[]) r, unnest('{default,tenant}'::text[]) n;
DROP ROLE durable_test_manager, durable_test_other, durable_test_starter, durable_test_reader, durable_test_nobody, durable_test_tenant;
DROP FUNCTION report(jsonb), try(text, text, text);
