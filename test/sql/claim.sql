-- claim: what it hands out, in which order, and how many
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- nothing there
SELECT * FROM durable.claim('{a}');
SELECT count(*) FROM durable.lease;

-- all columns
SELECT durable.dispatch('mail', '{"to": "a"}', 'm-1', 'post', priority => 3, headers => '{"trace": 1}');
SELECT durable.engine_now() AS before \gset
SELECT task_id, kind, name, queue, namespace, input, run_id, seq, attempt, reclaims, priority, headers,
       token IS NOT NULL AS has_token, lease_until - :'before'::timestamptz BETWEEN '30 s' AND '60 s' AS lease
  FROM durable.claim('{post}') \gx
SELECT durable.engine_now() AS after \gset
SELECT kind, namespace, worker, cardinality(ids) AS tasks,
       claimed_at BETWEEN :'before' AND :'after' AS claimed_now,
       lease_until - claimed_at AS lease
  FROM durable.lease;
-- the token names the claim round, not the task, and every round has its own
SELECT count(*) FROM durable.dispatch_many('round', '{1,2,3,4,5}');
CREATE TEMP TABLE claimed AS
SELECT 1 AS round, * FROM durable.claim('{round}', 2, '1 hour', 'w1');
INSERT INTO claimed SELECT 2, * FROM durable.claim('{round}', 2, '2 hours', 'w2');
SELECT round, count(*), count(DISTINCT token) AS tokens, count(DISTINCT lease_until) AS leases FROM claimed GROUP BY 1 ORDER BY 1;
SELECT count(DISTINCT token) FROM claimed;
SELECT worker, lease_until - claimed_at AS lease, cardinality(ids) AS tasks FROM durable.lease WHERE worker IS NOT NULL ORDER BY 1;
SELECT count(*) FROM claimed c JOIN durable.lease l USING (token, lease_until);

-- what is claimed is not claimed again
SELECT input FROM durable.claim('{round}', 10);
SELECT input FROM durable.claim('{round}', 10);

-- priority first, then age
SELECT durable.dispatch('order', to_jsonb(i), priority => p)
  FROM (VALUES (1, 0), (2, 5), (3, -5), (4, 0), (5, 5), (6, -2147483648), (7, 2147483647), (8, 0)) v (i, p) ORDER BY i \g /dev/null
SELECT input, priority FROM durable.claim('{order}', 3);
-- a later one of a higher priority goes first
SELECT durable.dispatch('order', '9', priority => 1) \g /dev/null
SELECT input, priority FROM durable.claim('{order}');
SELECT input, priority FROM durable.claim('{order}');
SELECT input, priority FROM durable.claim('{order}', 100);

-- several queues are one list; each name counts once
SELECT durable.dispatch('m', to_jsonb(i), queue => 'qa') FROM generate_series(1, 3) i \g /dev/null
SELECT durable.dispatch('m', '4', queue => 'qb', priority => 1) \g /dev/null
SELECT durable.dispatch('m', '5', queue => 'qc'), durable.dispatch('m', '6', queue => 'qa'),
       durable.dispatch('m', '7', queue => 'qd', priority => 9) \g /dev/null
SELECT queue, input, priority FROM durable.claim('{qc,qa,qb,qa,nosuch,qc}', 4);
SELECT queue, input, priority FROM durable.claim('{qc,qb,qa}', 4);
SELECT queue, input, priority FROM durable.claim('{qc,qb,qa}', 4);
SELECT queue, input, priority FROM durable.claim('{qd}', 4);
SELECT durable.dispatch('q' || i) FROM unnest('{50,1,99}'::int[]) i \g /dev/null
SELECT queue FROM durable.claim(ARRAY(SELECT 'q' || i FROM generate_series(1, 100) i), 10);
-- arrays of any shape are lists of names
SELECT durable.dispatch('shape', '1') \g /dev/null
SELECT input FROM durable.claim('{{x,y},{z,shape}}');
SELECT durable.dispatch('shape', '2') \g /dev/null
SELECT input FROM durable.claim('[7:8]={x,shape}'::text[]);

-- queue names are compared byte by byte, and are not patterns
SELECT durable.dispatch('Case'), durable.dispatch('x%') \g /dev/null
SELECT name FROM durable.claim('{case,CASE,xy,x_}', 10);
SELECT name FROM durable.claim('{Case,x%}', 10);

-- a name may be as long as 255 bytes and hold anything
SELECT durable.dispatch(repeat('ü', 127), queue => E'; DROP TABLE "x"\n''--') \g /dev/null
SELECT length(name), queue FROM durable.claim(ARRAY[E'; DROP TABLE "x"\n''--']);

-- how many: no more than there are, no more than asked for
SELECT count(*) FROM durable.dispatch_many('batch', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 2500) i));
SELECT count(*), min(input::int), max(input::int) FROM durable.claim('{batch}', 1000, '1 day');
SELECT count(*), min(input::int), max(input::int) FROM durable.claim('{batch}', 1, '1 day');
SELECT count(*), min(input::int), max(input::int) FROM durable.claim('{batch}', 10000, '1 day');
SELECT count(*) FROM durable.claim('{batch}', 10000, '1 day');
-- a limit of the statement around it does not lose what was claimed
SELECT count(*) FROM durable.dispatch_many('limited', '{1,2,3}');
SELECT input FROM durable.claim('{limited}', 3) LIMIT 1;
SELECT claimed, ready FROM durable.queue_depth('limited');

-- payloads arrive as they were sent: small, compressed, out of line
SELECT durable.dispatch('payload', to_jsonb(repeat('x', 5)), 'p-small'),
       durable.dispatch('payload', to_jsonb(repeat('x', 100000)), 'p-compressed'),
       durable.dispatch('payload', (SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 5000) i), 'p-toasted') \g /dev/null
SELECT task_id, md5(input::text) = md5(CASE task_id
         WHEN 'p-small' THEN to_jsonb(repeat('x', 5))
         WHEN 'p-compressed' THEN to_jsonb(repeat('x', 100000))
         ELSE (SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 5000) i) END::text) AS same
  FROM durable.claim('{payload}', 10);
-- also when they come from another table's storage, which then loses them
CREATE TABLE source (doc jsonb);
INSERT INTO source SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 5000) i;
SELECT durable.dispatch('payload', doc, 'p-borrowed') FROM source \g /dev/null
TRUNCATE source;
DROP TABLE source;
SELECT token, md5(input::text) = md5((SELECT jsonb_agg(md5(i::text)) FROM generate_series(1, 5000) i)::text) AS same
  FROM durable.claim('{payload}', 10) \gset
SELECT :'same'::boolean AS same;

-- claim and rollback: nobody claimed it
SELECT durable.dispatch('undo', '1', 'undo-1'), durable.dispatch('undo', '2', 'undo-2') \g /dev/null
BEGIN;
SELECT task_id, attempt, reclaims FROM durable.claim('{undo}');
SELECT status FROM durable.task_status('undo-1');
SAVEPOINT s;
SELECT task_id, attempt, reclaims FROM durable.claim('{undo}');
SELECT task_id, attempt, reclaims FROM durable.claim('{undo}');
ROLLBACK TO s;
SELECT task_id, attempt, reclaims FROM durable.claim('{undo}');
ROLLBACK;
SELECT task_id, attempt, reclaims FROM durable.claim('{undo}', 2);

-- dispatch and claim in one transaction
BEGIN;
SELECT durable.dispatch('same', task_id => 'same') \gset
SELECT task_id FROM durable.claim('{same}');
ROLLBACK;
SELECT task_id FROM durable.claim('{same}');
SELECT status FROM durable.task_status('same');

-- in a snapshot of a moment ago, the queue is still the queue of now
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM durable.task WHERE name = 'rr';
SELECT durable.dispatch('rr', task_id => 'rr') \gset
SELECT task_id, token FROM durable.claim('{rr}') \gset
SELECT durable.complete('rr', :'token');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT durable.dispatch('ser', task_id => 'ser') \gset
SELECT task_id, token FROM durable.claim('{ser}') \gset
SELECT durable.complete('ser', :'token');
COMMIT;
SELECT status FROM durable.task_status('rr') UNION ALL SELECT status FROM durable.task_status('ser');

-- settle_and_claim: one statement for a worker's loop
SELECT count(*) FROM durable.dispatch_many('loop', '{1,2,3}', task_ids => '{l1,l2,l3}');
SELECT task_id, token FROM durable.settle_and_claim(NULL, NULL, NULL, '{loop}') \gset
SELECT :'task_id' AS task_id;
SELECT task_id, token, input FROM durable.settle_and_claim(:'task_id', :'token', '"done 1"', '{loop}', 1, '5 min', 'w') \gset
SELECT :'task_id' AS task_id, :'input' AS input, worker, lease_until - claimed_at AS lease FROM durable.lease WHERE token = :'token';
SELECT task_id, token FROM durable.settle_and_claim(:'task_id', :'token', '"done 2"', '{other,loop}', 10) \gset
SELECT count(*) FROM durable.settle_and_claim(:'task_id', :'token', '"done 3"', '{loop}');
SELECT v.id, s.status, s.output FROM (VALUES ('l1'), ('l2'), ('l3')) v (id), durable.task_status(v.id) s;
-- a token that does not hold settles nothing; the claim goes on, unless it is strict
SELECT durable.dispatch('loop', '4', 'l4') \g /dev/null
SELECT task_id FROM durable.settle_and_claim('l3', gen_random_uuid(), '"x"', '{loop}', strict => true);
\set VERBOSITY sqlstate
SELECT task_id FROM durable.settle_and_claim('nosuch', gen_random_uuid(), '"x"', '{loop}', strict => true);
\set VERBOSITY terse
SELECT status FROM durable.task_status('l4');
SELECT task_id FROM durable.settle_and_claim('l3', gen_random_uuid(), '"x"', '{loop}');
SELECT output FROM durable.task_status('l3');
SELECT status FROM durable.task_status('l4');

-- nothing was ever found behind a scan's hint
SELECT rescued FROM durable.scan_hints();
