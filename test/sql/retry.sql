-- fail: attempts, the wait between them, and the end
-- The engine's clock moves by durable.clock_offset; nothing here sleeps.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- one attempt is the default: the first failure is the last
SELECT durable.dispatch('one', '{"n": 1}', 'one', headers => '{"h": 1}') \g /dev/null
SELECT token FROM durable.claim('{one}') \gset
SELECT durable.fail('one', :'token', '{"message": "boom", "code": "XX000", "details": [1, 2]}', '[{"event": "tried"}]');
SELECT status, error, output, attempt, reclaims FROM durable.task_status('one');
-- a failed task keeps what it was asked to do
SELECT status, error, events, input, headers FROM durable.task_result;
SELECT durable.fail('one', :'token', '{"message": "again"}'), durable.complete('one', :'token');
SELECT count(*) FROM durable.lease;

-- an error is an object; anything else becomes its message
SELECT count(*) FROM durable.dispatch_many('shapes', '{"\"text\"", 17, true, "[1, 2]", "null", null, "{}", "{\"retryable\": \"no\"}"}',
                                           task_ids => ARRAY(SELECT 'shape-' || i FROM generate_series(1, 8) i));
SELECT count(*) FILTER (WHERE durable.fail(task_id, token, input)) FROM durable.claim('{shapes}', 8);
SELECT task_id, error FROM durable.task_result WHERE name = 'shapes' ORDER BY task_id;

-- three attempts, without a wait
SELECT durable.dispatch('three', '{"n": 3}', 'three', max_attempts => 3, priority => 2) \g /dev/null
SELECT token FROM durable.claim('{three}') \gset
SELECT durable.fail('three', :'token', '{"message": "first"}', '["lost on a retry"]');
SELECT status, error, attempt, reclaims, priority, run_at FROM durable.task_status('three');
-- the old token is worth nothing now
SELECT durable.complete('three', :'token'), durable.fail('three', :'token', '{"message": "first again"}'), durable.release(:'token');
SELECT task_id, token AS t2, attempt, reclaims, input, priority FROM durable.claim('{three}') \gset
SELECT :'attempt' AS attempt, :'reclaims' AS reclaims, :'input' AS input, :'priority' AS priority;
SELECT durable.complete('three', :'token');
SELECT durable.fail('three', :'t2', '{"message": "second"}');
SELECT token AS t3, attempt FROM durable.claim('{three}') \gset
SELECT :'attempt' AS attempt;
SELECT durable.fail('three', :'t3', '{"message": "third"}', '["kept"]');
SELECT status, error, attempt FROM durable.task_status('three');
SELECT error, events, attempt, input FROM durable.task_result WHERE task_id = 'three';
SELECT count(*) FROM durable.claim('{three}');

-- a later success
SELECT durable.dispatch('heals', task_id => 'heals', max_attempts => 2) \g /dev/null
SELECT token FROM durable.claim('{heals}') \gset
SELECT durable.fail('heals', :'token', '"once"');
SELECT token FROM durable.claim('{heals}') \gset
SELECT durable.complete('heals', :'token', '"well"');
SELECT status, output, error, attempt FROM durable.task_status('heals');

-- retryable: false ends it, whatever is left
SELECT durable.dispatch('final', task_id => 'final', max_attempts => 10, backoff => '1 min') \g /dev/null
SELECT token FROM durable.claim('{final}') \gset
SELECT durable.fail('final', :'token', '{"message": "no", "retryable": false}');
SELECT status, error, attempt FROM durable.task_status('final');
-- retryable: true does not prolong it
SELECT durable.dispatch('final', task_id => 'final-2') \g /dev/null
SELECT token FROM durable.claim('{final}') \gset
SELECT durable.fail('final-2', :'token', '{"message": "please", "retryable": true}');
SELECT status, attempt FROM durable.task_status('final-2');

-- fail in a transaction that is rolled back
SELECT durable.dispatch('undo', task_id => 'undo', max_attempts => 2) \g /dev/null
SELECT token FROM durable.claim('{undo}') \gset
BEGIN;
SELECT durable.fail('undo', :'token', '"x"');
SELECT status, attempt FROM durable.task_status('undo');
ROLLBACK;
SELECT status, attempt FROM durable.task_status('undo');
SELECT durable.complete('undo', :'token');

-- a task of a round that fails leaves the others in it
SELECT count(*) FROM durable.dispatch_many('round', '{1,2,3}', task_ids => '{x1,x2,x3}', max_attempts => 2);
SELECT token FROM durable.claim('{round}', 3) LIMIT 1 \gset
SELECT durable.fail('x2', :'token', '"x"');
SELECT durable.renew(:'token');
SELECT token AS t2 FROM durable.claim('{round}', 3) \gset
SELECT durable.complete('x1', :'token'), durable.complete('x2', :'token'), durable.complete('x2', :'t2'), durable.complete('x3', :'token');

--
-- the wait: exactly what the policy says, counted from the failure
--
CREATE PROCEDURE fail_until_ended(id text, OUT waits interval[]) LANGUAGE plpgsql AS $$
DECLARE
	t uuid;
	before timestamptz;
	state record;
	clock_offset int;
BEGIN
	waits := '{}';
	LOOP
		clock_offset := extract(epoch FROM current_setting('durable.clock_offset')::interval);
		SELECT c.token INTO t FROM durable.claim(ARRAY[id], 1, '1 day') c;
		IF t IS NULL THEN RAISE EXCEPTION 'nothing to claim'; END IF;
		before := durable.engine_now();
		PERFORM durable.fail(id, t, '"x"');
		SELECT * INTO state FROM durable.task_status(id);
		EXIT WHEN state.status = 'failed';
		IF state.run_at IS NULL THEN
			waits := waits || interval '0';
			CONTINUE;
		END IF;
		IF state.status <> 'delayed' THEN RAISE EXCEPTION 'it is %', state.status; END IF;
		-- (to the minute: the failure came a moment later)
		waits := waits || date_trunc('minute', state.run_at - before);
		-- not before its time
		PERFORM set_config('durable.clock_offset', (clock_offset + extract(epoch FROM waits[cardinality(waits)])::int - 300)::text, false);
		PERFORM FROM durable.claim(ARRAY[id]);
		IF FOUND THEN RAISE EXCEPTION 'claimed too early'; END IF;
		PERFORM set_config('durable.clock_offset', (clock_offset + extract(epoch FROM waits[cardinality(waits)])::int + 60)::text, false);
	END LOOP;
	waits := ARRAY(SELECT justify_hours(w) FROM unnest(waits) w);
END $$;
SET durable.clock_offset = 0;
SELECT durable.dispatch('none', task_id => 'none', max_attempts => 3),
       durable.dispatch('zero', task_id => 'zero', max_attempts => 3, backoff => '0', backoff_kind => 'exp', backoff_max => '1 min'),
       durable.dispatch('fixed', task_id => 'fixed', max_attempts => 4, backoff => '10 min'),
       durable.dispatch('fixed-max', task_id => 'fixed-max', max_attempts => 3, backoff => '10 min', backoff_max => '7 min', backoff_kind => 'fixed'),
       durable.dispatch('exp', task_id => 'exp', max_attempts => 6, backoff => '10 min', backoff_kind => 'exp'),
       durable.dispatch('exp-max', task_id => 'exp-max', max_attempts => 6, backoff => '10 min', backoff_max => '1 hour'),
       durable.dispatch('max-0', task_id => 'max-0', max_attempts => 3, backoff => '10 min', backoff_max => '0') \g /dev/null
CALL fail_until_ended('none', NULL);
CALL fail_until_ended('zero', NULL);
CALL fail_until_ended('fixed', NULL);
CALL fail_until_ended('fixed-max', NULL);
CALL fail_until_ended('exp', NULL);
CALL fail_until_ended('exp-max', NULL);
CALL fail_until_ended('max-0', NULL);
DROP PROCEDURE fail_until_ended;
RESET durable.clock_offset;

-- at most 2^31 - 1 ms, however long it was meant to be
SELECT durable.dispatch('huge', task_id => 'huge-' || i, max_attempts => 2, backoff => b, backoff_kind => k)
  FROM (VALUES (1, interval '100000 years', 'fixed'), (2, '100000 years', 'exp'), (3, '24 days', 'fixed'), (4, '25 days', 'exp')) v (i, b, k) \g /dev/null
SELECT token FROM durable.claim('{huge}', 10) LIMIT 1 \gset
SELECT durable.engine_now() AS before \gset
SELECT durable.fail('huge-' || i, :'token', '"x"') FROM generate_series(1, 4) i \g /dev/null
SELECT durable.engine_now() AS after \gset
SELECT task_id, run_at BETWEEN :'before'::timestamptz + w AND :'after'::timestamptz + w AS exact
  FROM durable.task, LATERAL (SELECT CASE WHEN task_id = 'huge-3' THEN interval '24 days' ELSE interval '2147483.647 s' END) x (w)
 WHERE name = 'huge' ORDER BY id;
-- of a late attempt too: the exponent has an end
SELECT durable.dispatch('late', task_id => 'late', max_attempts => 2147483647, backoff => '1 ms', backoff_kind => 'exp') \g /dev/null
UPDATE durable.task SET attempt = 2147483646 WHERE task_id = 'late';
SELECT token FROM durable.claim('{late}') \gset
SELECT durable.engine_now() AS before \gset
SELECT durable.fail('late', :'token', '"x"');
SELECT durable.engine_now() AS after \gset
SELECT attempt, run_at BETWEEN :'before'::timestamptz + '2147483.647 s' AND :'after'::timestamptz + '2147483.647 s' AS exact
  FROM durable.task_status('late');

-- jitter: between half of it and all of it, and not always the same
SELECT count(*) FROM durable.dispatch_many('jitter', array_fill('1'::jsonb, '{200}'), max_attempts => 2, backoff => '100 s', jitter => true);
CREATE TEMP TABLE held AS SELECT * FROM durable.claim('{jitter}', 200);
SELECT durable.engine_now() AS before \gset
SELECT count(*) FILTER (WHERE durable.fail(task_id, token, '"x"')) FROM held;
SELECT durable.engine_now() AS after \gset
SELECT count(*), bool_and(run_at BETWEEN :'before'::timestamptz + '50 s' AND :'after'::timestamptz + '100 s') AS within,
       count(DISTINCT run_at - created_at) > 100 AS varied, max(run_at) - min(run_at) > '25 s' AS spread
  FROM durable.task WHERE name = 'jitter';
