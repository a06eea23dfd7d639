-- Schedules: what is refused, in which words, and that it changes nothing.
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SET timezone = 'UTC';
SET IntervalStyle = postgres;
\pset format unaligned
\pset tuples_only on
CREATE FUNCTION report(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
SELECT durable.register_workflow('report', 'report') \g /dev/null
SELECT durable.create_schedule('there', 'report', cron => '0 0 1 1 *') IS NOT NULL;

CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	m text;
	d text;
	h text;
	s text;
BEGIN
	EXECUTE command;
	RETURN 'done';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS m = MESSAGE_TEXT, d = PG_EXCEPTION_DETAIL, h = PG_EXCEPTION_HINT, s = RETURNED_SQLSTATE;
	RETURN concat_ws(E'\n    ', s || ' ' || m, NULLIF(d, ''), NULLIF(h, ''));
END $$;
CREATE VIEW untouched AS SELECT md5(string_agg(s::text, ',' ORDER BY schedule_id)) AS schedules, (SELECT count(*) FROM durable.run) AS runs FROM durable.schedule s;
SELECT * FROM untouched \gset before_

\echo expressions
SELECT left(quote_literal(c), 60) || E'\n  ' || try(format('SELECT * FROM durable.next_fires(%L)', c)) FROM unnest(ARRAY[
	'', ' ', '*', '* * * *', '* * * * * * *', '60 * * * *', '* 24 * * *', '* * 0 * *', '* * 32 * *', '* * * 0 *', '* * * 13 *', '* * * * 8',
	'60 * * * * *', '-1 * * * *', '1- * * * *', '1-2-3 * * * *', '1,,2 * * * *', ',1 * * * *', '1, * * * *', '*/0 * * * *', '*/61 * * * *', '*/90 * * * *', '*/ * * * *', '/5 * * * *',
	'* */25 * * *', '*/x * * * *', 'a * * * *', '5a * * * *', '1.5 * * * *', '? * * * *', '* ? * * *', '* * ?/2 * *', '* * * JA *', '* * * JANUARY *', '* * * MON *', '* * * * JAN', '* * * * MONDAY',
	'* * L-31 * *', '* * L-x * *', '* * LX * *', '* * L1 * *', '* * 1-5W * *', '* * W * *', '* * 32W * *', '* * * * L', '* * * * 8L', '* * * * 1-5L', '* * * * 1#0', '* * * * 1#6', '* * * * 1#', '* * * * #1', '* * * * 5W',
	'* * * L *', 'L * * * *', '99999999999999999999 * * * *', '0 0 30 2 *', '0 0 31 4,6,9,11 *', '0 0 31W 2 *', '0 0 L-30 2 *', '0 0 L-29 2 *', '@reboot', '@every 5m', '@', '@dailyy', '@daily *', '0 0 * * *;', '0 0 * * é', repeat('0,', 600) || '0 * * * *'
	]) c;
-- these are fine
SELECT quote_literal(c) || ' ' || try(format('SELECT * FROM durable.next_fires(%L)', c)) FROM unnest(ARRAY[
	'*/60 * * * *', '* */24 * * *', '0 0 29 2 *', '0 0 L-28 2 *', '0 0 ? * ?', '*,5 * * * *', '0-59 * * * *', '59-0 * * * *', '0 23-1 31-1 12-1 7-0', '00 007 * * *', '0 0 * jan,FEB sun-Sat', '0 0 */31 */12 */7', '0 0 L,LW,1W,L-2,5-6,*/10 * 1L,2#3,4-5,sun'
	]) c;

\echo zones
SELECT left(quote_literal(z), 60) || E'\n  ' || regexp_replace(try(format('SELECT * FROM durable.next_fires(%L, %L)', '* * * * *', z)), 'x{20,}', 'xxx') FROM unnest(ARRAY[
	'', ' ', 'Mars/Phobos', 'europe/Berlin ', 'PST', 'FOO+3', 'Nowhere5', 'Europe/Berlin5', 'Etc/GMT+13', 'Etc/GMT-15', 'Etc/GMT+99', 'UTC+1', '<A>-3', '../etc/passwd', '+01', '3', repeat('x', 300)]) z;
SELECT quote_literal(z) || ' ' || try(format('SELECT * FROM durable.next_fires(%L, %L)', '* * * * *', z)) FROM unnest(ARRAY[
	'UTC', 'utc', 'europe/berlin', 'Etc/GMT+12', 'Etc/GMT-14', 'GMT0', 'EST5EDT', 'GMT', 'Asia/Kathmandu', 'America/Argentina/Buenos_Aires']) z;
-- at 02:30 of the last Sunday in March there are no clocks in Berlin; an hour that is named jumps, every minute of it does not
SELECT try($$SELECT durable.create_schedule('x', 'report', cron => '* 2 * 3 SUNL', timezone => 'Europe/Berlin')$$);
SELECT count(*) FROM durable.next_fires('* 2 * 3 SUNL', 'Europe/Berlin', 5, '2000-01-01');
SELECT count(*) FROM durable.next_fires('30 2 * 3 SUNL', 'Europe/Berlin', 5, '2000-01-01');

\echo next_fires
SELECT a || E'\n  ' || try(format('SELECT * FROM durable.next_fires(%s)', a)) FROM unnest(ARRAY[
	'NULL', $$'@daily', NULL$$, $$'@daily', n => NULL$$, $$'@daily', n => 0$$, $$'@daily', n => -1$$, $$'@daily', n => 10001$$, $$'@daily', after => 'infinity'$$, $$'@daily', after => '-infinity'$$]) a;

\echo create_schedule
SELECT a || E'\n  ' || try(format('SELECT durable.create_schedule(%s)', a)) FROM unnest(ARRAY[
	$$NULL, 'report', cron => '@daily'$$, $$'', 'report', cron => '@daily'$$, $$repeat('x', 201), 'report', cron => '@daily'$$, $$'x', NULL, cron => '@daily'$$, $$'x', '', cron => '@daily'$$,
	$$'x', 'nothing', cron => '@daily'$$, $$'x', 'report', cron => '@daily', version => '7'$$, $$'x', 'report', cron => '@daily', version => ''$$, $$'x', 'report', cron => '@daily', namespace => 'elsewhere'$$,
	$$'x', 'report', cron => '@daily', namespace => repeat('n', 256)$$, $$'there', 'report', cron => '@daily'$$,
	$$'x', 'report'$$, $$'x', 'report', cron => '@daily', every => '1 h'$$, $$'x', 'report', cron => '61 * * * *'$$, $$'x', 'report', cron => ''$$,
	$$'x', 'report', every => '0'$$, $$'x', 'report', every => '-1 h'$$, $$'x', 'report', every => '1 month'$$, $$'x', 'report', every => '1 year -360 days'$$, $$'x', 'report', every => '1.5 ms'$$, $$'x', 'report', every => '1001 years'$$, $$'x', 'report', every => '170000000 years'$$,
	$$'x', 'report', cron => '@daily', timezone => NULL$$, $$'x', 'report', cron => '@daily', timezone => 'Mars/Phobos'$$, $$'x', 'report', every => '1 h', timezone => 'Mars/Phobos'$$,
	$$'x', 'report', cron => '@daily', jitter => NULL$$, $$'x', 'report', cron => '@daily', jitter => '-1 s'$$, $$'x', 'report', cron => '@daily', jitter => '1 month'$$, $$'x', 'report', cron => '@yearly', jitter => '50 days'$$, $$'x', 'report', cron => '@daily', jitter => '0.5 ms'$$,
	$$'x', 'report', every => '1 h', jitter => '61 min'$$, $$'x', 'report', cron => '*/10 * * * *', jitter => '11 min'$$, $$'x', 'report', cron => '0 0,23 * * *', jitter => '2 h'$$,
	$$'x', 'report', cron => '@daily', overlap => NULL$$, $$'x', 'report', cron => '@daily', overlap => 'queue'$$, $$'x', 'report', cron => '@daily', catchup => NULL$$, $$'x', 'report', cron => '@daily', catchup => 'ALL'$$,
	$$'x', 'report', cron => '@daily', catchup => 'all', max_catchup => -1$$, $$'x', 'report', cron => '@daily', catchup => 'all', max_catchup => 1001$$, $$'x', 'report', cron => '@daily', max_catchup => 5$$,
	$$'x', 'report', to_jsonb(repeat('x', 1100000)), cron => '@daily'$$, $$'x', 'report', cron => '@daily', headers => to_jsonb(repeat('x', 1100000))$$, $$'x', 'report', cron => '@daily', search_attributes => to_jsonb(repeat('x', 1100000))$$,
	$$'x', 'report', cron => '@daily', note => ''$$, $$'x', 'report', cron => '@daily', note => repeat('x', 256)$$]) a;

\echo upsert_schedule
SELECT a || E'\n  ' || try(format('SELECT durable.upsert_schedule(%s)', a)) FROM unnest(ARRAY[
	$$NULL, 'report', cron => '@daily'$$, $$'there', 'report'$$, $$'there', 'nothing', cron => '@daily'$$, $$'there', 'report', cron => 'x'$$, $$'there', 'report', cron => '@daily', namespace => 'elsewhere'$$,
	$$'there', 'report', every => '1 h', jitter => '2 h'$$, $$'x', 'nothing', cron => '@daily'$$]) a;

\echo the others
SELECT c || E'\n  ' || try('SELECT * FROM durable.' || c) FROM unnest(ARRAY[
	'pause_schedule(NULL)', $$pause_schedule('')$$, $$pause_schedule('x')$$, $$pause_schedule('there', '')$$, $$pause_schedule('there', repeat('x', 256))$$,
	'resume_schedule(NULL)', $$resume_schedule('x')$$, 'trigger_schedule(NULL)', $$trigger_schedule('x')$$, 'delete_schedule(NULL)', $$delete_schedule(repeat('x', 201))$$,
	'backfill_schedule(NULL)', $$backfill_schedule('x')$$, $$backfill_schedule('there', 'infinity')$$, $$backfill_schedule('there', '-infinity')$$, $$backfill_schedule('there', until => 'infinity')$$,
	$$backfill_schedule('there', until => '2199-01-01')$$, $$backfill_schedule('there', '2020-01-01', '2019-01-01')$$, $$backfill_schedule('there', max_runs => 0)$$, $$backfill_schedule('there', max_runs => 10001)$$]) c;

SELECT schedules = :'before_schedules' AND runs = :before_runs AS nothing_changed FROM untouched;
-- large and odd ones that are fine
SELECT try($$SELECT durable.create_schedule(repeat('x', 200), 'report', to_jsonb(repeat('y', 900000)), every => '1 ms', tags => ARRAY[NULL, 'a', '']::text[])$$);
SELECT try($$SELECT durable.create_schedule(E'a:b\n''"\\', 'report', every => '366000 days', tags => NULL, priority => NULL, paused => NULL)$$);
SELECT length(durable.trigger_schedule(repeat('x', 200))), durable.trigger_schedule(E'a:b\n''"\\') LIKE E'sched:a:b\n''"\\\\:manual:%';
SELECT length(input::text), cardinality(tags) FROM durable.run ORDER BY id;
SELECT length(input::text), pg_column_size(input) < 100000 AS compressed FROM durable.schedule WHERE schedule_id LIKE 'xxx%';
DROP VIEW untouched;
DROP FUNCTION report(jsonb), try(text);
