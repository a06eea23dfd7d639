-- workflows: the function of a body is dropped in the middle of a turn; what a function
-- returns is too large
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA body_gone;
CREATE ROLE regress_gone;
SELECT durable.grant_usage('regress_gone');
GRANT ALL ON SCHEMA body_gone TO regress_gone;
SET ROLE regress_gone;
SET search_path = body_gone;

CREATE FUNCTION drops(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	DROP FUNCTION body_gone.body(jsonb);
	RETURN '"dropped"';
END $$;
CREATE FUNCTION replaces(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	DROP FUNCTION body_gone.body(jsonb);
	CREATE FUNCTION body_gone.body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS
		'BEGIN PERFORM durable.local_step(i #>> ''{}''); RETURN ''"the new one"''; END';
	RETURN '"replaced"';
END $$;
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step(i #>> '{}');
	RETURN '"the old one"';
END $$;
SELECT durable.register_workflow('gone', 'body_gone.body'), durable.register_workflow('gone_atomic', 'body_gone.body', atomic => true);

-- created anew: the turn goes on with it
SELECT durable.start('gone', '"replaces"', 'gone-1'), durable.start('gone_atomic', '"replaces"', 'gone-2');
CALL durable.work(duration => '0');
SELECT run_id, status, output, error FROM durable.run WHERE run_id LIKE 'gone-%' ORDER BY run_id;

-- not created anew: the step is done, and the run waits for its body
SELECT durable.start('gone', '"drops"', 'gone-3');
CALL durable.work(duration => '0');
SELECT status, output, error, (SELECT string_agg(output::text, ',') FROM durable.history('gone-3')) AS done FROM durable.get_run('gone-3');
SELECT reclaims FROM durable.task WHERE run_id = 'gone-3';
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.local_step(i #>> '{}');
	RETURN '"the next one"';
END $$;
RESET ROLE;
SET durable.clock_offset = 6;
SET ROLE regress_gone;
CALL durable.work(duration => '0');
SELECT status, output, error, recovery_attempts, (SELECT string_agg(output::text, ',') FROM durable.history('gone-3')) AS done FROM durable.get_run('gone-3');

-- too large
CREATE FUNCTION large(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(repeat('x', 2000000)) $$;
CREATE FUNCTION large_step(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('large'); END $$;
CREATE FUNCTION large_dispatched(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step('large'); END $$;
SELECT durable.register_workflow(w, w) FROM unnest('{large,large_step,large_dispatched}'::text[]) w;
SELECT durable.register_handler('large', 'large');
SELECT durable.start(w, run_id => w) FROM unnest('{large,large_step,large_dispatched}'::text[]) w;
CALL durable.work(duration => '0');
SELECT run_id, status, output, error ->> 'code' AS code, error ->> 'message' AS message FROM durable.run WHERE run_id LIKE 'large%' ORDER BY run_id;

SELECT durable.unregister_workflow(name) FROM durable.workflow WHERE owner = 'regress_gone'::regrole;
RESET ROLE;
RESET durable.clock_offset;
DROP OWNED BY regress_gone CASCADE;
DROP SCHEMA body_gone CASCADE;
SELECT durable.revoke_usage('regress_gone');
DROP ROLE regress_gone;
