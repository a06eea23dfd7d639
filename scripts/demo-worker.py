#!/usr/bin/python3
"""A worker of scripts/demo: claims tasks, does its work, settles them.

Usage: demo-worker.py NAME BATCH QUEUE...   (connection by PGHOST, PGPORT, ...)

Its work is a row in public.ledger. The row and durable.complete commit together
or not at all: that is what makes the effect of a task happen exactly once,
whatever dies at whatever moment. BATCH is how many tasks it claims at a time;
it settles a small round task by task, a big one with complete_many.

SIGTERM ends it after the round in hand. It lives through a server crash: it
connects again, and its lost claims come back to somebody when their lease ends.
"""
import hashlib
import signal
import sys
import time

import psycopg2

NAME, BATCH, QUEUES = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
LEASE = "5 s"
WORK = 0.001    # seconds that a task takes, besides what the database does
BIG = 50    # a round of so many is settled at once
stopping = False


def stop(*_):
    global stopping
    stopping = True


def digest(payload):
    return hashlib.md5(payload.encode()).hexdigest()


def claim(db):
    """One round of claims: [(task id, token, queue, takeovers, payload)]."""
    with db, db.cursor() as cur:
        cur.execute(
            """SELECT task_id, token, queue, reclaims, input::text
                 FROM durable.claim(%s, max_tasks => %s, lease => %s, worker => %s)""",
            (QUEUES, BATCH, LEASE, NAME))
        return cur.fetchall()


def settle_each(db, tasks):
    """Each task in a transaction of its own."""
    for task_id, token, queue, reclaims, payload in tasks:
        with db, db.cursor() as cur:
            cur.execute("SELECT durable.complete(%s, %s, %s)",
                        (task_id, token, '{"by": "%s"}' % NAME))
            if not cur.fetchone()[0]:
                continue    # the lease had ended: somebody else's task now
            cur.execute("INSERT INTO ledger VALUES (%s, %s, %s, %s, %s)",
                        (task_id, NAME, queue, reclaims, digest(payload)))


def settle_all(db, tasks):
    """The whole round in one transaction."""
    with db, db.cursor() as cur:
        cur.execute("SELECT * FROM durable.complete_many(%s, %s)",
                    (tasks[0][1], [task[0] for task in tasks]))
        settled = {row[0] for row in cur.fetchall()}
        cur.executemany("INSERT INTO ledger VALUES (%s, %s, %s, %s, %s)",
                        [(task_id, NAME, queue, reclaims, digest(payload))
                         for task_id, token, queue, reclaims, payload in tasks
                         if task_id in settled])


def wait(db):
    """Sleep until there is work; no transaction may be open."""
    db.autocommit = True
    with db.cursor() as cur:
        cur.execute("CALL durable.wait_for_work(%s, timeout => '1 s')", (QUEUES,))
    db.autocommit = False


def work(db):
    while not stopping:
        tasks = claim(db)
        time.sleep(WORK * len(tasks))
        if not tasks:
            wait(db)
        elif BATCH >= BIG:
            settle_all(db, tasks)
        else:
            settle_each(db, tasks)


def main():
    signal.signal(signal.SIGTERM, stop)
    while not stopping:
        try:
            db = psycopg2.connect(application_name="worker " + NAME)
            work(db)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            time.sleep(0.2)     # the server is away


main()
