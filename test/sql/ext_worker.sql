-- workers announce themselves; requirements, protocols, silence; starts by convention
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
RESET client_min_messages;

CREATE FUNCTION runs(pattern text DEFAULT '%') RETURNS TABLE (run_id text, status text, turn text, waits boolean, message text, code text, retryable text, queue text, row_there boolean)
LANGUAGE sql AS $$
	SELECT r.run_id, r.status, r.turn_state, r.wake_at IS NOT NULL, r.error ->> 'message', r.error ->> 'code', r.error ->> 'retryable', r.error ->> 'queue',
	       EXISTS (SELECT FROM durable.run_blocked b WHERE b.run = r.id)
	  FROM durable.run r WHERE r.run_id LIKE pattern ORDER BY r.id
$$;
CREATE FUNCTION steps(run text) RETURNS text LANGUAGE sql AS $$
	SELECT string_agg(concat_ws(' ', c.seq, c.kind, c.name, c.status, c.output, CASE WHEN c.kind = 'step' AND c.task IS NULL THEN '(not dispatched)' END), ', ' ORDER BY c.seq)
	  FROM durable.history(run) c
$$;
CREATE FUNCTION claimed(queue text, worker text DEFAULT NULL) RETURNS text LANGUAGE sql AS $$
	SELECT coalesce(string_agg(concat_ws(' ', kind, name, run_id), ', '), 'nothing') FROM durable.claim(ARRAY[queue], 10, worker => worker)
$$;

--
-- announcing
--
SELECT durable.protocol();
SELECT durable.announce_worker('w1', '{b,a,b}', '{flow}', status => '{"status": "up", "inFlight": 3}');
SELECT worker, kind, role = current_user::regrole AS mine, live, state, queues, workflows, capabilities, protocol, compatible, status, expires_at - last_seen AS ttl, first_seen = last_seen AS new
  FROM durable.workers WHERE kind = 'external';
-- the row is written again, in place; nothing else is
SELECT first_seen AS seen FROM durable.worker \gset
SELECT durable.announce_worker('w1', '{a,b}', '{flow,other}', status => '{"status": "draining"}', ttl => '1 minute') ->> 'outcome' AS outcome;
SELECT worker, state, workflows, expires_at - last_seen AS ttl, first_seen = :'seen' AS kept FROM durable.workers WHERE kind = 'external';
SELECT queue, worker FROM durable.worker_queue ORDER BY 1;
SELECT durable.announce_worker('w1', '{c,b}') ->> 'outcome' AS outcome;
SELECT queue, worker FROM durable.worker_queue ORDER BY 1;
-- what it can do, and how it gets along
SELECT durable.announce_worker('w2', '{a}', capabilities => '{}');
SELECT durable.announce_worker('w2', '{a}', capabilities => '{signals,gpu,gpu}', protocol => '{1,4}');
SELECT durable.announce_worker('w2', '{a}', protocol => '{2,3}');
SELECT worker, capabilities, protocol, compatible FROM durable.workers WHERE kind = 'external' AND worker = 'w2';
-- gone
SELECT durable.withdraw_worker('w2'), durable.withdraw_worker('w2'), durable.withdraw_worker('nobody');
SELECT worker FROM durable.workers WHERE kind = 'external';
SELECT queue, worker FROM durable.worker_queue ORDER BY 1;
-- not alive any more, and later not there
SET durable.clock_offset = 36;
SELECT worker, live FROM durable.workers WHERE kind = 'external';
SELECT durable.sweep() IS NOT NULL;
SELECT worker, live FROM durable.workers WHERE kind = 'external';
SET durable.clock_offset = 400;
SELECT durable.sweep() IS NOT NULL;
SELECT worker, live FROM durable.workers WHERE kind = 'external';
SELECT count(*) FROM durable.worker_queue;
RESET durable.clock_offset;

-- bad input changes nothing
SELECT durable.announce_worker(NULL, '{a}');
SELECT durable.announce_worker('', '{a}');
SELECT durable.announce_worker(repeat('x', 256), '{a}');
SELECT durable.announce_worker('durable.work', '{a}');
SELECT durable.announce_worker('w', NULL);
SELECT durable.announce_worker('w', '{}');
SELECT durable.announce_worker('w', '{NULL}');
SELECT durable.announce_worker('w', '{""}');
SELECT durable.announce_worker('w', '{#10}');
SELECT durable.announce_worker('w', (SELECT array_agg('q' || i) FROM generate_series(1, 257) i));
SELECT durable.announce_worker('w', '{a}', '{NULL}');
SELECT durable.announce_worker('w', '{a}', (SELECT array_agg('f' || i) FROM generate_series(1, 1001) i));
SELECT durable.announce_worker('w', '{a}', capabilities => '{a,NULL}');
SELECT durable.announce_worker('w', '{a}', capabilities => (SELECT array_agg('c' || i) FROM generate_series(1, 257) i));
SELECT durable.announce_worker('w', '{a}', capabilities => ARRAY[repeat('x', 256)]);
SELECT durable.announce_worker('w', '{a}', protocol => '{}');
SELECT durable.announce_worker('w', '{a}', protocol => '{1}');
SELECT durable.announce_worker('w', '{a}', protocol => '{1,2,3}');
SELECT durable.announce_worker('w', '{a}', protocol => '{1,NULL}');
SELECT durable.announce_worker('w', '{a}', protocol => '{2,1}');
SELECT durable.announce_worker('w', '{a}', protocol => '{0,1}');
SELECT durable.announce_worker('w', '{a}', status => '[]');
SELECT durable.announce_worker('w', '{a}', status => jsonb_build_object('x', repeat('y', 9000)));
SELECT durable.announce_worker('w', '{a}', ttl => NULL);
SELECT durable.announce_worker('w', '{a}', ttl => '0.9 s');
SELECT durable.announce_worker('w', '{a}', ttl => '1 hour 1 second');
SELECT durable.announce_worker('w', '{a}', ttl => '-1 minute');
SELECT durable.announce_worker('w', '{a}', namespace => repeat('n', 256));
SELECT durable.withdraw_worker(NULL);
SELECT count(*) FROM durable.worker;

--
-- names belong to the role that announced them
--
CREATE ROLE durable_test_a;
CREATE ROLE durable_test_b;
CREATE ROLE durable_test_reader;
SELECT durable.grant_usage('durable_test_a'), durable.grant_usage('durable_test_b', privileges => '{work,start}'), durable.grant_usage('durable_test_reader', privileges => '{read}');
SET ROLE durable_test_a;
SELECT durable.announce_worker('mine', '{a}') ->> 'outcome' AS outcome;
SELECT durable.announce_worker('mine', '{a}', namespace => 'other');
SET ROLE durable_test_b;
SELECT durable.announce_worker('mine', '{b}');
SELECT durable.withdraw_worker('mine');
SELECT durable.announce_worker('b''s', '{b}') ->> 'outcome' AS outcome;
SET ROLE durable_test_reader;
SELECT durable.announce_worker('reader', '{a}');
SELECT worker, live FROM durable.workers WHERE kind = 'external' ORDER BY 1;
SELECT queue, live_workers, workers FROM durable.queue_workers();
SELECT queue FROM durable.queue_workers('other');
SELECT workflow FROM durable.workflow_directory('other');
RESET ROLE;
-- not even when it is not alive; then it goes
SET durable.clock_offset = 60;
SET ROLE durable_test_b;
SELECT durable.announce_worker('mine', '{b}');
RESET ROLE;
RESET durable.clock_offset;
-- who may not work any more is no worker any more
SELECT durable.revoke_usage('durable_test_b', privileges => '{work}');
SELECT worker, (SELECT array_agg(queue) FROM durable.worker_queue q WHERE q.worker = w.worker) FROM durable.worker w ORDER BY 1;
SELECT durable.grant_usage('durable_test_b', privileges => '{work}');
-- a role that is gone
SELECT durable.revoke_usage('durable_test_a', privileges => '{start,signal,read}');
UPDATE durable.worker SET role = 4000000000::oid::regrole WHERE worker = 'mine';
SET ROLE durable_test_b;
SELECT durable.announce_worker('mine', '{b}') ->> 'outcome' AS outcome;
SELECT durable.withdraw_worker('mine');
RESET ROLE;

--
-- a step that requires something
--
CREATE FUNCTION picky(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step('render', i, requires => ARRAY['gpu', 'avx', 'gpu']);
END $$;
SELECT durable.register_workflow('picky', 'picky');
-- nobody has announced himself: nothing is known, and it goes out
SELECT durable.start('picky', '0', 'p0');
CALL durable.work(duration => '0');
SELECT * FROM runs('p0');
SELECT requires FROM durable.task WHERE kind = 'step';
-- and may be had by whoever comes
SELECT claimed('render');
-- somebody has, who cannot do it
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{avx}') ->> 'outcome' AS outcome;
SELECT durable.start('picky', '1', 'p1');
CALL durable.work(duration => '0');
SELECT * FROM runs('p1');
SELECT steps('p1');
SELECT claimed('render', 'cpu');
-- it does not look all the time
CALL durable.work(duration => '0');
SELECT r.wake_at - durable.engine_now() BETWEEN '3 s' AND '5 s' AS in_a_while FROM durable.run r WHERE run_id = 'p1';
-- for waiting it is as good as suspended
CALL durable.wait_for_run('p1', '1 minute', false);
-- the net: it looks again, finds the same, and waits again
SET durable.clock_offset = 6;
CALL durable.work(duration => '0');
SELECT * FROM runs('p1');
RESET durable.clock_offset;
-- a beat of the one that cannot wakes nobody, one who can does, at once
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{avx}') ->> 'outcome' AS outcome;
SELECT * FROM runs('p1');
SELECT durable.announce_worker('gpu', '{other,render}', capabilities => '{avx,gpu,signals}') ->> 'outcome' AS outcome;
SELECT * FROM runs('p1');
CALL durable.work(duration => '0');
SELECT * FROM runs('p1');
SELECT steps('p1');
-- it is for those who can
SELECT claimed('render', 'cpu'), claimed('render', 'stranger'), claimed('render');
SELECT task_id, token FROM durable.claim('{render}', worker => 'gpu') \gset
SELECT durable.complete(:'task_id', :'token', '"done"');
CALL durable.work(duration => '0');
SELECT durable.result('p1');
-- the worker that can is withdrawn: the next one is blocked; gone altogether: unknown again
SELECT durable.withdraw_worker('gpu');
SELECT durable.start('picky', '2', 'p2');
CALL durable.work(duration => '0');
SELECT * FROM runs('p2');
SELECT durable.withdraw_worker('cpu');
SET durable.clock_offset = 6;
CALL durable.work(duration => '0');
SELECT * FROM runs('p2');
RESET durable.clock_offset;
SELECT durable.cancel('p2'), durable.cancel('p0');

-- cancelled, requeued and woken by something else while it is blocked
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{}') ->> 'outcome' AS outcome;
SELECT durable.start_many('picky', '{1,2}', '{p3,p4}');
CALL durable.work(duration => '0');
SELECT durable.cancel('p3'), durable.requeue('p4');
SELECT * FROM runs('p3'), (SELECT count(*) AS tasks FROM durable.task t WHERE t.run_id = 'p3') x;
SELECT * FROM runs('p4');
CALL durable.work(duration => '0');
SELECT * FROM runs('p4');
SELECT durable.cancel('p4');

-- two steps at once: the one that can goes out; its result wakes, the run is blocked again
CREATE FUNCTION pair(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	a int := durable.step_async('render', '1', requires => '{gpu}');
	b int := durable.step_async('plain', '2');
BEGIN
	RETURN to_jsonb(durable.await_all(ARRAY[a, b]));
END $$;
SELECT durable.register_workflow('pair', 'pair');
SELECT durable.start('pair', NULL, 'b1');
CALL durable.work(duration => '0');
SELECT * FROM runs('b1');
SELECT steps('b1');
SELECT durable.complete(task_id, token, '"b"') FROM durable.claim('{plain}');
CALL durable.work(duration => '0');
SELECT * FROM runs('b1');
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{gpu}') ->> 'outcome' AS outcome;
CALL durable.work(duration => '0');
SELECT durable.complete(task_id, token, '"a"') FROM durable.claim('{render}', worker => 'cpu');
CALL durable.work(duration => '0');
SELECT durable.result('b1');

-- a fan is blocked as a whole, and none of it twice
CREATE FUNCTION fan(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(durable.step_all('render', ARRAY['1', '2', '3']::jsonb[], max_in_flight => 2, requires => '{gpu}'));
END $$;
SELECT durable.register_workflow('fan', 'fan');
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{}') ->> 'outcome' AS outcome;
SELECT durable.start('fan', NULL, 'f1');
CALL durable.work(duration => '0');
SELECT * FROM runs('f1');
SELECT steps('f1');
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{gpu}') ->> 'outcome' AS outcome;
CALL durable.work(duration => '0');
SELECT steps('f1');
SELECT count(durable.complete(task_id, token, input)) FROM durable.claim('{render}', 10, worker => 'cpu');
SELECT count(durable.complete(task_id, token, input)) FROM durable.claim('{render}', 10, worker => 'cpu');
CALL durable.work(duration => '0');
SELECT durable.result('f1');

-- a step that nobody waits for goes out with the end of its run
CREATE FUNCTION careless(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.step_async('render', '1', requires => '{tpu}');
	RETURN '"ended"';
END $$;
SELECT durable.register_workflow('careless', 'careless');
SELECT durable.start('careless', NULL, 'c1');
CALL durable.work(duration => '0');
SELECT * FROM runs('c1');
SELECT count(*) AS dispatched FROM durable.task WHERE run_id = 'c1';
-- steps between: the run goes on until it waits
CREATE FUNCTION note(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"noted"'::jsonb $$;
CREATE FUNCTION amid(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	h int := durable.step_async('render', '1', requires => '{tpu}');
	n jsonb := durable.local_step('note');
BEGIN
	RETURN durable.await(h);
END $$;
SELECT durable.register_workflow('amid', 'amid'), durable.register_workflow('amid_atomic', 'amid', atomic => true);
SELECT durable.start('amid', NULL, 'n1'), durable.start('amid_atomic', NULL, 'n2');
CALL durable.work(duration => '0');
SELECT * FROM runs('n_');
SELECT steps('n1'), steps('n2');
SELECT durable.announce_worker('cpu', '{render}', capabilities => '{tpu}') ->> 'outcome' AS outcome;
CALL durable.work(duration => '0');
SELECT durable.complete(task_id, token, '"drawn"') FROM durable.claim('{render}', 10, worker => 'cpu') WHERE run_id <> 'c1';
CALL durable.work(duration => '0');
SELECT durable.result('n1'), durable.result('n2');

-- what is served in the database needs nobody
CREATE FUNCTION draw(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"drawn"'::jsonb $$;
SELECT durable.register_handler('render', 'draw');
SELECT durable.start('picky', NULL, 'p5');
CALL durable.work(duration => '0');
SELECT durable.result('p5');
SELECT durable.unregister_handler('render');

-- bad requirements
CREATE FUNCTION wrong(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.step('x', requires => ARRAY(SELECT jsonb_array_elements_text(i)));
END $$;
SELECT durable.register_workflow('wrong', 'wrong');
SELECT durable.start_many('wrong', ARRAY['[null]', '[""]', '[]', (SELECT jsonb_agg('c' || i) FROM generate_series(1, 65) i)]::jsonb[], '{x1,x2,x3,x4}');
CALL durable.work(duration => '0');
SELECT run_id, status, error ->> 'message' AS message, error ->> 'detail' AS detail FROM durable.run WHERE workflow = 'wrong' ORDER BY id;
SELECT durable.register_workflow('w', requires => '{a,NULL}');
SELECT durable.register_workflow('w', requires => '{""}');
SELECT durable.register_workflow('wrong', 'wrong', requires => '{gpu}');
SELECT durable.register_workflow('wrong', 'wrong', turn_silence => '1 minute');
SELECT durable.withdraw_worker('cpu');
SELECT count(durable.cancel(run_id)) FROM durable.run WHERE finished_at IS NULL;

--
-- an external workflow that requires something
--
SELECT durable.register_workflow('train', requires => '{gpu,gpu}');
SELECT name, requires FROM durable.workflow WHERE name = 'train';
SELECT durable.start('train', NULL, 't1');
-- nobody is known
SELECT task_id, token FROM durable.claim('{train}', worker => 'stranger') \gset
SELECT durable.release(:'token');
-- the one who is cannot: it is not handed to him, nor to strangers
SELECT durable.announce_worker('cpu', '{train}', '{train}', '{signals}') ->> 'outcome' AS outcome;
SELECT claimed('train', 'stranger');
SELECT * FROM runs('t1');
SELECT claimed('train', 'cpu'), claimed('train');
SELECT disagreements FROM durable.workflow_directory() WHERE workflow = 'train';
SELECT durable.announce_worker('gpu', '{train}', '{train}', '{gpu}') ->> 'outcome' AS outcome;
SELECT * FROM runs('t1');
SELECT claimed('train', 'stranger'), claimed('train', 'cpu');
SELECT * FROM runs('t1');
SELECT task_id, token, run_id FROM durable.claim('{train}', worker => 'gpu') \gset
SELECT :'run_id' AS run_id;
-- its own steps
SELECT durable.complete_turn(:'task_id', :'token', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "dust", "requires": ["broom", "broom", "arm"]}]}');
SELECT steps('t1');
SELECT durable.announce_worker('hand', '{dust,train}', capabilities => '{}') ->> 'outcome' AS outcome;
SELECT durable.redispatch('t1');
SELECT durable.start('train', NULL, 't2');
SELECT task_id, token FROM durable.claim('{train}', worker => 'gpu') \gset
SELECT durable.complete_turn(:'task_id', :'token', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "dust", "requires": ["broom", "broom", "arm"]}]}');
SELECT * FROM runs('t2');
SELECT steps('t2');
SELECT claimed('train', 'gpu');
SELECT durable.announce_worker('hand', '{dust}', capabilities => '{arm,broom}') ->> 'outcome' AS outcome;
SELECT * FROM runs('t2');
SELECT task_id, token FROM durable.claim('{train}', worker => 'gpu') \gset
SELECT durable.complete_turn(:'task_id', :'token', '{"status": "continue", "commands": [{"type": "call", "seq": 0, "name": "dust", "requires": ["broom"]}]}');
SELECT * FROM runs('t2');
SELECT claimed('dust', 'hand');
-- malformed requirements fail the run
SELECT durable.start_many('train', '{1,2,3,4}', '{m1,m2,m3,m4}');
SELECT durable.complete_turn(task_id, token, jsonb_build_object('status', 'continue', 'commands', jsonb_build_array(
		jsonb_build_object('type', 'call', 'seq', 0, 'name', 'dust', 'requires',
			('{"m1": "broom", "m2": [1], "m3": [""], "m4": {"a": 1}}'::jsonb) -> run_id))))
  FROM durable.claim('{train}', 10, worker => 'gpu');
SELECT * FROM runs('m_');
-- requirements change with a new registration, for runs that are requeued
SELECT durable.withdraw_worker('gpu');
SELECT durable.start('train', NULL, 't3');
SELECT claimed('train', 'cpu');
SELECT durable.register_workflow('train');
SELECT durable.requeue('t3');
SELECT claimed('train', 'cpu');
SELECT count(durable.cancel(run_id)) FROM durable.run WHERE finished_at IS NULL;

--
-- protocols
--
SELECT durable.register_workflow('old'), durable.start('old', NULL, 'o1');
SELECT durable.announce_worker('cpu', '{old}', protocol => '{2,2}') ->> 'outcome' AS outcome;
SELECT claimed('old', 'cpu');
SELECT * FROM runs('o1');
-- one that speaks ours, too: it goes on, and the other gets nothing
SELECT durable.announce_worker('new', '{old}', protocol => '{1,2}');
SELECT * FROM runs('o1');
SELECT claimed('old', 'cpu');
SELECT claimed('old', 'new');
-- steps
SELECT durable.announce_worker('cpu', '{render}', protocol => '{2,2}', capabilities => '{gpu,avx}') ->> 'outcome' AS outcome;
SELECT durable.start('picky', NULL, 'p6');
SELECT durable.dispatch('render', task_id => 'alone');
CALL durable.work(duration => '0');
SELECT * FROM runs('p6');
SELECT claimed('render', 'cpu');
SELECT durable.announce_worker('cpu', '{render}', protocol => '{1,1}', capabilities => '{gpu,avx}') ->> 'outcome' AS outcome;
CALL durable.work(duration => '0');
SELECT claimed('render', 'cpu');
SELECT count(durable.cancel(run_id)) FROM durable.run WHERE finished_at IS NULL;

--
-- silence
--
SELECT durable.register_workflow('quiet', turn_silence => '20 s');
SELECT durable.start('quiet', NULL, 'q1');
SELECT task_id, token FROM durable.claim('{quiet}', lease => '1 hour') \gset
SET durable.clock_offset = 15;
SELECT durable.heartbeat(:'task_id', :'token');
SELECT claimed('quiet');
-- the beat has moved it
SET durable.clock_offset = 30;
SELECT claimed('quiet');
SELECT durable.renew(:'token', '1 hour') AS held;
-- a renewed lease is no sign of life
SET durable.clock_offset = 45;
SELECT task_id AS task_id2, token AS token2 FROM durable.claim('{quiet}', lease => '1 hour') \gset
SELECT :'task_id' = :'task_id2' AS same_task, :'token' = :'token2' AS same_token;
SELECT durable.heartbeat(:'task_id', :'token'), durable.renew(:'token'), durable.record_step(:'task_id', :'token', 0, 'x'),
       durable.complete_turn(:'task_id', :'token', '{"status": "completed", "output": "old"}') AS late;
SELECT recovery_attempts FROM durable.run WHERE run_id = 'q1';
-- a turn that has been decided is not silent, however long the run waits
SELECT durable.complete_turn(:'task_id2', :'token2', '{"status": "continue", "commands": [{"type": "wait_signal", "seq": 0, "signal": "go"}]}');
SET durable.clock_offset = 1000;
SELECT claimed('quiet');
SELECT recovery_attempts, status FROM durable.run WHERE run_id = 'q1';
SELECT durable.signal('go');
SELECT task_id, token FROM durable.claim('{quiet}', lease => '2 hours') \gset
-- found by the sweep, too
SET durable.clock_offset = 1021;
SELECT durable.sweep() ->> 'timed_out' AS timed_out;
SELECT recovery_attempts, status, turn_state FROM durable.run WHERE run_id = 'q1';
SELECT durable.complete_turn(:'task_id', :'token', '{"status": "completed", "output": "old"}') AS late;
SELECT durable.complete_turn(task_id, token, '{"status": "completed", "output": "new"}') FROM durable.claim('{quiet}');
SELECT durable.result('q1');
SELECT count(*) AS deadlines FROM durable.task_deadline;
-- one that is always silent does not go on for ever
SET durable.max_reclaims = 1;
SELECT durable.start('quiet', NULL, 'q2');
SELECT claimed('quiet');
SET durable.clock_offset = 1100;
SELECT claimed('quiet');
SET durable.clock_offset = 1200;
SELECT claimed('quiet');
SELECT * FROM runs('q2');
RESET durable.max_reclaims;
RESET durable.clock_offset;
SELECT durable.register_workflow('quiet', turn_silence => '0');

--
-- by convention
--
SELECT durable.start('pay:card', NULL, 'v1');
SELECT durable.grant_usage('durable_test_a');
SELECT durable.grant_usage('durable_test_b', privileges => '{start}');
SELECT durable.revoke_usage('durable_test_b', privileges => '{work}');
SET ROLE durable_test_a;
SELECT durable.announce_worker('a', '{pay-card}', '{pay:cash}') ->> 'outcome' AS outcome;
SET ROLE durable_test_b;
SELECT durable.start('pay:card', NULL, 'v1');
SET ROLE durable_test_a;
SELECT durable.announce_worker('a', '{pay-card}', '{pay:cash,pay:card}') ->> 'outcome' AS outcome;
SET ROLE durable_test_b;
SELECT durable.start('pay:card', NULL, 'v0', version => '1');
SELECT durable.start('pay:cash', NULL, 'v0');
SELECT durable.start('pay:card', NULL, 'v1');
SELECT durable.start_many('pay:card', '{1,2}', '{v2,v3}');
RESET ROLE;
SELECT name, version, owner, body, queue, convention, requires FROM durable.workflow WHERE name LIKE 'pay%';
SELECT claimed('pay-card', 'a');
SELECT workflow, versions, kind, queue, workers, disagreements FROM durable.workflow_directory() WHERE workflow LIKE 'pay%';
-- each start looks again
SET durable.clock_offset = 40;
SET ROLE durable_test_b;
SELECT durable.start('pay:card', NULL, 'v4');
RESET ROLE;
RESET durable.clock_offset;
SELECT durable.withdraw_worker('a');
SET ROLE durable_test_a;
SELECT durable.withdraw_worker('a');
SET ROLE durable_test_b;
SELECT durable.start('pay:card', NULL, 'v4');
-- once it is registered by somebody, it needs nobody
SET ROLE durable_test_a;
SELECT durable.register_workflow('pay:card', queue => 'pay-card');
SET ROLE durable_test_b;
SELECT durable.start('pay:card', NULL, 'v4');
RESET ROLE;
SELECT name, owner, convention FROM durable.workflow WHERE name LIKE 'pay%';
-- in another namespace, for children, and rolled back
SELECT durable.announce_worker('t', '{ship@acme}', '{ship}', namespace => 'acme') ->> 'outcome' AS outcome;
SELECT durable.start('ship', NULL, 's0');
BEGIN;
SELECT durable.start('ship', NULL, 's1', namespace => 'acme');
ROLLBACK;
SELECT count(*) FROM durable.workflow WHERE name = 'ship';
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child('ship'); END $$;
SELECT durable.register_workflow('parent', 'parent', namespace => 'acme');
SELECT durable.start('parent', NULL, 's2', namespace => 'acme');
CALL durable.work(duration => '0');
SELECT namespace, name, queue, convention FROM durable.workflow WHERE name = 'ship';
SELECT run_id, namespace, workflow, status FROM durable.run WHERE namespace = 'acme' ORDER BY id;
SELECT durable.start(repeat('x', 255), NULL, 's3', namespace => 'acme');

--
-- looking
--
SELECT count(durable.cancel(run_id)) FROM durable.run WHERE finished_at IS NULL;
SELECT count(durable.withdraw_worker(worker)) FROM durable.worker WHERE namespace = 'default';
SELECT count(*) FROM durable.dispatch_many('alone', ARRAY_FILL('1'::jsonb, ARRAY[3]));
SELECT count(*) FROM durable.dispatch_many('served', ARRAY_FILL('1'::jsonb, ARRAY[2]));
SELECT durable.announce_worker('s', '{served}', '{strange,picky,old}') ->> 'outcome' AS outcome;
SELECT count(*) FROM durable.claim('{alone}', 2, worker => 'somebody');
SELECT queue, ready, claimed, depth, live_workers, workers, last_seen IS NOT NULL AS seen, alert FROM durable.queue_workers() WHERE queue IN ('alone', 'served', 'old');
SELECT durable.start('old', NULL, 'last');
SELECT count(*) FROM durable.claim('{old}', worker => 'somebody');
SELECT workflow, versions, kind, queue, workers, observed, disagreements FROM durable.workflow_directory();

DROP FUNCTION runs(text), steps(text), claimed(text, text), picky(jsonb), pair(jsonb), fan(jsonb), careless(jsonb), note(jsonb), amid(jsonb), draw(jsonb), wrong(jsonb), parent(jsonb);
DROP EXTENSION durable;
DROP ROLE durable_test_a, durable_test_b, durable_test_reader;
