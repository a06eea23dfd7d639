--
-- Runs: executions of workflows, their history, what they wait for.
--
-- A run's number is also the number of its turn task. Where that task stands is
-- turn_state: ready (queued or claimed), delayed (until wake_at), parked
-- (waiting for a result or a signal), limited (waiting at the limiter of a
-- local step) or none (the run has ended).
--

-- What a parked run waits for may be a range of its dispatched steps, awaited_first
-- to awaited_last: then awaited_on is one of them that is out, and the run sleeps at
-- least until that one has ended. Of a fan with a bound on what is in flight, the
-- steps from fan_next to fan_last are not in a queue yet; they follow one by one.
CREATE TABLE durable.run (
	id					bigint NOT NULL,
	parent				bigint,
	created_at			timestamptz NOT NULL,
	started_at			timestamptz,
	finished_at			timestamptz,
	wake_at				timestamptz,
	parent_seq			int,
	priority			int NOT NULL,
	wakes				int NOT NULL,
	awaited_first		int,
	awaited_last		int,
	awaited_on			int,
	fan_first			int,
	fan_next			int,
	fan_last			int,
	fail_fast			boolean,
	recovery_attempts	int NOT NULL,
	status				text COLLATE "C" NOT NULL,
	turn_state			text COLLATE "C" NOT NULL,
	run_id				text COLLATE "C" NOT NULL,
	namespace			text COLLATE "C" NOT NULL,
	workflow			text COLLATE "C" NOT NULL,
	version				text COLLATE "C" NOT NULL,
	tags				text[],
	search_attributes	jsonb,
	headers				jsonb,
	output				jsonb,
	error				jsonb,
	input				jsonb,
	singleton_key		text COLLATE "C",		-- of the input, when it was started
	concurrency_key		text COLLATE "C",
	CONSTRAINT run_pkey PRIMARY KEY (id),
	CONSTRAINT run_run_id_key UNIQUE (run_id)
) USING heap WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02);
COMMENT ON TABLE durable.run IS 'executions of workflows';
SELECT pg_catalog.pg_extension_config_dump('durable.run', '');

CREATE TABLE durable.checkpoint (
	run			bigint NOT NULL,
	task		bigint,
	started_at	timestamptz NOT NULL,
	finished_at	timestamptz,
	wake_at		timestamptz,
	seq			int NOT NULL,
	attempts	int NOT NULL,
	kind		text COLLATE "C" NOT NULL,
	status		text COLLATE "C" NOT NULL,
	name		text COLLATE "C" NOT NULL,
	output		jsonb,
	error		jsonb,
	input		jsonb,
	CONSTRAINT checkpoint_pkey PRIMARY KEY (run, seq)
) USING heap WITH (fillfactor = 90);
COMMENT ON TABLE durable.checkpoint IS 'the recorded outcome of each operation of each run';
SELECT pg_catalog.pg_extension_config_dump('durable.checkpoint', '');

CREATE TABLE durable.waiter (
	run			bigint NOT NULL,
	seq			int NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	token		text COLLATE "C" NOT NULL,
	CONSTRAINT waiter_pkey PRIMARY KEY (namespace, token)
) USING heap;
COMMENT ON TABLE durable.waiter IS 'which run waits for which signal at which position';
SELECT pg_catalog.pg_extension_config_dump('durable.waiter', '');

CREATE TABLE durable.signal_buffer (
	id			bigint NOT NULL,
	created_at	timestamptz NOT NULL,
	namespace	text COLLATE "C" NOT NULL,
	token		text COLLATE "C" NOT NULL,
	payload		jsonb,
	CONSTRAINT signal_buffer_pkey PRIMARY KEY (namespace, token, id)
) USING heap;
COMMENT ON TABLE durable.signal_buffer IS 'signals that nobody waits for yet, first in first out by token';
SELECT pg_catalog.pg_extension_config_dump('durable.signal_buffer', '');

CREATE TABLE durable.run_log (
	run			bigint NOT NULL,
	at			timestamptz NOT NULL,
	seq			int NOT NULL,
	number		int NOT NULL,
	level		text NOT NULL,
	message		text NOT NULL,
	data		jsonb,
	CONSTRAINT run_log_pkey PRIMARY KEY (run, seq, number)
);
COMMENT ON TABLE durable.run_log IS 'what bodies logged, once each';
SELECT pg_catalog.pg_extension_config_dump('durable.run_log', '');

CREATE FUNCTION durable.start(
	workflow text, input jsonb DEFAULT NULL, run_id text DEFAULT NULL,
	version text DEFAULT NULL, namespace text DEFAULT NULL, tags text[] DEFAULT '{}',
	priority int DEFAULT 0, start_at timestamptz DEFAULT NULL,
	search_attributes jsonb DEFAULT NULL, concurrency_key text DEFAULT NULL,
	concurrency_limit int DEFAULT NULL, headers jsonb DEFAULT NULL,
	on_conflict text DEFAULT NULL, debounce interval DEFAULT NULL,
	debounce_max interval DEFAULT NULL, throttle interval DEFAULT NULL)
RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_start';
COMMENT ON FUNCTION durable.start(text, jsonb, text, text, text, text[], int, timestamptz, jsonb, text, int, jsonb, text, interval, interval, interval) IS
'start a run when this transaction commits; idempotent by run_id, unless on_conflict says reject, or replace, replace_keep_time, debounce or throttle for a run that has not begun';

CREATE FUNCTION durable.start_many(
	workflow text, inputs jsonb[], run_ids text[] DEFAULT NULL,
	version text DEFAULT NULL, namespace text DEFAULT NULL, tags text[] DEFAULT '{}',
	priority int DEFAULT 0, start_at timestamptz DEFAULT NULL,
	search_attributes jsonb DEFAULT NULL, concurrency_key text DEFAULT NULL,
	concurrency_limit int DEFAULT NULL, headers jsonb DEFAULT NULL,
	on_conflict text DEFAULT NULL, debounce interval DEFAULT NULL,
	debounce_max interval DEFAULT NULL, throttle interval DEFAULT NULL)
RETURNS SETOF text LANGUAGE c ROWS 100 AS 'MODULE_PATHNAME', 'durable_start_many';
COMMENT ON FUNCTION durable.start_many(text, jsonb[], text[], text, text, text[], int, timestamptz, jsonb, text, int, jsonb, text, interval, interval, interval) IS
'start one run per input; the run ids in the order of the inputs, NULL for what on_conflict refused';

CREATE FUNCTION durable.cancel(run_id text, reason text DEFAULT NULL)
RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_cancel_run';
COMMENT ON FUNCTION durable.cancel(text, text) IS
'end a run and its children as cancelled; the status afterwards, NULL for an unknown run';

CREATE FUNCTION durable.requeue(run_id text) RETURNS text
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_requeue_run';
COMMENT ON FUNCTION durable.requeue(text) IS
'let a failed or dead run go on where it failed, with its failed children; make any other that has not ended look again, away from whoever executes it; pending, or NULL for an unknown run';

CREATE FUNCTION durable.retry(run_id text) RETURNS text
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_retry_run';
COMMENT ON FUNCTION durable.retry(text) IS
'let a failed or dead run go on where it failed, with its failed children; refused for any other';

CREATE FUNCTION durable.retry_with_input(run_id text, input jsonb) RETURNS text
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_retry_with_input';
COMMENT ON FUNCTION durable.retry_with_input(text, jsonb) IS
'start the run''s workflow anew, in its newest version, with another input and the run''s tags, priority, attributes and headers; the new run''s id';

CREATE FUNCTION durable.redispatch(run_id text)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_redispatch';
COMMENT ON FUNCTION durable.redispatch(text) IS
'dispatch a live run''s pending steps again whose tasks are gone; how many, NULL for an unknown run';

CREATE FUNCTION durable.signal(token text, payload jsonb DEFAULT NULL, namespace text DEFAULT NULL)
RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_signal';
COMMENT ON FUNCTION durable.signal(text, jsonb, text) IS
'deliver a payload to the run that waits for the token; the run''s id, or NULL when it was buffered for a later wait';

CREATE FUNCTION durable.get_run(run_id text) RETURNS durable.run
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
	found_run durable.run;
BEGIN
	SELECT * INTO found_run FROM durable.run r WHERE r.run_id = $1;
	RETURN found_run;
END $$;
COMMENT ON FUNCTION durable.get_run(text) IS 'the run''s row; all NULL when unknown';

CREATE FUNCTION durable.result(run_id text) RETURNS jsonb
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_result';
COMMENT ON FUNCTION durable.result(text) IS
'a completed run''s output; raises the error of a failed one, 55000 while it runs, 42704 when unknown';

CREATE FUNCTION durable.history(run_id text, since_seq int DEFAULT -1)
RETURNS SETOF durable.checkpoint LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN QUERY
	SELECT c.* FROM durable.run r JOIN durable.checkpoint c ON c.run = r.id
	 WHERE r.run_id = $1 AND (c.seq > $2 OR $2 IS NULL) ORDER BY c.seq;
END $$;
COMMENT ON FUNCTION durable.history(text, int) IS 'a run''s checkpoints after a position, in order; NULL = all, also those below 0 that its body does not know';

CREATE FUNCTION durable.get_event(run_id text, key text) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
	RETURN (SELECT c.output FROM durable.run r JOIN durable.checkpoint c ON c.run = r.id
			 WHERE r.run_id = $1 AND c.kind = 'value' AND c.name = 'event:' || $2
			 ORDER BY c.seq DESC LIMIT 1);
END $$;
COMMENT ON FUNCTION durable.get_event(text, text) IS 'the last value that the run published under the key';

CREATE PROCEDURE durable.wait_for_run(
	run_id text, timeout interval DEFAULT '30 s', terminal boolean DEFAULT true,
	INOUT status text DEFAULT NULL, INOUT output jsonb DEFAULT NULL, INOUT error jsonb DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_wait_for_run';
COMMENT ON PROCEDURE durable.wait_for_run(text, interval, boolean, text, jsonb, jsonb) IS
'sleep until the run has ended (or, not terminal, is suspended or blocked), or the timeout; its status, output and error';
