-- The settings: their defaults, who may change them, and what they do in a session
-- that has not called a function yet.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
DROP ROLE IF EXISTS durable_test_user;
CREATE ROLE durable_test_user;
SELECT durable.grant_usage('durable_test_user', 'default'), durable.grant_usage('durable_test_user', 'tenant') \g /dev/null

SELECT name, boot_val, unit, context, vartype FROM pg_settings WHERE name LIKE 'durable.%' ORDER BY name COLLATE "C";
SELECT name FROM pg_settings WHERE name LIKE 'durable.%' AND (short_desc = '' OR short_desc !~ '\.$' OR extra_desc <> '' AND extra_desc !~ '\.$');

-- set before the first call of a session, as a connection string may
\c -
SET client_min_messages = error;
SET durable.namespace = 'tenant';
SET durable.max_payload = '1kB';
SELECT durable.dispatch('x', task_id => 'early');
SELECT namespace FROM durable.task;
SELECT durable.dispatch('x', to_jsonb(repeat('x', 2000)));
-- a user who may not move the clock cannot do it this way either
\c -
SET client_min_messages = error;
SET ROLE durable_test_user;
DO $$
BEGIN
	PERFORM set_config('durable.clock_offset', '100000', false);
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$;
DO $$
BEGIN
	PERFORM set_config('durable.max_payload', '100000', false);
EXCEPTION WHEN insufficient_privilege THEN NULL;
END $$;
SELECT durable.engine_now() - clock_timestamp() < interval '1 hour' AS no_time_travel;
SELECT current_setting('durable.clock_offset') AS clock_offset, current_setting('durable.max_payload') AS max_payload;
-- the namespace is the user's to choose
SET durable.namespace = 'tenant';
SELECT task_id FROM durable.claim('{x}');
RESET ROLE;

-- kept with a role or a database
\c -
SET client_min_messages = error;
ALTER ROLE durable_test_user SET durable.namespace = 'tenant';
ALTER ROLE durable_test_user SET durable.poll_interval = '1s';
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET durable.result_retention = ''1d''', current_database()); END $$;
\c -
SET client_min_messages = error;
SELECT durable.engine_now() IS NOT NULL AS called;
SHOW durable.result_retention;
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET durable.result_retention', current_database()); END $$;
-- on a function
CREATE FUNCTION send(what text) RETURNS text LANGUAGE sql SET durable.namespace = 'tenant' AS $$ SELECT durable.dispatch('x', task_id => what) $$;
SELECT send('from a function');
SELECT namespace FROM durable.task WHERE task_id = 'from a function';
SHOW durable.namespace;
DROP FUNCTION send;

-- the clock: only forward, and only for whoever set it
SET durable.clock_offset = '1h';
SELECT date_trunc('hour', durable.engine_now() - clock_timestamp() + interval '1 s') AS ahead;
BEGIN;
SET LOCAL durable.clock_offset = '2h';
SELECT date_trunc('hour', durable.engine_now() - clock_timestamp() + interval '1 s') AS ahead;
ROLLBACK;
SELECT date_trunc('hour', durable.engine_now() - clock_timestamp() + interval '1 s') AS ahead;
RESET durable.clock_offset;
SELECT durable.engine_now() - clock_timestamp() < interval '1 s' AS now;

-- without hints everything is the same
SET durable.scan_hints = off;
SELECT durable.dispatch('y', to_jsonb(i), 'y' || i, priority => i % 3) FROM generate_series(1, 6) i \g /dev/null
SELECT task_id, priority FROM durable.claim('{y}', 4);
SET durable.scan_hints = on;
SELECT task_id, priority FROM durable.claim('{y}', 4);
SET durable.scan_hints = off;
SELECT durable.release(token) FROM durable.lease WHERE 'y1' = (SELECT task_id FROM durable.task t WHERE t.id = ids[1]);
SET durable.scan_hints = on;
SELECT task_id FROM durable.claim('{y}', 4);
SELECT rescued FROM durable.scan_hints();

DROP EXTENSION durable;
DROP ROLE durable_test_user;
