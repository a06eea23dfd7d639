-- One psql session. Every line of output is a check: what|got|wanted.

-- Dispatch: in the caller's transaction, with every kind of argument.
BEGIN;
SELECT durable.dispatch('mail', '{"to": "nobody"}', task_id => 'never') AS id \gset
ROLLBACK;
SELECT 'dispatch and ROLLBACK leaves nothing', status IS NULL, true FROM durable.task_status(:'id');
BEGIN;
SELECT durable.dispatch('mail', '{"to": "ada", "at": "2026-01-02T03:04:05Z", "n": [1, 2.5, null]}',
	task_id => 'mail:1', queue => 'post', priority => 7, max_attempts => 3, backoff => '1 minute', headers => '{"trace": "abc"}') AS id \gset
COMMIT;
SELECT 'dispatch returns the id', :'id', 'mail:1';
SELECT 'dispatched again, the id is the same', durable.dispatch('mail', '{"other": 1}', task_id => 'mail:1', queue => 'post'), 'mail:1';
SELECT durable.dispatch('mail', queue => 'post', run_at => '2100-01-01 00:00+00') AS later \gset
SELECT 'a delayed task', status || ' ' || run_at, 'delayed 2100-01-01 00:00:00+00' FROM durable.task_status(:'later');
SELECT 'the depth of the queue', ready || ' ' || claimed || ' ' || delayed, '1 0 1' FROM durable.queue_depth('post');
SELECT 'dispatch_many returns an id for each input', count(*) || ' ' || count(DISTINCT i), '3 3'
  FROM durable.dispatch_many('many', ARRAY['1', '"two"', '[3]']::jsonb[]) i;

-- Wait, claim: the columns have types of their own.
CALL durable.wait_for_work('{post}') \gset
SELECT 'wait_for_work says that there is work', :'ready', 't';
SELECT task_id, token, kind, name, queue, namespace, input, attempt, reclaims, priority, headers, lease_until
  FROM durable.claim('{post}', 1, '10 min', 'psql') \gset
SELECT 'claim returns the task', concat_ws(' ', :'task_id', :'kind', :'name', :'queue', :'namespace'), 'mail:1 task mail post default';
SELECT 'its counters', concat_ws(' ', :'attempt', :'reclaims', :'priority'), '1 0 7';
SELECT 'its input', :'input'::jsonb #>> '{n,1}', '2.5';
SELECT 'its headers', :'headers'::jsonb ->> 'trace', 'abc';
SELECT 'its lease', :'lease_until'::timestamptz BETWEEN now() + '9 min' AND now() + '11 min', true;
SELECT 'its token is a uuid', pg_typeof(token) || ' ' || pg_typeof(input) || ' ' || pg_typeof(lease_until), 'uuid jsonb timestamp with time zone'
  FROM durable.claim('{many}', 1);

-- Settle: with the own write, or not at all.
BEGIN;
INSERT INTO effect VALUES (:'task_id', 1);
SELECT 'complete', durable.complete(:'task_id', :'token', '{"sent": true}'), true;
ROLLBACK;
SELECT 'rolled back, the task is still claimed', status, 'claimed' FROM durable.task_status('mail:1');
SELECT 'and the own write is undone', count(*), 0 FROM effect;
SELECT 'heartbeat', durable.heartbeat(:'task_id', :'token', '{"percent": 50}'), true;
SELECT 'its progress can be seen', progress ->> 'percent', '50' FROM durable.task_status('mail:1');
SELECT 'renew', durable.renew(:'token', '1 hour'), 1;
BEGIN;
INSERT INTO effect VALUES (:'task_id', 1);
SELECT 'complete', durable.complete(:'task_id', :'token', '{"sent": true}'), true;
COMMIT;
SELECT 'committed, the task is completed', status || ' ' || output, 'completed {"sent": true}' FROM durable.task_status('mail:1');
SELECT 'once', durable.complete(:'task_id', :'token', '{"sent": true}'), false;
SELECT 'with the own write', count(*), 1 FROM effect;

-- Results: taken and acknowledged.
SELECT token AS round, task_id, status, output FROM durable.claim_results('{mail}') \gset
SELECT 'claim_results', concat_ws(' ', :'task_id', :'status', :'output'), 'mail:1 completed {"sent": true}';
SELECT 'ack_results', durable.ack_results(:'round', ARRAY[:'task_id']), 1;
SELECT 'then the result is gone', status IS NULL, true FROM durable.task_status('mail:1');

-- Failures.
SELECT durable.dispatch('flaky', max_attempts => 2) AS id \gset
SELECT token FROM durable.claim('{flaky}') \gset
SELECT 'fail', durable.fail(:'id', :'token', '{"message": "boom", "code": "XX001"}'), true;
SELECT 'the next attempt', task_id = :'id' AND attempt = 2, true FROM durable.claim('{flaky}');

-- Prepared: past the fifth execution the server may use a generic plan.
PREPARE put(text, jsonb) AS SELECT durable.dispatch($1, $2);
PREPARE take(text[], int, interval) AS SELECT task_id, token, input FROM durable.claim($1, $2, $3);
PREPARE settle(text, uuid, jsonb) AS SELECT durable.complete($1, $2, $3);
EXECUTE put('prepared', '1') \gset
EXECUTE put('prepared', '2') \gset
EXECUTE put('prepared', '3') \gset
EXECUTE put('prepared', '4') \gset
EXECUTE put('prepared', '5') \gset
EXECUTE put('prepared', '6') \gset
EXECUTE put('prepared', '7') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
EXECUTE take('{prepared}', 1, '1 min') \gset
EXECUTE settle(:'task_id', :'token', :'input') \gset
SELECT 'prepared statements, seven rounds', string_agg(output::text, ',' ORDER BY output), '1,2,3,4,5,6,7' FROM durable.task_result WHERE name = 'prepared';
