"""The Python worker of the webhooks: the step "webhook-score". SIGTERM ends it.

durable_worker.py is found beside this file or by PYTHONPATH.
"""

import json
import os
import signal
import sys
import threading
import time

import psycopg2

from durable_worker import Worker

local = threading.local()


def connection():
    """One for each of the worker's threads."""
    if getattr(local, "connection", None) is None or local.connection.closed:
        local.connection = psycopg2.connect(application_name=os.environ.get("PGAPPNAME", "python") + " handler")
        local.connection.autocommit = True
    return local.connection


# Executed at least once. The key makes it one effect, also when the claim was lost after
# the insert and somebody else comes here again.
def score(letter, task):
    time.sleep(float(os.environ.get("WORK", "0.002")))
    with connection().cursor() as cursor:
        cursor.execute(
            """INSERT INTO hook.handled (delivery, handler, language, digest, takeovers)
               SELECT l ->> 'delivery', 'score', 'python', md5((l -> 'payload')::text), %s FROM (SELECT %s::jsonb) x (l)
               ON CONFLICT (delivery, handler) DO UPDATE SET executed = handled.executed + 1, takeovers = excluded.takeovers""",
            [task["reclaims"], json.dumps(letter)])
    return {"score": len(letter["payload"]), "attempt": task["attempt"]}


worker = Worker(handlers={"webhook-score": score}, name=os.environ.get("PGAPPNAME"), concurrency=4,
                lease=float(os.environ.get("LEASE", "3")), poll=0.5).start()
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
while not stop.wait(1):
    pass
worker.stop(grace=1)
sys.exit(0)
