--
-- Workflows whose code is elsewhere: turns that external workers claim.
--

CREATE FUNCTION durable.complete_turn(task_id text, token uuid, decision jsonb) RETURNS boolean
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_complete_turn';
COMMENT ON FUNCTION durable.complete_turn(text, uuid, jsonb) IS
'apply what a turn came to; false = the token no longer holds the turn, nothing changed; a decision that cannot be understood fails the run';

CREATE FUNCTION durable.record_step(
	task_id text, token uuid, seq int, name text, output jsonb DEFAULT NULL,
	error jsonb DEFAULT NULL, input jsonb DEFAULT NULL, attempts int DEFAULT 1,
	started_at timestamptz DEFAULT NULL, finished_at timestamptz DEFAULT NULL)
RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_record_step_done';
COMMENT ON FUNCTION durable.record_step(text, uuid, int, text, jsonb, jsonb, jsonb, int, timestamptz, timestamptz) IS
'keep the outcome of a local step before the turn ends; a second time it changes nothing; false = the token no longer holds the turn';

-- One round trip and one commit for a worker that has several tasks in hand.
CREATE FUNCTION durable.exchange(
	settled jsonb, queues text[], max_tasks int DEFAULT 1, lease interval DEFAULT '30 s',
	worker text DEFAULT NULL, namespace text DEFAULT NULL, history int DEFAULT NULL,
	OUT results int[], OUT tasks jsonb)
RETURNS record LANGUAGE c AS 'MODULE_PATHNAME', 'durable_exchange_tasks';
COMMENT ON FUNCTION durable.exchange(jsonb, text[], int, interval, text, text, int) IS
'hand in decisions and results of any claims, and claim the next tasks: of each 0 = lost, 1 = settled, 2 = settled and its run''s next decision applied; the tasks as a jsonb array of claim''s rows, NULL when there are none';
