-- The workflow of trip.mjs and trip.py as a function, and what all of them share.

CREATE SCHEMA trip;

-- a local step
CREATE FUNCTION trip.price(i jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('total', (i ->> 'nights')::int * 80)
$$;

-- a step that a SQL function serves
CREATE FUNCTION trip.square(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(i::int * i::int) $$;
SELECT durable.register_handler('square', 'trip.square');

-- another one, which fails for what is negative
CREATE FUNCTION trip.root(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(sqrt(i::float8)) $$;
SELECT durable.register_handler('root', 'trip.root');
CREATE FUNCTION trip.choose(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"chosen"'::jsonb $$;

CREATE FUNCTION trip.body(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	price jsonb;
	charge jsonb;
	squares jsonb[];
	handles int[];
	leg jsonb;
	guide jsonb;
	late boolean := false;
	refused text;
	settled jsonb[];
	called text;
	root jsonb;
BEGIN
	PERFORM durable.now(), durable.random(), durable.uuid();
	IF durable.patched('priced first') THEN
		price := durable.local_step('trip.price', i, name => 'price');
	END IF;
	PERFORM durable.set_event('state', '"priced"');
	PERFORM durable.upsert_search_attributes(jsonb_build_object('city', i -> 'city'));
	PERFORM durable.log('info', 'priced', price);
	charge := durable.step('charge', price, retries => 3, backoff => '1 ms');
	FOR n IN 1 .. 3 LOOP
		handles := handles || durable.step_async('square', to_jsonb(n));
	END LOOP;
	squares := durable.await_all(handles);
	leg := durable.child('leg', '{"to": "airport"}');
	PERFORM durable.sleep('20 ms');
	guide := durable.wait_for_signal('guide:' || durable.run_id());
	BEGIN
		PERFORM durable.wait_for_signal('nobody:' || durable.run_id(), timeout => '20 ms');
	EXCEPTION WHEN SQLSTATE 'WF004' THEN
		late := true;
	END;
	BEGIN
		PERFORM durable.step('insure', '{"age": 200}');
	EXCEPTION WHEN SQLSTATE '22003' THEN
		refused := SQLERRM;
	END;
	PERFORM durable.side_effect('trip.choose');
	settled := durable.step_all('root', ARRAY['4', '-1', '9']::jsonb[], mode => 'settled', max_in_flight => 2);
	BEGIN
		PERFORM durable.step_all('root', ARRAY['-1', '16', '25']::jsonb[], mode => 'fail_fast', max_in_flight => 1);
	EXCEPTION WHEN SQLSTATE '2201F' THEN
		called := 'off';
	END;
	handles := ARRAY[durable.step_async('nobody', '1'), durable.step_async('root', '36')];
	root := durable.await(durable.await_any(handles));
	RETURN jsonb_build_object('settled', (SELECT jsonb_agg(coalesce(s -> 'value', s #> '{error,code}')) FROM unnest(settled) s),
		'called', called, 'root', root, 'charge', charge, 'squares', to_jsonb(squares), 'leg', leg, 'guide', guide,
							  'late', late, 'refused', refused);
END $$;
SELECT durable.register_workflow('trip_sql', 'trip.body');

-- what undoes
CREATE TABLE trip.undone (run text, what text);
CREATE FUNCTION trip.undo(i jsonb) RETURNS jsonb LANGUAGE sql AS $$
	INSERT INTO trip.undone SELECT i ->> 'run', i ->> 'what';
	SELECT '"undone"'::jsonb
$$;
SELECT durable.register_handler('undo', 'trip.undo');
CREATE FUNCTION trip.reserve(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('room', i -> 'nights') $$;
CREATE FUNCTION trip.release(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(format('room %s is free', i ->> 'room')) $$;

CREATE FUNCTION trip.retreat(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	undos jsonb[] := '{}';		-- the newest first
	undo jsonb;
	room jsonb;
	squared jsonb;
	failed jsonb := '[]';
	reason text;
	sqlcode text;
BEGIN
	room := durable.local_step('trip.reserve', i, name => 'reserve');
	undos := jsonb_build_object('name', 'release', 'input', room) || undos;
	squared := durable.step('square', '3');
	undos := jsonb_build_object('name', 'undo', 'input', jsonb_build_object('run', durable.run_id(), 'what', squared)) || undos;
	PERFORM durable.step('root', '16');
	undos := jsonb_build_object('name', 'root', 'input', -1) || undos;
	PERFORM durable.step_all('square', ARRAY['1', '2']::jsonb[]);
	undos := jsonb_build_object('name', 'undo', 'retries', 2, 'input', jsonb_build_object('run', durable.run_id(), 'what', 'squares')) || undos;
	PERFORM durable.step('insure', '{"age": 200}');
	RETURN '"never comes here"';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT, sqlcode = RETURNED_SQLSTATE;
	FOREACH undo IN ARRAY undos LOOP
		BEGIN
			IF undo ->> 'name' = 'release' THEN
				PERFORM durable.local_step('trip.release', undo -> 'input', name => 'release');
			ELSE
				PERFORM durable.step(undo ->> 'name', undo -> 'input', retries => (undo ->> 'retries')::int);
			END IF;
		EXCEPTION WHEN OTHERS THEN
			failed := failed || jsonb_build_object('name', undo -> 'name', 'message', SQLERRM, 'code', SQLSTATE);
		END;
	END LOOP;
	IF failed = '[]' THEN
		RAISE;
	END IF;
	PERFORM durable.fail_run(reason, sqlcode, jsonb_build_object('compensations', failed));
END $$;
SELECT durable.register_workflow('retreat_sql', 'trip.retreat');

-- steps one after the other
CREATE SEQUENCE trip.echoes;
CREATE FUNCTION trip.echo(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF i = '{"n": 1}' AND nextval('trip.echoes') = 1 THEN
		RAISE 'once more' USING ERRCODE = '55006';
	END IF;
	RETURN jsonb_build_object('said', i -> 'n');
END $$;
SELECT durable.register_handler('echo_sql', 'trip.echo');
CREATE FUNCTION trip.here(i jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"here"'::jsonb $$;

CREATE FUNCTION trip.chain(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	said jsonb[];
	aside int;
	refused text;
BEGIN
	PERFORM durable.now();
	FOR n IN 0 .. 2 LOOP
		said := said || durable.step('echo_sql', jsonb_build_object('n', n), retries => 2, backoff => '1 ms');
		PERFORM durable.side_effect('trip.choose');
		PERFORM durable.log('info', 'said', said[n + 1]);
	END LOOP;
	PERFORM durable.local_step('trip.here', NULL, name => 'here');
	said := said || durable.step('echo_sql', '{"n": 3}');
	PERFORM durable.side_effect('trip.choose');
	PERFORM durable.set_event('state', '"said"');
	aside := durable.step_async('square', '7');
	BEGIN
		PERFORM durable.step('insure', '{"age": 200}');
	EXCEPTION WHEN SQLSTATE '22003' THEN
		refused := SQLERRM;
	END;
	said := said || durable.step('echo_sql', '{"n": 4}');
	RETURN jsonb_build_object('said', to_jsonb(said), 'aside', durable.await(aside), 'refused', refused);
END $$;
SELECT durable.register_workflow('chain_sql', 'trip.chain');

CREATE FUNCTION trip.leg(i jsonb) RETURNS jsonb LANGUAGE sql AS $$
	SELECT jsonb_build_object('by', 'taxi', 'to', i -> 'to')
$$;
SELECT durable.register_workflow('leg', 'trip.leg');

SELECT durable.register_workflow('retreat_node'), durable.register_workflow('retreat_python'), durable.register_workflow('unwind'),
	durable.register_workflow('trip_node'), durable.register_workflow('trip_python'), durable.register_workflow('relay'),
	durable.register_workflow('chain_node'), durable.register_workflow('chain_python'), durable.register_workflow('pair'),
	durable.register_workflow('odd_node'), durable.register_workflow('odd_python'), durable.register_workflow('hop_node'), durable.register_workflow('hop_python'),
	durable.register_workflow('rush'), durable.register_workflow('marathon'), durable.register_workflow('calm'),
	durable.register_workflow('load'), durable.register_workflow('frozen'),
	durable.register_workflow('two', version => '1'), durable.register_workflow('two', version => '2');
CREATE TABLE trip.booked (run text, n int);
CREATE TABLE trip.shipped (run text, n int);
