--
-- Schedules: workflows that are started at certain times.
--
-- A window is an instant that a schedule names; it has one run, whose id is made
-- of both. next_fire is the next window plus its jitter, NULL while paused and
-- when there is none.
--

CREATE TABLE durable.schedule (
	created_at			timestamptz NOT NULL,
	updated_at			timestamptz NOT NULL,
	next_window			timestamptz,
	next_fire			timestamptz,
	catchup_until		timestamptz,
	last_window			timestamptz,
	last_fire_at		timestamptz,
	fires				bigint NOT NULL,
	skips				bigint NOT NULL,
	owner				regrole NOT NULL,
	priority			int NOT NULL,
	max_catchup			int,
	concurrency_limit	int,
	paused				boolean NOT NULL,
	schedule_id			text COLLATE "C" NOT NULL,
	namespace			text COLLATE "C" NOT NULL,
	workflow			text COLLATE "C" NOT NULL,
	version				text COLLATE "C",
	cron				text COLLATE "C",
	timezone			text COLLATE "C" NOT NULL,
	overlap				text COLLATE "C" NOT NULL,
	catchup				text COLLATE "C" NOT NULL,
	last_run_id			text COLLATE "C",
	last_skip			text COLLATE "C",
	last_error			text COLLATE "C",
	note				text COLLATE "C",
	concurrency_key		text COLLATE "C",
	every				interval,
	jitter				interval NOT NULL,
	tags				text[] NOT NULL,
	search_attributes	jsonb,
	headers				jsonb,
	input				jsonb,
	CONSTRAINT schedule_pkey PRIMARY KEY (schedule_id)
) USING heap WITH (fillfactor = 70);
-- what is due next; and, for a clock that was put back, what was due last
CREATE INDEX schedule_next_fire ON durable.schedule USING btree (next_fire);
CREATE INDEX schedule_last_window ON durable.schedule USING btree (last_window DESC NULLS LAST);
COMMENT ON TABLE durable.schedule IS 'at which times workflows are started';
SELECT pg_catalog.pg_extension_config_dump('durable.schedule', '');

CREATE FUNCTION durable.create_schedule(
	schedule_id text, workflow text, input jsonb DEFAULT NULL,
	cron text DEFAULT NULL, every interval DEFAULT NULL, timezone text DEFAULT 'UTC',
	jitter interval DEFAULT '0', overlap text DEFAULT 'allow', catchup text DEFAULT 'one',
	max_catchup int DEFAULT NULL, paused boolean DEFAULT false, tags text[] DEFAULT '{}',
	namespace text DEFAULT NULL, version text DEFAULT NULL, priority int DEFAULT 0,
	search_attributes jsonb DEFAULT NULL, headers jsonb DEFAULT NULL, note text DEFAULT NULL,
	concurrency_key text DEFAULT NULL, concurrency_limit int DEFAULT NULL)
RETURNS timestamptz LANGUAGE c AS 'MODULE_PATHNAME', 'durable_create_schedule';
COMMENT ON FUNCTION durable.create_schedule(text, text, jsonb, text, interval, text, interval, text, text, int, boolean, text[], text, text, int, jsonb, jsonb, text, text, int) IS
'start a workflow at the times of a cron expression, or every so often; when it fires first';

CREATE FUNCTION durable.upsert_schedule(
	schedule_id text, workflow text, input jsonb DEFAULT NULL,
	cron text DEFAULT NULL, every interval DEFAULT NULL, timezone text DEFAULT 'UTC',
	jitter interval DEFAULT '0', overlap text DEFAULT 'allow', catchup text DEFAULT 'one',
	max_catchup int DEFAULT NULL, paused boolean DEFAULT NULL, tags text[] DEFAULT '{}',
	namespace text DEFAULT NULL, version text DEFAULT NULL, priority int DEFAULT 0,
	search_attributes jsonb DEFAULT NULL, headers jsonb DEFAULT NULL, note text DEFAULT NULL,
	concurrency_key text DEFAULT NULL, concurrency_limit int DEFAULT NULL)
RETURNS timestamptz LANGUAGE c AS 'MODULE_PATHNAME', 'durable_upsert_schedule';
COMMENT ON FUNCTION durable.upsert_schedule(text, text, jsonb, text, interval, text, interval, text, text, int, boolean, text[], text, text, int, jsonb, jsonb, text, text, int) IS
'create a schedule or replace its definition, at once; its history stays, and it stays paused unless told; when it fires next';

CREATE FUNCTION durable.pause_schedule(schedule_id text, note text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_pause_schedule';
COMMENT ON FUNCTION durable.pause_schedule(text, text) IS
'let a schedule start nothing until it is resumed; false = it was paused already';

CREATE FUNCTION durable.resume_schedule(schedule_id text)
RETURNS timestamptz LANGUAGE c AS 'MODULE_PATHNAME', 'durable_resume_schedule';
COMMENT ON FUNCTION durable.resume_schedule(text) IS
'let a paused schedule go on with its next window; what it missed is not made up for; when it fires next';

CREATE FUNCTION durable.trigger_schedule(schedule_id text)
RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_trigger_schedule';
COMMENT ON FUNCTION durable.trigger_schedule(text) IS
'start a run of the schedule now, paused or not, beside its windows; the run''s id';

CREATE FUNCTION durable.backfill_schedule(
	schedule_id text, since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL,
	max_runs int DEFAULT NULL)
RETURNS SETOF text LANGUAGE c ROWS 10 AS 'MODULE_PATHNAME', 'durable_backfill_schedule';
COMMENT ON FUNCTION durable.backfill_schedule(text, timestamptz, timestamptz, int) IS
'start the runs of past windows that have none, oldest first, as many as the catch-up policy or max_runs says; their ids';

CREATE FUNCTION durable.delete_schedule(schedule_id text)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_delete_schedule';
COMMENT ON FUNCTION durable.delete_schedule(text) IS
'forget a schedule; its runs stay; false = there is none of this id';

CREATE FUNCTION durable.next_fires(
	cron text, timezone text DEFAULT 'UTC', n int DEFAULT 10, after timestamptz DEFAULT NULL)
RETURNS SETOF timestamptz LANGUAGE c STABLE ROWS 10 AS 'MODULE_PATHNAME', 'durable_next_fires';
COMMENT ON FUNCTION durable.next_fires(text, text, int, timestamptz) IS
'the next n times at which a cron expression fires after an instant (NULL = now)';

-- Read with the caller's own rights: SELECT on the tables and their row security.
CREATE VIEW durable.schedules WITH (security_invoker = true) AS
SELECT s.schedule_id, s.namespace, s.workflow, s.version, s.owner, s.cron, s.every, s.timezone,
	   s.jitter, s.overlap, s.catchup, s.max_catchup, s.paused, s.note, s.next_window, s.next_fire,
	   CASE WHEN s.next_fire OPERATOR(pg_catalog.<) c.now
			THEN c.now OPERATOR(pg_catalog.-) s.next_fire END AS lag,
	   s.last_window, s.last_fire_at, s.last_run_id, r.status AS last_run_status, s.fires, s.skips,
	   s.last_skip, s.last_error, s.tags, s.priority, s.concurrency_key,
	   s.concurrency_limit, s.search_attributes, s.headers, s.input,
	   s.created_at, s.updated_at
  FROM durable.schedule s
 CROSS JOIN durable.engine_now() c(now)
  LEFT JOIN durable.run r ON r.run_id OPERATOR(pg_catalog.=) s.last_run_id
 ORDER BY s.next_fire, s.schedule_id;
COMMENT ON VIEW durable.schedules IS
'the schedules, soonest first: definition, next and last window, how the last run stands; lag is how long one has been due';
