-- many tasks due at once, and new ones meanwhile
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

-- n tasks that all become due, then a new one
CREATE FUNCTION pg_temp.burst(queue text, n int, clock text) RETURNS void LANGUAGE sql
BEGIN ATOMIC
	SELECT count(*) FROM durable.dispatch_many('late', array_fill('1'::jsonb, ARRAY[n]), queue => queue,
											   run_at => durable.engine_now() + '1 min');
	SELECT set_config('durable.clock_offset', clock, false);
	SELECT durable.dispatch('new', queue => queue);
END;
-- how many claims of size tasks it takes until the new one comes
CREATE FUNCTION pg_temp.claims_until_new(queue text, size int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
	claims int := 0;
	claimed text[];
BEGIN
	LOOP
		SELECT array_agg(name) INTO claimed FROM durable.claim(ARRAY[queue], size, '30 days');
		claims := claims + 1;
		EXIT WHEN claimed IS NULL OR 'new' = ANY (claimed);
	END LOOP;
	RETURN CASE WHEN claimed IS NULL THEN -1 ELSE claims END;
END $$;
-- what then is left
CREATE FUNCTION pg_temp.claim_rest(queue text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	total bigint := 0;
	now bigint;
BEGIN
	LOOP
		SELECT count(*) INTO now FROM durable.claim(ARRAY[queue], 100, '30 days');
		EXIT WHEN now = 0;
		total := total + now;
	END LOOP;
	RETURN total;
END $$;

-- the due ones are older and come first, fifty of them
SELECT pg_temp.burst('a', 300, '1 h');
SELECT pg_temp.claims_until_new('a', 1);
SELECT pg_temp.claim_rest('a');
SELECT pg_temp.burst('b', 300, '2 h');
SELECT pg_temp.claims_until_new('b', 10);
SELECT pg_temp.claim_rest('b');
-- few are no burst: all of them come first
SELECT pg_temp.burst('c', 49, '3 h');
SELECT pg_temp.claims_until_new('c', 1);
SELECT pg_temp.claim_rest('c');
-- inside a transaction block only as many as the claim can use are moved
SELECT pg_temp.burst('d', 300, '4 h');
BEGIN;
SELECT pg_temp.claims_until_new('d', 10);
COMMIT;
SELECT pg_temp.claim_rest('d');
-- nothing else is ready: the due ones come without a pause
SELECT pg_temp.burst('e', 300, '5 h');
SELECT pg_temp.claims_until_new('e', 200);
SELECT pg_temp.claim_rest('e');
SELECT pg_temp.claim_rest('none');

-- a wait leaves them to the claim when something is ready
SELECT pg_temp.burst('f', 300, '6 h');
CALL durable.wait_for_work(ARRAY['f'], '0');
SELECT ready, delayed FROM durable.queue_depth('f');
SELECT rescued FROM durable.scan_hints();
