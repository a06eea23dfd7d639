--
-- Limiters: named bounds on how many tasks run at once, and how many start in a
-- window of time.
--
-- A task that names a limiter stands in task_limited instead of task_ready until a
-- claim admits it. The claim holds the limiter's lock and alone writes the tables
-- of the bookkeeping; who dispatches or settles only adds rows (docs/internals.md).
--

CREATE SEQUENCE durable.limiter_seq AS bigint;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_seq', '');

CREATE TABLE durable.limiter (
	id				bigint NOT NULL,
	created_at		timestamptz NOT NULL,
	changed_at		timestamptz NOT NULL,
	paused_at		timestamptz,
	rate_us			bigint,			-- rate_period in microseconds
	concurrency		int,
	key_concurrency	int,
	rate_limit		int,
	rate_period		interval,
	rate_kind		text COLLATE "C" NOT NULL,
	fairness		text COLLATE "C" NOT NULL,
	ordering		text COLLATE "C" NOT NULL,
	namespace		text COLLATE "C" NOT NULL,
	name			text COLLATE "C" NOT NULL,
	paused_by		text,
	CONSTRAINT limiter_pkey PRIMARY KEY (namespace, name),
	CONSTRAINT limiter_id_key UNIQUE (id)
);
COMMENT ON TABLE durable.limiter IS 'named limits that tasks and steps may be put under';
SELECT pg_catalog.pg_extension_config_dump('durable.limiter', '');

-- Which limiters the tasks of a queue have named. A pair may stand here twice:
-- whoever adds one does not wait for others who do.
CREATE TABLE durable.limiter_queue (
	limiter		bigint NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL
);
COMMENT ON TABLE durable.limiter_queue IS 'the queues whose tasks name a limiter';
CREATE INDEX limiter_queue_pair ON durable.limiter_queue (namespace, queue, limiter);
CREATE INDEX limiter_queue_limiter ON durable.limiter_queue (limiter);
ALTER TABLE durable.limiter_queue REPLICA IDENTITY FULL;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_queue', '');

-- Waiting tasks.
CREATE TABLE durable.task_limited (
	id			bigint NOT NULL,
	limiter		bigint NOT NULL,
	priority	int NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	key			text COLLATE "C" NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.task_limited IS 'ids of the tasks that wait for a slot of their limiter';
CREATE INDEX task_limited_order ON durable.task_limited (limiter, key, queue, priority, id);
ALTER TABLE durable.task_limited REPLICA IDENTITY FULL;
SELECT pg_catalog.pg_extension_config_dump('durable.task_limited', '');

-- The keys that may have waiting tasks, in the order in which they come next: one
-- row, or for a while several, per key, queue and priority. list is the limiter's id.
CREATE TABLE durable.limiter_turn (
	"position"	bigint NOT NULL,
	head		bigint NOT NULL,	-- fifo: no task before this id waits behind the row
	priority	int NOT NULL,
	list		text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	key			text COLLATE "C" NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_turn IS 'keys with waiting tasks, in the order of their turns';
CREATE INDEX limiter_turn_order ON durable.limiter_turn
	(list, queue, priority DESC, "position", head);
CREATE INDEX limiter_turn_key ON durable.limiter_turn (list, key, queue, priority, "position");
ALTER TABLE durable.limiter_turn REPLICA IDENTITY FULL;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_turn', '');

-- Such keys that have as many tasks running as a key may.
CREATE TABLE durable.limiter_blocked (
	limiter		bigint NOT NULL,
	n			bigint NOT NULL,
	head		bigint NOT NULL,
	priority	int NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	key			text COLLATE "C" NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_blocked IS 'keys with waiting tasks that are at their limit';
CREATE UNIQUE INDEX limiter_blocked_key ON durable.limiter_blocked (limiter, key, n);
ALTER TABLE durable.limiter_blocked REPLICA IDENTITY USING INDEX limiter_blocked_key;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_blocked', '');

-- The admitted: a row goes when its task leaves its claim.
CREATE TABLE durable.limiter_slot (
	id			bigint NOT NULL,
	limiter		bigint NOT NULL,
	key			text COLLATE "C" NOT NULL,
	CONSTRAINT limiter_slot_pkey PRIMARY KEY (id)
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_slot IS 'tasks that hold a slot of their limiter';
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_slot', '');

-- Slots that were given back and are not counted off yet.
CREATE TABLE durable.limiter_freed (
	n			bigint NOT NULL,
	limiter		bigint NOT NULL,
	key			text COLLATE "C" NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_freed IS 'slots given back that the next claim counts off';
CREATE UNIQUE INDEX limiter_freed_order ON durable.limiter_freed (limiter, n);
ALTER TABLE durable.limiter_freed REPLICA IDENTITY USING INDEX limiter_freed_order;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_freed', '');

-- What is counted. A change is a new row with the next version, so that it is found
-- at the end of the index whatever old snapshots keep.
CREATE TABLE durable.limiter_state (
	limiter		bigint NOT NULL,
	version		bigint NOT NULL,
	window_start timestamptz NOT NULL,
	opens_at	timestamptz,		-- tasks wait for the window until then
	first_tick	bigint NOT NULL,	-- sliding windows: first_tick to below next_tick
	next_tick	bigint NOT NULL,
	stamp		bigint NOT NULL,	-- of the last admission; grows
	floor		bigint NOT NULL,	-- no key waits at a position before it
	floor_task	bigint NOT NULL,	-- the newest task that was admitted by then
	blocked		bigint NOT NULL,
	running		int NOT NULL,
	used		int NOT NULL,		-- of a fixed window
	key_limit	int					-- that the blocked keys were held against
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_state IS 'what is counted of each limiter';
CREATE UNIQUE INDEX limiter_state_version ON durable.limiter_state (limiter, version);
ALTER TABLE durable.limiter_state REPLICA IDENTITY USING INDEX limiter_state_version;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_state', '');

CREATE TABLE durable.limiter_key (
	limiter		bigint NOT NULL,
	version		bigint NOT NULL,
	served		bigint NOT NULL,	-- stamp of the last admission
	running		int NOT NULL,
	blocked		int NOT NULL,		-- rows in limiter_blocked
	key			text COLLATE "C" NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_key IS 'what is counted of each key of a limiter';
CREATE UNIQUE INDEX limiter_key_version ON durable.limiter_key (limiter, key, version);
ALTER TABLE durable.limiter_key REPLICA IDENTITY USING INDEX limiter_key_version;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_key', '');

CREATE TABLE durable.limiter_tick (
	limiter		bigint NOT NULL,
	n			bigint NOT NULL,
	at			timestamptz NOT NULL
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.limiter_tick IS 'admissions inside the sliding window';
CREATE UNIQUE INDEX limiter_tick_order ON durable.limiter_tick (limiter, n);
ALTER TABLE durable.limiter_tick REPLICA IDENTITY USING INDEX limiter_tick_order;
SELECT pg_catalog.pg_extension_config_dump('durable.limiter_tick', '');

CREATE TRIGGER list_changed AFTER INSERT OR UPDATE OR TRUNCATE ON durable.limiter_turn
	FOR EACH STATEMENT EXECUTE FUNCTION durable.list_changed();
CREATE TRIGGER list_changed AFTER INSERT OR UPDATE OR TRUNCATE ON durable.limiter_freed
	FOR EACH STATEMENT EXECUTE FUNCTION durable.list_changed();

CREATE FUNCTION durable.register_limiter(
	name text, concurrency int DEFAULT NULL, rate_limit int DEFAULT NULL,
	rate_period interval DEFAULT NULL, rate_kind text DEFAULT 'fixed',
	fairness text DEFAULT 'fifo', ordering text DEFAULT 'fifo',
	namespace text DEFAULT NULL, key_concurrency int DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_register_limiter';
COMMENT ON FUNCTION durable.register_limiter(text, int, int, interval, text, text, text, text, int) IS
'make or change a limiter, at once for what waits; false = it was there';

CREATE FUNCTION durable.drop_limiter(name text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_drop_limiter';
COMMENT ON FUNCTION durable.drop_limiter(text, text) IS
'remove a limiter that no task names; false = there is none';

CREATE FUNCTION durable.pause_limiter(name text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_pause_limiter';
COMMENT ON FUNCTION durable.pause_limiter(text, text) IS
'admit nothing more; what runs goes on; false = it was paused already';

CREATE FUNCTION durable.resume_limiter(name text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_resume_limiter';
COMMENT ON FUNCTION durable.resume_limiter(text, text) IS
'admit again; false = it was not paused';

CREATE FUNCTION durable.limiter_usage(
	namespace text, name text,
	OUT running bigint, OUT waiting bigint, OUT window_used int, OUT opens_at timestamptz)
RETURNS record LANGUAGE c STABLE AS 'MODULE_PATHNAME', 'durable_limiter_usage';
COMMENT ON FUNCTION durable.limiter_usage(text, text) IS
'what a limiter has running and waiting, what its window has used, and when that opens if it is full';

CREATE VIEW durable.limiters WITH (security_barrier, security_invoker) AS
SELECT l.namespace, l.name, l.concurrency, l.key_concurrency, l.rate_limit, l.rate_period,
	   l.rate_kind, l.fairness, l.ordering, l.paused_at, l.paused_by, l.created_at, l.changed_at,
	   u.running, u.waiting, u.window_used, u.opens_at
  FROM durable.limiter l
 CROSS JOIN LATERAL durable.limiter_usage(l.namespace, l.name) u;
COMMENT ON VIEW durable.limiters IS 'limiters: what they allow, what runs and waits under them';
