-- What administrators do to the tables: indexes of their own, vacuum, rewrites.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- an index of the user's is kept up, whatever it is made of
CREATE INDEX user_expression ON durable.task_result ((output ->> 'x')) WHERE status = 'completed';
CREATE INDEX user_partial ON durable.task_result (name) WHERE status = 'failed' AND error IS NOT NULL;
CREATE INDEX user_include ON durable.task (length(queue), priority) INCLUDE (namespace);
CREATE UNIQUE INDEX user_unique ON durable.task_ready (id);
CREATE INDEX user_gin ON durable.task USING gin (headers jsonb_path_ops);
SELECT count(*) FROM durable.dispatch_many('a', ARRAY(SELECT to_jsonb(i) FROM generate_series(1, 100) i), headers => '{"h": 1}', max_attempts => 2);
SELECT durable.dispatch('a', task_id => 'named', headers => '{"h": 2}') \g /dev/null
SELECT count(durable.complete(task_id, token, jsonb_build_object('x', input))) FROM durable.claim('{a}', 20);
SELECT count(*) FROM (SELECT token, array_agg(task_id) AS ids, array_agg(jsonb_build_object('x', input)) AS outputs FROM durable.claim('{a}', 20) GROUP BY token) c,
       durable.complete_many(token, ids, outputs);
SELECT count(durable.fail(task_id, token, '{"retryable": false}')) FROM durable.claim('{a}', 20);
SELECT count(durable.fail(task_id, token, '{}')) FROM durable.claim('{a}', 20);
SELECT max(n) FROM (SELECT durable.release(token) AS n FROM durable.claim('{a}', 20)) r;
SELECT durable.cancel_task('named');
-- each of them finds what a scan of the table finds
CREATE FUNCTION counted(query text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	by_index text;
	by_scan text;
	used boolean := false;
	line text;
BEGIN
	SET LOCAL enable_seqscan = off;
	FOR line IN EXECUTE 'EXPLAIN (COSTS off) ' || query LOOP
		used := used OR line LIKE '%user\_%';
	END LOOP;
	EXECUTE query INTO by_index;
	SET LOCAL enable_seqscan = on;
	SET LOCAL enable_indexscan = off;
	SET LOCAL enable_indexonlyscan = off;
	SET LOCAL enable_bitmapscan = off;
	EXECUTE query INTO by_scan;
	RETURN format('%s by index%s, %s by scan', by_index, CASE WHEN NOT used THEN ' (not used)' ELSE '' END, by_scan);
END $$;
SELECT counted($$ SELECT count(*) FROM durable.task_result WHERE output ->> 'x' = '7' AND status = 'completed' $$);
SELECT counted($$ SELECT count(*) FROM durable.task_result WHERE name = 'a' AND status = 'failed' AND error IS NOT NULL $$);
SELECT counted($$ SELECT count(*) FROM durable.task WHERE length(queue) = 1 AND priority = 0 $$);
SELECT counted($$ SELECT count(*) FROM durable.task WHERE headers @> '{"h": 1}' $$);
SELECT counted($$ SELECT count(*) FROM durable.task_ready WHERE id < 1000 $$);
DROP FUNCTION counted;

-- vacuum and rewrites move rows; what is claimable stays so, in its order
SELECT token FROM durable.claim('{a}', 5) LIMIT 1 \gset
VACUUM durable.task, durable.task_ready, durable.lease, durable.task_result, durable.task_delayed;
SELECT task_id FROM durable.claim('{a}', 2);
VACUUM FULL durable.task_ready;
VACUUM FULL durable.task;
CLUSTER durable.task_ready USING user_unique;
REINDEX TABLE durable.task;
REINDEX TABLE durable.lease;
ANALYZE durable.task;
SELECT durable.renew(:'token'), durable.release(:'token');
SELECT task_id FROM durable.claim('{a}', 2);
SELECT count(*), count(DISTINCT task_id) FROM durable.claim('{a}', 100);
SELECT count(*) FROM durable.claim('{a}', 100);

-- everything thrown away
TRUNCATE durable.task, durable.task_ready, durable.task_delayed, durable.lease, durable.task_result, durable.task_progress;
SELECT count(*) FROM durable.claim('{a}', 100);
SELECT durable.complete('~1', :'token'), durable.renew(:'token');
SELECT durable.dispatch('a', task_id => 'named') \g /dev/null
SELECT task_id FROM durable.claim('{a}', 100);
DROP INDEX durable.user_expression, durable.user_partial, durable.user_include, durable.user_unique, durable.user_gin;
SELECT durable.dispatch('a', task_id => 'named 2') \g /dev/null
SELECT task_id FROM durable.claim('{a}', 100);
SELECT rescued FROM durable.scan_hints();
