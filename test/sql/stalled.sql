-- stalled runs: what nothing will wake by itself, and steps that nobody does
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_stalled_reader, durable_stalled_user;
CREATE EXTENSION durable;
CREATE SCHEMA stalled_test;
RESET client_min_messages;
SET search_path = stalled_test;

CREATE FUNCTION asks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('answer ' || durable.run_id(), (i #>> '{}')::interval); END $$;
CREATE FUNCTION sleeps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.sleep('10 days'); RETURN i; END $$;
CREATE FUNCTION steps(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.step(i #>> '{}', retries => 2, backoff => '2 h'); END $$;
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('asks', NULL, durable.run_id() || ' kid'); END $$;
CREATE FUNCTION fails(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.fail_run('no'); END $$;
CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN to_jsonb(durable.step_all('fan', '{1,2,3}', max_in_flight => 1)); END $$;
CREATE FUNCTION two(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM durable.step_async('slow'); RETURN durable.wait_for_signal('both'); END $$;
SELECT durable.register_workflow(w, 'stalled_test.' || w) FROM unnest('{asks,sleeps,steps,parent,fan,two}'::text[]) w \g /dev/null
SELECT durable.register_workflow('routed', 'stalled_test.fails', on_error => '[{"workflow": "sleeps"}]'), durable.register_workflow('asks', 'stalled_test.asks', namespace => 'ns') \g /dev/null
-- ages to the minute: the clock stands a little later than what the test did
CREATE VIEW stalled AS SELECT run_id, namespace, workflow, reason, seq, name, attempts, date_trunc('minute', age) AS age, date_trunc('minute', heartbeat_age) AS beat FROM durable.stalled_runs();

SELECT durable.start('asks', NULL, 'asks'), durable.start('asks', '"10 days"', 'asks in time'), durable.start('sleeps', NULL, 'sleeps'), durable.start('steps', '"out"', 'nobody'), durable.start('steps', '"beats"', 'beats'),
	durable.start('steps', '"retry"', 'retry'), durable.start('parent', NULL, 'parent'), durable.start('routed', NULL, 'routed'), durable.start('fan', NULL, 'fan'), durable.start('two', NULL, 'both'),
	durable.start('asks', NULL, 'later', start_at => now() + interval '10 days') \g /dev/null
SELECT count(*) FROM durable.dispatch('alone');
CALL durable.work(duration => '0');
SET durable.namespace = 'ns';
SELECT durable.start('asks', NULL, 'tenant');
CALL durable.work(duration => '0');
RESET durable.namespace;
SELECT task_id AS beats, token AS beats_token FROM durable.claim('{beats}', lease => '10 days') \gset
SELECT durable.fail(task_id, token, '"once more"') FROM durable.claim('{retry}');
SELECT * FROM stalled;
SET durable.clock_offset = '14 min';
SELECT * FROM stalled;
SET durable.clock_offset = '10 min';
SELECT durable.heartbeat(:'beats', :'beats_token');
SET durable.clock_offset = '20 min';
SELECT * FROM stalled ORDER BY run_id;
-- what is heard of is not stalled; a claim is a sign of life, too
SELECT count(*) FROM durable.claim('{out}', lease => '10 days');
SELECT durable.signal('answer parent kid', '1');
CALL durable.work(duration => '0');
SELECT run_id FROM stalled ORDER BY 1;
SELECT run_id FROM durable.stalled_runs('5 min') ORDER BY 1;
SELECT run_id FROM durable.stalled_runs('1 min', 1);
-- so long that the retry is overdue, too; the oldest first
SET durable.clock_offset = '3 h';
SELECT * FROM durable.stalled_runs('1 h 30 min') \g /dev/null
SELECT run_id, reason, seq, name, attempts, age, beat FROM stalled ORDER BY run_id;
SELECT run_id FROM durable.stalled_runs('30 min') WHERE run_id IN ('nobody', 'retry');
SELECT run_id FROM durable.stalled_runs('2 h 45 min') WHERE run_id IN ('nobody', 'retry');
RESET durable.clock_offset;

--
-- arguments
--
\set VERBOSITY default
SELECT * FROM durable.stalled_runs(NULL);
SELECT * FROM durable.stalled_runs('59 s');
\set VERBOSITY terse
SELECT * FROM durable.stalled_runs('-1 h');
SELECT * FROM durable.stalled_runs('101 years');
SELECT * FROM durable.stalled_runs(max_runs => NULL);
SELECT * FROM durable.stalled_runs(max_runs => 0);
SELECT * FROM durable.stalled_runs(max_runs => 10001);
SHOW durable.stalled_after;
SET durable.stalled_after = '10 s';
SHOW durable.stalled_after;
SET durable.stalled_after = '45 s';
SHOW durable.stalled_after;
\set VERBOSITY sqlstate
SET durable.stalled_after = -1;
\set VERBOSITY terse
RESET durable.stalled_after;

--
-- who sees what
--
CREATE ROLE durable_stalled_reader;
CREATE ROLE durable_stalled_user;
SELECT durable.grant_usage('durable_stalled_reader', 'ns', '{read}'), durable.grant_usage('durable_stalled_user', privileges => '{start,work,signal,manage}') \g /dev/null
GRANT USAGE ON SCHEMA stalled_test TO durable_stalled_reader;
SET durable.clock_offset = '20 min';
SET ROLE durable_stalled_reader;
SELECT run_id, namespace FROM durable.stalled_runs();
SET durable.stalled_after = 1;
SET ROLE durable_stalled_user;
SELECT run_id, namespace FROM durable.stalled_runs();
RESET ROLE;
RESET durable.clock_offset;

RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA stalled_test CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_stalled_reader, durable_stalled_user;
DROP ROLE durable_stalled_reader, durable_stalled_user;
