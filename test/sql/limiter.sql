-- limiters: who may run, in which order, and what gives a slot back
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable CASCADE;
CREATE EXTENSION durable;
CREATE SCHEMA limiter;
RESET client_min_messages;
SET search_path = limiter;

CREATE TEMP TABLE held (n serial, task_id text, token uuid);
-- what a claim gets, by the names of the tasks
CREATE FUNCTION take(queue text, max int DEFAULT 10) RETURNS text LANGUAGE sql AS $$
	WITH c AS (INSERT INTO held (task_id, token) SELECT task_id, token FROM durable.claim(ARRAY[queue], max, '1 day') RETURNING n, task_id)
	SELECT string_agg(task_id, ',' ORDER BY n) FROM c
$$;
CREATE FUNCTION token(id text) RETURNS uuid LANGUAGE sql AS $$ SELECT token FROM held WHERE task_id = id ORDER BY n DESC LIMIT 1 $$;
CREATE FUNCTION done(id text) RETURNS boolean LANGUAGE sql AS $$ SELECT durable.complete(id, limiter.token(id)) $$;
CREATE FUNCTION put(id text, lim text, key text DEFAULT NULL, priority int DEFAULT 0, queue text DEFAULT 'q') RETURNS void LANGUAGE sql AS $$
	SELECT durable.dispatch('job', NULL, id, queue, priority => put.priority, limiter => lim, fairness_key => key,
		max_attempts => 3, backoff => '1 hour')
$$;
CREATE FUNCTION usage(lim text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s running, %s waiting', running, waiting) FROM durable.limiters WHERE name = lim
$$;
CREATE FUNCTION now_is(seconds int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	PERFORM set_config('durable.clock_offset', seconds::text, false);
END $$;

-- nothing is left, and the ids are free again
CREATE FUNCTION clean() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.cancel_task(coalesce(task_id, '~' || id)) FROM durable.task;
	DELETE FROM durable.task_result;
	TRUNCATE held;
	RETURN format('%s slots', (SELECT count(*) FROM durable.limiter_slot));
END $$;

-- concurrency
SELECT durable.register_limiter('two', concurrency => 2);
SELECT put('c' || i, 'two') FROM generate_series(1, 6) i \g /dev/null
SELECT ready, claimed, delayed, parked, oldest_ready FROM durable.queue_depth('q');
SELECT status FROM durable.task_status('c1');
SELECT take('q'), take('q'), usage('two');
SELECT status FROM durable.task_status('c1');
-- each of these gives a slot back
SELECT done('c1'), take('q'), usage('two');
SELECT durable.fail('c2', token('c2'), '{"message": "no", "retryable": false}'), take('q'), usage('two');
SELECT durable.release(token('c3')), usage('two');
-- what comes back is older than what has not had a turn
SELECT take('q'), usage('two');
SELECT durable.cancel_task('c4'), take('q'), usage('two');
SELECT durable.fail('c5', token('c5'), '{"message": "again"}'), take('q'), usage('two');
SELECT durable.cancel_task('c6'), usage('two');
SELECT status FROM durable.task_status('c5');
-- an attempt that backs off holds nothing; when its time has come it waits
SELECT put('c7', 'two') \g /dev/null
SELECT put('c8', 'two') \g /dev/null
SELECT take('q', 1), now_is(4000), take('q', 1), usage('two');
SELECT status FROM durable.task_status('c8');
SELECT now_is(0);
-- one that waits is cancelled
SELECT durable.cancel_task('c8'), durable.cancel_task('c8'), usage('two');
-- settle_and_claim hands a slot on
SELECT put('c9', 'two') \g /dev/null
SELECT usage('two'), (SELECT s.task_id FROM durable.settle_and_claim('c3', token('c3'), NULL, '{q}') s), usage('two');
-- a claim that lapses: its slot is free for the one that waits, which may be the same
SELECT now_is(90000), (SELECT string_agg(task_id || ' ' || reclaims, ', ' ORDER BY task_id) FROM durable.claim('{q}', 10)), usage('two');
SELECT now_is(0);
SELECT id IS NOT NULL AS slot, count(*) FROM durable.limiter_slot GROUP BY 1;
-- nothing is counted that is rolled back
BEGIN;
SELECT count(durable.release(token)) FROM durable.lease;
SELECT usage('two');
ROLLBACK;
SELECT usage('two');
BEGIN;
SELECT count(durable.release(token)) FROM durable.lease;
SAVEPOINT s;
SELECT count(*) FROM durable.claim('{q}', 10);
ROLLBACK TO s;
SELECT usage('two');
SELECT count(*) FROM durable.claim('{q}', 10);
COMMIT;
SELECT usage('two');
SELECT clean(), usage('two');

-- priority first, then age; among other tasks by the same rule
SELECT durable.register_limiter('one', concurrency => 1);
SELECT put('low', 'one'), put('high', 'one', priority => 5), put('other high', 'one', priority => 5);
SELECT durable.dispatch('job', task_id => 'free 0', queue => 'q'), durable.dispatch('job', task_id => 'free 7', queue => 'q', priority => 7);
SELECT take('q');
SELECT done('high'), take('q'), done('other high'), take('q'), done('low');

-- a claim of several queues takes the best of all; a paused queue has no turn
SELECT put('p1', 'one', queue => 'p'), put('q1', 'one', queue => 'q');
SELECT durable.pause_queue('p');
SELECT string_agg(task_id, ',') FROM durable.claim('{p,q}', 10);
SELECT durable.cancel_task('q1'), durable.resume_queue('p');
SELECT string_agg(task_id, ',') FROM durable.claim('{q,p}', 10);
SELECT durable.cancel_task('p1');

-- newest first
SELECT durable.register_limiter('stack', concurrency => 1, ordering => 'lifo');
SELECT put('s' || i, 'stack', 'k' || i % 2) FROM generate_series(1, 4) i \g /dev/null
SELECT take('q'), done('s4'), take('q'), done('s3'), put('s5', 'stack'), take('q'), done('s5'), take('q'), done('s2'), take('q'), done('s1'), take('q');

SELECT clean();
-- each key in its turn: a, b and c have a different number of tasks
SELECT durable.register_limiter('fair', concurrency => 1, fairness => 'key');
SELECT put('a' || i, 'fair', 'a') FROM generate_series(1, 5) i \g /dev/null
SELECT put('b' || i, 'fair', 'b') FROM generate_series(1, 2) i \g /dev/null
SELECT put('c' || i, 'fair', 'c') FROM generate_series(1, 3) i \g /dev/null
CREATE FUNCTION drain(queue text, most int DEFAULT 100) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	got text;
	all_got text[] = '{}';
BEGIN
	FOR i IN 1 .. most LOOP
		got := limiter.take(queue, 1);
		EXIT WHEN got IS NULL;
		all_got := all_got || got;
		PERFORM limiter.done(got);
	END LOOP;
	RETURN array_to_string(all_got, ' ');
END $$;
SELECT drain('q', 4);
-- who was never served comes before who was; who was comes after those that waited since
SELECT put('d1', 'fair', 'd'), put('b3', 'fair', 'b') \g /dev/null
SELECT drain('q');
-- priority goes before fairness, and a turn counts whatever the priority was
SELECT put('a' || i, 'fair', 'a', i % 2) FROM generate_series(11, 14) i \g /dev/null
SELECT put('b' || i, 'fair', 'b', i % 2) FROM generate_series(11, 14) i \g /dev/null
SELECT drain('q');
-- in one claim as in many
SELECT durable.register_limiter('fair', concurrency => 100, fairness => 'key');
SELECT put('a' || i, 'fair', 'a') FROM generate_series(21, 25) i \g /dev/null
SELECT put('b' || i, 'fair', 'b') FROM generate_series(21, 22) i \g /dev/null
SELECT take('q', 4), take('q', 100);
SELECT clean();
SELECT durable.register_limiter('fair', concurrency => 1, fairness => 'key', ordering => 'lifo');
SELECT put('a' || i, 'fair', 'a') FROM generate_series(31, 33) i \g /dev/null
SELECT put('b' || i, 'fair', 'b') FROM generate_series(31, 33) i \g /dev/null
SELECT drain('q');

SELECT clean();
-- so many of a key, so many of all
SELECT durable.register_limiter('keys', concurrency => 3, key_concurrency => 2);
SELECT put('a' || i, 'keys', 'a') FROM generate_series(1, 5) i \g /dev/null
SELECT put('b' || i, 'keys', 'b') FROM generate_series(1, 3) i \g /dev/null
SELECT take('q'), usage('keys');
SELECT done('b1'), take('q');
SELECT done('a1'), take('q');
-- both keys have two as soon as there is room for four
SELECT durable.register_limiter('keys', concurrency => 4, key_concurrency => 2);
SELECT take('q'), usage('keys');
-- more for a key: at once for what was held back
SELECT durable.register_limiter('keys', concurrency => 10, key_concurrency => 3);
SELECT take('q'), usage('keys');
-- fewer: what runs goes on
SELECT durable.register_limiter('keys', concurrency => 10, key_concurrency => 1);
SELECT put('a9', 'keys', 'a'), take('q'), done('a2'), take('q'), done('a3'), done('a4'), take('q'), done('a5'), take('q'), usage('keys');
-- nothing at all
SELECT durable.register_limiter('keys');
SELECT put('a10', 'keys', 'a'), put('a11', 'keys', 'a'), take('q'), usage('keys');
SELECT clean(), usage('keys');

-- pausing
SELECT durable.pause_limiter('one'), durable.pause_limiter('one');
SELECT put('w1', 'one'), take('q'), usage('one');
SELECT paused_at IS NOT NULL AS paused, paused_by = current_user AS by_me FROM durable.limiters WHERE name = 'one';
SELECT durable.resume_limiter('one'), durable.resume_limiter('one'), take('q'), done('w1');

-- a fixed window begins with its first admission
SELECT durable.register_limiter('fixed', rate_limit => 2, rate_period => '1 hour');
CREATE FUNCTION window_of(lim text) RETURNS text LANGUAGE sql AS $$
	SELECT format('%s used, opens in %s min', window_used, round(extract(epoch FROM opens_at - durable.engine_now()) / 60))
	  FROM durable.limiters WHERE name = lim
$$;
SELECT put('f' || i, 'fixed') FROM generate_series(1, 9) i \g /dev/null
SELECT window_of('fixed'), take('q', 1), window_of('fixed'), now_is(1800), take('q'), window_of('fixed');
SELECT now_is(3000), take('q'), window_of('fixed');
SELECT now_is(3700), take('q'), window_of('fixed');
-- slots do not matter for it, and nothing of it comes back
SELECT done('f1'), durable.release(token('f2')), take('q'), usage('fixed');
-- a clock that is put back keeps it shut for one period at most
SELECT now_is(0), take('q'), window_of('fixed');
SELECT durable.register_limiter('fixed', rate_limit => 3, rate_period => '1 hour');
SELECT take('q'), window_of('fixed');
SELECT clean();

-- a sliding one: never more than two in any hour
SELECT durable.register_limiter('sliding', rate_limit => 2, rate_period => '1 hour', rate_kind => 'sliding');
SELECT put('l' || i, 'sliding') FROM generate_series(1, 9) i \g /dev/null
SELECT window_of('sliding'), take('q', 1), window_of('sliding'), now_is(1800), take('q'), window_of('sliding');
SELECT now_is(3000), take('q'), window_of('sliding');
SELECT now_is(3700), take('q'), window_of('sliding');
SELECT now_is(5300), take('q'), window_of('sliding');
SELECT now_is(5500), take('q'), window_of('sliding');
SELECT now_is(20000), window_of('sliding'), take('q'), window_of('sliding');
SELECT durable.register_limiter('sliding', rate_limit => 4, rate_period => '1 hour', rate_kind => 'sliding');
SELECT take('q'), window_of('sliding');
SELECT count(*) FROM durable.limiter_tick;
SELECT now_is(0);
SELECT clean();

-- a task that is delayed joins the waiting when it is due
SELECT durable.dispatch('job', NULL, 'late', 'q', run_at => durable.engine_now() + '1 hour', limiter => 'one');
SELECT put('soon', 'one'), take('q');
SELECT status FROM durable.task_status('late');
SELECT now_is(4000), durable.sweep() ->> 'promoted' AS promoted;
SELECT status FROM durable.task_status('late');
SELECT done('soon'), take('q'), done('late'), now_is(0);

-- many at once, without a key of their own and with one
SELECT count(*) FROM durable.dispatch_many('job', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 600) i), 'q', limiter => 'keys');
SELECT count(*) FROM durable.dispatch_many('job', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, 600) i), 'q', limiter => 'two', fairness_key => 'k');
SELECT usage('keys'), usage('two');
SELECT (SELECT count(*) FROM durable.claim('{q}', 10000)), usage('keys'), usage('two');
SELECT clean();

-- replaced, while it waits and while it is claimed: the slot is that of what was claimed
SELECT durable.register_limiter('l1', concurrency => 1), durable.register_limiter('l2', concurrency => 1);
SELECT durable.dispatch('job', '1', 'r', 'q', limiter => 'l1'), durable.dispatch('job', '2', 'r', 'q', limiter => 'l2', on_conflict => 'replace');
SELECT usage('l1'), usage('l2'), take('q'), usage('l2');
SELECT durable.dispatch('job', '3', 'r', 'q', limiter => 'l1', on_conflict => 'replace'), usage('l1'), usage('l2');
SELECT done('r'), usage('l1'), usage('l2'), take('q'), usage('l1');
SELECT durable.dispatch('job', '4', 'r', 'q', on_conflict => 'replace'), done('r'), usage('l1'), take('q'), done('r');
SELECT durable.dispatch('job', '5', 'r', 'q', limiter => 'l1', on_conflict => 'replace'), take('q'), usage('l1');
SELECT durable.dispatch('job', '6', 'r', 'q', on_conflict => 'replace'), durable.cancel_task('r'), usage('l1');

-- dropping
SELECT put('last', 'one') \g /dev/null
SELECT durable.drop_limiter('one');
SELECT take('q') \g /dev/null
SELECT durable.drop_limiter('one');
SELECT done('last'), durable.drop_limiter('one'), durable.drop_limiter('one'), durable.drop_limiter('never was');
SELECT clean();
SELECT put('x', 'one');
-- another one of the same name begins anew
SELECT durable.register_limiter('one', concurrency => 1);
SELECT put('x', 'one'), put('y', 'one'), drain('q');

SELECT clean();
-- a copy of the database: what was claimed waits again
SELECT put('x' || i, 'two', 'k' || i) FROM generate_series(1, 3) i \g /dev/null
SELECT put('late', 'fixed') \g /dev/null
SELECT take('q'), usage('two');
SELECT durable.activate();
SELECT usage('two'), usage('fixed'), (SELECT count(*) FROM durable.limiter_slot);
SELECT take('q'), usage('two'), usage('fixed');
SELECT clean();
SELECT rescued FROM durable.scan_hints();
DROP SCHEMA limiter CASCADE;
