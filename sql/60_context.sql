--
-- Inside a body. Each takes one position of the run's history.
--

CREATE FUNCTION durable.local_step(
	handler text, input jsonb DEFAULT NULL, name text DEFAULT NULL,
	retries int DEFAULT 1, backoff interval DEFAULT '0', backoff_kind text DEFAULT NULL,
	backoff_max interval DEFAULT NULL, jitter boolean DEFAULT false,
	limiter text DEFAULT NULL, fairness_key text DEFAULT NULL)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'durable_local_step';
COMMENT ON FUNCTION durable.local_step(text, jsonb, text, int, interval, text, interval, boolean, text, text) IS
'run a SQL function exactly once: its effect and its result are recorded in one transaction';

CREATE FUNCTION durable.side_effect(handler text, input jsonb DEFAULT NULL)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'durable_side_effect';
COMMENT ON FUNCTION durable.side_effect(text, jsonb) IS
'call a SQL function once and record what it returns: for what the body may not decide by itself';

CREATE FUNCTION durable.step(
	name text, input jsonb DEFAULT NULL,
	retries int DEFAULT NULL, backoff interval DEFAULT NULL, backoff_kind text DEFAULT NULL,
	backoff_max interval DEFAULT NULL, jitter boolean DEFAULT NULL,
	timeout interval DEFAULT NULL, pickup_timeout interval DEFAULT NULL,
	queue text DEFAULT NULL, priority int DEFAULT NULL,
	limiter text DEFAULT NULL, fairness_key text DEFAULT NULL,
	requires text[] DEFAULT NULL)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'durable_step';
COMMENT ON FUNCTION durable.step(text, jsonb, int, interval, text, interval, boolean, interval, interval, text, int, text, text, text[]) IS
'dispatch a step to its handler or to the workers of its queue, and wait for its result';

CREATE FUNCTION durable.step_async(
	name text, input jsonb DEFAULT NULL,
	retries int DEFAULT NULL, backoff interval DEFAULT NULL, backoff_kind text DEFAULT NULL,
	backoff_max interval DEFAULT NULL, jitter boolean DEFAULT NULL,
	timeout interval DEFAULT NULL, pickup_timeout interval DEFAULT NULL,
	queue text DEFAULT NULL, priority int DEFAULT NULL,
	limiter text DEFAULT NULL, fairness_key text DEFAULT NULL,
	requires text[] DEFAULT NULL)
RETURNS int LANGUAGE c AS 'MODULE_PATHNAME', 'durable_step_async';
COMMENT ON FUNCTION durable.step_async(text, jsonb, int, interval, text, interval, boolean, interval, interval, text, int, text, text, text[]) IS
'dispatch a step and go on; the handle to await it by';

CREATE FUNCTION durable.step_all(
	name text, inputs jsonb[], mode text DEFAULT 'wait_all', max_in_flight int DEFAULT NULL,
	retries int DEFAULT NULL, backoff interval DEFAULT NULL, backoff_kind text DEFAULT NULL,
	backoff_max interval DEFAULT NULL, jitter boolean DEFAULT NULL,
	timeout interval DEFAULT NULL, pickup_timeout interval DEFAULT NULL,
	queue text DEFAULT NULL, priority int DEFAULT NULL,
	limiter text DEFAULT NULL, fairness_key text DEFAULT NULL,
	requires text[] DEFAULT NULL)
RETURNS jsonb[] LANGUAGE c AS 'MODULE_PATHNAME', 'durable_step_all';
COMMENT ON FUNCTION durable.step_all(text, jsonb[], text, int, int, interval, text, interval, boolean, interval, interval, text, int, text, text, text[]) IS
'dispatch a step for each input, at most max_in_flight at a time, and wait for all their results';

CREATE FUNCTION durable.await(handle int) RETURNS jsonb
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_await';
COMMENT ON FUNCTION durable.await(int) IS 'the result of a dispatched step, once it is there';

CREATE FUNCTION durable.await_all(handles int[]) RETURNS jsonb[]
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_await_all';
COMMENT ON FUNCTION durable.await_all(int[]) IS
'the results of several dispatched steps, once all are there; raises the first failure in their order';

CREATE FUNCTION durable.await_any(handles int[]) RETURNS int
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_await_any';
COMMENT ON FUNCTION durable.await_any(int[]) IS 'the first of the handles, in their order, that has ended';

CREATE FUNCTION durable.sleep(duration interval) RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_sleep';
COMMENT ON FUNCTION durable.sleep(interval) IS 'suspend the run for a while; nothing is held meanwhile';

CREATE FUNCTION durable.sleep_until(t timestamptz) RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_sleep_until';
COMMENT ON FUNCTION durable.sleep_until(timestamptz) IS 'suspend the run until a time';

CREATE FUNCTION durable.wait_for_signal(token text, timeout interval DEFAULT NULL) RETURNS jsonb
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_wait_for_signal';
COMMENT ON FUNCTION durable.wait_for_signal(text, interval) IS
'the payload of the next signal with this token; WF004 when it does not come in time';

CREATE FUNCTION durable.child(
	workflow text, input jsonb DEFAULT NULL, child_id text DEFAULT NULL,
	priority int DEFAULT NULL, version text DEFAULT NULL)
RETURNS jsonb LANGUAGE c AS 'MODULE_PATHNAME', 'durable_child';
COMMENT ON FUNCTION durable.child(text, jsonb, text, int, text) IS
'start another workflow and wait for its output';

CREATE FUNCTION durable.start_child(
	workflow text, input jsonb DEFAULT NULL, child_id text DEFAULT NULL,
	priority int DEFAULT NULL, version text DEFAULT NULL)
RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_start_child';
COMMENT ON FUNCTION durable.start_child(text, jsonb, text, int, text) IS
'start another workflow and go on; its run id';

CREATE FUNCTION durable.now() RETURNS timestamptz LANGUAGE c AS 'MODULE_PATHNAME', 'durable_now';
COMMENT ON FUNCTION durable.now() IS 'the time when the body first came here';
CREATE FUNCTION durable.random() RETURNS float8 LANGUAGE c AS 'MODULE_PATHNAME', 'durable_random';
COMMENT ON FUNCTION durable.random() IS 'a random number in [0, 1), the same on every replay';
CREATE FUNCTION durable.uuid() RETURNS uuid LANGUAGE c AS 'MODULE_PATHNAME', 'durable_uuid';
COMMENT ON FUNCTION durable.uuid() IS 'a random uuid, the same on every replay';

CREATE FUNCTION durable.patched(id text) RETURNS boolean LANGUAGE c AS 'MODULE_PATHNAME', 'durable_patched';
COMMENT ON FUNCTION durable.patched(text) IS
'true for runs that come here with the changed code, false for those that were past it before';

CREATE FUNCTION durable.set_event(key text, value jsonb) RETURNS void LANGUAGE c AS 'MODULE_PATHNAME', 'durable_set_event';
COMMENT ON FUNCTION durable.set_event(text, jsonb) IS 'publish a value that get_event reads';

CREATE FUNCTION durable.upsert_search_attributes(attributes jsonb) RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_upsert_search_attributes';
COMMENT ON FUNCTION durable.upsert_search_attributes(jsonb) IS 'merge attributes into the run''s own';

CREATE FUNCTION durable.log(level text, message text, data jsonb DEFAULT NULL) RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_log';
COMMENT ON FUNCTION durable.log(text, text, jsonb) IS 'write to the run''s log, once, not on replays; takes no position';

CREATE FUNCTION durable.fail_run(message text, code text DEFAULT NULL, details jsonb DEFAULT NULL) RETURNS void
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_fail_run';
COMMENT ON FUNCTION durable.fail_run(text, text, jsonb) IS 'end the run as failed; no exception handler stops it';

CREATE FUNCTION durable.run_id() RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_run_id';
COMMENT ON FUNCTION durable.run_id() IS 'the id of the run whose body or step this is';
CREATE FUNCTION durable.run_namespace() RETURNS text LANGUAGE c AS 'MODULE_PATHNAME', 'durable_run_namespace';
COMMENT ON FUNCTION durable.run_namespace() IS 'the namespace of the run whose body or step this is';

CREATE PROCEDURE durable.work(
	queues text[] DEFAULT NULL, duration interval DEFAULT '55 s', max_tasks int DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'durable_work';
COMMENT ON PROCEDURE durable.work(text[], interval, int) IS
'execute bodies and handlers that the current role registered, for a while';
