--
-- The shop's own tables. Nothing here knows of workflows.
--

CREATE SCHEMA shop;

CREATE TABLE shop.product (
	product	text PRIMARY KEY,
	stocked	int NOT NULL,				-- when the shop opened
	stock	int NOT NULL CHECK (stock >= 0)
);

CREATE TABLE shop.orders (
	id			int PRIMARY KEY,
	product		text NOT NULL REFERENCES shop.product,
	quantity	int NOT NULL,
	amount		numeric NOT NULL,
	card		text NOT NULL,
	address		text NOT NULL,
	state		text NOT NULL DEFAULT 'placed'
);

-- Money: a charge is positive, a refund negative.
CREATE TABLE shop.ledger (
	order_id	int NOT NULL REFERENCES shop.orders,
	kind		text NOT NULL,
	amount		numeric NOT NULL,
	run_id		text NOT NULL
);

CREATE TABLE shop.shipment (
	order_id	int NOT NULL REFERENCES shop.orders,
	run_id		text NOT NULL
);

-- The payment provider is a little unreliable: it counts its calls here, and a
-- sequence does not forget a call whose transaction is rolled back.
CREATE SEQUENCE shop.provider_calls;
