--
-- Operation: what sweeps did, pg_cron, health.
--

-- Not part of a dump: it is about this server.
CREATE TABLE durable.last_sweep (
	only_one	boolean NOT NULL DEFAULT true CHECK (only_one),
	at			timestamptz NOT NULL,
	by_role		text COLLATE "C" NOT NULL,
	pid			int NOT NULL,
	done		jsonb NOT NULL,
	CONSTRAINT last_sweep_pkey PRIMARY KEY (only_one)
) USING heap WITH (fillfactor = 50);
COMMENT ON TABLE durable.last_sweep IS
'who swept last, when, and what was done; written at most every 15 seconds, not by the background worker';

CREATE TABLE durable.sweep_failure (
	part		text COLLATE "C" NOT NULL,
	since		timestamptz NOT NULL,
	at			timestamptz NOT NULL,
	failures	int NOT NULL,
	code		text COLLATE "C" NOT NULL,
	message		text NOT NULL,
	context		text,
	CONSTRAINT sweep_failure_pkey PRIMARY KEY (part)
) USING heap WITH (fillfactor = 50);
COMMENT ON TABLE durable.sweep_failure IS
'parts of the sweep that failed when they were last tried; a row goes when its part succeeds';
