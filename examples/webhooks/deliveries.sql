-- :n deliveries, made from the payloads in hook.payload (id, event, body), and the requests
-- that bring them: one in five comes twice, some come three times, in no order. Three in
-- twenty are broken, each in its way; "code" is the SQLSTATE that they are to end with.

INSERT INTO hook.event SELECT DISTINCT event FROM hook.payload;

CREATE TABLE hook.request AS
WITH delivery AS (
	SELECT n, md5('delivery ' || n) AS id, CASE n % 20 WHEN 15 THEN 'no such event' ELSE event END AS event,
		   CASE n % 20 WHEN 3 THEN left(body, length(body) / 2) ELSE body END AS body
	  FROM generate_series(1, :n) n
	  JOIN hook.payload p ON p.id = 1 + (n - 1) % (SELECT count(*) FROM hook.payload)),
whole AS (
	SELECT CASE n % 20 WHEN 3 THEN '22P02' WHEN 9 THEN '22023' WHEN 15 THEN '22023' END AS code, n, jsonb_build_object('delivery', id, 'event', event, 'body', body,
			'signature', CASE n % 20 WHEN 9 THEN 'forged' ELSE hook.sign(body) END) AS delivery
	  FROM delivery)
SELECT delivery, code, row_number() OVER (ORDER BY md5(n || ' ' || i)) AS nr
  FROM whole, generate_series(1, CASE WHEN n % 35 = 0 THEN 3 WHEN n % 5 = 0 THEN 2 ELSE 1 END) i;

-- One of several senders: its share of the requests, 25 in each transaction.
CREATE PROCEDURE hook.send(sender int, senders int) LANGUAGE plpgsql AS $$
DECLARE
	deliveries jsonb[];
BEGIN
	FOR deliveries IN
		SELECT array_agg(delivery) FROM hook.request WHERE nr % senders = sender GROUP BY nr / (25 * senders) ORDER BY nr / (25 * senders)
	LOOP
		PERFORM hook.receive(deliveries);
		COMMIT;
	END LOOP;
END $$;
