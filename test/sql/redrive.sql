-- many runs at once: redrive, cancel_where
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
DROP ROLE IF EXISTS durable_bulk_boss, durable_bulk_user;
CREATE EXTENSION durable;
CREATE SCHEMA bulk_test;
RESET client_min_messages;
SET search_path = bulk_test;
SET timezone = 'UTC';

CREATE TABLE broken (what text);
INSERT INTO broken VALUES ('all');
CREATE FUNCTION act(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM bulk_test.broken WHERE what IN ('all', i ->> 'what')) THEN
		RAISE EXCEPTION '%', coalesce(i ->> 'message', 'it broke') USING ERRCODE = coalesce(i ->> 'code', '22012');
	END IF;
	RETURN i;
END $$;
CREATE FUNCTION body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.local_step('bulk_test.act', i); END $$;
CREATE FUNCTION waits(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.wait_for_signal('go ' || durable.run_id()); END $$;
CREATE FUNCTION parent(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RETURN durable.child(i ->> 'workflow', i, durable.run_id() || ' kid'); END $$;
CREATE FUNCTION lose() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
	n bigint;
BEGIN
	SELECT count(*) INTO n FROM durable.claim('{lossy}', 10, '1 s');
	SET LOCAL durable.clock_offset = 600;
	SET LOCAL durable.max_recovery_attempts = 0;
	PERFORM durable.sweep();
	RETURN n;
END $$;
CREATE FUNCTION runs(pattern text DEFAULT '') RETURNS TABLE (run_id text, status text, turn text, delay interval, recovered int, error text) LANGUAGE sql AS $$
	SELECT run_id, status, turn_state, wake_at - '2090-01-01', recovery_attempts, error ->> 'message' FROM durable.run WHERE run_id ~ ('^' || pattern) ORDER BY run_id COLLATE "C"
$$;
-- who would be redriven, undone
CREATE FUNCTION fit(filter jsonb, max_runs int DEFAULT 1000) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	found text;
	detail text;
BEGIN
	SELECT string_agg(run_id, ',' ORDER BY run_id COLLATE "C") INTO found FROM durable.redrive(filter, max_runs);
	RAISE EXCEPTION USING ERRCODE = 'UNDO1', MESSAGE = 'undo';
EXCEPTION
	WHEN SQLSTATE 'UNDO1' THEN RETURN found;
	WHEN OTHERS THEN
		GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
		RETURN format('%s %s: %s', sqlstate, sqlerrm, detail);
END $$;
SELECT durable.register_workflow('body', 'bulk_test.body'), durable.register_workflow('body', 'bulk_test.body', version => '2'), durable.register_workflow('other', 'bulk_test.body', tags => '{o}'),
	durable.register_workflow('waits', 'bulk_test.waits'), durable.register_workflow('parent', 'bulk_test.parent'), durable.register_workflow('lossy', NULL),
	durable.register_workflow('body', 'bulk_test.body', namespace => 'ns') \g /dev/null

SELECT durable.start('body', '{}', 'a1', version => '1', tags => '{x,y}', search_attributes => '{"customer": 1}'), durable.start('body', '{"code": "23505", "message": "100% sure"}', 'a2', tags => '{y}'),
	durable.start('other', '{"code": "23514"}', 'a3', search_attributes => '{"customer": 2, "vip": true}'), durable.start('parent', '{"workflow": "body"}', 'a4'), durable.start('lossy', NULL, 'a5'),
	durable.start('waits', NULL, 'live'), durable.start('waits', NULL, 'done'), durable.start('waits', NULL, 'gone'), durable.start('body', '{}', 'ns1', namespace => 'ns') \g /dev/null
CALL durable.work(duration => '0');
SELECT lose();
SELECT durable.signal('go done'), durable.cancel('gone');
CALL durable.work(duration => '0');
SET durable.namespace = 'ns';
CALL durable.work(duration => '0');
RESET durable.namespace;
UPDATE durable.run SET created_at = '2080-01-01', finished_at = '2080-02-01' WHERE run_id IN ('a1', 'a2');
SELECT * FROM runs();

--
-- which runs
--
SELECT filter, fit(filter::jsonb) FROM unnest(ARRAY[
	'{"namespace": "default"}', '{"namespace": ""}', '{"namespace": "ns"}', '{"namespace": "*"}', '{"namespace": "none"}',
	'{"workflow": "body"}', '{"workflow": ["other", "parent"]}', '{"workflow": "Body"}', '{"workflow": "body", "version": "1"}', '{"version": ["1", "3"]}',
	'{"status": "failed"}', '{"status": "dead"}', '{"status": ["dead", "completed"]}', '{"status": "completed"}', '{"status": "cancelled"}', '{"status": "suspended"}',
	'{"tag": "y"}', '{"tag": ["x", "o"]}', '{"tag": "z"}', '{"search_attributes": {"customer": 1}}', '{"search_attributes": {"vip": true}}', '{"search_attributes": {}}',
	'{"code": "22012"}', '{"code": "23"}', '{"code": ["23505", "max_recovery_attempts"]}', '{"code": "2"}', '{"code": "ma"}',
	'{"message": "%"}', '{"message": "it broke"}', '{"message": "100\\%%"}', '{"message": "1__\\% sur_"}', '{"message": ""}',
	'{"created_before": "2090-01-01"}', '{"created_after": "2080-01-01", "created_before": "2080-01-02"}', '{"created_after": "2080-01-02"}', '{"finished_before": "2080-02-01"}', '{"finished_after": "2080-02-01"}', '{"finished_after": "2080-01-15", "finished_before": "2080-02-02"}',
	'{"older_than": "0"}', '{"older_than": "10 years"}', '{"workflow": "body", "tag": "y", "code": "23"}']) filter;
SELECT fit('{"namespace": "default"}', 2);
SELECT filter, fit(filter::jsonb) FROM unnest(ARRAY[
	NULL, 'null', '1', '[]', '{}', '{"workflows": "body"}', '{"namespace": 1}', '{"namespace": ["default"]}', '{"workflow": 1}', '{"workflow": []}', '{"workflow": ["a", null]}', '{"workflow": {"a": 1}}', '{"workflow": null}',
	'{"status": "fine"}', '{"status": ["dead", "alive"]}', '{"status": [["dead"]]}', '{"search_attributes": 1}', '{"search_attributes": []}', '{"code": 22012}', '{"message": ["a"]}', '{"message": "a\\"}', '{"message": "a\\\\"}',
	'{"older_than": 7}', '{"older_than": "soon"}', '{"older_than": "-1 s"}', '{"created_before": 7}', '{"created_after": "yesterdaay"}', '{"finished_after": null}']) filter;
SELECT fit(jsonb_build_object('tag', (SELECT jsonb_agg('t'::text) FROM generate_series(1, 1001)))), fit(jsonb_build_object('namespace', repeat('x', 256)));
SELECT durable.redrive('{"namespace": "default"}', 0);
SELECT durable.redrive('{"namespace": "default"}', NULL);
SELECT durable.redrive('{"namespace": "default"}', 10001);
SELECT durable.redrive('{"namespace": "default"}', rate => 0);
SELECT durable.redrive('{"namespace": "default"}', rate => -1);
SELECT durable.redrive('{"namespace": "default"}', rate => 'NaN');
SELECT durable.redrive('{"namespace": "default"}', rate => 'Infinity');
SELECT durable.redrive('{"namespace": "default"}', start_at => 'infinity');
SELECT durable.redrive('{"namespace": "default"}', start_at => '294276-12-31', rate => 0.00002);
BEGIN READ ONLY;
SELECT durable.redrive('{"namespace": "default"}');
ROLLBACK;
BEGIN READ ONLY;
SELECT durable.cancel_where('{"namespace": "default"}');
ROLLBACK;

--
-- at a rate: each at its time; children with their parent
--
SELECT run_id, wake_at FROM durable.redrive('{"namespace": "default", "code": ["22", "23"]}', rate => 0.5, start_at => '2090-01-01');
SELECT * FROM runs('a');
SELECT count(*) AS delayed FROM durable.task_delayed;
-- nothing is left to redrive but what is dead
SELECT * FROM durable.redrive('{"namespace": "default"}');
SELECT * FROM durable.redrive('{"namespace": "default"}');
SELECT * FROM runs('a5');
CALL durable.work(duration => '0');
SELECT run_id, status FROM runs('a');
-- the clock moves on: one by one
TRUNCATE broken;
CREATE FUNCTION set_clock(t timestamptz) RETURNS text LANGUAGE sql AS $$ SELECT set_config('durable.clock_offset', ceil(extract(epoch FROM t - clock_timestamp()))::int::text, false) $$;
SELECT set_clock('2090-01-01 00:00:01') IS NOT NULL AS moved;
CALL durable.work(duration => '0');
SELECT run_id, status FROM runs('a');
SELECT set_clock('2090-01-01 00:00:05') IS NOT NULL AS moved;
CALL durable.work(duration => '0');
SELECT run_id, status FROM runs('a');
SELECT set_clock('2090-01-01 00:01') IS NOT NULL AS moved;
CALL durable.work(duration => '0');
SELECT run_id, status, error FROM runs('a');
RESET durable.clock_offset;
-- a delayed one can be requeued at once, or cancelled
INSERT INTO broken VALUES ('all');
SELECT durable.start('body', '{}', 'b' || n) FROM generate_series(1, 3) n \g /dev/null
CALL durable.work(duration => '0');
SELECT run_id FROM durable.redrive('{"workflow": "body", "tag": "z"}');
SELECT run_id, wake_at > now() AS later FROM durable.redrive('{"workflow": "body"}', rate => 0.001);
TRUNCATE broken;
SELECT durable.requeue('b2'), durable.cancel('b3');
CALL durable.work(duration => '0');
SELECT run_id, status, turn FROM runs('b');
SELECT count(*) FROM durable.task WHERE run_id LIKE 'b%';
-- start_at alone; a time in the past is now
INSERT INTO broken VALUES ('all');
SELECT durable.start('body', '{}', 'c' || n) FROM generate_series(1, 2) n \g /dev/null
CALL durable.work(duration => '0');
SELECT * FROM durable.redrive('{"workflow": "body", "status": "failed"}', 1, start_at => '2090-01-01');
SELECT * FROM durable.redrive('{"workflow": "body", "status": "failed"}', 10, start_at => '2000-01-01', rate => 10);
SELECT run_id, status, turn FROM runs('c');

--
-- not those that cannot go on: no workflow; handlers of failures, whose run failed, too
--
SELECT durable.register_workflow('gone', 'bulk_test.body'), durable.register_workflow('handler', 'bulk_test.body'), durable.register_workflow('routed', 'bulk_test.body', on_error => '[{"workflow": "handler"}]') \g /dev/null
SELECT durable.start('gone', '{}', 'd1'), durable.start('routed', '{}', 'd2');
CALL durable.work(duration => '0');
SELECT durable.unregister_workflow('gone');
SELECT run_id, status FROM runs('(onerror:)?d');
SELECT run_id FROM durable.redrive('{"workflow": ["gone", "handler", "routed"]}');

--
-- cancel_where
--
SELECT durable.start('parent', '{"workflow": "waits"}', 'e1'), durable.start('waits', NULL, 'e2', tags => '{e}'), durable.start('waits', NULL, 'e3', tags => '{e}', namespace => 'default'), durable.start('waits', NULL, 'e4', tags => '{e}', start_at => '2090-01-01') \g /dev/null
CALL durable.work(duration => '0');
SELECT * FROM durable.cancel_where('{"tag": "e"}', 'not any more', max_runs => 2);
SELECT * FROM durable.cancel_where('{"tag": "e"}');
SELECT * FROM durable.cancel_where('{"tag": "e"}');
SELECT * FROM durable.cancel_where('{"tag": "e", "status": ["cancelled", "completed"]}', 'again');
SELECT * FROM durable.cancel_where('{"workflow": "parent"}', 'the tree');
SELECT run_id, status, error FROM runs('e');
SELECT * FROM durable.cancel_where('{"workflow": "waits", "status": "completed"}');
SELECT durable.cancel_where(NULL);
SELECT durable.cancel_where('{}');
SELECT durable.cancel_where('{"wrong": 1}');
SELECT durable.cancel_where('{"tag": "e"}', max_runs => 0);

--
-- who may
--
CREATE ROLE durable_bulk_boss;
CREATE ROLE durable_bulk_user;
SELECT durable.grant_usage('durable_bulk_boss', 'ns', '{manage}'), durable.grant_usage('durable_bulk_user', 'ns', '{start,read}') \g /dev/null
SET ROLE durable_bulk_user;
SELECT durable.redrive('{"namespace": "ns"}');
SELECT durable.cancel_where('{"namespace": "default"}');
SELECT durable.cancel_where('{"namespace": "*"}');
SELECT durable.find_runs('{}', 'default', now(), NULL, false, 10, 0);
SELECT * FROM durable.cancel_where('{"namespace": "ns"}');
RESET ROLE;
SELECT durable.grant_usage('durable_bulk_boss', '*', '{manage}');
SET ROLE durable_bulk_boss;
SELECT durable.redrive('{"workflow": "body"}');
SELECT durable.redrive('{"namespace": "default"}');
SELECT durable.redrive('{"namespace": "*"}');
SELECT durable.cancel_where('{"namespace": "ns"}');
SELECT * FROM durable.redrive('{"namespace": "ns"}', 10, 100);
SET durable.namespace = 'ns';
SELECT * FROM durable.redrive('{"workflow": "body"}');
RESET durable.namespace;
RESET ROLE;
SELECT run_id, status FROM runs('ns');

RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA bulk_test CASCADE;
DROP EXTENSION durable;
DROP OWNED BY durable_bulk_boss, durable_bulk_user;
DROP ROLE durable_bulk_boss, durable_bulk_user;
