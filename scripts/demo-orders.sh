# shellcheck shell=bash disable=SC2154
#
# The workflow part of scripts/demo, which sources this file.
#
# The shop of examples/orders gets 5,000 orders. Each is a run of a workflow that
# reserves stock, charges a card, waits for the bank, ships, and refunds what went
# wrong. Background workers execute the runs. Half of the way, the server is
# killed with SIGKILL and started again. At the end, queries compare stock, money
# and parcels with what the runs returned.

ORDERS=${ORDERS:-5000}

# As the shop, a role without rights beyond its own.
shop() { PGOPTIONS="-c role=shop -c client_min_messages=warning" q "$@"; }

orders_ended() { q "SELECT count(*) FROM durable.run WHERE finished_at IS NOT NULL" 2>/dev/null || echo 0; }
orders_ended_at_least() { (($(orders_ended) >= $1)); }

open_shop() {
	q "CREATE ROLE shop LOGIN; SELECT durable.grant_usage('shop')" >/dev/null
	q "GRANT CREATE ON DATABASE postgres TO shop"
	shop "SELECT" -f "$SCRATCH/src/examples/orders/schema.sql" -f "$SCRATCH/src/examples/orders/handlers.sql" \
		-f "$SCRATCH/src/examples/orders/workflow.sql" >/dev/null
	# too little of one product
	shop "INSERT INTO shop.product
		SELECT p, s, s FROM (VALUES ('book', 100000), ('lamp', 100000), ('rare', $ORDERS / 50)) v (p, s)"
}

# Each transaction places a hundred orders and starts their runs. Some cards have
# expired, and some addresses do not exist.
place_orders() {
	local from
	for ((from = 1; from <= ORDERS; from += 100)); do
		shop "WITH placed AS (
				INSERT INTO shop.orders
				SELECT n, CASE WHEN n % 10 = 1 THEN 'rare' WHEN n % 2 = 0 THEN 'book' ELSE 'lamp' END,
					   1 + n % 3, 10 + n, CASE WHEN n % 15 = 2 THEN 'expired' ELSE 'good' END,
					   CASE WHEN n % 25 = 3 THEN 'nowhere' ELSE 'here' END
				  FROM generate_series($from, least($from + 99, $ORDERS)) n
				RETURNING id)
			SELECT count(*) FROM (
				SELECT durable.start_many('fulfil', array_agg(jsonb_build_object('order', id)), array_agg('order-' || id))
				  FROM placed) s" >/dev/null
	done
}

# The bank confirms in the order in which it was asked, and forgets one in twenty.
# It is a client like any other: it connects again after a crash, and a signal is
# part of its own transaction.
bank() {
	while :; do
		shop "WITH next AS (
				INSERT INTO shop.confirmed
				SELECT id FROM shop.orders o WHERE NOT EXISTS (SELECT FROM shop.confirmed c WHERE c.id = o.id)
				 ORDER BY id LIMIT 250
				RETURNING id)
			SELECT count(durable.signal('paid:' || id)) FROM next WHERE id % 20 <> 4" >/dev/null 2>&1 || true
		sleep 0.1
	done
}

orders_report() {
	cat <<-SQL | as_user psql -XAtq -F '  ' -v ON_ERROR_STOP=1
		SELECT format('%-52s %10s', what, n) FROM (VALUES
			(1, 'orders placed', (SELECT count(*)::text FROM shop.orders)),
			(2, 'runs that have completed', (SELECT count(*)::text FROM durable.run WHERE status = 'completed')),
			(3, 'orders whose state is not what their run returned', (SELECT count(*)::text FROM shop.orders o
				LEFT JOIN durable.run r ON r.run_id = 'order-' || o.id WHERE o.state IS DISTINCT FROM r.output ->> 'state')),
			(4, 'pieces missing in stock', (SELECT sum(stocked - stock)::text FROM shop.product)),
			(5, '  … and in shipped orders', (SELECT sum(quantity)::text FROM shop.orders WHERE state = 'shipped')),
			(6, 'money in the ledger', (SELECT sum(amount)::text FROM shop.ledger)),
			(7, '  … and in shipped orders', (SELECT sum(amount)::text FROM shop.orders WHERE state = 'shipped')),
			(8, 'parcels', (SELECT count(*)::text FROM shop.shipment)),
			(9, '  … and shipped orders', (SELECT count(*)::text FROM shop.orders WHERE state = 'shipped')),
			(10, 'orders charged or refunded more than once', (SELECT count(DISTINCT order_id)::text FROM (
				SELECT order_id FROM shop.ledger GROUP BY order_id, kind HAVING count(*) > 1) x)),
			(11, 'charges that took more than one attempt', (SELECT count(*)::text FROM durable.checkpoint
				WHERE name = 'shop.charge' AND attempts > 1))) v (i, what, n)
		ORDER BY i;
		SELECT format('%-52s %10s', 'orders ' || state, count(*)) FROM shop.orders GROUP BY state ORDER BY state;
	SQL
}

orders_exactly_once() {
	[[ $(q "SELECT (SELECT count(*) FROM durable.run WHERE status = 'completed') = $ORDERS
		AND NOT EXISTS (SELECT FROM shop.orders o LEFT JOIN durable.run r ON r.run_id = 'order-' || o.id
			WHERE o.state IS DISTINCT FROM r.output ->> 'state')
		AND NOT EXISTS (SELECT FROM shop.product p WHERE stocked - stock IS DISTINCT FROM (
			SELECT coalesce(sum(quantity), 0) FROM shop.orders o WHERE o.product = p.product AND o.state = 'shipped'))
		AND NOT EXISTS (SELECT FROM shop.orders o WHERE
			(SELECT coalesce(sum(amount), 0) FROM shop.ledger l WHERE l.order_id = o.id)
				<> CASE o.state WHEN 'shipped' THEN o.amount ELSE 0 END
			OR (SELECT count(*) FROM shop.shipment s WHERE s.order_id = o.id) <> (o.state = 'shipped')::int)
		AND NOT EXISTS (SELECT FROM shop.ledger GROUP BY order_id, kind HAVING count(*) > 1)
		AND NOT EXISTS (SELECT FROM durable.task)") == t ]]
}

# One run that had to undo what it did, as its history has it.
orders_timeline() {
	local run
	run=$(q "SELECT run_id FROM durable.run WHERE output ->> 'state' = 'failed'
		ORDER BY (SELECT max(attempts) FROM durable.checkpoint c WHERE c.run = id) DESC, id LIMIT 1")
	echo "The history of $run:"
	cat <<-SQL | as_user psql -Xq -P footer=off -v ON_ERROR_STOP=1
		SELECT h.seq, round(1000 * extract(epoch FROM h.started_at - r.created_at))::int AS "begun, ms",
			   round(1000 * extract(epoch FROM h.finished_at - r.created_at))::int AS "ended, ms",
			   h.kind, h.name, h.attempts, h.status, coalesce(h.error ->> 'message', h.output::text) AS outcome
		  FROM durable.run r, durable.history(r.run_id) h WHERE r.run_id = '$run' ORDER BY h.seq;
	SQL
}

orders_part() {
	local begin bank_pid
	begin_part orders_ended "$ORDERS" 'orders ended' : :
	open_shop
	shop "CREATE TABLE shop.confirmed (id int PRIMARY KEY)"
	say "placing $ORDERS orders; the background workers begin at once"
	begin=$SECONDS
	place_orders
	bank &
	bank_pid=$!
	wait_for "working" orders_ended_at_least $((ORDERS / 2))
	kill_server
	wait_for "working" orders_ended_at_least "$ORDERS"
	kill "$bank_pid"
	wait "$bank_pid" 2>/dev/null || true
	say "done in $((SECONDS - begin)) s"

	echo
	orders_report
	echo
	orders_timeline
	orders_exactly_once || die "NOT every order happened exactly once"
	echo "Every order was charged, shipped or refunded exactly once, over a killed server."
	echo
}
