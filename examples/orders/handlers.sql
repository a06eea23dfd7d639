--
-- The steps. Each is a function that takes and returns jsonb. What it writes and
-- what it returns are recorded in one transaction, or not at all.
--

CREATE FUNCTION shop.reserve(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	o shop.orders;
BEGIN
	SELECT * INTO STRICT o FROM shop.orders WHERE id = (i ->> 'order')::int;
	UPDATE shop.product SET stock = stock - o.quantity
	 WHERE product = o.product AND stock >= o.quantity;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'not enough of % in stock', o.product USING ERRCODE = 'SH001';
	END IF;
	RETURN to_jsonb(o.quantity);
END $$;

CREATE FUNCTION shop.unreserve(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	UPDATE shop.product p SET stock = p.stock + o.quantity
	  FROM shop.orders o WHERE o.id = (i ->> 'order')::int AND p.product = o.product;
	RETURN NULL;
END $$;

CREATE FUNCTION shop.charge(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	o shop.orders;
BEGIN
	SELECT * INTO STRICT o FROM shop.orders WHERE id = (i ->> 'order')::int;
	INSERT INTO shop.ledger VALUES (o.id, 'charge', o.amount, durable.run_id());
	-- Both errors come after the write; it is undone with them.
	IF nextval('shop.provider_calls') % 7 = 0 THEN
		RAISE EXCEPTION 'the payment provider does not answer' USING ERRCODE = 'SH002';
	ELSIF o.card = 'expired' THEN
		RAISE EXCEPTION 'the card has expired' USING ERRCODE = 'SH003';
	END IF;
	RETURN to_jsonb(o.amount);
END $$;

CREATE FUNCTION shop.refund(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	refunded numeric;
BEGIN
	INSERT INTO shop.ledger
	SELECT order_id, 'refund', -amount, durable.run_id()
	  FROM shop.ledger WHERE order_id = (i ->> 'order')::int AND kind = 'charge'
	RETURNING amount INTO refunded;
	RETURN to_jsonb(refunded);
END $$;

CREATE FUNCTION shop.ship(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	o shop.orders;
BEGIN
	SELECT * INTO STRICT o FROM shop.orders WHERE id = (i ->> 'order')::int;
	INSERT INTO shop.shipment VALUES (o.id, durable.run_id());
	IF o.address = 'nowhere' THEN
		RAISE EXCEPTION 'nobody ships to %', o.address USING ERRCODE = 'SH004';
	END IF;
	RETURN jsonb_build_object('parcel', 'P' || o.id);
END $$;

CREATE FUNCTION shop.set_state(i jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	UPDATE shop.orders SET state = i ->> 'state' WHERE id = (i ->> 'order')::int;
	RETURN NULL;
END $$;
