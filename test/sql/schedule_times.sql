-- next_fires against a reference that is computed here, in SQL: every minute of some
-- days, as the zone's clock shows it, filtered by the fields of the expression.
\set VERBOSITY default
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SET timezone = 'UTC';
SET IntervalStyle = postgres;

-- the values of a field, as bits
CREATE FUNCTION ref_set(field text, lo int, hi int, names text DEFAULT '') RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
	item text;
	base text;
	a int;
	b int;
	n text;
	i int := lo;
	result bigint := 0;
BEGIN
	FOREACH n IN ARRAY string_to_array(names, ' ') LOOP
		field := regexp_replace(field, n, i::text, 'gi');
		i := i + 1;
	END LOOP;
	FOREACH item IN ARRAY string_to_array(field, ',') LOOP
		base := split_part(item, '/', 1);
		IF base IN ('*', '?') THEN
			a := lo; b := hi;
		ELSIF base LIKE '%-%' THEN
			a := split_part(base, '-', 1); b := split_part(base, '-', 2);
			IF b < a THEN b := b + hi - lo + 1; END IF;
		ELSE
			a := base; b := CASE WHEN item LIKE '%/%' THEN hi ELSE a END;
		END IF;
		result := result | (SELECT bit_or(1::bigint << (lo + (v - lo) % (hi - lo + 1)))
			FROM generate_series(a, b, COALESCE(NULLIF(split_part(item, '/', 2), '')::int, 1)) v);
	END LOOP;
	RETURN result;
END $$;

-- days around changes of the clock, and quiet ones
CREATE TEMP TABLE place (nr int GENERATED ALWAYS AS IDENTITY, zone text, day date);
INSERT INTO place (zone, day) VALUES
	('Europe/Berlin', '2024-03-31'), ('Europe/Berlin', '2024-10-27'), ('America/New_York', '2024-03-10'), ('America/New_York', '2024-11-03'),
	('Australia/Lord_Howe', '2024-04-07'), ('Australia/Lord_Howe', '2024-10-06'),		-- by half an hour
	('America/Sao_Paulo', '2018-11-04'), ('America/Sao_Paulo', '2018-02-18'),			-- at midnight
	('America/St_Johns', '2010-03-14'), ('America/St_Johns', '2010-11-07'),			-- at 00:01
	('Antarctica/Troll', '2024-03-31'), ('Antarctica/Troll', '2024-10-27'),			-- by two hours
	('Europe/Dublin', '2023-10-29'), ('Africa/Casablanca', '2023-03-19'), ('Africa/Casablanca', '2023-04-23'),
	('Pacific/Apia', '2011-12-30'),								-- a day that never was
	('Pacific/Kwajalein', '1993-08-21'), ('Pacific/Kwajalein', '1969-10-01'),		-- nor this; and one that came twice
	('Asia/Kathmandu', '2024-02-29'), ('UTC', '2024-12-31'), ('Asia/Tokyo', '2023-01-31'), ('America/Caracas', '2016-05-01');
CREATE TEMP TABLE clock AS
SELECT p.nr, p.zone, t, l.local, lag(l.local) OVER w AS before, extract(minute FROM l.local)::int AS mi, extract(hour FROM l.local)::int AS h,
       extract(day FROM l.local)::int AS d, extract(month FROM l.local)::int AS mo, extract(dow FROM l.local)::int AS wd
  FROM place p, generate_series(day - interval '2 days', day + interval '2 days', interval '1 min') t0,
       LATERAL (SELECT t0 AT TIME ZONE 'UTC') t (t), LATERAL (SELECT date_trunc('minute', t AT TIME ZONE p.zone)) l (local)
WINDOW w AS (PARTITION BY p.nr ORDER BY t);
-- readings that are skipped happen when the clock jumps over them; of those that
-- come again the first counts
CREATE TEMP TABLE named AS
SELECT DISTINCT ON (nr, local) * FROM (
	SELECT nr, zone, t, local, mi, h, d, mo, wd FROM clock
	UNION ALL
	SELECT c.nr, c.zone, c.t, s, extract(minute FROM s)::int, extract(hour FROM s)::int, extract(day FROM s)::int, extract(month FROM s)::int, extract(dow FROM s)::int
	  FROM clock c, generate_series(c.before + interval '1 min', c.local - interval '1 min', interval '1 min') s
	 WHERE c.local > c.before + interval '1 min') x
 ORDER BY nr, local, t;
CREATE INDEX ON clock (nr);
CREATE INDEX ON named (nr);
ANALYZE clock, named;

CREATE TEMP TABLE expression AS
SELECT row_number() OVER (ORDER BY a.n, b.n)::int AS nr, a.e || ' ' || b.e AS cron, split_part(a.e, ' ', 1) LIKE '%*%' OR split_part(a.e, ' ', 2) LIKE '%*%' AS elapsed,
       ref_set(split_part(a.e, ' ', 1), 0, 59) AS mi, ref_set(split_part(a.e, ' ', 2), 0, 23) AS h, ref_set(split_part(b.e, ' ', 1), 1, 31) AS d,
       ref_set(split_part(b.e, ' ', 2), 1, 12, 'jan feb mar apr may jun jul aug sep oct nov dec') AS mo,
       ref_set(split_part(b.e, ' ', 3), 0, 6, 'sun mon tue wed thu fri sat') AS wd,
       split_part(b.e, ' ', 1) !~ '[*?]' AND split_part(b.e, ' ', 3) !~ '[*?]' AS either
  FROM unnest(ARRAY['* *', '*/15 *', '0 *', '30 2', '0 0', '59 23', '0,30 1-3', '*/20 2', '15 */2', '5/25 22-2', '0 2', '1-59/7 1,2,3', '0 0-23', '45 23,0']) WITH ORDINALITY a (e, n),
       unnest(ARRAY['* * *', '*/2 * *', '1 * *', '31 * *', '10,27,31 * *', '* 3 *', '* MAR,oct,Nov SUN', '* * 0', '* * 7', '* * mon-fri', '* * FRI-MON', '27-3 * *',
                    '*/10 * SUN', '1-10 * 6', '? 2-4,8-12 ?', '* */2 1-5/2', '28-31 3,10 sun']) WITH ORDINALITY b (e, n);

CREATE FUNCTION reference(e expression, p place) RETURNS timestamptz[] LANGUAGE sql AS $$
	SELECT array_agg(DISTINCT t ORDER BY t) FROM (
		SELECT t FROM clock WHERE e.elapsed AND nr = p.nr AND (e.mi >> mi) & 1 = 1 AND (e.h >> h) & 1 = 1 AND (e.mo >> mo) & 1 = 1
		   AND CASE WHEN e.either THEN (e.d >> d) & 1 = 1 OR (e.wd >> wd) & 1 = 1 ELSE (e.d >> d) & 1 = 1 AND (e.wd >> wd) & 1 = 1 END
		UNION ALL
		SELECT t FROM named WHERE NOT e.elapsed AND nr = p.nr AND (e.mi >> mi) & 1 = 1 AND (e.h >> h) & 1 = 1 AND (e.mo >> mo) & 1 = 1
		   AND CASE WHEN e.either THEN (e.d >> d) & 1 = 1 OR (e.wd >> wd) & 1 = 1 ELSE (e.d >> d) & 1 = 1 AND (e.wd >> wd) & 1 = 1 END) x
	 WHERE t > (p.day - interval '10 hours') AT TIME ZONE 'UTC' AND t <= (p.day + interval '44 hours') AT TIME ZONE 'UTC'
$$;
-- as many, and the next one, which lies behind the days; a fourth of all pairs
CREATE TEMP TABLE outcome AS
SELECT r.*, ARRAY(SELECT f FROM durable.next_fires(cron, zone, COALESCE(cardinality(reference), 0) + 1, (day - interval '10 hours') AT TIME ZONE 'UTC') f) AS ours
  FROM (SELECT e.cron, p.zone, p.day, reference(e, p) AS reference FROM expression e, place p WHERE (e.nr + p.nr) % 4 = 0) r;
CREATE TEMP VIEW different AS
SELECT * FROM outcome WHERE ours[:cardinality(ours) - 1] IS DISTINCT FROM COALESCE(reference, '{}')
    OR ours[cardinality(ours)] <= (day + interval '44 hours') AT TIME ZONE 'UTC';
SELECT count(DISTINCT cron) AS expressions, count(DISTINCT (zone, day)) AS days, count(*) AS pairs, sum(cardinality(reference)) AS fires,
       (SELECT count(*) FROM different) AS different FROM outcome;
SELECT cron, zone, day, reference[:5], ours[:5] FROM different ORDER BY 1, 2, 3 LIMIT 10;

-- every second of some hours
CREATE TEMP TABLE hours (zone text, start timestamptz, until timestamptz);
INSERT INTO hours VALUES ('Europe/Berlin', '2024-03-31 00:00+00', '2024-03-31 02:00+00'), ('Europe/Berlin', '2024-10-27 00:00+00', '2024-10-27 02:00+00'),
	('Australia/Lord_Howe', '2024-10-05 14:30+00', '2024-10-05 16:30+00'), ('UTC', '2024-01-01 01:00+00', '2024-01-01 03:00+00');
CREATE TEMP TABLE seconds AS
SELECT p.*, t, extract(second FROM l.local)::int AS s, extract(minute FROM l.local)::int AS mi, extract(hour FROM l.local)::int AS h
  FROM hours p, generate_series(start + interval '1 s', until, interval '1 s') t, LATERAL (SELECT t AT TIME ZONE p.zone) l (local);
WITH e AS MATERIALIZED (
	SELECT cron, ref_set(split_part(cron, ' ', 1), 0, 59) AS s, ref_set(split_part(cron, ' ', 2), 0, 59) AS mi, ref_set(split_part(cron, ' ', 3), 0, 23) AS h
	  FROM unnest(ARRAY['* * * * * *', '*/7 * * * * *', '0 * * * * *', '30 */10 1-3 * * *', '59 59 * * * *', '15,45 0 */1 * * *', '* 30 2 * * *', '1-10/3 * 2,3 * * *']) cron),
r AS (
	SELECT e.cron, c.zone, c.start, c.until, array_agg(c.t ORDER BY c.t) FILTER (WHERE (e.s >> c.s) & 1 = 1 AND (e.mi >> c.mi) & 1 = 1 AND (e.h >> c.h) & 1 = 1) AS fires
	  FROM e, seconds c GROUP BY e.cron, c.zone, c.start, c.until)
SELECT cron, zone, start, cardinality(fires) AS fires,
       fires IS NOT DISTINCT FROM (SELECT array_agg(f ORDER BY f) FROM durable.next_fires(cron, zone, 7200, start) f WHERE f <= until) AS same
  FROM r ORDER BY 1, 2, 3;

-- days that are counted from the end of a month, by weeks, or as workdays; 44 years of them
CREATE TEMP TABLE day AS
SELECT t::date AS date, extract(day FROM t)::int AS d, extract(month FROM t)::int AS mo, extract(dow FROM t)::int AS wd,
       extract(day FROM date_trunc('month', t) + interval '1 month' - interval '1 day')::int AS last
  FROM generate_series('1999-01-01'::timestamp, '2042-12-31', interval '1 day') t;
-- the workday nearest to the n-th (0: to the last) of the day's month
CREATE FUNCTION workday(date date, n int) RETURNS date LANGUAGE sql AS $$
	SELECT d FROM generate_series(date_trunc('month', date), date_trunc('month', date) + interval '1 month' - interval '1 day', interval '1 day') x, LATERAL (SELECT x::date) y (d),
	       LATERAL (SELECT CASE WHEN n = 0 THEN (date_trunc('month', date) + interval '1 month' - interval '1 day')::date ELSE date_trunc('month', date)::date + n - 1 END) z (target)
	 WHERE extract(isodow FROM d) < 6 AND date_trunc('month', target) = date_trunc('month', date)
	 ORDER BY abs(d - target) LIMIT 1
$$;
CREATE TEMP TABLE special (cron text, days date[]);
INSERT INTO special VALUES
	('0 0 L * *', ARRAY(SELECT date FROM day WHERE d = last)),
	('0 0 l-3 * ?', ARRAY(SELECT date FROM day WHERE d = last - 3)),
	('0 0 L-30 * *', ARRAY(SELECT date FROM day WHERE d = last - 30)),
	('0 0 L,15 2 *', ARRAY(SELECT date FROM day WHERE mo = 2 AND d IN (15, last))),
	('0 0 LW * *', ARRAY(SELECT date FROM day WHERE date = workday(date, 0))),
	('0 0 1W * *', ARRAY(SELECT date FROM day WHERE date = workday(date, 1))),
	('0 0 15w * *', ARRAY(SELECT date FROM day WHERE date = workday(date, 15))),
	('0 0 30W * *', ARRAY(SELECT date FROM day WHERE date = workday(date, 30))),
	('0 0 31W,2 * *', ARRAY(SELECT date FROM day WHERE date = workday(date, 31) OR d = 2)),
	('0 0 * * 5L', ARRAY(SELECT date FROM day WHERE wd = 5 AND d > last - 7)),
	('0 0 ? * FRIL,0L', ARRAY(SELECT date FROM day WHERE wd IN (5, 0) AND d > last - 7)),
	('0 0 * * 7#1', ARRAY(SELECT date FROM day WHERE wd = 0 AND d <= 7)),
	('0 0 * 3,10 tue#2,THU#4', ARRAY(SELECT date FROM day WHERE mo IN (3, 10) AND (wd = 2 AND d BETWEEN 8 AND 14 OR wd = 4 AND d BETWEEN 22 AND 28))),
	('0 0 * * 1#5', ARRAY(SELECT date FROM day WHERE wd = 1 AND d > 28)),
	('0 0 L * 1#1', ARRAY(SELECT date FROM day WHERE d = last OR wd = 1 AND d <= 7)),
	('0 0 13 * FRI', ARRAY(SELECT date FROM day WHERE d = 13 OR wd = 5)),
	('0 0 */13 * 5', ARRAY(SELECT date FROM day WHERE d IN (1, 14, 27) AND wd = 5)),
	('0 0 29 2 *', ARRAY(SELECT date FROM day WHERE d = 29 AND mo = 2)),
	('0 0 29 2 */7', ARRAY(SELECT date FROM day WHERE d = 29 AND mo = 2 AND wd = 0)),
	('0 0 31 * */3', ARRAY(SELECT date FROM day WHERE d = 31 AND wd IN (0, 3, 6))),
	('0 0 1 1 *', ARRAY(SELECT date FROM day WHERE d = 1 AND mo = 1)),
	('@yearly', ARRAY(SELECT date FROM day WHERE d = 1 AND mo = 1)),
	('@annually', ARRAY(SELECT date FROM day WHERE d = 1 AND mo = 1)),
	('@monthly', ARRAY(SELECT date FROM day WHERE d = 1)),
	('@Weekly', ARRAY(SELECT date FROM day WHERE wd = 0)),
	('@daily', ARRAY(SELECT date FROM day)),
	('@midnight', ARRAY(SELECT date FROM day)),
	(E'0\t0 *\n* * ', ARRAY(SELECT date FROM day));
SELECT cron, cardinality(days) AS days, x.ours[:cardinality(days)] = days AND x.ours[cardinality(days) + 1] > '2042-12-31' AS same
  FROM special, LATERAL (SELECT array_agg(f::date ORDER BY f) AS ours FROM durable.next_fires(cron, 'UTC', LEAST(cardinality(days) + 1, 10000), '1998-12-31 12:00+00') f
        WHERE cardinality(days) < 10000) x WHERE cardinality(days) < 10000;
SELECT cron, ours = days[:10000] AS same FROM special,
       LATERAL (SELECT array_agg(f::date ORDER BY f) AS ours FROM durable.next_fires(cron, 'UTC', 10000, '1998-12-31 12:00+00') f) x WHERE cardinality(days) >= 10000;

-- backwards: the last windows up to an instant, as a backfill finds them
CREATE FUNCTION nothing(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
SELECT durable.register_workflow('nothing', 'nothing');
CREATE TEMP TABLE backwards AS
SELECT row_number() OVER (ORDER BY cron, nr) AS n, cron, p.zone, (p.day - interval '1 day') AT TIME ZONE 'UTC' AS since, (p.day + offs) AT TIME ZONE 'UTC' AS until
  FROM place p, unnest(ARRAY['* * * * *', '*/7 1-3 * * *', '30 2 * * *', '0 0-23 * * *', '59 23,0 * * *', '0 */5 * * *', '*/20 * * * * *', '0 12 1 * *']) cron, unnest(ARRAY[interval '2 hours', '26 hours 30 min']) offs
 WHERE p.nr % 2 = 0;
SELECT count(*) AS pairs FROM backwards, durable.create_schedule('b' || n, 'nothing', cron => cron, timezone => zone, paused => true);
WITH w AS MATERIALIZED (
	SELECT b.*, ARRAY(SELECT to_timestamp(split_part(r, ':', 3)::bigint / 1000) FROM durable.backfill_schedule('b' || n, since, until, 25) r) AS ours,
	       ARRAY(SELECT f FROM (SELECT f FROM durable.next_fires(cron, zone, CASE WHEN cron LIKE '*%' THEN 10000 ELSE 200 END, since - interval '1 s') f WHERE f <= until ORDER BY f DESC LIMIT 25) x ORDER BY f) AS reference FROM backwards b)
SELECT sum(cardinality(reference)) AS windows, count(*) FILTER (WHERE ours <> reference) AS different FROM w;
DROP FUNCTION nothing(jsonb);

-- what the rule is for: a nightly job and the change of the clock
SELECT f AT TIME ZONE 'Europe/Berlin' AS local, f AT TIME ZONE 'UTC' AS utc FROM durable.next_fires('30 2 * * *', 'Europe/Berlin', 3, '2024-03-30 00:00+00') f;
SELECT f AT TIME ZONE 'Europe/Berlin' AS local, f AT TIME ZONE 'UTC' AS utc FROM durable.next_fires('30 2 * * *', 'Europe/Berlin', 3, '2024-10-26 00:00+00') f;
SELECT f AT TIME ZONE 'Europe/Berlin' AS local, f AT TIME ZONE 'UTC' AS utc FROM durable.next_fires('30 * * * *', 'Europe/Berlin', 4, '2024-03-30 23:00+00') f;
SELECT f AT TIME ZONE 'Europe/Berlin' AS local, f AT TIME ZONE 'UTC' AS utc FROM durable.next_fires('30 * * * *', 'Europe/Berlin', 4, '2024-10-26 23:00+00') f;
-- far away
SELECT * FROM durable.next_fires('0 12 29 2 *', 'Europe/Berlin', 3, '2399-01-01');
SELECT * FROM durable.next_fires('0 12 29 2 */7', 'America/New_York', 3, '2050-01-01');
SELECT * FROM durable.next_fires('0 0 1 1 *', 'UTC', 3, '294273-06-01');
SELECT * FROM durable.next_fires('* * * * *', 'Europe/Berlin', 2, '4714-11-24 00:00:00 BC');
SELECT count(*) FROM durable.next_fires('0 0 29 2 *', 'UTC', 3, '294275-06-01');
-- the clock is the engine's, and the zone may be written in any case
SELECT bool_and(f - durable.engine_now() BETWEEN '0' AND '2 days') AS next, count(*) FROM durable.next_fires('@daily', 'utc', 2) f;
SET durable.clock_offset = '10 d';
SELECT f - clock_timestamp() BETWEEN '10 days' AND '11 days' AS next FROM durable.next_fires('@daily', n => 1) f;
RESET durable.clock_offset;
