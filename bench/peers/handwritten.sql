-- A SKIP LOCKED queue as a team would write it by hand, as well as we can: the
-- columns and guarantees of durable's stand-alone tasks, in plain SQL.
--
--   idempotent by task_id             unique where given, ON CONFLICT DO NOTHING
--   priority first, then age          task_ready equals the claim's ORDER BY
--   delayed and claimed tasks are     they have another state, so they are not
--     not in the way                  in task_ready
--   fenced                            a claim writes a token, a settle names it
--   lapsed claims are found           task_lease
--
-- There is one index per access path and no more, no trigger, no function (a
-- prepared statement is the cheapest call there is) and no foreign key. The
-- statements themselves are in handwritten.mjs.

CREATE SCHEMA hand;

CREATE TABLE hand.task (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	task_id text COLLATE "C",               -- the caller's own, if any
	created_at timestamptz NOT NULL DEFAULT now(),
	run_at timestamptz,
	lease_until timestamptz,
	token uuid,
	priority int NOT NULL DEFAULT 0,
	attempt int NOT NULL DEFAULT 0,
	max_attempts int NOT NULL DEFAULT 1,
	reclaims int NOT NULL DEFAULT 0,
	state "char" NOT NULL DEFAULT 'r',      -- r ready, d delayed, c claimed
	namespace text COLLATE "C" NOT NULL DEFAULT 'default',
	queue text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	input jsonb,
	headers jsonb
);

CREATE INDEX task_ready ON hand.task (namespace, queue, priority DESC, id) WHERE state = 'r';
CREATE UNIQUE INDEX task_key ON hand.task (namespace, task_id) WHERE task_id IS NOT NULL;
CREATE INDEX task_delayed ON hand.task (run_at) WHERE state = 'd';
CREATE INDEX task_lease ON hand.task (lease_until) WHERE state = 'c';

-- Where the outputs wait for whoever asked, in the variant that keeps them.
CREATE TABLE hand.result (
	id bigint PRIMARY KEY,
	task_id text COLLATE "C",
	namespace text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	finished_at timestamptz NOT NULL DEFAULT now(),
	token uuid,
	lease_until timestamptz,
	output jsonb,
	headers jsonb
);

CREATE UNIQUE INDEX result_key ON hand.result (namespace, task_id) WHERE task_id IS NOT NULL;
CREATE INDEX result_unread ON hand.result (namespace, name, id) WHERE token IS NULL;

-- What a cron job would run: promote what has become due, take back what lapsed.
CREATE PROCEDURE hand.sweep() LANGUAGE sql BEGIN ATOMIC
	UPDATE hand.task SET state = 'r', run_at = NULL WHERE state = 'd' AND run_at <= now();
	UPDATE hand.task SET state = 'r', token = NULL, lease_until = NULL, reclaims = reclaims + 1
		WHERE state = 'c' AND lease_until < now();
END;
