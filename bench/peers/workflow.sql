-- What all sides of the workflow scenarios share: the handler, whose effect is one
-- row; and the writes of a run without any engine.

CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n bigint, step int);

CREATE FUNCTION effect(input jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO effect (n, step) VALUES ((input->>'n')::bigint, (input->>'step')::int);
	RETURN input;
END $$;

CREATE TABLE hand_run (
	id bigint PRIMARY KEY, run_id text UNIQUE NOT NULL, workflow text NOT NULL, status text NOT NULL,
	created_at timestamptz NOT NULL, started_at timestamptz, finished_at timestamptz,
	input jsonb, output jsonb
) WITH (fillfactor = 70);
CREATE TABLE hand_history (
	run bigint NOT NULL, seq int NOT NULL, name text NOT NULL, status text NOT NULL,
	started_at timestamptz NOT NULL, finished_at timestamptz, input jsonb, output jsonb,
	PRIMARY KEY (run, seq)
);
CREATE SEQUENCE hand_seq CACHE 32;

-- Inside the server, without a single round trip: insert the run; for each step the
-- handler's effect and its row of the history; the final update.
CREATE PROCEDURE hand(runs int, one_commit boolean) LANGUAGE plpgsql AS $$
DECLARE
	k bigint;
	step_input jsonb;
	result jsonb;
	began timestamptz;
BEGIN
	FOR j IN 1..runs LOOP
		k := nextval('hand_seq');
		INSERT INTO hand_run (id, run_id, workflow, status, created_at, started_at, input)
		VALUES (k, 'run-' || k, 'three', 'running', clock_timestamp(), clock_timestamp(), jsonb_build_object('n', k));
		FOR i IN 1..3 LOOP
			step_input := jsonb_build_object('n', k, 'step', i);
			began := clock_timestamp();
			result := effect(step_input);
			INSERT INTO hand_history (run, seq, name, status, started_at, finished_at, input, output)
			VALUES (k, i, 'effect', 'completed', began, clock_timestamp(), step_input, result);
			IF i = 3 THEN
				UPDATE hand_run SET status = 'completed', finished_at = clock_timestamp(), output = result WHERE id = k;
			END IF;
			IF i = 3 OR NOT one_commit THEN
				COMMIT;
			END IF;
		END LOOP;
	END LOOP;
END $$;

-- The handler alone, a transaction each.
CREATE PROCEDURE bare(steps int) LANGUAGE plpgsql AS $$
BEGIN
	FOR i IN 1..steps LOOP
		PERFORM effect(jsonb_build_object('n', 1, 'step', i));
		COMMIT;
	END LOOP;
END $$;
