-- health(): what waits for workers outside, for others of its key, and what has stalled
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_test_worker, durable_test_tenant;
CREATE EXTENSION durable;
RESET client_min_messages;
CREATE ROLE durable_test_worker;
CREATE ROLE durable_test_tenant;
SELECT durable.grant_usage('durable_test_worker', privileges => '{start,signal,work,read,manage}');
SELECT durable.grant_usage('durable_test_tenant', 'tenant', '{read}');
GRANT SET ON PARAMETER durable.clock_offset TO durable_test_worker;
CREATE FUNCTION asks(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('to ' || durable.run_id()); END $$;
CREATE FUNCTION minutes(thresholds jsonb DEFAULT '{}') RETURNS TABLE (name text, level text, value int, hinted boolean) LANGUAGE sql AS $$
	SELECT h.name, h.level, CASE h.unit WHEN 's' THEN round(h.value / 60) ELSE h.value END, h.hint IS NOT NULL
	  FROM durable.health(thresholds) h WHERE h.name IN ('unserved_queues', 'blocked_runs', 'singletons', 'stalled_runs') $$;
SET ROLE durable_test_worker;
SELECT * FROM minutes();

\echo nobody serves the queue
SELECT durable.register_workflow('outside', queue => 'out');
SELECT durable.start('outside', run_id => 'o1');
-- nobody has ever told that he serves this one: oldest_ready is for that
SELECT durable.dispatch('quiet', queue => 'quiet') \g /dev/null
SET durable.clock_offset = '2 min';
SELECT * FROM minutes() WHERE name = 'unserved_queues';
SELECT t ->> 'queue' AS queue FROM durable.health(), jsonb_array_elements(detail) t WHERE name = 'unserved_queues';
-- one that is alive
SELECT durable.announce_worker('w1', '{out}') ->> 'outcome' AS outcome;
SELECT * FROM minutes() WHERE name = 'unserved_queues';
SELECT t ->> 'queue' AS queue FROM durable.health(), jsonb_array_elements(detail) t WHERE name = 'unserved_queues';
SELECT durable.announce_worker('w1', '{out,quiet}') ->> 'outcome' AS outcome;
SELECT * FROM minutes() WHERE name = 'unserved_queues';
-- … is not any more
SET durable.clock_offset = '10 min';
SELECT * FROM minutes() WHERE name = 'unserved_queues';
SELECT queue, alert FROM durable.queue_workers() WHERE alert ORDER BY 1;
-- a paused queue is another matter
SELECT durable.pause_queue('out'), durable.pause_queue('quiet');
SELECT * FROM minutes() WHERE name = 'unserved_queues';
SELECT durable.resume_queue('out'), durable.resume_queue('quiet');
SELECT count(*) FROM durable.claim('{out,quiet}', max_tasks => 10);
SELECT * FROM minutes() WHERE name = 'unserved_queues';

\echo blocked runs
SELECT durable.register_workflow('picky', queue => 'out', requires => '{gpu}');
SELECT durable.announce_worker('w1', '{out}', ttl => '10 min') ->> 'outcome' AS outcome;
SELECT durable.start('picky', run_id => 'p1');
SELECT count(*) FROM durable.claim('{out}');
SELECT run_id, status FROM durable.run WHERE run_id = 'p1';
SELECT * FROM minutes() WHERE name = 'blocked_runs';
SET durable.clock_offset = '16 min';
-- it looks again, and is blocked since the same time
SELECT durable.announce_worker('w1', '{out}', ttl => '10 min') ->> 'outcome' AS outcome;
SELECT count(*) FROM durable.claim('{out}');
SELECT run_id, status FROM durable.run WHERE run_id = 'p1';
SELECT * FROM minutes() WHERE name = 'blocked_runs';
SELECT t - 'since' AS blocked FROM durable.health(), jsonb_array_elements(detail) t WHERE name = 'blocked_runs';
SELECT durable.purge_runs('{"workflow": "picky"}', force => true);
SELECT * FROM minutes() WHERE name = 'blocked_runs';

\echo singletons
RESET durable.clock_offset;
SELECT durable.register_workflow('one', 'asks', singleton_key => '$.k');
SELECT count(durable.start('one', jsonb_build_object('k', n / 3), 'one' || n)) FROM generate_series(0, 5) n;
CALL durable.work(duration => '0');
SET durable.clock_offset = '2 h';
SELECT * FROM minutes() WHERE name = 'singletons';
SELECT detail -> 'waiting' AS waiting, k - 'since' AS key FROM durable.health(), jsonb_array_elements(detail -> 'keys') k WHERE name = 'singletons';
-- the slots are freed by a purge, and given on
SELECT durable.purge_runs('{"workflow": "one", "status": "suspended"}', force => true);
SELECT run_id, turn_state FROM durable.run WHERE workflow = 'one' ORDER BY id;
SELECT detail -> 'waiting' AS waiting FROM durable.health() WHERE name = 'singletons';

\echo stalled runs
SET durable.clock_offset = '0';
CALL durable.work(duration => '0');
SET durable.clock_offset = '2 h';
SELECT * FROM minutes() WHERE name = 'stalled_runs';
RESET ROLE;
SET durable.stalled_after = '1 h';
SET ROLE durable_test_worker;
SELECT * FROM minutes() WHERE name = 'stalled_runs';
SELECT t ->> 'run_id' AS run_id, t ->> 'reason' AS reason FROM durable.health(), jsonb_array_elements(detail) t WHERE name = 'stalled_runs' ORDER BY 1;
-- who may read another namespace only learns nothing of all that
SET ROLE durable_test_tenant;
SELECT name, level, value, detail FROM durable.health() WHERE name IN ('unserved_queues', 'blocked_runs', 'singletons', 'stalled_runs');
RESET ROLE;
SET durable.stalled_after = '3 h';
SELECT * FROM minutes() WHERE name = 'stalled_runs';
RESET durable.stalled_after;

SET client_min_messages = warning;
DROP EXTENSION durable;
DROP FUNCTION asks, minutes;
REVOKE SET ON PARAMETER durable.clock_offset FROM durable_test_worker;
DROP ROLE durable_test_worker, durable_test_tenant;
