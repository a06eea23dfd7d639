-- What bodies call, as a role that has no more than "work"; what it left, as one that may only read.
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION IF EXISTS durable;
CREATE EXTENSION durable;
CREATE ROLE low_worker;
CREATE ROLE low_reader;
SELECT durable.grant_usage('low_worker', privileges => '{work,start}'), durable.grant_usage('low_reader', privileges => '{read}');
CREATE SCHEMA low AUTHORIZATION low_worker;
GRANT USAGE ON SCHEMA low TO low_reader;
SET ROLE low_worker;
CREATE FUNCTION low.double(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(i::int * 2) $$;
CREATE FUNCTION low.tour(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	one int := durable.step_async('low_double', '1');
	two int := durable.step_async('low_double', '2');
	first int := durable.await_any(ARRAY[one, two]);
	results jsonb[] := durable.await_all(ARRAY[one, two]);
	recorded timestamptz := durable.now();
	number float8 := durable.random();
	id uuid := durable.uuid();
	patched boolean := durable.patched('way');
	made jsonb := durable.side_effect('low.double', '21');
BEGIN
	PERFORM durable.set_event('state', to_jsonb(durable.run_namespace() || '/' || durable.run_id()));
	PERFORM durable.upsert_search_attributes('{"size": 3}');
	PERFORM durable.sleep_until(recorded - interval '1 s');
	RETURN jsonb_build_object('first', first IN (one, two), 'one', durable.await(one), 'both', to_jsonb(results), 'made', made,
		'patched', patched, 'number', number >= 0 AND number < 1, 'id', id IS NOT NULL);
END $$;
SELECT durable.register_handler('low_double', 'low.double'), durable.register_workflow('low_tour', 'low.tour');
SELECT durable.start('low_tour', run_id => 'low-1');
CALL durable.work(duration => '0');
SELECT durable.protocol();
-- neither sweeping for a while, nor looking, comes with "work"
CALL durable.keep_sweeping('0');
SELECT durable.get_event('low-1', 'state');
RESET ROLE;
SET ROLE low_reader;
SELECT status, output, search_attributes FROM durable.run WHERE run_id = 'low-1';
SELECT durable.get_event('low-1', 'state'), durable.get_event('low-1', 'none'), durable.protocol();
SELECT durable.await_any('{1}');
RESET ROLE;
-- the owner hands out sweeping
GRANT EXECUTE ON PROCEDURE durable.keep_sweeping TO low_reader;
SET ROLE low_reader;
CALL durable.keep_sweeping('0');
RESET ROLE;
REVOKE EXECUTE ON PROCEDURE durable.keep_sweeping FROM low_reader;
SELECT durable.delete_run('low-1');
SET ROLE low_worker;
SELECT durable.unregister_workflow('low_tour'), durable.unregister_handler('low_double');
RESET ROLE;
DROP SCHEMA low CASCADE;
SELECT durable.revoke_usage('low_worker'), durable.revoke_usage('low_reader');
DROP ROLE low_worker;
DROP ROLE low_reader;
