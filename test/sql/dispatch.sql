-- dispatch and dispatch_many
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- all defaults
SELECT durable.dispatch('mail');
SELECT name, queue, namespace, kind, priority, attempt, max_attempts, reclaims, task_id,
       run_at, backoff, backoff_max, backoff_exp, jitter, run_id, seq, error, headers, input
  FROM durable.task \gx
SELECT status, attempt, reclaims, name, queue, priority, run_at, finished_at, output, error
  FROM durable.task_status('~1');

-- all arguments
SELECT durable.dispatch('mail', '{"to": "a"}', 'm-1', 'post', 'default', 5, '2999-01-01 00:00+00', 4,
                        '10 s', '1 min', '{"trace": 1}', 'exp', true);
SELECT task_id, name, queue, namespace, priority, run_at AT TIME ZONE 'UTC' AS run_at, max_attempts,
       backoff, backoff_max, backoff_exp, jitter, headers, input
  FROM durable.task WHERE task_id = 'm-1' \gx
SELECT status FROM durable.task_status('m-1');

-- by name
SELECT durable.dispatch(name => 'mail', task_id => 'm-2', input => '[1]', queue => 'post');
SELECT name, queue, input FROM durable.task WHERE task_id = 'm-2';

-- a SQL null and a JSON null are two things
SELECT durable.dispatch('mail', 'null', 'json-null'), durable.dispatch('mail', NULL, 'sql-null');
SELECT task_id, input, input IS NULL AS is_null FROM durable.task WHERE task_id LIKE '%-null' ORDER BY 1;

-- idempotent by task_id: the second changes nothing, and says nothing else
SELECT durable.dispatch('other', '{"to": "b"}', 'm-2', 'elsewhere', priority => 9);
SELECT name, queue, priority, input FROM durable.task WHERE task_id = 'm-2';
SELECT count(*) FROM durable.task WHERE task_id = 'm-2';
SELECT count(*) FROM durable.task_ready WHERE id NOT IN (SELECT id FROM durable.task);
-- while it is ready, claimed, delayed, or its result is unread
SELECT durable.dispatch('once', '1', 'once');
SELECT token FROM durable.claim('{once}') \gset
SELECT durable.dispatch('once', '2', 'once');
SELECT count(*) FROM durable.claim('{once}');
SELECT durable.complete('once', :'token', '"first"');
SELECT durable.dispatch('once', '3', 'once');
SELECT count(*) FROM durable.claim('{once}');
SELECT status, output FROM durable.task_status('once');
SELECT token FROM durable.claim_results('{once}') \gset
SELECT durable.dispatch('once', '4', 'once');
SELECT count(*) FROM durable.claim('{once}');
SELECT durable.ack_results(:'token');
-- and free again afterwards
SELECT durable.dispatch('once', '5', 'once');
SELECT task_id, input FROM durable.claim('{once}');

-- the same id in another namespace is another task
SELECT durable.dispatch('mail', '"elsewhere"', 'm-2', namespace => 'other');
SELECT namespace, input FROM durable.task WHERE task_id = 'm-2' ORDER BY 1;

-- ids are compared byte by byte
SELECT durable.dispatch('bytes', task_id => 'é'), durable.dispatch('bytes', task_id => 'E'),
       durable.dispatch('bytes', task_id => 'e'), durable.dispatch('bytes', task_id => 'e '),
       durable.dispatch('bytes', task_id => '%'), durable.dispatch('bytes', task_id => E'a\nb');
SELECT count(*) FROM durable.task WHERE name = 'bytes';
-- what looks like a number is an id like any other
SELECT durable.dispatch('bytes', task_id => '1'), durable.dispatch('bytes', task_id => '007');
SELECT status FROM durable.task_status('007');
-- but those that look like generated ones are refused
SELECT durable.dispatch('bytes', task_id => '~1');
SELECT durable.dispatch('bytes', task_id => '~');
-- and nothing else reads as one
SELECT s.status FROM (VALUES ('~01'), ('~ 1'), ('~+1'), ('~1 '), ('~-1'), ('~0'), ('~'), ('~1x'),
                             ('~1000000000000000000'), ('~9223372036854775808'), ('~99999999999999999999999')) v (id),
       durable.task_status(v.id) s;

-- priority: stored as it is, to the ends of int
SELECT durable.dispatch('ends', task_id => 'lowest', priority => -2147483648),
       durable.dispatch('ends', task_id => 'highest', priority => 2147483647),
       durable.dispatch('ends', task_id => 'null is 0', priority => NULL);
SELECT task_id, priority FROM durable.claim('{ends}', 10);

-- run_at: claimable when the engine's clock has passed it, not before
SELECT durable.dispatch('later', task_id => 'past', run_at => '2000-01-01'),
       durable.dispatch('later', task_id => 'always', run_at => '-infinity'),
       durable.dispatch('later', task_id => 'hour', run_at => durable.engine_now() + interval '1 hour');
SELECT t.task_id, t.run_at IS NULL AS at_once, s.status FROM durable.task t, durable.task_status(t.task_id) s
 WHERE t.name = 'later' ORDER BY t.id;
SELECT task_id FROM durable.claim('{later}', 10, '1 day');
SET durable.clock_offset = '59min';
SELECT task_id FROM durable.claim('{later}', 10, '1 day');
SET durable.clock_offset = '61min';
SELECT task_id FROM durable.claim('{later}', 10, '1 day');
SELECT status FROM durable.task_status('hour');
RESET durable.clock_offset;
SELECT durable.dispatch('later', run_at => 'infinity');

-- max_attempts and the policy
SELECT durable.dispatch('policy', max_attempts => NULL, backoff => NULL, jitter => NULL, task_id => 'nulls');
SELECT max_attempts, backoff, backoff_exp, jitter FROM durable.task WHERE task_id = 'nulls';
SELECT durable.dispatch('policy', max_attempts => 2147483647, backoff => '1 s', task_id => 'kinds-none'),
       durable.dispatch('policy', backoff => '1 s', backoff_max => '2 s', task_id => 'kinds-max'),
       durable.dispatch('policy', backoff => '1 s', backoff_kind => 'exp', task_id => 'kinds-exp'),
       durable.dispatch('policy', backoff => '1 s', backoff_max => '2 s', backoff_kind => 'fixed', task_id => 'kinds-fixed');
SELECT task_id, max_attempts, backoff, backoff_max, backoff_exp, jitter
  FROM durable.task WHERE task_id LIKE 'kinds-%' ORDER BY id;

-- the namespace setting
SET durable.namespace = 'tenant';
SELECT durable.dispatch('mail', task_id => 'of-tenant'), durable.dispatch('mail', task_id => 'of-other', namespace => 'other'),
       durable.dispatch('mail', task_id => 'of-empty', namespace => '');
SELECT task_id, namespace FROM durable.task WHERE task_id LIKE 'of-%' ORDER BY 1;
RESET durable.namespace;

-- dispatch_many: ids in the order of the inputs, claimed in that order
SELECT * FROM durable.dispatch_many('many', '{1, 2, null, "\"x\""}'::jsonb[], task_ids => '{c, a, b, d}');
SELECT task_id, input, priority FROM durable.claim('{many}', 10);
SELECT count(*), count(DISTINCT d), min(d) ~ '^~[1-9][0-9]*$' AS generated
  FROM durable.dispatch_many('numbers', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 1234) i), priority => 3) d;
SELECT count(*) AS claimed, bool_and(input = to_jsonb(n)) AS in_order, min(priority) AS priority
  FROM (SELECT input, priority, row_number() OVER () AS n FROM durable.claim('{numbers}', 10000)) c;
-- nothing to do is fine
SELECT count(*) FROM durable.dispatch_many('many', '{}');
-- ids that are taken, or given twice, are left alone; the others are queued
SELECT * FROM durable.dispatch_many('many', '{10, 11, 12, 13}'::jsonb[], task_ids => '{a, n1, n1, n2}');
SELECT task_id, input FROM durable.claim('{many}', 10);
-- a null among the ids is a generated one
SELECT left(d, 1) AS starts FROM durable.dispatch_many('nulls', '{1,2,3}', task_ids => '{x,NULL,y}') d;
SELECT input FROM durable.claim('{nulls}', 10);
-- the common arguments
SELECT * FROM durable.dispatch_many('many', '{1}', 'queue', 'default', 7, '2999-01-01 00:00+00', 3, '1 s', '5 s',
                                    '{"h": 1}', 'fixed', true, '{all}');
SELECT queue, priority, run_at AT TIME ZONE 'UTC' AS run_at, max_attempts, backoff, backoff_max, backoff_exp, jitter, headers
  FROM durable.task WHERE task_id = 'all';
SELECT count(*) FROM durable.dispatch_many('delayed', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 1234) i),
                                           run_at => durable.engine_now() + interval '1 day');
SELECT ready, delayed FROM durable.queue_depth('delayed');
-- over many pages
SELECT count(*) FROM durable.dispatch_many('explicit', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 1234) i),
                                           task_ids => ARRAY(SELECT 'e' || i FROM generate_series(1, 1234) i));
SELECT count(*) AS claimed, bool_and(task_id = 'e' || (input #>> '{}')) AS right_input
  FROM durable.claim('{explicit}', 2000);

-- in a rolled-back (sub)transaction, nothing happened
BEGIN;
SELECT durable.dispatch('gone', task_id => 'gone') \gset
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT durable.dispatch('gone', task_id => 'gone') \gset
SELECT count(*) FROM durable.dispatch_many('gone', '{1,2,3}');
ROLLBACK TO s;
SELECT durable.dispatch('gone', task_id => 'kept') \gset
COMMIT;
SELECT task_id FROM durable.claim('{gone}', 10);
SELECT status FROM durable.task_status('gone');

-- a statement that dispatches for each row of its own
CREATE TABLE orders (id int, customer text);
INSERT INTO orders SELECT i, 'c' || i % 3 FROM generate_series(1, 6) i;
SELECT durable.dispatch('order', to_jsonb(o), 'order-' || o.id, queue => o.customer) FROM orders o ORDER BY id;
CREATE FUNCTION order_placed() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM durable.dispatch('order', to_jsonb(new), 'order-' || new.id, queue => 'trigger'); RETURN NULL; END $$;
CREATE TRIGGER placed AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_placed();
INSERT INTO orders VALUES (7, 'c7'), (8, 'c8'), (1, 'again');
SELECT task_id, input FROM durable.claim('{trigger}', 10);
-- when the transaction commits
DROP TRIGGER placed ON orders;
CREATE CONSTRAINT TRIGGER placed AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION order_placed();
BEGIN;
INSERT INTO orders VALUES (9, 'c9');
SELECT count(*) FROM durable.claim('{trigger}', 10);
COMMIT;
SELECT task_id FROM durable.claim('{trigger}', 10);
-- through a cursor
BEGIN;
DECLARE c CURSOR FOR SELECT durable.dispatch('cursor', to_jsonb(i), 'cursor-' || i) FROM generate_series(1, 5) i;
FETCH 2 FROM c;
COMMIT;
SELECT task_id FROM durable.claim('{cursor}', 10);
DROP TABLE orders;
DROP FUNCTION order_placed;

-- every entry of the two lists has its task
SELECT count(*) FROM durable.task_ready r WHERE NOT EXISTS (SELECT FROM durable.task t
 WHERE (t.id, t.priority, t.namespace, t.queue) = (r.id, r.priority, r.namespace, r.queue));
SELECT count(*) FROM durable.task_delayed d WHERE NOT EXISTS (SELECT FROM durable.task t
 WHERE (t.id, t.priority, t.namespace, t.queue, t.run_at) = (d.id, d.priority, d.namespace, d.queue, d.run_at));
