"""A worker with the workflow of trip.sql, and the step "insure". SIGTERM ends it."""

import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "python"))

import durable_worker  # noqa: E402
from durable_worker import StepFailed, Worker, in_transaction  # noqa: E402


def trip(ctx, input):
    ctx.now()
    ctx.random()
    ctx.uuid()
    price = None
    if ctx.patched("priced first"):
        price = ctx.local_step("price", lambda i: {"total": i["nights"] * 80}, input)
    ctx.set_event("state", "priced")
    ctx.upsert_search_attributes({"city": input["city"]})
    ctx.log("info", "priced", price)
    charge = ctx.step("charge", price, retries=3, backoff_ms=1)
    squares = ctx.step_all("square", [1, 2, 3])
    leg = ctx.child("leg", {"to": "airport"})
    ctx.sleep(20)
    guide = ctx.wait_for_signal(f"guide:{ctx.run_id}")
    late = False
    try:
        ctx.wait_for_signal(f"nobody:{ctx.run_id}", timeout_ms=20)
    except StepFailed as error:
        if error.code != "WF004":
            raise
        late = True
    refused = None
    try:
        ctx.step("insure", {"age": 200})
    except StepFailed as error:
        if error.code != "22003":
            raise
        refused = str(error)
    ctx.side_effect(lambda: "chosen")
    settled = [one["value"] if one["status"] == "completed" else one["error"]["code"]
               for one in ctx.step_all("root", [4, -1, 9], mode="settled", max_in_flight=2)]
    called = None
    try:
        ctx.step_all("root", [-1, 16, 25], mode="fail_fast", max_in_flight=1)
    except StepFailed as error:
        if error.code != "2201F":
            raise
        called = "off"
    first = ctx.wait_any([ctx.step_async("nobody", 1), ctx.step_async("root", 36)])
    root, = ctx.wait_all([first])
    return {"charge": charge, "squares": squares, "leg": leg, "guide": guide, "late": late, "refused": refused,
            "settled": settled, "called": called, "root": root}


# It fails at last, and what it did is undone.
def retreat(ctx, input):
    room = ctx.local_step("reserve", lambda i: {"room": i["nights"]}, input)
    ctx.compensate("release", lambda i: f"room {i['room']} is free", input=room)
    squared = ctx.step("square", 3)
    ctx.compensate("undo", {"run": ctx.run_id, "what": squared})
    ctx.step("root", 16)
    ctx.compensate("root", -1)
    ctx.step_all("square", [1, 2])
    ctx.compensate("undo", {"run": ctx.run_id, "what": "squares"}, retries=2)
    ctx.step("insure", {"age": 200})
    return "never comes here"


# Steps one after the other, which this worker serves itself.
def chain(ctx, input):
    ctx.now()
    said = []
    for n in range(3):
        said.append(ctx.step("echo_python", {"n": n}, retries=2, backoff_ms=1))
        ctx.side_effect(lambda: "chosen")
        ctx.log("info", "said", said[n])
    ctx.local_step("here", lambda i: "here")
    said.append(ctx.step("echo_python", {"n": 3}))
    ctx.side_effect(lambda: "chosen")
    ctx.set_event("state", "said")
    aside = ctx.step_async("square", 7)
    refused = None
    try:
        ctx.step("insure", {"age": 200})
    except StepFailed as error:
        if error.code != "22003":
            raise
        refused = str(error)
    said.append(ctx.step("echo_python", {"n": 4}))
    return {"said": said, "aside": ctx.wait_all([aside])[0], "refused": refused}


def rush(ctx, n):
    return ctx.step("dash", n)


def marathon(ctx, n):
    for i in range(1000000):
        ctx.step("dash", i)


def hop(ctx, n):
    said = ctx.step("echo_python", {"n": n})
    ctx.side_effect(lambda: "hopped")
    return said


# What the body sees of a result must be the same before it is stored and after. A local step
# needs a turn that is claimed, with the history that the database has.
def odd(ctx, what):
    value = ctx.step("odd", what)
    if what == "body":
        return chr(0)
    before = ctx.side_effect(lambda: repr(value))
    ctx.step("odd", "none")
    ctx.local_step("turn", lambda i: None)
    return {"before": before, "after": repr(value)}


def odd_result(what, task):
    return {"keys": {"longer": {"b": 1, "a": [2]}, "b": 3, "a": None, "Zé": "é"},
            "numbers": [1e16, 1.25e20, 1e-7, -0.0, 0.0, 1.0, 1.10, 2 ** 70, 1.7976931348623157e308, 5e-324, True],
            "nul": chr(0), "set": {1}, "nan": float("nan")}.get(what)


class Nothing(Exception):
    code = "P0001"


# To be killed while it undoes.
def unwind(ctx, input):
    ctx.compensate("undo", {"run": ctx.run_id, "what": "first"})
    ctx.compensate("wait", work)
    ctx.compensate(os.environ.get("UNDO", "undo"), {"run": ctx.run_id, "what": "second"})
    raise Nothing("nothing left")


# One worker begins, another one ends it: both know the workflow.
def relay(ctx, input):
    first = ctx.local_step("first", lambda i: "python")
    baton = ctx.wait_for_signal(f"baton:{ctx.run_id}")
    second = ctx.local_step("second", lambda i: "python")
    return {"first": first, "signal": baton, "second": second}


# Long enough to be frozen in the middle.
def work(input=None, task=None):
    time.sleep(float(os.environ.get("WORK", "0")))
    return "python"


def frozen(ctx, input):
    by = ctx.local_step("by", work)
    return {"by": by, "step": ctx.step("slow")}


# The second step is long enough to be killed or frozen in it. Who decides what follows says so.
def pair(ctx, input):
    first = ctx.step("stay", {"long": False})
    ctx.side_effect(lambda: "python")
    second = ctx.step("stay", {"long": True})
    ctx.side_effect(lambda: "python")
    return [first, second]


def stay(input, task):
    return work() if input["long"] else "python"


# Something that is written once, whatever becomes of the workers.
def load(ctx, input):
    ctx.transaction("book", lambda cursor, i: cursor.execute("INSERT INTO trip.booked VALUES (%s, %s)", [ctx.run_id, input["n"]]))
    handles = [ctx.step_async("double", input["n"]), ctx.step_async("charge", {"total": input["n"]}, retries=3)]
    a, b = ctx.wait_all(handles)
    ctx.sleep(1)
    ctx.step("double", a)
    ctx.side_effect(lambda: "python")
    ctx.step("ship", {"n": input["n"]})
    return {"a": a, "b": b}


@in_transaction
def ship(cursor, input, task):
    cursor.execute("INSERT INTO trip.shipped VALUES (%s, %s)", [task["run_id"], input["n"]])


class Refused(Exception):
    code = "22003"
    retryable = False


class Busy(Exception):
    code = "55006"


def echo(input, task):
    if input["n"] == 1 and task["attempt"] == 1:
        raise Busy("once more")
    return {"said": input["n"]}


def patience(input, task):
    while not task.get("lost"):
        time.sleep(0.05)


def insure(input, task):
    raise Refused("too old")


if __name__ == "__main__":
    sys.setswitchinterval(1e-5)     # its threads come in each other's way much more often than they would
    worker = Worker(workflows={"trip_python": trip, "retreat_python": retreat, "chain_python": chain, "pair": pair, "hop_python": hop, "odd_python": odd,
                               "rush": rush, "marathon": marathon,
                               "unwind": unwind, "relay": relay, "load": load, "frozen": frozen},
                    handlers={"insure": insure, "echo_python": echo, "stay": stay, "odd": odd_result, "double": lambda n, task: n * 2, "dash": lambda n, task: n, "patience": patience, "slow": work, "ship": ship},
                    concurrency=int(os.environ.get("CONCURRENCY", "4")),
                    lease=float(os.environ.get("LEASE", "30")), poll=0.5,
                    history=int(os.environ["HISTORY"]) if "HISTORY" in os.environ else None)
    worker.pace = int(os.environ.get("PACE", "0"))     # as if tasks had been quick
    durable_worker.PATIENCE = float(os.environ.get("PATIENCE", durable_worker.PATIENCE))
    signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
    worker.start()
    worker.stopping.wait()
    worker.stop(grace=0.3)
