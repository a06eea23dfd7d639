--
-- Admission: who of the runs with one key may go on, and how many may be active.
--
-- A run of a workflow with a singleton key has one row from its start to its end.
-- Rows are written by the C code alone (docs/internals.md, "Singletons"); a run that
-- is parked has its turn in no list until a slot is free.
--

CREATE TABLE durable.singleton (
	run			bigint NOT NULL,
	parked		boolean NOT NULL,				-- its turn waits here, in no queue
	state		text COLLATE "C" NOT NULL,		-- held, waiting, delayed (its start)
	namespace	text COLLATE "C" NOT NULL,
	workflow	text COLLATE "C" NOT NULL,
	version		text COLLATE "C" NOT NULL,
	key			text COLLATE "C" NOT NULL
) USING heap WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.singleton IS
'live runs with a singleton key: which of them hold a slot, and who waits for one';
CREATE UNIQUE INDEX singleton_order ON durable.singleton (namespace, workflow, key, state, run);
ALTER TABLE durable.singleton REPLICA IDENTITY USING INDEX singleton_order;
SELECT pg_catalog.pg_extension_config_dump('durable.singleton', '');

CREATE TABLE durable.quota (
	run			bigint NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	key			text COLLATE "C" NOT NULL,
	CONSTRAINT quota_pkey PRIMARY KEY (namespace, key, run)
) USING heap WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE durable.quota IS 'live runs that were started under a concurrency key';
SELECT pg_catalog.pg_extension_config_dump('durable.quota', '');

CREATE VIEW durable.singletons WITH (security_invoker = true) AS
SELECT s.namespace, s.workflow, s.key,
	   pg_catalog.count(*) FILTER (WHERE s.state OPERATOR(pg_catalog.=) 'held') AS running,
	   pg_catalog.count(*) FILTER (WHERE s.state OPERATOR(pg_catalog.=) 'waiting') AS waiting,
	   pg_catalog.count(*) FILTER (WHERE s.state OPERATOR(pg_catalog.=) 'delayed') AS delayed,
	   pg_catalog.max(w.singleton_limit) AS singleton_limit
  FROM durable.singleton s
  LEFT JOIN durable.workflow w ON w.namespace OPERATOR(pg_catalog.=) s.namespace
	   AND w.name OPERATOR(pg_catalog.=) s.workflow
	   AND w.version OPERATOR(pg_catalog.=) s.version
 GROUP BY s.namespace, s.workflow, s.key;
COMMENT ON VIEW durable.singletons IS
'per workflow and singleton key: how many runs hold a slot, wait for one or have not begun, and how many may hold one';
