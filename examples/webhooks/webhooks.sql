-- Webhooks as runs. Each delivery is a run: its id is the delivery's, so a delivery
-- that comes again starts nothing. The run validates the delivery and hands it to three
-- handlers: a SQL function, a Node worker and a Python worker. What is broken becomes a
-- dead letter.

CREATE SCHEMA hook;

-- Each request that has come in, and whether its delivery was a new one.
CREATE TABLE hook.received (delivery text NOT NULL, new boolean NOT NULL);

CREATE TABLE hook.event (name text PRIMARY KEY);

-- What the handlers do. Those outside of the database may be executed again after a lost
-- claim; the key makes that one effect.
CREATE TABLE hook.handled (
	delivery	text,
	handler		text,
	language	text NOT NULL,
	digest		text NOT NULL,
	executed	int NOT NULL DEFAULT 1,
	takeovers	int NOT NULL DEFAULT 0,		-- from workers that were lost
	PRIMARY KEY (delivery, handler));

CREATE TABLE hook.dead (delivery text PRIMARY KEY, reason text NOT NULL, code text, letter jsonb NOT NULL);

-- ------------------------------------------------------------- coming in --

-- A delivery is an object: delivery, event, signature, and the body as it came. What the
-- HTTP endpoint calls, for one request or a handful: in the order of their ids, so that two
-- which bring the same deliveries do not wait for each other in a circle.
CREATE FUNCTION hook.receive(deliveries jsonb[]) RETURNS void
BEGIN ATOMIC
	INSERT INTO hook.received
	SELECT r.delivery ->> 'delivery', r.run_id IS NOT NULL
	  FROM (SELECT array_agg(d ORDER BY d ->> 'delivery') AS inputs, array_agg('hook:' || (d ->> 'delivery') ORDER BY d ->> 'delivery') AS run_ids
			  FROM unnest(deliveries) d) s,
		   ROWS FROM (unnest(s.inputs), durable.start_many('webhook', s.inputs, s.run_ids, on_conflict => 'reject')) AS r (delivery, run_id);
END;

CREATE FUNCTION hook.sign(body text) RETURNS text
RETURN encode(sha256(convert_to('not so secret' || body, 'UTF8')), 'hex');

-- ---------------------------------------------------------------- the run --

CREATE FUNCTION hook.validate(d jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
	IF d ->> 'signature' IS DISTINCT FROM hook.sign(d ->> 'body') THEN
		RAISE EXCEPTION 'the signature is wrong' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	IF NOT EXISTS (SELECT FROM hook.event e WHERE e.name = d ->> 'event') THEN
		RAISE EXCEPTION 'there is no event "%"', d ->> 'event' USING ERRCODE = 'invalid_parameter_value';
	END IF;
	RETURN (d ->> 'body')::jsonb;
END $$;

-- Exactly once: the row and the step's result are committed together.
CREATE FUNCTION hook.audit(letter jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO hook.handled (delivery, handler, language, digest)
	VALUES (letter ->> 'delivery', 'audit', 'sql', md5((letter -> 'payload')::text));
	RETURN '"audited"';
END $$;

CREATE FUNCTION hook.deliver(d jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
	letter jsonb;
	handles int[];
	results jsonb[];
BEGIN
	letter := jsonb_build_object('delivery', d -> 'delivery', 'event', d -> 'event',
		'payload', durable.local_step('hook.validate', d));
	handles := ARRAY[
		durable.step_async('webhook-audit', letter),
		durable.step_async('webhook-notify', letter, retries => 5, backoff => '100 ms'),
		durable.step_async('webhook-score', letter, retries => 5, backoff => '100 ms')];
	results := durable.await_all(handles);
	RETURN jsonb_build_object('audit', results[1], 'notify', results[2], 'score', results[3]);
END $$;

-- --------------------------------------------------------- the dead letter --

CREATE FUNCTION hook.note_dead(letter jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO hook.dead VALUES (letter #>> '{input,delivery}', letter #>> '{error,message}', letter #>> '{error,code}', letter);
	RETURN NULL;
END $$;

CREATE FUNCTION hook.dead_letter(letter jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
	RETURN durable.local_step('hook.note_dead', letter);
END $$;

CREATE FUNCTION hook.bury(letter jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
BEGIN
	RETURN to_jsonb(durable.start('webhook_dead', letter, run_id => 'dead:' || (letter ->> 'deadRunId')));
END $$;

-- The delivery, and the way of a broken one: its run fails, with a dead letter.
CREATE FUNCTION hook.deliver_or_bury(d jsonb) RETURNS jsonb
LANGUAGE plpgsql AS $$
DECLARE
	buried jsonb;
BEGIN
	RETURN hook.deliver(d);
EXCEPTION WHEN data_exception THEN
	buried := durable.local_step('hook.bury', jsonb_build_object('deadRunId', 'hook:' || (d ->> 'delivery'),
		'workflow', 'webhook', 'input', d, 'error', jsonb_build_object('message', SQLERRM, 'code', SQLSTATE)));
	RAISE;
END $$;

SELECT durable.register_handler('webhook-audit', 'hook.audit');
SELECT durable.register_workflow('webhook', 'hook.deliver_or_bury');
SELECT durable.register_workflow('webhook_dead', 'hook.dead_letter');
