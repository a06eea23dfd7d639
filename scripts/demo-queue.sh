# shellcheck shell=bash disable=SC2154
#
# The queue part of scripts/demo, which sources this file.
#
# The example webhooks of the npm package @octokit/webhooks-examples are queued,
# each under its event's name, until there are 10,000 tasks. Workers in sessions
# of their own claim and settle them. A third of the way, one worker is killed
# with claims in its hands; two thirds of the way, the server is killed with
# SIGKILL and started again. At the end, a query counts what was settled, and how
# often.

TASKS=${TASKS:-10000}
WORKERS=${WORKERS:-4}
EXAMPLES=@octokit/webhooks-examples@7.6.1

# --------------------------------------------------------------------- tasks --

# The package's list of events with their examples, as $SCRATCH/events.json.
fetch_examples() {
	local dir=$SCRATCH/npm
	command -v npm >/dev/null || (need_packages npm) || return 1
	mkdir "$dir"
	say "fetching $EXAMPLES with npm"
	(
		cd "$dir"
		export npm_config_cache=$dir/cache npm_config_update_notifier=false npm_config_fetch_retries=1
		timeout 120 npm pack --loglevel error --ignore-scripts "$EXAMPLES" >/dev/null &&
			tar -xzf ./*.tgz package/api.github.com/index.json
	) >"$SCRATCH/log/npm.log" 2>&1 || { head -n 4 "$SCRATCH/log/npm.log" >&2; return 1; }
	as_user tee "$SCRATCH/events.json" <"$dir/package/api.github.com/index.json" >/dev/null
}

# Fill the table payload (event, body).
load_payloads() {
	q "CREATE TABLE payload (id int GENERATED ALWAYS AS IDENTITY, event text, body jsonb)"
	if fetch_examples; then
		q "INSERT INTO payload (event, body)
			SELECT e ->> 'name', x
			  FROM jsonb_array_elements(pg_read_file('$SCRATCH/events.json')::jsonb) e,
				   jsonb_array_elements(e -> 'examples') x"
		say "payloads: $(payload_summary), real ones"
	else
		q "INSERT INTO payload (event, body)
			SELECT 'event_' || n % 58,
				   jsonb_build_object('action', 'generated', 'number', n,
					   'text', (SELECT string_agg(md5(n::text || i), ' ') FROM generate_series(1, 20 + n * 7 % 800) i))
			  FROM generate_series(1, 329) n"
		say "payloads: the package could not be had, so these are GENERATED: $(payload_summary)"
	fi
}

payload_summary() {
	q "SELECT format('%s for %s events, %s kB on average, %s kB at most', count(*), count(DISTINCT event),
			round(avg(length(body::text)) / 1000, 1), max(length(body::text)) / 1000) FROM payload"
}

# Queue the payloads round and round until there are $TASKS tasks. One call takes
# up to 100 payloads of one event; a task's queue is its name.
dispatch_tasks() {
	q "CREATE TABLE dispatched AS
		WITH picked AS (
			SELECT p.event, p.body, row_number() OVER (PARTITION BY p.event ORDER BY n) AS nth
			  FROM generate_series(1, $TASKS) n
			  JOIN payload p ON p.id = 1 + (n - 1) % (SELECT count(*) FROM payload)),
		batch AS (
			SELECT event, array_agg(body ORDER BY nth) AS bodies FROM picked GROUP BY event, nth / 100)
		SELECT event, task_id, md5(body::text) AS digest
		  FROM batch, ROWS FROM (durable.dispatch_many(event, bodies), unnest(bodies)) AS r (task_id, body)"
}

# ------------------------------------------------------------------- workers --

worker_pid() { cat "$SCRATCH/worker-$1.pid"; }

# Workers 1 and 2 settle task by task, the others by the hundred.
start_worker() {
	local n=$1 batch=$(($1 <= 2 ? 20 : 100))
	(
		# shellcheck disable=SC2046  # one word per queue
		exec_as_user /usr/bin/python3 "$SCRATCH/src/scripts/demo-worker.py" "w$n" $batch \
			$(q "SELECT DISTINCT event FROM payload ORDER BY 1")
	) >"$SCRATCH/log/worker-$n.log" 2>&1 &
	echo $! >"$SCRATCH/worker-$n.pid"
	disown # bash need not say that it was killed
}

settled() { q "SELECT count(*) FROM ledger" 2>/dev/null || echo 0; }
settled_at_least() { (($(settled) >= $1)); }
any_left() { [[ $(q "SELECT EXISTS (SELECT FROM durable.task)") == t ]]; }
all_settled() { settled_at_least "$TASKS" && ! any_left; }

workers_alive() {
	local n
	for ((n = 1; n <= WORKERS; n++)); do
		((n == killed)) || kill -0 "$(worker_pid $n)" 2>/dev/null || { show_failure; die "worker w$n died"; }
	done
}

workers_gone() {
	local n
	for ((n = 1; n <= WORKERS; n++)); do
		! kill -0 "$(worker_pid $n)" 2>/dev/null || return
	done
}

worker_logs() { tail -n 20 "$SCRATCH"/log/worker-*.log >&2; }

# How many tasks worker $1 holds: claimed by a round of its, and still there.
claims_of() {
	q "SELECT count(*) FROM durable.lease l, unnest(l.ids) AS c (id) JOIN durable.task t ON t.id = c.id
		WHERE l.worker = 'w$1' AND NOT EXISTS (SELECT FROM durable.task_ready r WHERE r.id = t.id)"
}

# Freeze worker $1 until it is seen to hold claims, then kill it.
kill_worker() {
	local pid held
	pid=$(worker_pid "$1")
	while :; do
		kill -STOP "$pid"
		held=$(claims_of "$1")
		((held < 5)) || break
		kill -CONT "$pid"
		! all_settled || die "all was settled before a worker could be killed; take more TASKS"
		sleep 0.02
	done
	kill -KILL "$pid"
	killed=$1
	say "KILLED worker w$1 (SIGKILL) with $held claims in its hands; they come back when their lease of 5 s ends"
}

# ---------------------------------------------------------------------- end --

report() {
	cat <<-SQL | as_user psql -XAtq -F '  ' -v ON_ERROR_STOP=1
		SELECT format('%-42s %8s', what, n) FROM (VALUES
			(1, 'tasks dispatched', (SELECT count(*) FROM dispatched)),
			(2, 'settled (rows in the ledger)', (SELECT count(*) FROM ledger)),
			(3, 'different tasks among them', (SELECT count(DISTINCT task_id) FROM ledger)),
			(4, 'settled more than once', (SELECT count(*) FROM (SELECT FROM ledger GROUP BY task_id HAVING count(*) > 1) x)),
			(5, 'never settled', (SELECT count(*) FROM dispatched d WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.task_id = d.task_id))),
			(6, 'payload arrived unchanged', (SELECT count(*) FROM ledger l JOIN dispatched d USING (task_id, event, digest))),
			(7, 'left in durable.task', (SELECT count(*) FROM durable.task)),
			(8, 'taken over from a lapsed claim', (SELECT count(*) FROM ledger WHERE takeovers > 0))) v (i, what, n)
		ORDER BY i;
		SELECT format('%-42s %8s', 'settled by worker ' || worker, count(*)) FROM ledger GROUP BY worker ORDER BY worker;
	SQL
}

exactly_once() {
	[[ $(q "SELECT (SELECT count(*) FROM dispatched) = $TASKS
		AND (SELECT count(*) FROM ledger) = $TASKS
		AND (SELECT count(DISTINCT task_id) FROM ledger) = $TASKS
		AND (SELECT count(*) FROM ledger JOIN dispatched USING (task_id, event, digest)) = $TASKS
		AND NOT EXISTS (SELECT FROM durable.task)") == t ]]
}

queue_part() {
	local n begin worked
	killed=0
	begin_part settled "$TASKS" 'tasks settled' workers_alive worker_logs
	q "CREATE TABLE ledger (task_id text, worker text, event text, takeovers int, digest text)"
	load_payloads

	say "dispatching $TASKS tasks"
	begin=${EPOCHREALTIME/[.,]/}
	dispatch_tasks
	say "dispatched $(q "SELECT count(*) FROM dispatched") tasks to $(q "SELECT count(DISTINCT event) FROM dispatched") queues in $(((${EPOCHREALTIME/[.,]/} - begin) / 1000)) ms"

	say "starting $WORKERS workers"
	begin=$SECONDS
	for ((n = 1; n <= WORKERS; n++)); do start_worker "$n"; done
	wait_for "working" settled_at_least $((TASKS / 3))
	kill_worker 2
	wait_for "working with $((WORKERS - 1)) workers" settled_at_least $((TASKS * 2 / 3))
	kill_server
	wait_for "working" all_settled
	worked=$((SECONDS - begin))
	for ((n = 1; n <= WORKERS; n++)); do
		((n == killed)) || kill -TERM "$(worker_pid $n)"
	done
	wait_until 30 workers_gone || die "the workers do not end"

	echo
	report
	echo
	exactly_once || die "NOT every task was settled exactly once"
	echo "Every task was settled exactly once, in $worked s, over a killed worker and a killed server."
}
