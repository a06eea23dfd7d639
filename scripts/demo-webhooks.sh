# shellcheck shell=bash disable=SC2154
#
# The webhooks part of scripts/demo, which sources this file and demo-queue.sh.
#
# The payloads of the queue part come as webhooks: some twice or three times, some
# broken. Each delivery is a run of the workflow in examples/webhooks, which validates
# it and hands it to handlers in SQL, Node and Python. Background workers execute
# what is SQL. Each of the other two workers is killed with claims in its hands,
# and started again. At the end, a table tells what became of the deliveries.

DELIVERIES=${DELIVERIES:-2000}

# As the owner of the workflow, a role without rights beyond its own.
hook() { PGOPTIONS="-c role=hook_worker -c client_min_messages=warning" q "$@"; }

hooks_ended() { q "SELECT count(*) FROM durable.run WHERE workflow = 'webhook' AND finished_at IS NOT NULL" 2>/dev/null || echo 0; }
hooks_ended_at_least() { (($(hooks_ended) >= $1)); }
hooks_all_ended() { hooks_ended_at_least "$DELIVERIES" && [[ $(q "SELECT NOT EXISTS (SELECT FROM durable.run WHERE workflow LIKE 'webhook%' AND finished_at IS NULL)") == t ]]; }

hook_logs() { tail -n 20 "$SCRATCH"/log/hook-*.log >&2; }
hook_pid() { cat "$SCRATCH/hook-$1.pid"; }
hook_workers_alive() {
	local name
	for name in node python; do
		kill -0 "$(hook_pid $name)" 2>/dev/null || { show_failure; die "the $name worker died"; }
	done
}
hook_workers_gone() {
	local name
	for name in node python; do
		! kill -0 "$(hook_pid $name)" 2>/dev/null || return
	done
}

# pg for the Node worker, from npm.
install_hook_workers() {
	local dir=$SCRATCH/webhooks
	command -v npm >/dev/null || need_packages nodejs npm
	mkdir "$dir"
	cp "$ROOT"/examples/workers/node/{package.json,package-lock.json,durable-worker.mjs} "$ROOT"/examples/webhooks/webhooks.{mjs,py} \
		"$ROOT/examples/workers/python/durable_worker.py" "$dir"
	say "installing the Node worker's package with npm"
	npm_config_cache=$dir/cache npm_config_update_notifier=false \
		npm ci --prefix "$dir" --ignore-scripts --no-audit --no-fund >"$SCRATCH/log/npm-ci.log" 2>&1 ||
		{ tail -n 20 "$SCRATCH/log/npm-ci.log" >&2; die "npm could not install the Node worker's package"; }
	chmod -R a+rX "$dir"
}

open_hooks() {
	q "CREATE ROLE hook_worker LOGIN; SELECT durable.grant_usage('hook_worker')" >/dev/null
	q "GRANT CREATE ON DATABASE postgres TO hook_worker"
	hook "SELECT" -f "$SCRATCH/src/examples/webhooks/webhooks.sql" >/dev/null
	[[ $(q "SELECT to_regclass('payload') IS NOT NULL") == t ]] || load_payloads
	q "CREATE TABLE hook.payload AS SELECT id, event, body::text FROM payload; ALTER TABLE hook.payload OWNER TO hook_worker"
	hook "SELECT" -v n="$DELIVERIES" -f "$SCRATCH/src/examples/webhooks/deliveries.sql" >/dev/null
}

start_hook_worker() {
	local name=$1 dir=$SCRATCH/webhooks
	(
		export PGUSER=hook_worker PGAPPNAME=$name LEASE_MS=3000 LEASE=3
		case $name in
		node) exec_as_user node "$dir/webhooks.mjs" ;;
		python) exec_as_user /usr/bin/python3 -B "$dir/webhooks.py" ;;
		esac
	) >>"$SCRATCH/log/hook-$name.log" 2>&1 &
	echo $! >"$SCRATCH/hook-$name.pid"
	disown # bash need not say that it was killed
}

hook_claims() {
	q "SELECT count(*) FROM durable.lease l JOIN durable.task t ON t.id = ANY (l.ids)
		WHERE l.worker = '$1' AND l.id > coalesce(t.last_lease, 0)"
}

# Freeze the worker until it is seen to hold claims, then kill it, and start another one.
kill_hook_worker() {
	local name=$1 pid held
	pid=$(hook_pid "$name")
	while :; do
		kill -STOP "$pid"
		held=$(hook_claims "$name")
		((held == 0)) || break
		kill -CONT "$pid"
		! hooks_all_ended || die "all was done before a worker could be killed; take more DELIVERIES"
		sleep 0.02
	done
	kill -KILL "$pid"
	say "KILLED the $name worker (SIGKILL) with $held claims in its hands; they come back when their lease of 3 s ends"
	start_hook_worker "$name"
	say "started another $name worker"
}

# Four connections. A delivery may come by two at once.
send_hooks() {
	local sender senders=()
	for sender in 0 1 2 3; do
		hook "CALL hook.send($sender, 4)" &
		senders+=($!)
	done
	for sender in "${senders[@]}"; do wait "$sender"; done
}

hooks_report() { hook "SELECT" -f "$SCRATCH/src/examples/webhooks/report.sql" | sed '/^$/d'; }

webhooks_part() {
	local begin senders
	begin_part hooks_ended "$DELIVERIES" 'deliveries ended' hook_workers_alive hook_logs
	install_hook_workers
	open_hooks
	start_hook_worker node
	start_hook_worker python
	say "sending $(q "SELECT count(*) FROM hook.request") requests with $DELIVERIES deliveries"
	begin=$SECONDS
	send_hooks &
	senders=$!
	wait_for "working" hooks_ended_at_least $((DELIVERIES / 3))
	kill_hook_worker python
	wait_for "working" hooks_ended_at_least $((DELIVERIES * 2 / 3))
	kill_hook_worker node
	wait "$senders"
	wait_for "working" hooks_all_ended
	say "done in $((SECONDS - begin)) s"
	kill -TERM "$(hook_pid node)" "$(hook_pid python)"
	wait_until 30 hook_workers_gone || die "the workers do not end"

	echo
	hooks_report
	echo
	[[ $(hook "SELECT" -v n="$DELIVERIES" -f "$SCRATCH/src/examples/webhooks/check.sql" | sed '/^$/d') == t ]] ||
		die "NOT every delivery was handled once by each handler"
	echo "Every delivery was handled once by each of its handlers, over two killed workers; what came twice was dropped, what was broken is in the dead letter."
	echo
}
