"""A thin worker for durable: executes workflows and steps that are written in Python.

The database keeps all state; docs/external-workers.md has the protocol.

    worker = Worker(workflows={"order": order}, handlers={"charge": charge}, concurrency=8)
    worker.start()
    worker.stop()        # hands back what is not done, uncounted

A workflow is a function of (ctx, input). It is called again from its beginning in each
turn; what ctx's functions gave before, they give again. So take time, chance and ids
from ctx, and do the work in steps. Each of `concurrency` threads executes one turn or step
at a time, and has a connection of its own once a local step needs it. Three more threads hand in
what is done, by the batch, and claim in the same call.

What a step did is undone by another step, with ctx.compensate(): when the body raises, the
undos are executed in reverse order, each recorded at the next position, and then the
run fails with what was raised. So they go on after a crash.

Needs psycopg2 (Debian: python3-psycopg2).
"""

import collections
import datetime
import decimal
import json
import math
import os
import random
import socket
import sys
import threading
import time
import uuid

import psycopg2
import psycopg2.extras

FLIGHTS = 2     # calls that hand in and claim, at once: while the server is at one the next is filled
NARROW = 4      # so many calls in a row may claim nothing but steps
RECENT = 0.2    # seconds; how quick tasks are is told by what was done in the last time of that length in which any was under way
PATIENCE = 1.0  # seconds; what has been claimed so long and has not begun is handed back: others may have a thread for it
EPOCH_2000_US = 946684800000000


class StepFailed(Exception):
    """A step, signal or child that failed; .error is what was recorded, .code its code."""

    def __init__(self, error):
        self.error = error or {}
        self.code = self.error.get("code")
        super().__init__(self.error.get("message", "failed"))


# Not Exceptions, so that "except Exception" in a body lets them pass.
class TurnEnded(BaseException):
    """The body has come to something that is not there yet."""


class Lost(BaseException):
    """The claim was lost, or the run cancelled: nothing of this turn counts."""


class Unrecorded(BaseException):
    """The connection failed where a local step was to be recorded, or may have been: another turn knows better."""


class TurnNeeded(BaseException):
    """The body has come to a local step, and no turn is claimed that it could be recorded with."""


class RunFailed(BaseException):
    """The run fails, whatever the body makes of it; .command or .error says how."""

    def __init__(self, command=None, error=None):
        self.command, self.error = command, error
        super().__init__()


def error_json(error):
    if isinstance(error, StepFailed):
        return {**error.error, "message": str(error)}
    result = {"message": str(error) or type(error).__name__}
    if isinstance(error, psycopg2.Error) and error.pgcode:
        result = {"message": error.diag.message_primary, "code": error.pgcode}
    for key in ("code", "detail", "details", "retryable"):
        if getattr(error, key, None) is not None:
            result[key] = getattr(error, key)
    return result


def without_none(**fields):
    return {key: value for key, value in fields.items() if value is not None}


def as_recorded(value):
    """What the database will give back for it: jsonb has shorter keys first, no exponents, and no negative zero."""
    def number(text):
        return int(decimal.Decimal(text)) if "e+" in text else float(text) + 0.0

    def members(pairs):
        return dict(sorted(pairs, key=lambda pair: (len(pair[0].encode("utf-8", "surrogatepass")), pair[0])))

    return json.loads(json.dumps(value), parse_float=number, object_pairs_hook=members)


def can_not_be_taken(error):
    """No JSON, or too large, or with a character that jsonb has not."""
    return not isinstance(error, psycopg2.Error) or (error.pgcode or "")[:2] in ("22", "54")


# ------------------------------------------------------------------- a turn --


class Context:
    """What a body sees. Each function but log() takes one position of the history."""

    def __init__(self, worker, task, history):
        self._worker, self._task, self._history = worker, task, history
        self._next = 0
        self._end = task["input"]["history_end"]
        self._started = time.monotonic()
        self._claimed = True
        self._open = {}         # handle -> its command, while pending
        self._undos = []        # (name, function), the newest last
        self.commands = []
        self.await_all = None
        self.blocked_on, self.blocked_at = None, None   # the only command that a turn which has ended waits for; since when
        self.run_id, self.namespace, self.headers = task["run_id"], task["namespace"], task["headers"] or {}

    def after(self, output):
        """The same turn once more, with what it has recorded and the result of the step that it was blocked on."""
        self._know(self.blocked_on["seq"], "step", self.blocked_on["name"], output)
        ctx = Context(self._worker, self._task, self._history)
        ctx._end, ctx._started, ctx._claimed = self.end, self._started, False
        return ctx

    @property
    def end(self):
        """How long the history is after this turn."""
        return max(self._end, self._next)

    # ---- the history

    def _know(self, seq, kind, name, output, status="completed"):
        self._history[seq] = {"seq": seq, "kind": kind, "name": name, "status": status, "output": as_recorded(output)}

    def _take(self, kind, name):
        """The next position, and what the history has there."""
        seq = self._next
        self._next += 1
        recorded = self._history.get(seq)
        if recorded and (recorded["kind"], recorded["name"]) != (kind, name):
            self._mismatch(seq, kind, name, f'{recorded["kind"]} "{recorded["name"]}"')
        return seq, recorded

    def _mismatch(self, seq, kind, name, recorded):
        raise RunFailed(error={
            "code": "WF002",
            "message": f'the history of run "{self.run_id}" does not match its workflow at position {seq}',
            "detail": f'The body asks for {kind} "{name}"; recorded is {recorded}.'})

    @staticmethod
    def _outcome(recorded):
        if recorded["status"] != "completed":
            raise StepFailed(recorded.get("error"))
        return recorded.get("output")

    def _record(self, kind, name, command):
        """Something that is known at once, and recorded with the turn."""
        seq, recorded = self._take(kind, name)
        if recorded:
            return recorded.get("output")
        output = command.get("value", command.get("output"))
        self._know(seq, kind, name, output)
        self.commands.append({**command, "seq": seq})
        return output

    def _ask(self, kind, name, command):
        """Something with an outcome; its handle. It is waited for in _wait()."""
        seq, recorded = self._take(kind, name)
        if recorded is None or recorded["status"] == "pending":
            self._open[seq] = {**command, "seq": seq}
        return seq

    def _wait(self, handles):
        """The outcomes, or the end of the turn."""
        pending = [handle for handle in handles if handle in self._open]
        if pending:
            if len(pending) > 1 and max(handles) - min(handles) == len(handles) - 1:
                self.await_all = [min(handles), max(handles)]
            self.blocked_on, self.blocked_at = self._open[pending[0]] if len(pending) == 1 else None, time.monotonic()
            self._end_turn(handles)
        return [self._outcome(self._history[handle]) for handle in handles]

    def _end_turn(self, handles, command=None):
        """The turn waits for these, and for what the command asks for."""
        for seq, asked in self._open.items():
            if asked["type"] == "call" and seq not in handles:
                asked["await"] = False
        self.commands += self._open.values()
        if command:
            self.commands.append(command)
        raise TurnEnded

    # ---- what a body calls

    def step(self, name, input=None, **options):
        """Dispatch a step to whoever serves its name, and wait for the result."""
        return self._wait([self.step_async(name, input, **options)])[0]

    @staticmethod
    def _options(retries=None, backoff_ms=None, backoff_kind=None, backoff_max_ms=None, jitter=None, queue=None,
                 priority=None, timeout_ms=None, pickup_timeout_ms=None, requires=None):
        return without_none(retries=retries, backoff_ms=backoff_ms, backoff_kind=backoff_kind, backoff_max_ms=backoff_max_ms,
                            jitter=jitter, queue=queue, priority=priority, timeout_ms=timeout_ms, pickup_timeout_ms=pickup_timeout_ms,
                            requires=requires)

    def step_async(self, name, input=None, **options):
        """Dispatch a step and go on; the handle for wait_all() and wait_any()."""
        return self._ask("step", name, {**without_none(type="call", name=name, input=input), **self._options(**options)})

    def wait_all(self, handles):
        """All results, or the first failure in their order."""
        return self._wait(list(handles))

    def wait_any(self, handles):
        """The first of the handles, in their order, that has ended."""
        seq, recorded = self._take("value", "await_any")
        if recorded:
            return recorded["output"]
        ended = next((handle for handle in handles if handle not in self._open), None)
        if ended is None:
            self._end_turn(handles)
        self.commands.append({"type": "await_any", "seq": seq, "handle": ended})
        self._know(seq, "value", "await_any", ended)
        return ended

    def step_all(self, name, inputs, mode="wait_all", max_in_flight=None, **options):
        """The same step for many inputs, at most max_in_flight at a time. mode: wait_all gives all results or raises
        the first failure in their order, fail_fast does not wait for the rest, settled gives a dict for each:
        status, and value or error."""
        inputs = list(inputs)
        first = self._next
        steps = [self._take("step", name)[1] for _ in inputs]
        if steps and steps[0] and None in steps:
            # the whole fan was recorded at once: a longer one is another
            self._mismatch(first + steps.index(None), "step", name, "a shorter fan")
        failed = [step for step in steps if step and step["status"] == "failed"]
        pending = [step for step in steps if step is None or step["status"] == "pending"]
        if pending and not (failed and mode == "fail_fast"):
            given = {"count": len(inputs)} if steps[0] else {"inputs": inputs}
            self._end_turn([], {"type": "call_all", "seq": first, "name": name, "mode": mode, **given,
                                **without_none(max_in_flight=max_in_flight), **self._options(**options)})
        if pending:
            self.commands.append({"type": "call_off", "seq": first, "name": name, "count": len(inputs)})
            for seq, step in enumerate(steps, first):
                if step["status"] == "pending":
                    self._know(seq, "step", name, None, status="cancelled")
        if mode == "settled":
            return [{"status": "completed", "value": step.get("output")} if step["status"] == "completed" else
                    {"status": "failed", "error": step.get("error")} for step in steps]
        if failed:
            raise StepFailed(failed[0].get("error"))
        return [step.get("output") for step in steps]

    def side_effect(self, function):
        """What the function gives, recorded with the turn: for what a body may not decide by itself."""
        if self._next in self._history:
            return self._outcome(self._take("local", "sideEffect")[1])
        return self._record("local", "sideEffect", {"type": "record_step", "name": "sideEffect", "output": function()})

    def local_step(self, name, function, input=None, retries=1, backoff_ms=0):
        """Run a function here. It is recorded before the turn ends, and may run again if that fails."""
        return self._local(name, lambda seq: self._worker.local_step(self._task, seq, name, input, function, retries, backoff_ms))

    def transaction(self, name, function, input=None):
        """A local step exactly once: what it writes with the cursor is committed with its record."""
        return self._local(name, lambda seq: self._worker.step_in_transaction(self._task, seq, name, input, function))

    def _local(self, name, execute):
        seq, recorded = self._take("local", name)
        if recorded and recorded["status"] != "pending":
            return self._outcome(recorded)
        if not self._claimed:
            raise TurnNeeded
        output = execute(seq)
        self._know(seq, "local", name, output)
        return output

    def sleep(self, ms):
        self._wait([self._ask("sleep", "sleep", {"type": "sleep", "ms": ms})])

    def sleep_until(self, when):
        self._wait([self._ask("sleep", "sleep", {"type": "sleep_until", "until": when.timestamp() * 1000})])

    def wait_for_signal(self, signal, timeout_ms=None):
        """The payload of the next signal; StepFailed with code WF004 when it does not come in time."""
        return self._wait([self._ask("signal", signal, without_none(type="wait_signal", signal=signal, timeout_ms=timeout_ms))])[0]

    def child(self, workflow, input=None, **options):
        return self._wait([self._ask_child(workflow, input, **options)])[0]

    def children(self, workflow, inputs, **options):
        return self._wait([self._ask_child(workflow, input, **options) for input in inputs])

    def _ask_child(self, workflow, input=None, child_id=None, priority=None, version=None):
        name = f"child:{child_id or f'{self.run_id}.child.{self._next}'}"
        return self._ask("child", name, without_none(
            type="start_child", workflow=workflow, input=input, child_id=child_id, priority=priority, version=version))

    def start_child(self, workflow, input=None, child_id=None, priority=None, version=None):
        """Start a child and go on; its id."""
        run_id = child_id or f"{self.run_id}.child.{self._next}"
        command = without_none(type="start_child", workflow=workflow, input=input, child_id=child_id,
                               priority=priority, version=version)
        self._record("child", f"child:{run_id}", {**command, "await": False})
        return run_id

    def now(self):
        elapsed = time.monotonic() - self._started
        value = str(round(self._task["input"]["now"] * 1000 + elapsed * 1000000) - EPOCH_2000_US)
        value = self._record("value", "now", {"type": "now", "value": value})
        return datetime.datetime.fromtimestamp((int(value) + EPOCH_2000_US) / 1000000, datetime.timezone.utc)

    def random(self):
        return float(self._record("value", "random", {"type": "random", "value": repr(random.random())}))

    def uuid(self):
        return uuid.UUID(self._record("value", "uuid", {"type": "uuid", "value": str(uuid.uuid4())}))

    def patched(self, patch):
        """True for runs that come here with the changed code, false for those that were past it."""
        recorded = self._history.get(self._next)
        if recorded and not (recorded["kind"] == "value" and recorded["name"].startswith("patch:")):
            return False
        self._record("value", f"patch:{patch}", {"type": "patched", "id": patch})
        return True

    def set_event(self, key, value):
        self._record("value", f"event:{key}", {"type": "set_event", "key": key, "value": value})

    def upsert_search_attributes(self, attributes):
        self._record("value", "searchAttributes", {"type": "upsert_search_attributes", "attributes": attributes})

    def log(self, level, message, data=None):
        if self._next >= self._end:
            self.commands.append(without_none(type="log", seq=self._next, level=level, message=message, data=data))

    def fail_run(self, message, code=None, details=None):
        raise RunFailed(command=without_none(type="fail_run", message=message, code=code, details=details))

    def compensate(self, name, undo=None, **options):
        """What undoes what was just done, should the body raise: a step, compensate("refund", input, **options), or a
        local one, compensate("release", function, **options). It takes its position when it is executed. One that fails does
        not keep the others from being executed; the run's error has it in details["compensations"]. fail_run() and
        a cancel undo nothing."""
        operation = self.local_step if callable(undo) else self.step
        self._undos.append((name, lambda: operation(name, undo, **options)))

    def undo(self):
        """All undos, the newest first; those that failed."""
        failed = []
        while self._undos:
            name, undo = self._undos.pop()
            try:
                undo()
            except Exception as error:
                failed.append(without_none(name=name, message=str(error), code=getattr(error, "code", None)))
                # what the database cannot take was not recorded: nothing can follow it
                if not isinstance(error, StepFailed):
                    break
        return failed


# --------------------------------------------------------------- the worker --


def in_transaction(handler):
    """A handler (cursor, input, task) whose writes with the cursor are committed together with the step's result."""
    handler.transaction = True
    return handler


class Worker:
    """workflows: name, or name@version -> body(ctx, input); handlers: name of a step or task -> function(input, task).

    concurrency: bodies and handlers at once; prefetch: tasks that are claimed at most while they are quick.
    history: turns come with that many checkpoints, and the worker keeps the histories of the
    last runs; needs the privilege read. None: with all of them. capabilities: what steps and
    workflows may require of this worker; None: what a worker of protocol 1 can do.
    """

    def __init__(self, dsn="", workflows=None, handlers=None, queues=None, namespace=None, name=None, concurrency=4, prefetch=None,
                 lease=30.0, poll=2.0, history=None, keep_runs=1000, capabilities=None, announce=10.0):
        self.dsn, self.namespace, self.concurrency, self.lease, self.poll = dsn, namespace, concurrency, lease, poll
        # as many runs again may be warm, so none of them is given up
        self.prefetch = prefetch or max(concurrency, min(48 * concurrency, keep_runs // 2))
        self.workflows, self.handlers = workflows or {}, handlers or {}
        self.workflow_names = sorted({key.split("@")[0] for key in self.workflows})
        self.queues = queues or sorted({*self.workflow_names, *self.handlers})
        self.step_queues = [queue for queue in self.queues if queue in self.handlers]
        self.name = name or f"python-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.capabilities, self.announce = capabilities, announce
        self.history, self.keep_runs = history, keep_runs
        # What the threads share is changed with the mutex held, which is never kept over a call.
        self.mutex = threading.Lock()
        self.to_execute = threading.Condition(self.mutex)
        self.to_exchange = threading.Condition(self.mutex)
        # (token, task_id) -> task, with task["lost"] once somebody else has it. A run has one
        # task for all its turns, and the next may be claimed before this one is forgotten.
        self.held = {}
        self.waiting = collections.deque()      # of them, those that have not begun
        self.outbox = []                        # (task, outcome) that are done and not handed in
        self.working = 0                        # threads that execute
        self.asked = 0                          # how many more claims are under way for
        self.polling = False                    # one of them waits for work
        self.flights = 0                        # the others hand in, too
        self.done = self.busy = 0.0             # tasks that were done of late, and the seconds in which any was under way
        self.counted = time.monotonic()
        self.pace = 0                           # how many are done during a flight
        self.warm = collections.OrderedDict()   # run_id -> the ended turn that waits for a step which this worker serves
        self.kept = collections.OrderedDict()   # run_id -> since, its history
        self.narrow = 0                         # calls in a row that have claimed nothing but steps
        self.stopping, self.stopped = threading.Event(), threading.Event()
        self.local = threading.local()
        self.threads = []

    def start(self):
        self.threads = [threading.Thread(target=target, daemon=True) for target, number in (
            (self._work, self.concurrency), (self._exchange_on, FLIGHTS + 1), (self._keep_alive, 1), (self._give_way, 1)) for _ in range(number)]
        self.announcer = threading.Thread(target=self._keep_announced, daemon=True)
        self._announce("up")
        for thread in [*self.threads, self.announcer]:
            thread.start()
        return self

    def stop(self, grace=10.0):
        """Finish what is under way for at most `grace` seconds, then hand the rest back."""
        self.stopping.set()
        self._announce("draining")
        end = time.monotonic() + grace
        # what is handed back must not be claimed by a call that still waits for work
        while self.asked or self.waiting or (self.held and time.monotonic() < end):
            with self.mutex:
                unbegun = list(self.waiting)
                self.waiting.clear()
            self._hand_back(unbegun)
            time.sleep(0.02)
        with self.mutex:
            unfinished = list(self.held.values())
        self._hand_back(unfinished)
        self.stopped.set()
        with self.mutex:
            self.to_execute.notify_all()
            self.to_exchange.notify_all()
        self.announcer.join()
        self._row("SELECT durable.withdraw_worker(%s, %s)", self.name, self.namespace)
        self._close()

    def _hand_back(self, tasks):
        rounds = collections.defaultdict(list)
        for task in tasks:
            task["lost"] = True
            rounds[task["token"]].append(task)
        for token, round in rounds.items():
            self._row("SELECT durable.release(%s, %s::text[])", token, [task["task_id"] for task in round])
            for task in round:
                self._forget(task)

    def _give_way(self):
        """All threads are busy with what takes long: what waits for one of them is for others, too."""
        while not self.stopping.wait(PATIENCE / 2):
            with self.mutex:
                late = list(self.waiting) if self.waiting and self.waiting[0]["claimed"] < time.monotonic() - PATIENCE else []
                if late:
                    self.waiting.clear()
                    self.pace = 0
            try:
                self._hand_back(late)
            except psycopg2.Error as error:
                print(f"{self.name}: {error}", file=sys.stderr)
                for task in late:       # it lapses
                    self._forget(task)
            if late:
                with self.mutex:
                    self.to_exchange.notify()
        self._close()

    # ---- telling who is here

    def _announce(self, status):
        try:
            outcome, = self._row(
                "SELECT durable.announce_worker(%s, %s::text[], %s::text[], %s::text[], '{1,1}', %s, %s, %s) ->> 'outcome'",
                self.name, self.queues, self.workflow_names, self.capabilities,
                json.dumps({"status": status, "runtime": "python", "concurrency": {"mode": "fixed", "limit": self.concurrency}, "inFlight": len(self.held)}),
                datetime.timedelta(seconds=3.5 * self.announce), self.namespace)
            if outcome == "incompatible":
                print(f"{self.name}: this worker and the database speak different protocols: it gets nothing", file=sys.stderr)
        except psycopg2.Error as error:
            print(f"{self.name}: {error}", file=sys.stderr)
        finally:
            self._close()

    def _keep_announced(self):
        while not self.stopped.wait(self.announce):
            self._announce("draining" if self.stopping.is_set() else "up")

    # ---- talking to the database

    def _connection(self):
        """The thread's own."""
        if self._is_disconnected():
            self.local.connection = psycopg2.connect(self.dsn, application_name=self.name)
            self.local.connection.autocommit = True
        return self.local.connection

    def _is_disconnected(self):
        connection = getattr(self.local, "connection", None)
        return connection is None or connection.closed != 0

    def _close(self):
        if not self._is_disconnected():
            self.local.connection.close()

    def _row(self, sql, *values):
        with self._connection().cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchone()

    def _roll_back(self):
        """False: the connection is lost, and nobody knows what became of the transaction."""
        try:
            if not self._is_disconnected():
                self.local.connection.cursor().execute("ROLLBACK")
        except psycopg2.Error:
            self._close()
        return not self._is_disconnected()

    @staticmethod
    def _json(value):
        return None if value is None else json.dumps(value)

    # ---- executing

    def _work(self):
        while True:
            with self.mutex:
                self.to_execute.wait_for(lambda: self.stopped.is_set() or (self.waiting and not self.stopping.is_set()))
                if self.stopped.is_set():
                    return self._close()
                task = self.waiting.popleft()
                self._count_busy()
                self.working += 1
            outcome = self._execute(task)
            with self.mutex:
                self._count_busy()
                self.working -= 1
                self.done += 1
                if outcome is None:
                    self.held.pop(self._key(task), None)
                else:
                    self.outbox.append((task, outcome))
                self.to_exchange.notify()

    def _count_busy(self):
        now = time.monotonic()
        if self.working:
            kept = math.exp((self.counted - now) / RECENT)
            self.done *= kept
            self.busy = self.busy * kept + now - self.counted
        self.counted = now

    def _execute(self, task):
        """What is to be handed in; None: nothing is."""
        if task.get("lost"):
            return None
        try:
            return self._turn(task) if task["kind"] == "turn" else self._step(task)
        except Exception as error:
            self._give_up(task, error)
            return None

    @staticmethod
    def _key(task):
        return task["token"], task["task_id"]

    def _give_up(self, task, error):
        """Another attempt may do better, after a while."""
        print(f"{self.name}: {task['kind']} {task['name']} of {task['run_id'] or task['task_id']}: {error}", file=sys.stderr)
        self.stopped.wait(1)
        try:
            self._hand_back([task])
        except psycopg2.Error:
            self._forget(task)

    def _forget(self, task):
        with self.mutex:
            self.held.pop(self._key(task), None)

    def _lost(self, task):
        print(f"{task['kind']} {task['name']} of {task['run_id'] or task['task_id']}: refused, the claim was lost", file=sys.stderr)

    # ---- handing in and claiming

    def _room(self, following=0):
        """How many tasks to ask for: the steps that follow, or as many as there are slots for and as will be done meanwhile."""
        if self.stopping.is_set():
            return 0
        wanted = self.concurrency + 2 * self.pace - len(self.waiting) - self.working
        room = max(0, min(wanted, self.prefetch - len(self.held) + following) - self.asked)
        return min(following, room) if following else room

    def _batch(self):
        """What to hand in next, and the queues to claim from. What is followed by a step of this worker goes first, and nothing but
        steps is claimed with it: what was begun goes on before more is begun, and such a step never stands in a list. Now and
        then it is others' turn."""
        going_on = [one for one in self.outbox if one[0]["run_id"] in self.warm] if self.narrow < NARROW else []
        batch = going_on or self.outbox
        self.outbox = [one for one in self.outbox if one[0]["run_id"] not in self.warm] if going_on else []
        self.narrow = self.narrow + 1 if going_on else 0
        return batch, self.step_queues if going_on else self.queues

    def _exchange_on(self):
        """Hands in whatever is done; when nothing is, one thread at a time waits for work."""
        failures = 0
        while True:
            with self.mutex:
                self.to_exchange.wait_for(lambda: self.stopped.is_set() or (self.outbox and self.flights < FLIGHTS) or (
                    not self.outbox and not self.flights and not self.polling and not self.waiting and self._room() > 0))
                if self.stopped.is_set():
                    return self._close()
                batch, queues = self._batch()
                room = self._room(len(batch) if queues is self.step_queues else 0)
                self.asked += room
                self.flights += bool(batch)
                self.polling = self.polling or not batch
            tasks = None
            try:
                tasks = self._hand_in(batch, room, queues) if batch else self._wait_and_claim(room)
                failures = 0
            except Exception as error:
                print(f"{self.name}: {error}", file=sys.stderr)
                self.stopped.wait(min(0.1 * 2 ** failures, 10))
                failures += 1
            with self.mutex:
                self.asked -= room
                self.flights -= bool(batch)
                self.polling = self.polling and bool(batch)
                # what was not handed in, after an error that may be over the next time
                self.outbox += [one for one in batch if self._key(one[0]) in self.held]
                for task in tasks or []:
                    task["claimed"] = time.monotonic()
                    self.held[self._key(task)] = task
                    self.waiting.append(task)
                self.to_execute.notify(len(tasks or []))
                self.to_exchange.notify()

    def _wait_and_claim(self, room):
        tasks, = self._row("CALL durable.wait_and_claim(%s, %s, %s, %s, %s, %s, NULL, %s)", self.queues, room, datetime.timedelta(seconds=self.lease),
                           datetime.timedelta(seconds=self.poll), self.name, self.namespace, self.history)
        return tasks

    def _hand_in(self, batch, room, queues, instead=False):
        """All of it in one call, which brings the next tasks. Raises what may be over the next time."""
        try:
            return self._exchange(batch, room, queues)
        except Exception as error:
            if isinstance(error, psycopg2.Error) and (self._is_disconnected() or (error.pgcode or "").startswith("57P")):
                raise
            if len(batch) > 1:      # one of them may be in the way of the others
                for one in batch:
                    self._hand_in([one], 0, queues)
                return None
            if isinstance(error, psycopg2.errors.DeadlockDetected):
                raise
            (task, outcome), = batch
            self._drop_warm(task, outcome)
            if can_not_be_taken(error) and not instead:
                self._hand_in([(task, self._instead(task, outcome, error))], 0, queues, instead="turn" not in outcome)
            else:
                self._give_up(task, error)

    @staticmethod
    def _instead(task, outcome, error):
        """A result without the decision after it, or a failure."""
        if "turn" in outcome:
            return without_none(output=outcome.get("output"))
        error = error_json(error)
        return {"decision": {"status": "failed", "error": error}} if task["kind"] == "turn" else {"error": {**error, "retryable": False}}

    def _exchange(self, batch, room, queues):
        begun = time.monotonic()
        results, tasks = self._row(
            "SELECT results, tasks FROM durable.exchange(%s, %s, %s, %s, %s, %s, %s)",
            json.dumps([{"task_id": task["task_id"], "token": task["token"], **outcome} for task, outcome in batch]),
            queues, room, datetime.timedelta(seconds=self.lease), self.name, self.namespace, self.history)
        with self.mutex:
            self._count_busy()
            self.pace = int(self.done / max(self.busy, RECENT / 4) * (time.monotonic() - begun))
        for (task, outcome), result in zip(batch, results):
            if result == 0:
                self._lost(task)
            if result < (2 if "turn" in outcome else 1):
                self._drop_warm(task, outcome)
            self._forget(task)
        return tasks

    # ---- turns

    def _turn(self, task):
        with self.mutex:
            self.warm.pop(task["run_id"], None)
        ctx = Context(self, task, self._history_of(task))
        try:
            decision = self._decide(ctx)
        except Lost:
            self._lost(task)
            return None
        except Unrecorded as unrecorded:
            raise unrecorded.__cause__
        self._keep_warm(ctx, decision)
        return {"decision": decision}

    def _decide(self, ctx):
        """What follows from the history, as far as the body comes."""
        workflow, version = ctx._task["input"]["workflow"], ctx._task["input"]["version"]
        body = self.workflows.get(f"{workflow}@{version}") or self.workflows.get(workflow)
        try:
            if body is None:
                raise RunFailed(error={"message": f'this worker has no workflow "{workflow}"', "code": "no_workflow"})
            decision = self._execute_body(body, ctx, ctx._task["input"].get("input"))
        except TurnEnded:
            decision = without_none(status="continue", await_all=ctx.await_all)
        except RunFailed as failed:
            decision = {"status": "failed", "error": failed.error}
            ctx.commands = [] if failed.error else ctx.commands + [failed.command]
        decision["commands"] = ctx.commands
        if decision["status"] == "completed":
            decision["commands"] += [{**command, "await": False} for command in ctx._open.values() if command["type"] == "call"]
        return decision

    @staticmethod
    def _execute_body(body, ctx, input):
        """The body and, when it raises, the undos; the decision."""
        try:
            output = body(ctx, input)
            json.dumps(output)
            return without_none(status="completed", output=output)
        except Exception as raised:
            error = error_json(raised)
            compensations = ctx.undo()
            if compensations:
                details = error.get("details", {})
                error["details"] = {**(details if isinstance(details, dict) else {"details": details}), "compensations": compensations}
            return {"status": "failed", "error": error}

    # ---- decisions after steps

    def _keep_warm(self, ctx, decision):
        """Where all that a run waits for is one step that this worker serves, it may decide at once what comes after. It is kept
        before the decision is handed in: the step may be claimed by the same call."""
        call = ctx.blocked_on
        with self.mutex:
            if decision["status"] != "continue":
                self.kept.pop(ctx.run_id, None)
            elif call and call["type"] == "call" and call["name"] in self.handlers and call.get("queue", call["name"]) in self.step_queues \
                    and not getattr(self.handlers[call["name"]], "transaction", False):
                self.warm[ctx.run_id] = ctx
                self.warm.move_to_end(ctx.run_id)
                # another worker may have the step
                while self.warm and (len(self.warm) > self.keep_runs or next(iter(self.warm.values())).blocked_at < ctx.blocked_at - self.lease):
                    self.warm.popitem(last=False)

    def _decide_after(self, task, output):
        """The decision that follows from a step's result; None: a turn has to be claimed for it."""
        with self.mutex:
            warm = self.warm.get(task["run_id"])
            if warm is None or warm.blocked_on["seq"] != task["seq"]:
                return None
            del self.warm[task["run_id"]]
        ctx = warm.after(output)
        try:
            decision = self._decide(ctx)
        except TurnNeeded:
            return None
        self._keep_warm(ctx, decision)
        return {"token": warm._task["token"], "history_end": warm.end, "decision": decision}

    def _drop_warm(self, task, outcome):
        """It was not decided so, after all. (A newer turn may have been claimed meanwhile.)"""
        token = outcome["turn"]["token"] if "turn" in outcome else task["token"]
        with self.mutex:
            warm = self.warm.get(task["run_id"])
            if warm and warm._task["token"] == token:
                del self.warm[task["run_id"]]

    # ---- histories

    def _history_of(self, task):
        given = task["input"]
        with self.mutex:
            since, known = self.kept.pop(task["run_id"], (None, None)) if self.history is not None else (None, None)
        if since != given["since"]:
            known = {}
        first = 0
        while first in known and known[first]["status"] != "pending":
            first += 1
        if first < given["history_from"]:
            with self._connection().cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
                cursor.execute("""SELECT seq, kind, name, output, error,
                        CASE WHEN kind = 'sleep' AND extract(epoch FROM wake_at) * 1000 > %s THEN 'pending' ELSE status END AS status
                    FROM durable.history(%s, %s)""", [given["now"], task["run_id"], first - 1])
                known.update((row["seq"], dict(row)) for row in cursor)
        known.update((checkpoint["seq"], checkpoint) for checkpoint in given["history"])
        if self.history is not None:
            with self.mutex:
                self.kept[task["run_id"]] = given["since"], dict(known)
                while len(self.kept) > self.keep_runs:
                    self.kept.popitem(last=False)
        return known

    def local_step(self, task, seq, name, input, function, retries, backoff_ms):
        started = datetime.datetime.now(datetime.timezone.utc)
        attempts, error, output = 0, None, None
        while attempts == 0 or (error and error.get("retryable") is not False and attempts < retries):
            if attempts:
                time.sleep(backoff_ms / 1000)
            attempts += 1
            try:
                error, output = None, function(input)
            except Exception as thrown:
                error = error_json(thrown)
        try:
            kept, = self._row("SELECT durable.record_step(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                              task["task_id"], task["token"], seq, name, None if error else self._json(output),
                              self._json(error), self._json(input), attempts, started)
        except psycopg2.Error as cause:
            if can_not_be_taken(cause):
                raise
            raise Unrecorded from cause
        if not kept:
            raise Lost
        if error:
            raise StepFailed(error)
        return output

    def step_in_transaction(self, task, seq, name, input, function):
        try:
            connection = self._connection()
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                output = function(cursor, input)
                cursor.execute("SELECT durable.record_step(%s, %s, %s, %s, %s, input => %s)",
                               [task["task_id"], task["token"], seq, name, self._json(output), self._json(input)])
                kept, = cursor.fetchone()
                cursor.execute("COMMIT" if kept else "ROLLBACK")
        except Exception as error:
            if not self._roll_back():
                raise Unrecorded from error
            failure = error

            def fail(_):
                raise failure
            return self.local_step(task, seq, name, input, fail, 1, 0)
        if not kept:
            raise Lost
        return output

    # ---- steps and tasks

    def _step_and_settle(self, task, handler):
        connection = self._connection()
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                output = handler(cursor, task["input"], task)
                cursor.execute("SELECT durable.complete(%s, %s, %s)", [task["task_id"], task["token"], self._json(output)])
                kept, = cursor.fetchone()
                cursor.execute("COMMIT" if kept else "ROLLBACK")
        except Exception as error:
            if not self._roll_back():
                raise
            return {"error": error_json(error)}
        if not kept:
            self._lost(task)
        return None

    def _step(self, task):
        handler = self.handlers.get(task["name"])
        if getattr(handler, "transaction", False):
            return self._step_and_settle(task, handler)
        try:
            if handler is None:
                raise StepFailed({"message": f"no handler for {task['name']}", "retryable": False})
            output = handler(task["input"], task)
            json.dumps(output)
        except Exception as error:
            return None if task.get("lost") else {"error": error_json(error)}
        # who gives up because it is being handed back has not done it
        if self.stopping.is_set() and task.get("lost"):
            return None
        return without_none(output=output, turn=self._decide_after(task, output))

    # ---- staying alive

    def _keep_alive(self):
        """Renews the claims and learns which are lost, as long as there are any."""
        beat = min(self.lease / 3, 5.0)
        while not (self.stopping.is_set() and not self.held):
            self.stopping.wait(beat) if not self.stopping.is_set() else time.sleep(min(beat, 0.2))
            with self.mutex:
                tasks = list(self.held.values())
            try:
                left = {token: self._row("SELECT durable.renew(%s, %s)", token, datetime.timedelta(seconds=self.lease))[0]
                        for token in {task["token"] for task in tasks}}
                for task in tasks:
                    wanted, = self._row("SELECT durable.heartbeat(%s, %s)", task["task_id"], task["token"])
                    if left[task["token"]] == 0 or not wanted:
                        task["lost"] = True
            except psycopg2.Error as error:
                print(f"{self.name}: {error}", file=sys.stderr)
        self._close()
