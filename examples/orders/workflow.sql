--
-- An order's way: reserve, charge, wait until the bank confirms, ship. What goes
-- wrong after the charge is undone by steps of its own.
--
-- The body decides and writes nothing; it runs again from the top each time
-- something has come in, and gets the recorded results of what it did before.
--

CREATE FUNCTION shop.fulfil(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	charged boolean := false;
	parcel jsonb;
	state text;
	reason text;
BEGIN
	BEGIN
		PERFORM durable.local_step('shop.reserve', i);
	EXCEPTION WHEN SQLSTATE 'SH001' THEN
		PERFORM durable.local_step('shop.set_state', i || '{"state": "rejected"}');
		RETURN jsonb_build_object('state', 'rejected', 'reason', SQLERRM);
	END;

	BEGIN
		-- six attempts at most; a failed one leaves nothing
		PERFORM durable.local_step('shop.charge', i, retries => 6, backoff => '20 ms', jitter => true);
		charged := true;
		-- by whatever talks to the bank: SELECT durable.signal('paid:17')
		PERFORM durable.wait_for_signal('paid:' || (i ->> 'order'), timeout => '3 s');
		-- dispatched: whoever serves steps of this name
		parcel := durable.step('ship', i, retries => 2);
		state := 'shipped';
	EXCEPTION
		WHEN SQLSTATE 'WF004' THEN
			state := 'not confirmed';
			reason := SQLERRM;
		WHEN OTHERS THEN
			state := 'failed';
			reason := SQLERRM;
	END;

	IF state <> 'shipped' THEN
		IF charged THEN
			PERFORM durable.local_step('shop.refund', i);
		END IF;
		PERFORM durable.local_step('shop.unreserve', i);
	END IF;
	PERFORM durable.local_step('shop.set_state', i || jsonb_build_object('state', state));
	RETURN jsonb_build_object('state', state, 'parcel', parcel, 'reason', reason);
END $$;

SELECT durable.register_handler('ship', 'shop.ship');
SELECT durable.register_workflow('fulfil', 'shop.fulfil');
