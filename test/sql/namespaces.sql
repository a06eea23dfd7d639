-- Namespaces never see each other.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- the same names everywhere
SELECT durable.dispatch('n', to_jsonb(ns || i), 'id' || i, 'q', ns, priority => i)
  FROM unnest('{a,b,default}'::text[]) ns, generate_series(1, 2) i \g /dev/null
SELECT durable.dispatch('n', to_jsonb(ns || 'later'), 'later', 'q', ns, run_at => durable.engine_now() + '1 hour') FROM unnest('{a,b}'::text[]) ns \g /dev/null
SELECT ns, d.ready, d.delayed, d.claimed FROM unnest('{a,b,default,c}'::text[]) ns, durable.queue_depth('q', ns) d;

SELECT namespace, task_id, input FROM durable.claim('{q}', 10, namespace => 'a');
SELECT namespace, task_id, input FROM durable.claim('{q}', 10, namespace => 'a');
SELECT namespace, task_id, input FROM durable.claim('{q}', 10, namespace => 'c');
SELECT namespace, task_id, input FROM durable.claim('{q}', 10);
CALL durable.wait_for_work('{q}', '0', 'a');
CALL durable.wait_for_work('{q}', '0', 'b');

-- the session's default
SET durable.namespace = 'b';
SELECT ready, delayed, claimed FROM durable.queue_depth('q');
SELECT input, status FROM durable.task_status('id1'), durable.task WHERE task_id = 'id1' AND namespace = 'b';
SELECT token, namespace FROM durable.claim('{q}', 10) LIMIT 1 \gset
SELECT :'namespace' AS namespace;
-- a token is enough: it knows its namespace
RESET durable.namespace;
SELECT durable.complete('id1', :'token', '"b done"');
SELECT s.status, s.output FROM durable.task_status('id1', 'b') s UNION ALL SELECT s.status, s.output FROM durable.task_status('id1', 'a') s;
SELECT durable.renew(:'token');
SELECT durable.release(:'token', '{id2}');
SELECT ns, d.ready, d.claimed FROM unnest('{a,b,default}'::text[]) ns, durable.queue_depth('q', ns) d;
SELECT durable.cancel_task('id2', 'b');
SELECT ns, s.status FROM unnest('{a,b,default}'::text[]) ns, durable.task_status('id2', ns) s;
-- results too
SELECT task_id, namespace FROM durable.claim_results('{n}', namespace => 'a');
SELECT task_id, namespace FROM durable.claim_results('{n}');
SELECT task_id, namespace, output, status FROM durable.claim_results('{n}', namespace => 'b');
-- and pausing
SELECT durable.pause_queue('q', 'b');
SET durable.clock_offset = '2h';
SELECT task_id, namespace FROM durable.claim('{q}', 10, namespace => 'b');
SELECT task_id, namespace FROM durable.claim('{q}', 10, namespace => 'a');
RESET durable.clock_offset;

-- names that could be mistaken for one another
SELECT durable.dispatch('x', to_jsonb(v.i), namespace => v.ns, queue => v.q)
  FROM (VALUES (1, 'ab', 'c'), (2, 'a', 'bc'), (3, 'abc', 'x'), (4, 'A', 'bc'), (5, 'a ', 'bc'), (6, 'é', 'bc'), (7, E'e\u0301', 'bc')) v (i, ns, q) \g /dev/null
SELECT v.ns, v.q, (SELECT string_agg(c.input::text, ',') FROM durable.claim(ARRAY[v.q], 10, namespace => v.ns) c) AS inputs
  FROM (VALUES ('ab', 'c'), ('a', 'bc'), ('abc', 'x'), ('A', 'bc'), ('a ', 'bc'), ('é', 'bc'), ('b', 'c'), ('', 'abc')) v (ns, q);
