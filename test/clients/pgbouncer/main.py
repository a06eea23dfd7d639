"""Twenty clients over two server connections; called by run."""

import os
import sys
import threading

import psycopg2
import psycopg2.extras
from psycopg2.extras import Json

CLIENTS = 20
TASKS = 400

count = 0
failed = 0


def is_(got, wanted, what):
    global count, failed
    count += 1
    if got == wanted:
        print(f"ok {count} - {what}", flush=True)
    else:
        failed += 1
        print(f"not ok {count} - {what}\n#      got: {got!r}\n#   wanted: {wanted!r}", flush=True)


def bouncer(dbname=os.environ["PGDATABASE"], user="bouncer_worker"):
    connection = psycopg2.connect(host=os.environ["BOUNCER_HOST"], port=os.environ["BOUNCER_PORT"], dbname=dbname, user=user)
    connection.autocommit = True
    return connection


def row(connection, sql, values=None):
    with connection.cursor(cursor_factory=psycopg2.extras.DictCursor) as cursor:
        cursor.execute(sql, values)
        return cursor.fetchone()


def value(connection, sql, values=None):
    return row(connection, sql, values)[0]


# A transaction of several statements; everything else is a transaction each.
class transaction:
    def __init__(self, connection):
        self.connection = connection

    def __enter__(self):
        self.connection.autocommit = False

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.connection.commit()
        else:
            self.connection.rollback()
        self.connection.autocommit = True
        return kind is Undone


class Undone(Exception):
    pass


direct = psycopg2.connect()
direct.autocommit = True
row(direct, "CREATE ROLE bouncer_worker LOGIN; SELECT 1")
row(direct, "CREATE TABLE effect (task_id text, n int, claimed_by int, settled_by int); GRANT ALL ON effect TO bouncer_worker;"
            " SELECT durable.grant_usage('bouncer_worker')")

# One client: dispatch, wait, claim, complete, results, as anywhere.
one = bouncer()
with transaction(one):
    row(one, "SELECT durable.dispatch('mail', task_id => 'never')")
    raise Undone
is_(value(one, "SELECT status FROM durable.task_status('never')"), None, "dispatch and rollback leaves nothing")
with transaction(one):
    is_(value(one, "SELECT durable.dispatch('mail', %s, task_id => 'mail:1', priority => 2)", [Json({"to": "ada"})]), "mail:1", "dispatch")
is_(value(one, "CALL durable.wait_for_work('{mail}', '1 minute')"), True, "wait_for_work")
task = row(one, "SELECT * FROM durable.claim('{mail}', 1, '5 minutes')")
is_((task["task_id"], task["input"], task["priority"]), ("mail:1", {"to": "ada"}, 2), "claim")
with transaction(one):
    row(one, "INSERT INTO effect VALUES ('mail:1', 0) RETURNING 1")
    is_(value(one, "SELECT durable.complete(%s, %s)", [task["task_id"], task["token"]]), True, "complete")
    raise Undone
is_(value(one, "SELECT status FROM durable.task_status('mail:1')"), "claimed", "rolled back, the task is still claimed")
with transaction(one):
    row(one, "INSERT INTO effect VALUES ('mail:1', 0) RETURNING 1")
    row(one, "SELECT durable.complete(%s, %s, %s)", [task["task_id"], task["token"], Json({"sent": True})])
is_(tuple(row(one, "SELECT status, output FROM durable.task_status('mail:1')")), ("completed", {"sent": True}), "committed, it is completed")
is_(value(one, "SELECT count(*) FROM effect"), 1, "with the own write, once")
result = row(one, "SELECT * FROM durable.claim_results('{mail}')")
is_((result["task_id"], result["status"], result["output"]), ("mail:1", "completed", {"sent": True}), "claim_results")
is_(value(one, "SELECT durable.ack_results(%s)", [result["token"]]), 1, "ack_results")

# A token is not bound to a connection: hold one server connection in a transaction,
# so that what follows takes the other one.
row(one, "SELECT durable.dispatch('move')")
other = bouncer()
task = row(one, "SELECT pg_backend_pid() AS pid, * FROM durable.claim('{move}', 1, '5 minutes')")
moved = []
with transaction(other):
    row(other, "SELECT 1")
    for client in (one, bouncer()):
        moved.append(value(client, "SELECT pg_backend_pid()"))
    own = value(other, "SELECT pg_backend_pid()")
is_(len({own} | set(moved)), 2, "there are two server connections")
with transaction(other if own != task["pid"] else one):
    holder = other if own != task["pid"] else one
    row(holder, "SELECT 1")
is_(value(bouncer(), "SELECT durable.heartbeat(%s, %s)", [task["task_id"], task["token"]]), True, "any client may use the token")
is_(value(bouncer(), "SELECT durable.complete(%s, %s)", [task["task_id"], task["token"]]), True, "and settle with it")

# Twenty clients work at once.
settled = []
errors = []
lock = threading.Lock()


def work(name):
    connection = bouncer()
    while len(settled) < TASKS:
        task = row(connection, "SELECT pg_backend_pid() AS pid, * FROM durable.claim('{load}', 1, '5 minutes', %s)", [name])
        if task is None:
            # a short wait: it occupies one of the two server connections
            row(connection, "CALL durable.wait_for_work('{load}', '1 ms')")
        elif task["input"]["n"] % 10 == 0 and task["attempt"] == 1:
            row(connection, "SELECT durable.fail(%s, %s, %s)", [task["task_id"], task["token"], Json({"message": "first time"})])
        else:
            if task["input"]["n"] % 10 == 1:
                with transaction(connection):
                    row(connection, "INSERT INTO effect VALUES (%s, -1) RETURNING 1", [task["task_id"]])
                    row(connection, "SELECT durable.complete(%s, %s)", [task["task_id"], task["token"]])
                    raise Undone
            with transaction(connection):
                row(connection, "INSERT INTO effect VALUES (%s, %s, %s, pg_backend_pid()) RETURNING 1",
                    [task["task_id"], task["input"]["n"], task["pid"]])
                if not value(connection, "SELECT durable.complete(%s, %s)", [task["task_id"], task["token"]]):
                    raise RuntimeError("lost")
            with lock:
                settled.append(task["task_id"])
    connection.close()


def produce(name):
    connection = bouncer()
    for n in range(1, TASKS + 1):
        if n % 10 == 5:
            with transaction(connection):
                row(connection, "SELECT durable.dispatch('load', %s)", [Json({"n": 0})])
                raise Undone
        with transaction(connection):
            row(connection, "SELECT durable.dispatch('load', %s, max_attempts => 2)", [Json({"n": n})])
    connection.close()


def guarded(function, name):
    try:
        function(name)
    except Exception as error:  # a thread's error must not be lost
        errors.append(repr(error))
        settled.extend([None] * TASKS)


threads = [threading.Thread(target=guarded, args=(work, f"w{i}")) for i in range(CLIENTS - 1)]
threads.append(threading.Thread(target=guarded, args=(produce, "producer")))
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
is_(errors, [], "twenty clients: no errors")
is_(tuple(row(direct, "SELECT count(*), count(DISTINCT task_id), sum(n) FROM effect WHERE claimed_by IS NOT NULL")),
    (TASKS, TASKS, TASKS * (TASKS + 1) // 2), "every task has its effect once")
is_(tuple(row(direct, "SELECT count(*) FILTER (WHERE status = 'completed'), count(*) FILTER (WHERE attempt = 2)"
                      " FROM durable.task_result WHERE name = 'load'")),
    (TASKS, TASKS // 10), "and its result, after a retry where it failed")
is_(value(direct, "SELECT count(*) FROM (SELECT claimed_by FROM effect UNION SELECT settled_by FROM effect) c WHERE claimed_by IS NOT NULL"), 2,
    "two server connections did it all")
is_(value(direct, "SELECT count(*) > 0 FROM effect WHERE claimed_by <> settled_by"), True,
    "some tasks were claimed over one and settled over the other")
# Turns of an external workflow: the thin worker of the examples, over the same two.
sys.path.insert(0, "../../../examples/workers/python")
sys.dont_write_bytecode = True
from durable_worker import Worker  # noqa: E402


def order(ctx, input):
    ctx.transaction("book", lambda cursor, i: cursor.execute("INSERT INTO effect VALUES (%s, %s)", [ctx.run_id, input]))
    ctx.step("pay", 0)
    ctx.side_effect(lambda: "paid")
    paid = ctx.step_all("pay", [input, input + 1])
    return [paid, ctx.wait_for_signal("sent:" + ctx.run_id)]


RUNS = 40
row(direct, "SELECT durable.register_workflow('order', namespace => 'default')")
row(direct, "SELECT count(durable.signal('sent:o' || i, to_jsonb(i))) FROM generate_series(1, %s) i", [RUNS])
row(direct, """SELECT count(*) FROM durable.start_many('order', (SELECT array_agg(to_jsonb(i)) FROM generate_series(1, %s) i),
    (SELECT array_agg('o' || i) FROM generate_series(1, %s) i))""", [RUNS, RUNS])
worker = Worker(dsn=bouncer().dsn, workflows={"order": order}, handlers={"pay": lambda i, task: i * 10}, concurrency=6, poll=0.05).start()
value(direct, "SELECT set_config('statement_timeout', '120s', false)")
while value(direct, "SELECT count(*) FROM durable.run WHERE finished_at IS NULL") > 0 and all(t.is_alive() for t in worker.threads):
    threading.Event().wait(0.1)
worker.stop()
is_(tuple(row(direct, """SELECT count(*), count(*) FILTER (WHERE status = 'completed' AND output = jsonb_build_array(
        jsonb_build_array(10 * i.n, 10 * (i.n + 1)), i.n)) FROM durable.run, LATERAL (SELECT input::int AS n) i WHERE workflow = 'order'""")),
    (RUNS, RUNS), "an external worker: every run completes")
is_(value(direct, """SELECT count(*) FROM durable.checkpoint s JOIN durable.checkpoint e ON e.run = s.run AND e.seq = s.seq + 1
        WHERE s.kind = 'step' AND e.name = 'sideEffect' AND s.xmin = e.xmin"""), RUNS, "what follows from the first result came with it")
is_(tuple(row(direct, "SELECT count(*), count(DISTINCT task_id), sum(n) FROM effect WHERE task_id LIKE 'o%%'")),
    (RUNS, RUNS, RUNS * (RUNS + 1) // 2), "what it wrote with a record is there once")
is_(value(direct, "SELECT rescued FROM durable.scan_hints()"), 0, "no row was found behind a hint")

print(f"1..{count}")
sys.exit(1 if failed else 0)
