--
-- The database's background workers.
--

CREATE TABLE durable.worker_pause (
	only_one	boolean NOT NULL DEFAULT true CHECK (only_one),
	paused_at	timestamptz NOT NULL,
	paused_by	text COLLATE "C" NOT NULL,
	CONSTRAINT worker_pause_pkey PRIMARY KEY (only_one)
) USING heap;
COMMENT ON TABLE durable.worker_pause IS
'one row while the background workers of the database are paused';
SELECT pg_catalog.pg_extension_config_dump('durable.worker_pause', '');

CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.worker_pause
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();

CREATE FUNCTION durable.pause() RETURNS boolean
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_pause';
COMMENT ON FUNCTION durable.pause() IS
'let the background workers of this database begin nothing new; false = they were paused already';

CREATE FUNCTION durable.resume() RETURNS boolean
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_resume';
COMMENT ON FUNCTION durable.resume() IS
'let the background workers of this database go on; false = they were not paused';

CREATE FUNCTION durable.workers(
	OUT pid int, OUT kind text, OUT role regrole, OUT state text,
	OUT namespace text, OUT run_id text, OUT step text,
	OUT started_at timestamptz, OUT since timestamptz)
RETURNS SETOF record LANGUAGE c AS 'MODULE_PATHNAME', 'durable_workers_shown'
ROWS 10;
COMMENT ON FUNCTION durable.workers() IS
'the background workers of this database, and what they are doing; run and step only where the caller may read';
