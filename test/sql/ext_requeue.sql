-- external workflows: runs that are requeued, cancelled and lost; steps with a policy
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE SCHEMA ext_requeue;
RESET client_min_messages;
SET search_path = ext_requeue;

CREATE FUNCTION runs(pattern text) RETURNS TABLE (run_id text, status text, turn text, output jsonb, code text, message text, recovered int)
LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, output, error ->> 'code', error ->> 'message', recovery_attempts FROM durable.run
	 WHERE run_id LIKE pattern ORDER BY id
$$;
CREATE FUNCTION history(run text) RETURNS TABLE (seq int, kind text, name text, status text, attempts int, output jsonb, message text, has_task boolean)
LANGUAGE sql AS $$
	SELECT seq, kind, name, status, attempts, output, error ->> 'message', task IS NOT NULL FROM durable.history(run)
$$;
CREATE VIEW leftovers AS
SELECT (SELECT count(*) FROM durable.task) AS tasks, (SELECT count(*) FROM durable.task_ready) AS ready,
       (SELECT count(*) FROM durable.task_delayed) AS delayed, (SELECT count(*) FROM durable.task_deadline) AS deadlines,
       (SELECT count(*) FROM durable.lease) AS leases, (SELECT count(*) FROM durable.waiter) AS waiters;
-- One turn of the queue: claims, shows what it was handed, decides.
CREATE FUNCTION turn(decision jsonb, queue text DEFAULT 'w') RETURNS TABLE (run text, history text, reclaims int, applied boolean)
LANGUAGE plpgsql AS $$
DECLARE
	t record;
BEGIN
	FOR t IN SELECT * FROM durable.claim(ARRAY[queue]) LOOP
		run := t.run_id;
		history := (SELECT string_agg(concat_ws(' ', h ->> 'seq', h ->> 'kind', h ->> 'name', h ->> 'status',
				h -> 'output', h #>> '{error,message}'), ', ' ORDER BY n)
			FROM jsonb_array_elements(t.input -> 'history') WITH ORDINALITY a(h, n));
		reclaims := t.reclaims;
		applied := durable.complete_turn(t.task_id, t.token, decision);
		RETURN NEXT;
	END LOOP;
END $$;
-- Whatever the worker "s" has to do.
CREATE FUNCTION settle(output jsonb, error jsonb DEFAULT NULL, queue text DEFAULT 's') RETURNS TABLE (seq int, attempt int, max_attempts int, settled boolean)
LANGUAGE plpgsql AS $$
DECLARE
	c record;
BEGIN
	FOR c IN SELECT * FROM durable.claim(ARRAY[queue], 10) x ORDER BY x.seq LOOP
		seq := c.seq;
		attempt := c.attempt;
		max_attempts := (SELECT t.max_attempts FROM durable.task t WHERE t.id = ltrim(c.task_id, '~')::bigint);
		settled := CASE WHEN error IS NULL THEN durable.complete(c.task_id, c.token, output)
			ELSE durable.fail(c.task_id, c.token, error) END;
		RETURN NEXT;
	END LOOP;
END $$;
-- All claims lapse.
CREATE FUNCTION lapse() RETURNS bigint LANGUAGE sql AS $$
	WITH l AS (UPDATE durable.lease SET lease_until = now() - interval '1 s' RETURNING 1) SELECT count(*) FROM l
$$;
SELECT durable.register_workflow('w');

--
-- requeued while its turn is out: there is another one at once, and the first one's claim is void
--
SELECT durable.start('w', NULL, 'live'), durable.start('w', NULL, 'beside');
SELECT array_agg(run_id) AS runs FROM durable.claim('{w}', 2, history => 5) \gset
SELECT :'runs';
SELECT token, (SELECT '~' || id FROM durable.run WHERE run_id = 'live') AS live, (SELECT '~' || id FROM durable.run WHERE run_id = 'beside') AS beside
  FROM durable.lease \gset t_
SELECT durable.record_step(:'t_live', :'t_token', 0, 'a', '1');
SELECT durable.requeue('live');
SELECT * FROM runs('live');
SELECT durable.complete_turn(:'t_live', :'t_token', '{"status": "completed"}') AS complete, durable.record_step(:'t_live', :'t_token', 1, 'b') AS record,
       durable.heartbeat(:'t_live', :'t_token') AS beat, durable.release(:'t_token', ARRAY[:'t_live']) AS release, durable.renew(:'t_token') AS left;
SELECT * FROM history('live');
-- what was recorded is handed to the next one; the other turn of the round is not concerned
SELECT * FROM turn('{"status": "completed", "output": "new"}');
SELECT durable.complete_turn(:'t_beside', :'t_token', '{"status": "completed", "output": "old"}');
SELECT durable.complete_turn(:'t_live', :'t_token', '{"status": "completed"}');
SELECT * FROM runs('%');
SELECT count(*) FROM durable.claim('{w}');
-- rolled back, the claim is as good as before
SELECT durable.start('w', NULL, 'back');
SELECT task_id, token FROM durable.claim('{w}') \gset t_
BEGIN;
SELECT durable.requeue('back');
SELECT durable.complete_turn(:'t_task_id', :'t_token', '{"status": "completed"}');
ROLLBACK;
SELECT durable.complete_turn(:'t_task_id', :'t_token', '{"status": "completed"}');
SELECT * FROM runs('back');
SELECT lapse() >= 0 AS lapsed;
SELECT count(*) FROM durable.claim('{w}');

--
-- requeued while it waits: a turn, and what is out stays out
--
SELECT durable.start('w', NULL, 'waits');
\set waits '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s"}, {"type": "wait_signal", "seq": 1, "signal": "go"}, {"type": "start_child", "seq": 2, "workflow": "w", "child_id": "kid", "await": false}]}'
SELECT * FROM turn(:'waits');
SELECT durable.cancel('kid');
SELECT durable.requeue('waits');
SELECT status, turn_state, wakes FROM durable.run WHERE run_id = 'waits';
SELECT * FROM turn(:'waits');
SELECT * FROM runs('waits');
SELECT * FROM settle('"once"');
SELECT * FROM turn(:'waits');
SELECT durable.signal('go', '1');
SELECT * FROM turn('{"status": "completed"}');
-- cancelled right after it was requeued: nothing of it is left, and a signal for it is kept
SELECT durable.start('w', NULL, 'gone');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s"}, {"type": "wait_signal", "seq": 1, "signal": "go"}]}');
SELECT durable.requeue('gone'), durable.cancel('gone');
SELECT * FROM runs('gone');
SELECT tasks, ready, delayed, waiters FROM leftovers;
SELECT durable.signal('go', '1');
TRUNCATE durable.signal_buffer;
-- cancelled while the turn that the requeue made is out
SELECT durable.start('w', NULL, 'gone2');
SELECT task_id, token FROM durable.claim('{w}') \gset old_
SELECT durable.requeue('gone2');
SELECT task_id, token FROM durable.claim('{w}') \gset new_
SELECT durable.cancel('gone2');
SELECT durable.complete_turn(:'old_task_id', :'old_token', '{"status": "completed"}') AS old,
       durable.complete_turn(:'new_task_id', :'new_token', '{"status": "completed"}') AS new,
       durable.heartbeat(:'new_task_id', :'new_token') AS beat;
SELECT durable.requeue('gone2');
SELECT * FROM runs('gone2');
SELECT lapse() > 0 AS lapsed;
SELECT count(*) FROM durable.claim('{w,s}');
SELECT * FROM leftovers;

--
-- it failed: everything that failed is pending, and the body asks for it again
--
SELECT durable.register_workflow('child');
SELECT durable.start('w', NULL, 'fails', priority => 2, headers => '{"h": 1}');
SELECT id AS number FROM durable.run WHERE run_id = 'fails' \gset
SELECT input -> 'since' AS since, durable.release(token) FROM durable.claim('{w}') \gset first_
SELECT input -> 'since' AS since, durable.release(token) FROM durable.claim('{w}') \gset second_
SELECT :first_since = :second_since AS same, abs(extract(epoch FROM now()) - :first_since / 1000) < 600 AS now;
SELECT '{"type": "call", "seq": 2, "name": "s", "retries": 2}, {"type": "start_child", "seq": 3, "workflow": "child", "child_id": "kid2"}' AS all \gset
SELECT '{"status": "continue", "commands": [{"type": "record_step", "seq": 1, "name": "bad", "output": 4}, ' || :'all' || ']}' AS with_record,
       '{"status": "continue", "commands": [' || :'all' || ']}' AS without \gset
SELECT * FROM turn(('{"status": "continue", "commands": [{"type": "record_step", "seq": 0, "name": "good", "output": 1},
	{"type": "record_step", "seq": 1, "name": "bad", "error": "broken", "attempts": 4}, {"type": "wait_signal", "seq": 4, "signal": "late", "timeout_ms": 0}, ' || :'all' || ']}')::jsonb);
SELECT * FROM turn('{"status": "failed"}', 'child');
SELECT * FROM settle(NULL, '{"message": "no", "retryable": false}');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "wait_signal", "seq": 4, "signal": "late"}]}');
SELECT * FROM turn('{"status": "failed", "error": "given up"}');
SELECT * FROM runs('fails');
SELECT * FROM history('fails');
-- where it is served by then
SELECT durable.register_workflow('w', queue => 'elsewhere');
SELECT durable.retry('fails');
SELECT * FROM runs('%');
SELECT id = :number AS same FROM durable.run WHERE run_id = 'fails';
SELECT kind, name, run_id, queue, priority, reclaims FROM durable.task ORDER BY id;
SELECT * FROM history('fails');
SELECT count(*) FROM durable.claim('{w}');
-- recorded before the turn ends, and again with the decision, where it changes nothing
SELECT task_id, token, headers FROM durable.claim('{elsewhere}') \gset t_
SELECT :'t_headers' AS headers;
-- what was kept from before is void
SELECT durable.release(:'t_token');
SELECT task_id, token, input -> 'since' AS since FROM durable.claim('{elsewhere}') \gset t_
SELECT :t_since > :first_since AS later;
SELECT durable.record_step(:'t_task_id', :'t_token', 1, 'other', '2');
SELECT durable.record_step(:'t_task_id', :'t_token', 0, 'good', '2') AS done_before, durable.record_step(:'t_task_id', :'t_token', 1, 'bad', '2') AS now,
       durable.record_step(:'t_task_id', :'t_token', 1, 'bad', '3') AS twice;
SELECT durable.complete_turn(:'t_task_id', :'t_token', :'with_record');
SELECT * FROM history('fails');
SELECT kind, name, run_id, seq, max_attempts, headers FROM durable.task ORDER BY id;
SELECT * FROM settle('"good"');
SELECT * FROM turn(:'without', 'elsewhere');
SELECT * FROM turn('{"status": "completed", "output": "child"}', 'child');
SELECT * FROM turn('{"status": "completed", "output": "all"}', 'elsewhere');
SELECT * FROM runs('%fails');
SELECT * FROM history('fails');
SELECT lapse() >= 0 AS lapsed;
SELECT count(*) FROM durable.claim('{w,elsewhere,child,s}');
SELECT * FROM leftovers;
-- the decision alone records it, too, and that is progress
SELECT durable.register_workflow('w');
SELECT durable.start('w', NULL, 'fails2');
SELECT * FROM turn('{"status": "failed", "error": "x", "commands": [{"type": "record_step", "seq": 0, "name": "bad", "error": "broken"}]}');
SELECT durable.requeue('fails2');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "record_step", "seq": 0, "name": "bad", "output": 1, "attempts": 2}]}');
SELECT * FROM history('fails2');
SELECT * FROM turn('{"status": "completed"}');
-- a fan that failed: only what did is done again, and the run is woken when all of that is there
SELECT durable.start('w', NULL, 'fan');
SELECT '{"status": "continue", "await_all": [0, 3], "commands": [' || string_agg(format('{"type": "call", "seq": %s, "name": "s"}', i), ', ') || ']}' AS fan
  FROM generate_series(0, 3) i \gset
SELECT * FROM turn(:'fan');
SELECT seq, durable.fail(task_id, token, '"no"') FROM durable.claim('{s}', 2) ORDER BY seq;
SELECT awaited_first, awaited_last, awaited_on, turn_state FROM durable.run WHERE run_id = 'fan';
SELECT * FROM settle('1');
SELECT * FROM turn('{"status": "failed", "error": "some failed"}');
SELECT durable.requeue('fan');
SELECT * FROM turn('{"status": "continue", "await_all": [0, 3], "commands": [{"type": "call", "seq": 0, "name": "s"}, {"type": "call", "seq": 1, "name": "s"}]}');
SELECT awaited_first, awaited_last, awaited_on, turn_state FROM durable.run WHERE run_id = 'fan';
SELECT seq, durable.complete(task_id, token, '2') FROM durable.claim('{s}');
SELECT awaited_first, awaited_last, awaited_on, turn_state FROM durable.run WHERE run_id = 'fan';
SELECT * FROM settle('2');
SELECT * FROM turn('{"status": "completed"}');
-- a step whose task was lost
SELECT durable.start('w', NULL, 'lost');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s"}]}');
DELETE FROM durable.task WHERE run_id = 'lost' AND kind = 'step';
TRUNCATE durable.task_ready;
SELECT durable.redispatch('lost');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s"}]}');
SELECT * FROM settle('1');
SELECT * FROM turn('{"status": "completed"}');
-- a new run for the same
SELECT durable.start('w', '{"a": 1}', 'input');
SELECT * FROM turn('{"status": "failed"}');
SELECT durable.retry_with_input('input', '{"a": 2}') LIKE 'input~retry~%' AS named;
SELECT input -> 'input' AS input, durable.complete_turn(task_id, token, '{"status": "completed"}') FROM durable.claim('{w}');
-- the workflow of a run must be there
SELECT durable.start('w', NULL, 'orphan');
SELECT * FROM turn('{"status": "failed"}');
SELECT durable.start('w', NULL, 'in use');
SELECT durable.unregister_workflow('w');
SELECT * FROM turn('{"status": "completed"}');
SELECT durable.unregister_workflow('w');
SELECT durable.requeue('orphan');
SELECT durable.register_workflow('w');
SELECT durable.requeue('orphan');
SELECT * FROM turn('{"status": "completed"}');

--
-- lost by its worker: counted until there is progress, and in all
--
SELECT durable.start('w', NULL, 'lapses');
SET durable.max_recovery_attempts = 3;
SELECT reclaims FROM durable.claim('{w}');
SELECT lapse();
SELECT reclaims, token, task_id FROM durable.claim('{w}') \gset t_
SELECT :t_reclaims AS reclaims, durable.record_step(:'t_task_id', :'t_token', 0, 'a') AS progress;
SELECT * FROM runs('lapses');
SELECT lapse();
SELECT reclaims FROM durable.claim('{w}');
SELECT * FROM runs('lapses');
-- what a worker hands back is not counted
SELECT durable.release(token) FROM durable.lease;
SELECT reclaims FROM durable.claim('{w}');
SELECT lapse();
SELECT reclaims, task_id, token FROM durable.claim('{w}') \gset t_
SELECT :t_reclaims AS reclaims;
SELECT * FROM runs('lapses');
SELECT lapse();
SELECT count(*) FROM durable.claim('{w}');
SELECT * FROM runs('lapses');
SELECT durable.complete_turn(:'t_task_id', :'t_token', '{"status": "completed"}');
-- from the beginning
SELECT durable.requeue('lapses');
SELECT * FROM runs('lapses');
SELECT reclaims FROM durable.claim('{w}');
SELECT lapse();
SELECT * FROM turn('{"status": "completed"}');
SELECT * FROM runs('lapses');
-- who waits for it is told, and takes it along when tried again
SELECT durable.start('w', NULL, 'parent');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "child", "child_id": "lost kid"}]}');
SET durable.max_reclaims = 0;
SELECT count(*) FROM durable.claim('{child}');
SELECT lapse();
SELECT count(*) FROM durable.claim('{child}');
SELECT * FROM turn('{"status": "failed", "error": "lost my kid"}');
SELECT * FROM runs('parent');
SELECT * FROM runs('lost kid');
SELECT durable.requeue('parent');
SELECT * FROM runs('lost kid');
RESET durable.max_reclaims;
RESET durable.max_recovery_attempts;
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "start_child", "seq": 0, "workflow": "child", "child_id": "lost kid"}]}');
SELECT * FROM turn('{"status": "completed", "output": 1}', 'child');
SELECT * FROM turn('{"status": "completed"}');

--
-- the policy and the timeouts of steps
--
CREATE FUNCTION serve(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"served"'::jsonb $$;
SELECT durable.register_handler('served', 'ext_requeue.serve', retries => 3, timeout => '1 h', jitter => true);
SELECT durable.start('w', NULL, 'policy');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "served"}, {"type": "call", "seq": 1, "name": "served", "retries": 1, "jitter": false, "timeout_ms": 3600500, "pickup_timeout_ms": 3601000.5},
	{"type": "call", "seq": 2, "name": "s", "pickup_timeout_ms": 3600000}]}');
SELECT seq, queue LIKE '#%' AS own, max_attempts, backoff_exp, jitter, timeout, pickup_timeout FROM durable.task WHERE kind = 'step' ORDER BY seq;
SELECT queue, count(*) FROM durable.task_deadline GROUP BY 1;
-- nobody picks it up
UPDATE durable.task_deadline SET due_at = now() - interval '1 s' WHERE id = (SELECT id FROM durable.task WHERE seq = 2 AND kind = 'step');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "served"}, {"type": "call", "seq": 1, "name": "served"}]}');
SELECT seq, error ->> 'code' AS code FROM durable.history('policy') WHERE status = 'failed';
CALL durable.work(duration => '0');
SELECT seq, kind, name, status, output, attempts FROM durable.history('policy') ORDER BY seq;
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "completed"}') FROM durable.claim('{w}');
SELECT * FROM runs('policy');
SELECT lapse() >= 0 AS lapsed;
SELECT count(*) FROM durable.claim('{w,child,s}');
SELECT * FROM leftovers;
SELECT durable.start('w', NULL, 'bad' || i) FROM generate_series(1, 4) i;
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s", "timeout_ms": 0}]}');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s", "timeout_ms": "1 h"}]}');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s", "pickup_timeout_ms": 1e13}]}');
SELECT * FROM turn('{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "s", "pickup_timeout_ms": -1}]}');
SELECT message FROM runs('bad%');

--
-- a session of the database leaves them alone; checks of the input are made by start
--
SELECT durable.unregister_handler('served');
SELECT durable.start('w', NULL, 'mine');
CALL durable.work(duration => '0');
CALL durable.work('{w}', duration => '0');
SELECT * FROM turn('{"status": "completed"}');
CREATE FUNCTION has_n(i jsonb) RETURNS boolean LANGUAGE sql AS $$ SELECT i ? 'n' $$;
SELECT durable.register_workflow('w', input_check => 'ext_requeue.has_n');
SELECT durable.start('w', '{}', 'refused');
SELECT durable.start('w', '{"n": 1}', 'accepted');
SELECT * FROM turn('{"status": "completed"}');

--
-- activate(): turns that are out go back to their queue, those that are waited for elsewhere stay there
--
SELECT durable.register_workflow('w');
SELECT durable.start('w', NULL, run) FROM unnest('{out,sleeps,parked}'::text[]) run;
SELECT run_id, durable.complete_turn(task_id, token, CASE run_id
	WHEN 'sleeps' THEN '{"status": "continue", "commands": [{"type": "sleep", "seq": 0, "ms": 3600000}]}'
	ELSE '{"status": "continue", "commands": [{"type": "wait_signal", "seq": 0, "signal": "go"}]}' END::jsonb)
  FROM (SELECT * FROM durable.claim('{w}', 3) OFFSET 0) c WHERE run_id <> 'out';
SELECT durable.activate();
SELECT run_id, turn_state, (SELECT count(*) FROM durable.task_ready t WHERE t.id = r.id) AS ready,
       (SELECT count(*) FROM durable.task_delayed t WHERE t.id = r.id) AS delayed
  FROM durable.run r WHERE run_id IN ('out', 'sleeps', 'parked') ORDER BY run_id;
SELECT run_id, durable.complete_turn(task_id, token, '{"status": "completed"}') FROM (SELECT * FROM durable.claim('{w}', 3) OFFSET 0) c;
SELECT durable.cancel('sleeps'), durable.cancel('parked');
SELECT * FROM leftovers;

SET client_min_messages = warning;
DROP EXTENSION durable CASCADE;
DROP SCHEMA ext_requeue CASCADE;
