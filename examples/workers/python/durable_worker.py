"""A thin worker for durable: executes workflows and steps that are written in Python.

The database keeps all state; docs/external-workers.md has the protocol.

    worker = Worker(workflows={"order": order}, handlers={"charge": charge}, concurrency=8)
    worker.start()
    worker.stop()        # hands back what is not done, uncounted

A workflow is a function of (ctx, input). It is called again from its beginning in each
turn; what ctx's functions gave before, they give again. So take time, chance and ids
from ctx, and do the work in steps. Each of `concurrency` threads has a connection of its
own and executes one turn or step at a time.

What a step did is undone by another step, with ctx.compensate(): when the body raises, the
undos are executed in reverse order, each recorded at the next position, and then the
run fails with what was raised. So they go on after a crash.

Needs psycopg2 (Debian: python3-psycopg2).
"""

import collections
import datetime
import json
import os
import random
import socket
import sys
import threading
import time
import uuid

import psycopg2
import psycopg2.extras

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
    """The connection failed where a local step was to be recorded: another turn may do better."""


class RunFailed(BaseException):
    """The run fails, whatever the body makes of it; .command or .error says how."""

    def __init__(self, command=None, error=None):
        self.command, self.error = command, error
        super().__init__()


def error_json(error):
    if isinstance(error, StepFailed):
        return {**error.error, "message": str(error)}
    result = {"message": str(error) or type(error).__name__}
    for key in ("code", "detail", "details", "retryable"):
        if getattr(error, key, None) is not None:
            result[key] = getattr(error, key)
    return result


def without_none(**fields):
    return {key: value for key, value in fields.items() if value is not None}


# ------------------------------------------------------------------- a turn --


class Context:
    """What a body sees. Each function but log() takes one position of the history."""

    def __init__(self, worker, connection, task, history):
        self._worker, self._connection, self._task, self._history = worker, connection, task, history
        self._next = 0
        self._end = task["input"]["history_end"]
        self._started = time.monotonic()
        self._open = {}         # handle -> its command, while pending
        self._undos = []        # (name, function), the newest last
        self.commands = []
        self.await_all = None
        self.run_id, self.namespace, self.headers = task["run_id"], task["namespace"], task["headers"] or {}

    # ---- the history

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
        self.commands.append({**command, "seq": seq})
        return command.get("value", command.get("output"))

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
        if mode == "settled":
            return [{"status": "completed", "value": step.get("output")} if step["status"] == "completed" else
                    {"status": "failed", "error": step.get("error")} for step in steps]
        if failed:
            raise StepFailed(failed[0].get("error"))
        return [step.get("output") for step in steps]

    def side_effect(self, function):
        """What the function gives, recorded with the turn: for what a body may not decide by itself."""
        seq, recorded = self._take("local", "sideEffect")
        if recorded:
            return self._outcome(recorded)
        output = function()
        self.commands.append({"type": "record_step", "seq": seq, "name": "sideEffect", "output": output})
        return output

    def local_step(self, name, function, input=None, retries=1, backoff_ms=0):
        """Run a function here. It is recorded before the turn ends, and may run again if that fails."""
        seq, recorded = self._take("local", name)
        if recorded and recorded["status"] != "pending":
            return self._outcome(recorded)
        return self._worker.local_step(self._connection, self._task, seq, name, input, function, retries, backoff_ms)

    def transaction(self, name, function, input=None):
        """A local step exactly once: what it writes with the cursor is committed with its record."""
        seq, recorded = self._take("local", name)
        if recorded and recorded["status"] != "pending":
            return self._outcome(recorded)
        return self._worker.step_in_transaction(self._connection, self._task, seq, name, input, function)

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

    history: turns come with that many checkpoints, and the worker keeps the histories of the
    last runs; needs the privilege read. None: with all of them. capabilities: what steps and
    workflows may require of this worker; None: what a worker of protocol 1 can do.
    """

    def __init__(self, dsn="", workflows=None, handlers=None, queues=None, namespace=None, name=None,
                 concurrency=4, lease=30.0, poll=2.0, history=None, keep_runs=1000, capabilities=None, announce=10.0):
        self.dsn, self.namespace, self.concurrency, self.lease, self.poll = dsn, namespace, concurrency, lease, poll
        self.workflows, self.handlers = workflows or {}, handlers or {}
        self.queues = queues or sorted({*(key.split("@")[0] for key in self.workflows), *self.handlers})
        self.name = name or f"python-{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.capabilities, self.announce = capabilities, announce
        self.history, self.keep_runs = history, keep_runs
        self.kept = collections.OrderedDict()
        # (token, task_id) -> task, with task["lost"] once somebody else has it. A run has one
        # task for all its turns, and the next may be claimed before this one is forgotten.
        self.held = {}
        self.claiming = set()   # the threads that wait for work
        self.mutex = threading.Lock()
        self.stopping = threading.Event()
        self.threads = []

    def start(self):
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.concurrency)]
        self.keeper = threading.Thread(target=self._keep_alive, daemon=True)
        self.stopped = threading.Event()
        self._announce("up")
        self.announcer = threading.Thread(target=self._keep_announced, daemon=True)
        self.announcer.start()
        for thread in [*self.threads, self.keeper]:
            thread.start()
        return self

    def stop(self, grace=10.0):
        """Finish what is under way for at most `grace` seconds, then hand the rest back."""
        self.stopping.set()
        self._announce("draining")
        end = time.monotonic() + grace
        # what is handed back must not be claimed by a thread that still waits for work
        while self.claiming or (self.held and time.monotonic() < end):
            time.sleep(0.02)
        connection = self._connect()
        for task in list(self.held.values()):
            task["lost"] = True
            self._row(connection, "SELECT durable.release(%s, ARRAY[%s])", task["token"], task["task_id"])
        self.stopped.set()
        self.announcer.join()
        self._row(connection, "SELECT durable.withdraw_worker(%s, %s)", self.name, self.namespace)
        connection.close()

    # ---- telling who is here

    def _announce(self, status):
        connection = None
        try:
            connection = self._connect()
            outcome, = self._row(
                connection, "SELECT durable.announce_worker(%s, %s::text[], %s::text[], %s::text[], '{1,1}', %s, %s, %s) ->> 'outcome'",
                self.name, self.queues, sorted({key.split("@")[0] for key in self.workflows}), self.capabilities,
                json.dumps({"status": status, "runtime": "python", "concurrency": {"mode": "fixed", "limit": self.concurrency}, "inFlight": len(self.held)}),
                datetime.timedelta(seconds=3.5 * self.announce), self.namespace)
            if outcome == "incompatible":
                print(f"{self.name}: this worker and the database speak different protocols: it gets nothing", file=sys.stderr)
        except psycopg2.Error as error:
            print(f"{self.name}: {error}", file=sys.stderr)
        finally:
            if connection:
                connection.close()

    def _keep_announced(self):
        while not self.stopped.wait(self.announce):
            self._announce("draining" if self.stopping.is_set() else "up")

    def _connect(self):
        connection = psycopg2.connect(self.dsn, application_name=self.name)
        connection.autocommit = True
        return connection

    @staticmethod
    def _row(connection, sql, *values):
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            return cursor.fetchone()

    @staticmethod
    def _json(value):
        return None if value is None else json.dumps(value)

    # ---- claiming

    def _work(self):
        connection = None
        failures = 0
        while not self.stopping.is_set():
            try:
                connection = connection if connection and not connection.closed else self._connect()
                task = self._claim(connection)
                while task:
                    task = self._execute(connection, task)
                failures = 0
            except psycopg2.Error as error:
                print(f"{self.name}: {error}", file=sys.stderr)
                self.stopping.wait(min(0.1 * 2 ** failures, 10))
                failures += 1
        if connection:
            connection.close()

    def _claim(self, connection):
        """Waits for a task; None when there is none, or the worker is stopping."""
        thread = threading.get_ident()
        self.claiming.add(thread)
        try:
            if self.stopping.is_set():
                return None
            tasks, = self._row(connection, "CALL durable.wait_and_claim(%s, 1, %s, %s, %s, %s, NULL, %s)",
                               self.queues, datetime.timedelta(seconds=self.lease),
                               datetime.timedelta(seconds=self.poll), self.name, self.namespace, self.history)
            return self._hold(tasks)
        finally:
            self.claiming.discard(thread)

    def _hold(self, tasks):
        for task in tasks or []:
            with self.mutex:
                self.held[task["token"], task["task_id"]] = task
            return task

    def _execute(self, connection, task):
        """Hands in what became of the task, and takes the next one in the same call."""
        try:
            outcome = self._turn(connection, task) if task["kind"] == "turn" else self._step(connection, task)
            return self._exchange(connection, task, outcome) if outcome else None
        finally:
            with self.mutex:
                del self.held[task["token"], task["task_id"]]

    def _exchange(self, connection, task, outcome):
        thread = threading.get_ident()
        self.claiming.add(thread)
        try:
            settled = [{"task_id": task["task_id"], "token": task["token"], **outcome}]
            (result,), tasks = self._row(connection, "SELECT results, tasks FROM durable.exchange(%s, %s, %s, %s, %s, %s, %s)",
                                         json.dumps(settled), self.queues, 0 if self.stopping.is_set() else 1,
                                         datetime.timedelta(seconds=self.lease), self.name, self.namespace, self.history)
            if result == 0:
                self._lost(task)
            return self._hold(tasks)
        finally:
            self.claiming.discard(thread)

    # ---- turns

    def _turn(self, connection, task):
        workflow, version = task["input"]["workflow"], task["input"]["version"]
        body = self.workflows.get(f"{workflow}@{version}") or self.workflows.get(workflow)
        ctx = Context(self, connection, task, self._history_of(connection, task))
        try:
            if body is None:
                raise RunFailed(error={"message": f'this worker has no workflow "{workflow}"', "code": "no_workflow"})
            decision = self._execute_body(body, ctx, task["input"].get("input"))
        except TurnEnded:
            decision = without_none(status="continue", await_all=ctx.await_all)
        except Lost:
            self._lost(task)
            return None
        except Unrecorded as unrecorded:
            raise unrecorded.__cause__
        except RunFailed as failed:
            decision = {"status": "failed", "error": failed.error}
            ctx.commands = [] if failed.error else ctx.commands + [failed.command]
        decision["commands"] = ctx.commands
        if decision["status"] == "completed":
            decision["commands"] += [{**command, "await": False} for command in ctx._open.values() if command["type"] == "call"]
        return {"decision": decision}

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

    def _lost(self, task):
        print(f"{task['kind']} {task['name']} of {task['run_id'] or task['task_id']}: refused, the claim was lost", file=sys.stderr)

    def _history_of(self, connection, task):
        given = task["input"]
        with self.mutex:
            since, known = self.kept.pop(task["run_id"], (None, None)) if self.history is not None else (None, None)
        if since != given["since"]:
            known = {}
        first = 0
        while first in known and known[first]["status"] != "pending":
            first += 1
        if first < given["history_from"]:
            with connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
                cursor.execute("""SELECT seq, kind, name, output, error,
                        CASE WHEN kind = 'sleep' AND extract(epoch FROM wake_at) * 1000 > %s THEN 'pending' ELSE status END AS status
                    FROM durable.history(%s, %s)""", [given["now"], task["run_id"], first - 1])
                known.update((row["seq"], dict(row)) for row in cursor)
        known.update((checkpoint["seq"], checkpoint) for checkpoint in given["history"])
        if self.history is not None:
            with self.mutex:
                self.kept[task["run_id"]] = given["since"], known
                while len(self.kept) > self.keep_runs:
                    self.kept.popitem(last=False)
        return known

    def local_step(self, connection, task, seq, name, input, function, retries, backoff_ms):
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
            kept, = self._row(connection, "SELECT durable.record_step(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
                              task["task_id"], task["token"], seq, name, None if error else self._json(output),
                              self._json(error), self._json(input), attempts, started)
        except psycopg2.Error as cause:
            if (cause.pgcode or "")[:2] in ("22", "54"):
                raise
            raise Unrecorded from cause
        if not kept:
            raise Lost
        if error:
            raise StepFailed(error)
        return output

    def step_in_transaction(self, connection, task, seq, name, input, function):
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                output = function(cursor, input)
                cursor.execute("SELECT durable.record_step(%s, %s, %s, %s, %s, input => %s)",
                               [task["task_id"], task["token"], seq, name, self._json(output), self._json(input)])
                kept, = cursor.fetchone()
                cursor.execute("COMMIT" if kept else "ROLLBACK")
        except Exception as error:
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
            failure = error

            def fail(_):
                raise failure
            return self.local_step(connection, task, seq, name, input, fail, 1, 0)
        if not kept:
            raise Lost
        return output

    # ---- steps and tasks

    def _step_and_settle(self, connection, task, handler):
        try:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                output = handler(cursor, task["input"], task)
                cursor.execute("SELECT durable.complete(%s, %s, %s)", [task["task_id"], task["token"], self._json(output)])
                kept, = cursor.fetchone()
                cursor.execute("COMMIT" if kept else "ROLLBACK")
        except Exception as error:
            with connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
            return {"error": error_json(error)}
        if not kept:
            self._lost(task)
        return None

    def _step(self, connection, task):
        handler = self.handlers.get(task["name"])
        if getattr(handler, "transaction", False):
            return self._step_and_settle(connection, task, handler)
        try:
            if handler is None:
                raise StepFailed({"message": f"no handler for {task['name']}", "retryable": False})
            output = handler(task["input"], task)
            json.dumps(output)
        except Exception as error:
            return None if task.get("lost") else {"error": error_json(error)}
        return without_none(output=output)

    # ---- staying alive

    def _keep_alive(self):
        """Renews the claims and learns which are lost, as long as there are any."""
        connection = None
        beat = min(self.lease / 3, 5.0)
        while not (self.stopping.is_set() and not self.held):
            self.stopping.wait(beat) if not self.stopping.is_set() else time.sleep(min(beat, 0.2))
            try:
                connection = connection if connection and not connection.closed else self._connect()
                with self.mutex:
                    tasks = list(self.held.values())
                for task in tasks:
                    left, = self._row(connection, "SELECT durable.renew(%s, %s)", task["token"], datetime.timedelta(seconds=self.lease))
                    wanted, = self._row(connection, "SELECT durable.heartbeat(%s, %s)", task["task_id"], task["token"])
                    if left == 0 or not wanted:
                        task["lost"] = True
            except psycopg2.Error as error:
                print(f"{self.name}: {error}", file=sys.stderr)
        if connection:
            connection.close()
