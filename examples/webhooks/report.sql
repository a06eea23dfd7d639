-- What became of the deliveries, one line each; then the broken ones by reason.
WITH good AS (
	SELECT run_id, substr(run_id, 6) AS delivery FROM durable.run WHERE workflow = 'webhook' AND status = 'completed'),
broken AS (
	SELECT run_id, substr(run_id, 6) AS delivery FROM durable.run WHERE workflow = 'webhook' AND status = 'failed'),
due AS (
	SELECT delivery, handler FROM good, (VALUES ('audit'), ('notify'), ('score')) h (handler)),
lines (i, what, n) AS (VALUES
	(1, 'requests received', (SELECT count(*) FROM hook.received)),
	(2, 'duplicates dropped', (SELECT count(*) FROM hook.received WHERE NOT new)),
	(3, 'deliveries, each a run', (SELECT count(DISTINCT delivery) FROM hook.received)),
	(4, '  completed', (SELECT count(*) FROM good)),
	(5, '  broken', (SELECT count(*) FROM broken)),
	(6, 'in the dead letter', (SELECT count(*) FROM hook.dead JOIN broken USING (delivery))),
	(7, 'handled by audit (SQL)', (SELECT count(*) FROM hook.handled JOIN good USING (delivery) WHERE handler = 'audit' AND language = 'sql')),
	(8, 'handled by notify (Node)', (SELECT count(*) FROM hook.handled JOIN good USING (delivery) WHERE handler = 'notify' AND language = 'node')),
	(9, 'handled by score (Python)', (SELECT count(*) FROM hook.handled JOIN good USING (delivery) WHERE handler = 'score' AND language = 'python')),
	(10, 'not handled by one of the three', (SELECT count(*) FROM due WHERE NOT EXISTS (SELECT FROM hook.handled h WHERE h.delivery = due.delivery AND h.handler = due.handler))),
	(11, 'handled though broken', (SELECT count(*) FROM hook.handled JOIN broken USING (delivery))),
	(12, 'payloads that arrived changed', (SELECT count(*) FROM hook.handled h JOIN hook.handled a USING (delivery) WHERE a.handler = 'audit' AND h.digest <> a.digest)),
	(13, 'runs, tasks and waits left over', (SELECT count(*) FROM durable.run WHERE finished_at IS NULL)
		+ (SELECT count(*) FROM durable.task) + (SELECT count(*) FROM durable.waiter)),
	(14, 'taken over from a killed worker', (SELECT count(*) FROM hook.handled WHERE takeovers > 0)),
	(15, 'executed twice for that, with one effect', (SELECT count(*) FROM hook.handled WHERE executed > 1)))
SELECT format('%-48s %8s', what, n) FROM lines ORDER BY i;
SELECT format('dead: %-42s %8s', reason, count(*)) FROM
	(SELECT CASE code WHEN '22P02' THEN 'the body is no JSON' ELSE regexp_replace(reason, '".*"', '…') END AS reason FROM hook.dead) d
 GROUP BY reason ORDER BY reason;
