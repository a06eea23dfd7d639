-- The same three steps, and long loops, as workflows.

CREATE EXTENSION durable;

CREATE FUNCTION three(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	result jsonb;
BEGIN
	FOR i IN 1..3 LOOP
		result := durable.local_step('public.effect', jsonb_build_object('n', input->'n', 'step', i));
	END LOOP;
	RETURN result;
END $$;
SELECT durable.register_workflow('three', 'public.three');
SELECT durable.register_workflow('three_atomic', 'public.three', atomic => true);

CREATE FUNCTION loop(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	result jsonb;
BEGIN
	FOR i IN 1..(input->>'steps')::int LOOP
		result := durable.local_step('public.effect', jsonb_build_object('n', 1, 'step', i));
	END LOOP;
	RETURN result;
END $$;
SELECT durable.register_workflow('loop', 'public.loop');
SELECT durable.register_workflow('loop_aside', 'public.loop', queue => 'aside');
SELECT durable.register_workflow('loop_atomic', 'public.loop', atomic => true);

-- The arguments cost next to nothing: what is left is replaying.
CREATE FUNCTION lean(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	result jsonb;
BEGIN
	FOR i IN 1..(input->>'steps')::int LOOP
		result := durable.local_step('public.effect', input);
	END LOOP;
	RETURN result;
END $$;
SELECT durable.register_workflow('lean', 'public.lean');

-- Wakes when its input says.
CREATE FUNCTION nap(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM durable.sleep_until((input->>'until')::timestamptz);
	RETURN input;
END $$;
SELECT durable.register_workflow('nap', 'public.nap');

CREATE FUNCTION patient(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.wait_for_signal(input->>'token');
END $$;
SELECT durable.register_workflow('patient', 'public.patient');

-- More of one run, as the engine left its rows: its rows in each table, under new
-- numbers and ids. So they are what the engine writes, whatever that is.
CREATE PROCEDURE multiply(run_id text, copies int) LANGUAGE plpgsql AS $$
DECLARE
	original bigint := (SELECT r.id FROM durable.run r WHERE r.run_id = $1);
	first bigint := (SELECT max(nextval('durable.task_seq')) FROM generate_series(1, copies));
	tab regclass;
	key text;
	columns text;
BEGIN
	first := first - copies;
	FOREACH tab IN ARRAY ARRAY['durable.run', 'durable.task', 'durable.task_ready', 'durable.task_delayed',
							   'durable.checkpoint', 'durable.waiter', 'durable.retention_due']::regclass[] LOOP
		key := CASE WHEN EXISTS (SELECT FROM pg_attribute WHERE attrelid = tab AND attname = 'run') THEN 'run' ELSE 'id' END;
		SELECT string_agg(CASE attname WHEN key THEN 'g' WHEN 'run_id' THEN format('%L || g', $1)
						  WHEN 'token' THEN format('%L || g', $1) ELSE format('t.%I', attname) END, ', ' ORDER BY attnum)
		  INTO columns FROM pg_attribute WHERE attrelid = tab AND attnum > 0 AND NOT attisdropped;
		EXECUTE format('INSERT INTO %s SELECT %s FROM %s t, generate_series(%s, %s) g WHERE t.%I = %s',
					   tab, columns, tab, first + 1, first + copies, key, original);
	END LOOP;
END $$;
