--
-- Workers outside the database: who is there, what they can do, and which runs wait
-- for one who can.
--

-- A worker that is alive writes its row again every few seconds, in place: no index
-- has a column that such a beat changes. Not dumped: liveness means nothing in another
-- database. But logged, for after a crash the workers are still there.
CREATE TABLE durable.worker (
	first_seen		timestamptz NOT NULL,
	last_seen		timestamptz NOT NULL,
	expires_at		timestamptz NOT NULL,
	role			regrole NOT NULL,
	protocol_min	int NOT NULL,
	protocol_max	int NOT NULL,
	namespace		text COLLATE "C" NOT NULL,
	worker			text COLLATE "C" NOT NULL,
	queues			text[] COLLATE "C" NOT NULL,
	workflows		text[] COLLATE "C" NOT NULL,
	capabilities	text[] COLLATE "C" NOT NULL,
	status			jsonb,
	CONSTRAINT worker_pkey PRIMARY KEY (namespace, worker)
) USING heap WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE durable.worker IS
'workers that have announced themselves; alive until expires_at';

CREATE TABLE durable.worker_queue (
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	worker		text COLLATE "C" NOT NULL,
	CONSTRAINT worker_queue_pkey PRIMARY KEY (namespace, queue, worker)
) USING heap;
COMMENT ON TABLE durable.worker_queue IS 'which of the announced workers serve which queue';

-- Not dumped either: a blocked run looks again by itself.
CREATE TABLE durable.run_blocked (
	run			bigint NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	queue		text COLLATE "C" NOT NULL,
	requires	text[] COLLATE "C",
	since		timestamptz NOT NULL,
	CONSTRAINT run_blocked_pkey PRIMARY KEY (run)
) USING heap;
COMMENT ON TABLE durable.run_blocked IS
'runs that no live worker can go on with: the queue, and what a worker of it has to be able to do';
CREATE INDEX run_blocked_queue ON durable.run_blocked (namespace, queue, run);

CREATE FUNCTION durable.announce_worker(
	worker text, queues text[], workflows text[] DEFAULT '{}',
	capabilities text[] DEFAULT NULL, protocol int[] DEFAULT NULL,
	status jsonb DEFAULT NULL, ttl interval DEFAULT '35 s', namespace text DEFAULT NULL)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'durable_announce_worker';
COMMENT ON FUNCTION durable.announce_worker(text, text[], text[], text[], int[], jsonb, interval, text) IS
'tell that a worker is alive, for the time ttl, and what it serves and can do; how it and the engine get along';

CREATE FUNCTION durable.withdraw_worker(worker text, namespace text DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_withdraw_worker';
COMMENT ON FUNCTION durable.withdraw_worker(text, text) IS
'tell that a worker has ended; false = it is not known';

CREATE FUNCTION durable.protocol() RETURNS int[]
LANGUAGE c IMMUTABLE AS 'MODULE_PATHNAME', 'durable_protocol';
COMMENT ON FUNCTION durable.protocol() IS
'the first and the last version of the protocol for workers that this engine speaks';
