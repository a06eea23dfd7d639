-- true when each delivery was handled once by each handler, and each broken one is in the
-- dead letter, once, with its reason; :n is the number of deliveries
WITH sent AS (
	SELECT DISTINCT delivery ->> 'delivery' AS delivery, code
	  FROM hook.request)
SELECT (SELECT count(*) FROM sent) = :n
   AND (SELECT count(*) FROM hook.received) = (SELECT count(*) FROM hook.request)
   AND (SELECT count(*) FROM hook.received WHERE new) = :n
   AND (SELECT count(*) FROM durable.run WHERE workflow = 'webhook') = :n
   AND NOT EXISTS (SELECT FROM sent s LEFT JOIN durable.run r ON r.run_id = 'hook:' || s.delivery
		WHERE r.status IS DISTINCT FROM CASE WHEN s.code IS NULL THEN 'completed' ELSE 'failed' END)
   AND NOT EXISTS (SELECT FROM sent s FULL JOIN hook.dead d USING (delivery) WHERE s.code IS DISTINCT FROM d.code)
   AND NOT EXISTS (SELECT FROM (SELECT delivery, handler FROM sent, (VALUES ('audit'), ('notify'), ('score')) h (handler) WHERE code IS NULL) due
		FULL JOIN hook.handled h USING (delivery, handler) WHERE due.delivery IS NULL OR h.delivery IS NULL)
   AND NOT EXISTS (SELECT FROM hook.handled h JOIN hook.handled a USING (delivery) WHERE a.handler = 'audit' AND h.digest <> a.digest)
   AND NOT EXISTS (SELECT FROM durable.run WHERE finished_at IS NULL)
   AND NOT EXISTS (SELECT FROM durable.task) AND NOT EXISTS (SELECT FROM durable.waiter);
