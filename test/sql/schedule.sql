-- Schedules: what fires when, once per window, and what the policies make of it.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;
SET timezone = 'UTC';
SET IntervalStyle = postgres;
CREATE FUNCTION report(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT i $$;
SELECT durable.register_workflow('report', 'report', tags => '{w}');

-- the engine's clock shows this time, or a little more
CREATE FUNCTION at(t timestamptz) RETURNS void LANGUAGE sql AS $$
	SELECT set_config('durable.clock_offset', ceil(extract(epoch FROM t - clock_timestamp()))::text, false)
$$;
CREATE FUNCTION sweep(max_work int DEFAULT 1000) RETURNS text LANGUAGE sql AS $$ SELECT durable.sweep(max_work) ->> 'fired' $$;
-- the windows of a schedule's runs
CREATE FUNCTION runs(id text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(CASE WHEN x[2] IS NULL THEN 'manual' ELSE to_char(to_timestamp(x[2]::bigint / 1000), 'DD HH24:MI') END, ', ' ORDER BY r.id)
	  FROM durable.run r, LATERAL regexp_match(r.run_id, '^sched:([^:]*):(?:manual:\d+|(\d+))$') x WHERE x[1] = $1
$$;

SELECT at('2060-03-01 12:00');
-- cron, every, and what a run gets
SELECT durable.create_schedule('hourly', 'report', '{"n": 1}', cron => '0 * * * *', tags => '{a,w}', priority => 7,
	search_attributes => '{"s": 1}', headers => '{"h": 2}', note => 'for the desk');
SELECT durable.create_schedule('fast', 'report', every => '90 min');
SELECT durable.create_schedule('nightly', 'report', cron => '30 2 * * *', timezone => 'europe/berlin');
SELECT durable.create_schedule('never', 'report', cron => '@daily', paused => true);
SELECT schedule_id, cron, every, timezone, overlap, catchup, paused, next_window, next_fire, lag, fires FROM durable.schedules;
SELECT sweep();
SELECT at('2060-03-01 13:00');
SELECT sweep();
SELECT sweep();
SELECT run_id, status, workflow, input, tags, priority, search_attributes, headers FROM durable.run;
SELECT schedule_id, last_window, last_run_id, last_run_status, fires, next_fire, last_fire_at - last_window < '1 min' AS in_time, last_error FROM durable.schedules WHERE fires > 0;
-- intervals are multiples since 1970
SELECT at('2060-03-01 13:30');
SELECT sweep(), runs('fast');
SELECT at('2060-03-01 15:00');
SELECT sweep(), runs('fast'), runs('hourly');
-- the run can tell its window
SELECT to_timestamp(split_part(run_id, ':', 3)::bigint / 1000) AS window FROM durable.run ORDER BY id LIMIT 1;
CALL durable.work(duration => '0');
SELECT last_run_status, note FROM durable.schedules WHERE schedule_id = 'hourly';
SELECT durable.delete_schedule('hourly'), durable.delete_schedule('fast'), durable.delete_schedule('never'), durable.delete_schedule('hourly');
SELECT count(*) AS runs_stay FROM durable.run;
-- the night when the clocks change
SELECT at('2060-03-27 12:00');
SELECT sweep(), runs('nightly');
SELECT at('2060-03-28 12:00');
SELECT sweep(), runs('nightly');
SELECT at('2060-03-29 12:00');
SELECT sweep(), runs('nightly');
SELECT durable.delete_schedule('nightly');

-- late: by five hours. "one" is the default
SELECT at('2060-04-01 00:30');
SELECT durable.create_schedule('one', 'report', cron => '0 * * * *') \g /dev/null
SELECT durable.create_schedule('skip', 'report', cron => '0 * * * *', catchup => 'skip') \g /dev/null
SELECT durable.create_schedule('all', 'report', cron => '0 * * * *', catchup => 'all') \g /dev/null
SELECT durable.create_schedule('some', 'report', every => '1 hour', catchup => 'all', max_catchup => 2) \g /dev/null
SELECT durable.create_schedule('none', 'report', every => '1 hour', catchup => 'all', max_catchup => 0) \g /dev/null
SELECT at('2060-04-01 05:10');
SELECT schedule_id, lag BETWEEN '4 h' AND '4 h 11 min' AS late FROM durable.schedules;
SELECT sweep(), sweep();
SELECT schedule_id, runs(schedule_id), fires, skips, last_skip, last_window, next_window FROM durable.schedules ORDER BY 1;
-- "skip" forgives a minute
SELECT at('2060-04-01 06:00:30');
SELECT sweep(), runs('skip');
-- in pieces: the others have their turn in between, and new windows come while it lasts
DELETE FROM durable.run;
SELECT at('2060-04-01 14:10');
SELECT sweep(3);
SELECT runs('all'), runs('some'), runs('one');
SELECT sweep(3), sweep(3);
SELECT at('2060-04-01 15:10');
SELECT sweep(2), sweep(2), sweep(2), sweep(2), sweep(2), sweep(2);
SELECT schedule_id, runs(schedule_id) FROM durable.schedules ORDER BY 1;
-- a thousand windows are no flood: a hundred of a schedule, then the next one's turn
SELECT durable.upsert_schedule('all', 'report', every => '1 min', catchup => 'all') \g /dev/null
SELECT at('2060-04-02 08:00');
SELECT sweep();
SELECT count(*) AS all FROM durable.run WHERE run_id LIKE 'sched:all:%' AND created_at > '2060-04-02';
SELECT next_window, next_fire - next_window > '12 hours' AS behind_the_others FROM durable.schedules WHERE schedule_id = 'all';
SELECT count(sweep()) FROM generate_series(1, 20);
SELECT count(*) AS all, count(DISTINCT run_id) FROM durable.run WHERE run_id LIKE 'sched:all:%' AND created_at > '2060-04-02';
DELETE FROM durable.schedule;
DELETE FROM durable.run;
TRUNCATE durable.task, durable.task_ready;

-- overlap: while the last run has not ended
SELECT at('2060-05-01 00:30');
SELECT durable.create_schedule('solo', 'report', cron => '0 * * * *', overlap => 'skip') \g /dev/null
SELECT at('2060-05-01 01:00');
SELECT sweep();
SELECT at('2060-05-01 02:00');
SELECT sweep();
SELECT runs('solo'), fires, skips, last_skip, last_window, next_window FROM durable.schedules;
CALL durable.work(duration => '0');
SELECT at('2060-05-01 03:00');
SELECT sweep(), runs('solo');
-- a run that retention took away has ended
DELETE FROM durable.run;
SELECT at('2060-05-01 04:00');
SELECT sweep(), runs('solo');
-- catching up as well: the first is started, the others find it
SELECT durable.upsert_schedule('solo', 'report', cron => '0 * * * *', overlap => 'skip', catchup => 'all') \g /dev/null
SELECT durable.cancel(run_id) FROM durable.run WHERE status = 'pending' \g /dev/null
SELECT at('2060-05-01 07:30');
SELECT sweep(), runs('solo');
SELECT fires, skips FROM durable.schedules;
SELECT durable.delete_schedule('solo');

-- jitter: the same for a schedule and window, and not in the id
CREATE FUNCTION fnv(t text) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	h bigint := 2166136261;
BEGIN
	FOR i IN 0..octet_length(convert_to(t, 'UTF8')) - 1 LOOP
		h := ((h # get_byte(convert_to(t, 'UTF8'), i)) * 16777619::numeric % 4294967296)::bigint;
	END LOOP;
	RETURN h;
END $$;
SELECT at('2060-06-01 00:30');
CREATE TEMP TABLE created AS SELECT 'j' || n AS id, durable.create_schedule('j' || n, 'report', cron => '0 * * * *', jitter => '30 min') AS f FROM generate_series(1, 20) n;
SELECT bool_and(next_fire = next_window + fnv(id || '@' || extract(epoch FROM next_window)::bigint * 1000) % 1800000 * interval '1 ms') AS as_documented,
       count(DISTINCT next_fire) > 15 AS different, bool_and(next_window = '2060-06-01 01:00') AS window, bool_and(next_fire = f) AS returned
  FROM created JOIN durable.schedule s ON s.schedule_id = id;
SELECT durable.create_schedule('jä', 'report', every => '1 h', jitter => '1 h') IS NOT NULL AS created;
SELECT next_fire = next_window + fnv(schedule_id || '@' || extract(epoch FROM next_window)::bigint * 1000) % 3600000 * interval '1 ms' AS as_documented FROM durable.schedule WHERE schedule_id = 'jä';
DELETE FROM durable.schedule WHERE schedule_id = 'jä';
-- each fires when its own time has come
SELECT at(max(next_fire) - interval '2 s') FROM (SELECT next_fire FROM durable.schedule ORDER BY 1 LIMIT 7) x;
SELECT count(*) FILTER (WHERE next_fire < durable.engine_now()) AS due FROM durable.schedule \gset
SELECT sweep() = :'due' AS those_that_are_due;
SELECT at('2060-06-01 01:31');
SELECT sweep()::int + :due AS all_of_them, (SELECT count(DISTINCT run_id) FROM durable.run WHERE run_id LIKE 'sched:j%:' || extract(epoch FROM '2060-06-01 01:00'::timestamptz)::bigint * 1000) AS runs;
-- a sweep that is late does not mistake the next window for the one that is due
DELETE FROM durable.schedule WHERE schedule_id <> 'j1';
SELECT durable.upsert_schedule('j1', 'report', every => '1 h', jitter => '1 h') IS NOT NULL AS changed;
SELECT at(next_window + interval '1 h') FROM durable.schedule;
SELECT count(*) AS early FROM durable.schedule, LATERAL (SELECT next_window + interval '1 h' + fnv('j1@' || (extract(epoch FROM next_window)::bigint + 3600) * 1000) % 3600000 * interval '1 ms') x (t) WHERE t < durable.engine_now();
SELECT sweep(), runs('j1');
SELECT next_window, last_window FROM durable.schedule;
DELETE FROM durable.schedule;
DELETE FROM durable.run;
TRUNCATE durable.task, durable.task_ready;

-- pause, resume
SELECT at('2060-07-01 00:30');
SELECT durable.create_schedule('p', 'report', cron => '0 * * * *', catchup => 'all');
SELECT durable.pause_schedule('p', 'moving house'), durable.pause_schedule('p'), durable.pause_schedule('p', 'still moving');
SELECT paused, note, next_window, next_fire FROM durable.schedules;
SELECT at('2060-07-15 10:30');
SELECT sweep(), runs('p');
SELECT durable.resume_schedule('p'), durable.resume_schedule('p');
SELECT sweep(), runs('p');
SELECT paused, note FROM durable.schedules;
SELECT at('2060-07-15 11:00');
SELECT sweep(), runs('p');
-- upsert: keeps what happened, keeps it paused unless told, and takes effect at once
SELECT durable.pause_schedule('p');
SELECT durable.upsert_schedule('p', 'report', '2', cron => '*/5 * * * *');
SELECT paused, next_fire, fires, catchup, note, input FROM durable.schedules;
SELECT durable.upsert_schedule('p', 'report', '3', cron => '*/5 * * * *', paused => false);
SELECT at('2060-07-15 11:05');
-- what is due is not lost when the same times are written again
SELECT durable.upsert_schedule('p', 'report', '4', cron => '*/5 * * * *');
SELECT sweep(), runs('p');
SELECT input FROM durable.run ORDER BY id DESC LIMIT 1;
SELECT at('2060-07-15 11:10');
-- other times count from now
SELECT durable.upsert_schedule('p', 'report', '4', every => '30 min');
SELECT sweep(), runs('p');
SELECT durable.upsert_schedule('p', 'report', every => '30 min', paused => true), durable.upsert_schedule('q', 'report', every => '30 min', paused => true);
SELECT schedule_id, paused, created_at < updated_at AS updated, next_fire FROM durable.schedules ORDER BY 1;

-- trigger: paused or not, beside the windows
SELECT durable.trigger_schedule('q') ~ '^sched:q:manual:\d+$' AS ok, count(DISTINCT durable.trigger_schedule('q')) FROM generate_series(1, 3);
SELECT runs('q'), fires, last_run_id, next_fire, (SELECT tags FROM durable.run WHERE run_id LIKE 'sched:q:%' LIMIT 1) FROM durable.schedules WHERE schedule_id = 'q';
DELETE FROM durable.schedule;
DELETE FROM durable.run;
TRUNCATE durable.task, durable.task_ready;

-- backfill: two weeks of pause, and what the policy says
SELECT at('2060-08-01 01:30');
SELECT durable.create_schedule('b_' || c, 'report', cron => '0 6 * * *', catchup => c) FROM unnest('{one,skip,all}'::text[]) c \g /dev/null
SELECT durable.create_schedule('b_some', 'report', cron => '0 6 * * *', catchup => 'all', max_catchup => 3) \g /dev/null
SELECT at('2060-08-01 06:00');
SELECT sweep();
SELECT count(durable.pause_schedule(schedule_id)) FROM durable.schedule;
SELECT at('2060-08-15 12:00');
SELECT sweep();
SELECT id, (SELECT count(*) FROM durable.backfill_schedule(id)) FROM unnest('{b_one,b_skip,b_some,b_all}'::text[]) id;
SELECT schedule_id, runs(schedule_id), fires, last_window, last_run_id, paused, next_fire FROM durable.schedules ORDER BY 1;
-- again: nothing new; what is asked for explicitly does not ask the policy
SELECT count(*) FROM durable.backfill_schedule('b_all');
SELECT count(*) FROM durable.backfill_schedule('b_all', '2060-08-01');
SELECT * FROM durable.backfill_schedule('b_skip', '2060-08-03 06:00', '2060-08-05 06:00', 10);
SELECT * FROM durable.backfill_schedule('b_skip', '2060-08-03 06:00', '2060-08-09 05:59', 2);
SELECT * FROM durable.backfill_schedule('b_skip', '2060-08-03 06:00', '2060-08-08 07:00', 2);
SELECT * FROM durable.backfill_schedule('b_skip', '2060-08-03 06:00', max_runs => 100);
SELECT runs('b_skip'), last_window FROM durable.schedules WHERE schedule_id = 'b_skip';
-- before it was created, too
SELECT * FROM durable.backfill_schedule('b_one', '2060-01-01', '2060-01-01 12:00', 1);
SELECT fires, last_window FROM durable.schedules WHERE schedule_id = 'b_one';
-- with resume, the cadence goes on from now
SELECT durable.resume_schedule('b_one');
SELECT sweep();
-- a window that was made up for is not started again
SELECT at('2060-08-16 07:00');
SELECT * FROM durable.backfill_schedule('b_one');
SELECT fires, last_window, next_window FROM durable.schedules WHERE schedule_id = 'b_one';
SELECT sweep();
SELECT fires, last_window, next_window FROM durable.schedules WHERE schedule_id = 'b_one';
-- overlap counts here as well
SELECT durable.create_schedule('b_solo', 'report', every => '1 day', overlap => 'skip', catchup => 'all', paused => true) \g /dev/null
SELECT * FROM durable.backfill_schedule('b_solo', '2060-08-01');
SELECT fires, skips FROM durable.schedules WHERE schedule_id = 'b_solo';
-- and there is an end
SELECT durable.create_schedule('b_fast', 'report', every => '1 s', catchup => 'all', paused => true) \g /dev/null
SELECT * FROM durable.backfill_schedule('b_fast', '2060-08-01');
SELECT count(*) FROM durable.backfill_schedule('b_fast', '2060-08-01', max_runs => 50);
SELECT * FROM durable.backfill_schedule('b_solo', '2060-08-02', '2060-08-01');
SELECT * FROM durable.backfill_schedule('b_solo', '2060-08-02', '2061-08-01');
DELETE FROM durable.schedule;
DELETE FROM durable.run;
TRUNCATE durable.task, durable.task_ready;

-- a definition that can start nothing any more pauses itself and says why
CREATE ROLE durable_test_sched;
SELECT durable.grant_usage('durable_test_sched', privileges => '{start,manage,work,read}');
SELECT at('2060-09-01 00:30');
SELECT durable.create_schedule(id, 'report', cron => '0 * * * *') FROM unnest('{bad_cron,bad_owner,bad_rights,bad_workflow,bad_version,bad_zone,good}'::text[]) id \g /dev/null
UPDATE durable.schedule SET cron = '0 0 30 2 *' WHERE schedule_id = 'bad_cron';
UPDATE durable.schedule SET owner = 4000000000::oid::regrole WHERE schedule_id = 'bad_owner';
UPDATE durable.schedule SET owner = 'durable_test_sched' WHERE schedule_id = 'bad_rights';
UPDATE durable.schedule SET workflow = 'gone' WHERE schedule_id = 'bad_workflow';
UPDATE durable.schedule SET version = '2' WHERE schedule_id = 'bad_version';
UPDATE durable.schedule SET timezone = 'Atlantis/Main_Street' WHERE schedule_id = 'bad_zone';
SELECT durable.revoke_usage('durable_test_sched', privileges => '{start}');
SELECT at('2060-09-01 01:00');
SELECT sweep();
SELECT schedule_id, paused, next_fire, last_error FROM durable.schedules ORDER BY 1;
SELECT sweep();
-- repaired
SELECT durable.resume_schedule('bad_rights');
SELECT durable.grant_usage('durable_test_sched', privileges => '{start}');
SELECT durable.resume_schedule('bad_rights');
SELECT durable.upsert_schedule('bad_cron', 'report', cron => '0 * * * *', paused => false);
SELECT durable.trigger_schedule('bad_zone');
SELECT * FROM durable.backfill_schedule('bad_zone', '2060-08-01');
SELECT at('2060-09-01 02:00');
SELECT sweep();
SELECT schedule_id, paused, last_error, runs(schedule_id) FROM durable.schedules WHERE NOT paused ORDER BY 1;
-- dropped with its schedules; the role that writes the definition anew owns it
UPDATE durable.schedule SET owner = 'durable_test_sched' WHERE schedule_id = 'good';
SELECT durable.revoke_usage('durable_test_sched');
DROP ROLE durable_test_sched;
SELECT at('2060-09-01 03:00');
SELECT sweep();
SELECT regexp_replace(last_error, '\d+', 'NNN') AS last_error FROM durable.schedules WHERE schedule_id = 'good';
SELECT durable.upsert_schedule('good', 'report', cron => '0 * * * *', paused => false);
SELECT owner = current_user::regrole AS mine FROM durable.schedule WHERE schedule_id = 'good';

-- a run that cannot be started: noted, and the next window comes
-- (nobody else can start one under such an id, but an earlier schedule of that name may have)
SELECT durable.start('report', '"somebody else''s"', 'sched:good:' || extract(epoch FROM '2060-09-01 04:00'::timestamptz)::bigint * 1000, namespace => 'default');
SELECT durable.start('report', run_id => 'sched:'), durable.start('report', run_id => 'schedule');
SELECT durable.start_many('report', '{1,2}', '{scheduled,dlq:1}');
SELECT durable.start('report', run_id => 'dlq:x');
SELECT durable.start('report', run_id => 'Sched:x') || durable.start('report', run_id => 'dlq') || durable.start('report', run_id => 'sched') AS others;
SELECT durable.register_workflow('other', 'report');
SELECT durable.start('report', '"somebody else''s"', 'x'), durable.start('other', NULL, 'y');
UPDATE durable.run SET run_id = 'sched:good:' || extract(epoch FROM '2060-09-01 04:00'::timestamptz)::bigint * 1000 WHERE run_id = 'x';
UPDATE durable.run SET run_id = 'sched:good:' || extract(epoch FROM '2060-09-01 05:00'::timestamptz)::bigint * 1000 WHERE run_id = 'y';
DELETE FROM durable.schedule WHERE schedule_id <> 'good';
SELECT at('2060-09-01 04:00');
SELECT sweep();
SELECT last_error, last_run_id, fires, last_window, next_window FROM durable.schedules;
SELECT at('2060-09-01 05:00');
SELECT sweep();
SELECT last_error, last_run_id, fires, last_window, next_window FROM durable.schedules;
SELECT at('2060-09-01 06:00');
SELECT sweep();
SELECT last_error, fires, next_window FROM durable.schedules;

-- an error, here of an index that an administrator made: recorded, and the others are started
SELECT durable.create_schedule('e' || n, 'report', cron => n || ' * * * *', priority => p) FROM (VALUES (1, 99), (2, 99), (3, 0)) v (n, p) \g /dev/null
CREATE UNIQUE INDEX only_one ON durable.run (priority) WHERE priority = 99;
SELECT at('2060-09-01 06:30');
SELECT sweep();
SELECT schedule_id, fires, last_error, next_window FROM durable.schedules ORDER BY 1;
SELECT at('2060-09-01 06:50');
SELECT sweep();
DROP INDEX durable.only_one;
DELETE FROM durable.schedule WHERE schedule_id LIKE 'e%';

-- the clock was a year ahead, and is put right: it goes on, and nothing comes twice
SELECT at('2061-09-01 06:00');
SELECT sweep(), runs('good');
SELECT at('2060-09-01 07:00');
SELECT sweep();
SELECT last_window, next_window FROM durable.schedules;
SELECT at('2060-09-01 08:00');
SELECT sweep(), runs('good');
-- back by less than a minute: nothing comes twice
SELECT at('2060-09-01 07:59:30');
SELECT sweep();
SELECT last_window, next_window FROM durable.schedules;
SELECT at('2060-09-01 08:00');
SELECT sweep();
-- back by hours: the ids are known
SELECT at('2060-09-01 05:30');
SELECT sweep();
SELECT last_window, next_window FROM durable.schedules;
SELECT at('2060-09-01 09:00');
SELECT sweep(), runs('good');
-- a paused one, and one that means nothing any more
SELECT durable.pause_schedule('good');
SELECT at('2060-08-01');
SELECT sweep();
SELECT last_window, next_window, paused FROM durable.schedules;
UPDATE durable.schedule SET last_window = '2100-01-01', cron = 'x';
SELECT sweep();
SELECT last_window, next_window, paused FROM durable.schedules;

-- a sweep in a transaction, rolled back; and at every isolation level
DELETE FROM durable.schedule;
SELECT at('2060-10-01 00:30');
SELECT durable.create_schedule('t', 'report', cron => '0 * * * *') \g /dev/null
SELECT at('2060-10-01 01:00');
BEGIN;
SELECT sweep(), runs('t');
ROLLBACK;
SELECT runs('t'), last_window, fires FROM durable.schedules;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(*) FROM durable.schedule;
SELECT sweep();
SELECT durable.pause_schedule('t'), durable.resume_schedule('t');
SELECT durable.create_schedule('u', 'report', cron => '0 * * * *'), durable.upsert_schedule('u', 'report', every => '1 h');
SELECT schedule_id, next_fire FROM durable.schedules;
SELECT durable.delete_schedule('u'), count(*) FROM durable.backfill_schedule('t', '2060-09-30 22:00', max_runs => 9);
COMMIT;
SELECT runs('t'), fires FROM durable.schedules;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT at('2060-10-01 02:00');
SELECT sweep();
COMMIT;
BEGIN;
SELECT durable.create_schedule('gone', 'report', every => '1 h') \g /dev/null
SELECT durable.trigger_schedule('t') \g /dev/null
ROLLBACK;
SELECT schedule_id, runs(schedule_id) FROM durable.schedules;
-- a copy fires nothing
UPDATE durable.identity SET database = 1;
SELECT at('2060-10-01 03:00');
SELECT durable.sweep();
SELECT runs('t');
SELECT durable.activate();
SELECT sweep(), runs('t');
-- not in a read-only transaction
BEGIN READ ONLY;
SELECT durable.create_schedule('r', 'report', every => '1 h');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.trigger_schedule('t');
ROLLBACK;
BEGIN READ ONLY;
SELECT count(*) FROM durable.next_fires('@daily');
SELECT schedule_id FROM durable.schedules;
COMMIT;
-- ten thousand schedules of which none is due: a sweep looks at one entry of each of two indexes
DELETE FROM durable.schedule;
SELECT count(durable.create_schedule('many-' || n, 'report', cron => '0 0 1 1 *')) FROM generate_series(1, 10000) n;
VACUUM durable.schedule;
SELECT sweep();
BEGIN;
SELECT seq_scan AS seq, idx_scan AS idx, idx_tup_fetch AS tup FROM pg_stat_xact_user_tables WHERE relid = 'durable.schedule'::regclass \gset
SELECT sweep();
SELECT seq_scan - :seq AS seq_scan, idx_scan - :idx AS idx_scan, idx_tup_fetch - :tup AS rows FROM pg_stat_xact_user_tables WHERE relid = 'durable.schedule'::regclass;
COMMIT;
RESET durable.clock_offset;
DROP FUNCTION report(jsonb), at(timestamptz), sweep(int), runs(text), fnv(text);
