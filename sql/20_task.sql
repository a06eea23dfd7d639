--
-- Tasks: what is queued, what is claimed, what came of it.
--
-- A task is one row in durable.task from dispatch until it is settled. Where it
-- stands is told by which other table names its id: task_ready (claimable now),
-- task_delayed (its time has not come) or neither (claimed: some lease lists
-- it). These hot tables are written by the C code directly (docs/internals.md).
--

CREATE SEQUENCE durable.task_seq AS bigint;
CREATE SEQUENCE durable.lease_seq AS bigint;
SELECT pg_catalog.pg_extension_config_dump('durable.task_seq', '');
SELECT pg_catalog.pg_extension_config_dump('durable.lease_seq', '');

-- A row changes only when its task goes back to a queue. The change is what
-- refuses a settle that is under way with the old token, and last_lease what
-- refuses later ones: only a younger lease can hold the task.
CREATE TABLE durable.task (
	id				bigint NOT NULL,
	created_at		timestamptz NOT NULL,
	run_at			timestamptz,
	last_lease		bigint,
	priority		int NOT NULL,
	attempt			int NOT NULL,
	max_attempts	int NOT NULL,
	reclaims		int NOT NULL,
	seq				int,
	backoff			interval,
	backoff_max		interval,
	backoff_exp		boolean,
	jitter			boolean,
	timeout			interval,
	pickup_timeout	interval,
	namespace		text COLLATE "C" NOT NULL,
	queue			text COLLATE "C" NOT NULL,
	name			text COLLATE "C" NOT NULL,
	kind			text COLLATE "C" NOT NULL,
	task_id			text COLLATE "C",
	run_id			text COLLATE "C",
	error			jsonb,
	headers			jsonb,
	input			jsonb,
	replaced		boolean,		-- claimed with what it was before; see on_conflict
	requires		text[] COLLATE "C",	-- what its worker has to be able to do
	limiter			bigint,			-- NULL: nothing limits it
	limiter_key		text COLLATE "C",
	CONSTRAINT task_pkey PRIMARY KEY (id)
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- A claim does not write this row, so a payload costs nothing inline, and saves
-- the out-of-line rows and their index.
ALTER TABLE durable.task ALTER COLUMN input SET STORAGE MAIN;
COMMENT ON TABLE durable.task IS
'tasks that are not settled yet; a generated task_id is not stored, it is ~ and the id';
CREATE UNIQUE INDEX task_task_id_key ON durable.task (namespace, task_id)
	WHERE task_id IS NOT NULL;
SELECT pg_catalog.pg_extension_config_dump('durable.task', '');

-- The claim order is the index order: priority first, then age.
CREATE TABLE durable.task_ready (
	id			bigint NOT NULL,
	priority	int NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.task_ready IS 'ids of the tasks that can be claimed now';
CREATE UNIQUE INDEX task_ready_order ON durable.task_ready
	(namespace, queue, priority DESC, id);
ALTER TABLE durable.task_ready REPLICA IDENTITY USING INDEX task_ready_order;
SELECT pg_catalog.pg_extension_config_dump('durable.task_ready', '');

CREATE TABLE durable.task_delayed (
	id			bigint NOT NULL,
	run_at		timestamptz NOT NULL,
	priority	int NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	limiter		bigint,			-- where it waits when it is due
	limiter_key	text COLLATE "C"
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.task_delayed IS 'ids of the tasks whose time has not come';
CREATE UNIQUE INDEX task_delayed_due ON durable.task_delayed
	(namespace, queue, run_at, id);
ALTER TABLE durable.task_delayed REPLICA IDENTITY USING INDEX task_delayed_due;
SELECT pg_catalog.pg_extension_config_dump('durable.task_delayed', '');

-- One row per claim round. It is written when the round is claimed and when it
-- is renewed; a task that is settled or goes back stays in the list.
CREATE TABLE durable.lease (
	id			bigint NOT NULL,
	token		uuid NOT NULL,
	lease_until	timestamptz NOT NULL,
	claimed_at	timestamptz NOT NULL,
	kind		text COLLATE "C" NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,	-- empty: tasks of several, or results
	worker		text COLLATE "C",
	ids			bigint[] NOT NULL,
	seen		bigint[],					-- runs whose turns it has, each with the wakes it saw
	CONSTRAINT lease_pkey PRIMARY KEY (id)
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- Past 2 kB the list moves out of line, so that renewing does not copy it.
ALTER TABLE durable.lease ALTER COLUMN ids SET STORAGE EXTERNAL;
COMMENT ON TABLE durable.lease IS
'claim rounds: the token that proves them, how long they hold, and the ids they claimed';
CREATE INDEX lease_until_idx ON durable.lease (namespace, queue, lease_until);

CREATE TABLE durable.task_result (
	id			bigint NOT NULL,
	created_at	timestamptz NOT NULL,
	finished_at	timestamptz NOT NULL,
	lease_id	bigint,
	priority	int NOT NULL,
	attempt		int NOT NULL,
	reclaims	int NOT NULL,
	status		text COLLATE "C" NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	name		text COLLATE "C" NOT NULL,
	task_id		text COLLATE "C",
	output		jsonb,
	error		jsonb,
	events		jsonb,
	headers		jsonb,
	input		jsonb,
	CONSTRAINT task_result_pkey PRIMARY KEY (id)
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE durable.task_result IS
'how stand-alone tasks ended, until acknowledged or older than durable.result_retention';
CREATE UNIQUE INDEX task_result_task_id_key ON durable.task_result (namespace, task_id)
	WHERE task_id IS NOT NULL;
CREATE INDEX task_result_unread ON durable.task_result (namespace, name, finished_at, id)
	WHERE lease_id IS NULL;
SELECT pg_catalog.pg_extension_config_dump('durable.task_result', '');

CREATE TABLE durable.task_progress (
	id			bigint NOT NULL,
	at			timestamptz NOT NULL,
	progress	jsonb,
	CONSTRAINT task_progress_pkey PRIMARY KEY (id)
) USING heap WITH (fillfactor = 50);
COMMENT ON TABLE durable.task_progress IS 'the last heartbeat of claimed tasks';

CREATE TABLE durable.queue (
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	paused_at	timestamptz,
	paused_by	text,
	CONSTRAINT queue_pkey PRIMARY KEY (namespace, queue)
);
COMMENT ON TABLE durable.queue IS 'queues with a setting of their own; any other name is a queue too';
SELECT pg_catalog.pg_extension_config_dump('durable.queue', '');

-- lz4 where the server has it: payloads are compressed on every dispatch.
DO $$
BEGIN
	ALTER TABLE durable.task ALTER COLUMN input SET COMPRESSION lz4;
	ALTER TABLE durable.task_result ALTER COLUMN output SET COMPRESSION lz4;
	ALTER TABLE durable.task_result ALTER COLUMN input SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
	NULL;
END $$;

--
-- Dispatch
--
CREATE FUNCTION durable.dispatch(
	name text, input jsonb DEFAULT NULL, task_id text DEFAULT NULL,
	queue text DEFAULT NULL, namespace text DEFAULT NULL,
	priority int DEFAULT 0, run_at timestamptz DEFAULT NULL,
	max_attempts int DEFAULT 1, backoff interval DEFAULT '0',
	backoff_max interval DEFAULT NULL, headers jsonb DEFAULT NULL,
	backoff_kind text DEFAULT NULL, jitter boolean DEFAULT false,
	limiter text DEFAULT NULL, fairness_key text DEFAULT NULL,
	on_conflict text DEFAULT NULL, debounce interval DEFAULT NULL,
	debounce_max interval DEFAULT NULL, throttle interval DEFAULT NULL)
RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_dispatch';
COMMENT ON FUNCTION durable.dispatch(text, jsonb, text, text, text, int, timestamptz, int, interval, interval, jsonb, text, boolean, text, text, text, interval, interval, interval) IS
'queue a task; idempotent by task_id while the task or its result lives, unless on_conflict says reject, replace, replace_keep_time, debounce or throttle';

CREATE FUNCTION durable.dispatch_many(
	name text, inputs jsonb[], queue text DEFAULT NULL,
	namespace text DEFAULT NULL, priority int DEFAULT 0,
	run_at timestamptz DEFAULT NULL, max_attempts int DEFAULT 1,
	backoff interval DEFAULT '0', backoff_max interval DEFAULT NULL,
	headers jsonb DEFAULT NULL, backoff_kind text DEFAULT NULL,
	jitter boolean DEFAULT false, task_ids text[] DEFAULT NULL,
	limiter text DEFAULT NULL, fairness_key text DEFAULT NULL,
	on_conflict text DEFAULT NULL, debounce interval DEFAULT NULL,
	debounce_max interval DEFAULT NULL, throttle interval DEFAULT NULL)
RETURNS SETOF text LANGUAGE c ROWS 100 AS 'MODULE_PATHNAME', 'durable_dispatch_many';
COMMENT ON FUNCTION durable.dispatch_many(text, jsonb[], text, text, int, timestamptz, int, interval, interval, jsonb, text, boolean, text[], text, text, text, interval, interval, interval) IS
'queue one task per input, all of the same name; the task ids in the order of the inputs, NULL for what on_conflict => reject refused';

--
-- Claim
--
CREATE FUNCTION durable.claim(
	queues text[], max_tasks int DEFAULT 1, lease interval DEFAULT '30 s',
	worker text DEFAULT NULL, namespace text DEFAULT NULL, history int DEFAULT NULL,
	OUT task_id text, OUT token uuid, OUT kind text, OUT name text,
	OUT queue text, OUT namespace text, OUT input jsonb, OUT run_id text,
	OUT seq int, OUT attempt int, OUT reclaims int, OUT priority int,
	OUT headers jsonb, OUT lease_until timestamptz)
RETURNS SETOF record LANGUAGE c ROWS 10 AS 'MODULE_PATHNAME', 'durable_claim';
COMMENT ON FUNCTION durable.claim(text[], int, interval, text, text, int) IS
'claim tasks, priority first, then age; their one token proves the claim until the lease lapses; turns come with their last checkpoints (NULL = all)';

CREATE FUNCTION durable.settle_and_claim(
	task_id text, token uuid, output jsonb, queues text[],
	max_tasks int DEFAULT 1, lease interval DEFAULT '30 s',
	worker text DEFAULT NULL, namespace text DEFAULT NULL, strict boolean DEFAULT false,
	history int DEFAULT NULL,
	OUT task_id text, OUT token uuid, OUT kind text, OUT name text,
	OUT queue text, OUT namespace text, OUT input jsonb, OUT run_id text,
	OUT seq int, OUT attempt int, OUT reclaims int, OUT priority int,
	OUT headers jsonb, OUT lease_until timestamptz)
RETURNS SETOF record LANGUAGE c ROWS 10 AS 'MODULE_PATHNAME', 'durable_settle_and_claim';
COMMENT ON FUNCTION durable.settle_and_claim(text, uuid, jsonb, text[], int, interval, text, text, boolean, int) IS
'complete one task and claim the next in one commit; a NULL task_id claims only; a stale token still claims, with a warning, or is error 40001 when strict';

CREATE FUNCTION durable.renew(token uuid, lease interval DEFAULT '30 s')
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_renew';
COMMENT ON FUNCTION durable.renew(uuid, interval) IS
'make the whole claim round last until now + lease; how many tasks it still holds, 0 = lost';

CREATE FUNCTION durable.release(token uuid, task_ids text[] DEFAULT NULL)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_release';
COMMENT ON FUNCTION durable.release(uuid, text[]) IS
'hand claimed tasks back to their queue, uncounted; NULL = all of the round';

--
-- Settle
--
CREATE FUNCTION durable.complete(
	task_id text, token uuid, output jsonb DEFAULT NULL, events jsonb DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_complete';
COMMENT ON FUNCTION durable.complete(text, uuid, jsonb, jsonb) IS
'settle a claimed task; false = the token no longer holds it, nothing changed';

CREATE FUNCTION durable.complete_many(
	token uuid, task_ids text[], outputs jsonb[] DEFAULT NULL)
RETURNS SETOF text LANGUAGE c ROWS 100 AS 'MODULE_PATHNAME', 'durable_complete_many';
COMMENT ON FUNCTION durable.complete_many(uuid, text[], jsonb[]) IS
'settle several tasks of one claim round; the ids that were settled';

CREATE FUNCTION durable.fail(
	task_id text, token uuid, error jsonb, events jsonb DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_fail';
COMMENT ON FUNCTION durable.fail(text, uuid, jsonb, jsonb) IS
'report a failed attempt: retried by the task''s policy unless error.retryable is false; false = the token no longer holds it';

CREATE FUNCTION durable.heartbeat(task_id text, token uuid, progress jsonb DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_heartbeat';
COMMENT ON FUNCTION durable.heartbeat(text, uuid, jsonb) IS
'show that a claimed task is alive, with its progress; false = lost or cancelled, stop working';

CREATE FUNCTION durable.cancel_task(task_id text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_cancel_task';
COMMENT ON FUNCTION durable.cancel_task(text, text) IS
'end a task that is not settled yet as cancelled, claimed or not; false = there is none';

--
-- Results
--
CREATE FUNCTION durable.claim_results(
	names text[], max_results int DEFAULT 100, lease interval DEFAULT '30 s',
	namespace text DEFAULT NULL,
	OUT task_id text, OUT token uuid, OUT name text, OUT queue text,
	OUT namespace text, OUT status text, OUT output jsonb, OUT error jsonb,
	OUT events jsonb, OUT attempt int, OUT created_at timestamptz,
	OUT finished_at timestamptz, OUT lease_until timestamptz)
RETURNS SETOF record LANGUAGE c ROWS 100 AS 'MODULE_PATHNAME', 'durable_claim_results';
COMMENT ON FUNCTION durable.claim_results(text[], int, interval, text) IS
'take unread results of the named tasks, oldest first; they come again after the lease unless acknowledged';

CREATE FUNCTION durable.ack_results(token uuid, task_ids text[] DEFAULT NULL)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_ack_results';
COMMENT ON FUNCTION durable.ack_results(uuid, text[]) IS
'delete results that were taken with the token (NULL = all of them); how many';

-- The C code reports each row it lists to the scan hints; a write by SQL (a
-- restore, an administrator) makes them start anew.
CREATE FUNCTION durable.list_changed() RETURNS trigger
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_list_changed';
COMMENT ON FUNCTION durable.list_changed() IS
'trigger: the scan hints of this database start anew, and its waiters look';

CREATE TRIGGER list_changed AFTER INSERT OR UPDATE OR TRUNCATE ON durable.task_ready
	FOR EACH STATEMENT EXECUTE FUNCTION durable.list_changed();
CREATE TRIGGER list_changed AFTER INSERT OR UPDATE OR TRUNCATE ON durable.task_delayed
	FOR EACH STATEMENT EXECUTE FUNCTION durable.list_changed();
CREATE TRIGGER list_changed AFTER INSERT OR UPDATE OR TRUNCATE ON durable.lease
	FOR EACH STATEMENT EXECUTE FUNCTION durable.list_changed();

CREATE TRIGGER settings_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE
	ON durable.queue
	FOR EACH STATEMENT EXECUTE FUNCTION durable.settings_changed();
