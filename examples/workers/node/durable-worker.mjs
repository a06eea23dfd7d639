// A thin worker for durable: executes workflows and steps that are written in
// JavaScript. The database keeps all state; docs/external-workers.md has the protocol.
//
//   const worker = new Worker({ workflows: { order }, handlers: { charge }, concurrency: 32 });
//   worker.start();
//   await worker.stop();          // hands back what is not done, uncounted
//
// A workflow is an async function of (ctx, input). It is called again from its
// beginning in each turn; what ctx's functions gave before, they give again. So
// take time, chance and ids from ctx, and do the work in steps.
//
// What a step did is undone by another step, with ctx.compensate(): when the body
// throws, the undos are executed in reverse order, each recorded at the next
// position, and then the run fails with what was thrown. So they go on after a
// crash. Wait for everything that is under way before the body throws
// (awaitAll does), or the positions are other ones on the next replay.

import pg from 'pg';
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';

/* Calls that hand in and claim, at once: while the server is at one the worker prepares the next. */
const FLIGHTS = 3;
/* So many claims in a row may take nothing but the steps that they have dispatched themselves. */
const NARROW = 4;
/* What has been claimed so long and has not begun is handed back: others may have a slot for it. */
const PATIENCE_MS = 1000;
/* How quick tasks are is told by what was done in the last time of that length in which any was under way. */
const RECENT_MS = 200;
const EPOCH_2000_US = 946684800000000;

/** A step, signal or child that failed: code, details and so on are what was recorded. */
export class StepFailed extends Error {
  constructor(error) {
    super(error?.message ?? 'failed');
    this.name = 'StepFailed';
    this.error = error ?? {};
    this.code = this.error.code;
  }
}

/** The code does not ask for what the history has. Ends the run, whoever catches it. */
export class NonDeterminism extends Error {
  constructor(runId, seq, kind, name, recorded) {
    super(`the history of run "${runId}" does not match its workflow at position ${seq}`);
    this.name = 'NonDeterminism';
    this.code = 'WF002';
    this.detail = `The body asks for ${kind} "${name}"; recorded is ${recorded.kind} "${recorded.name}".`;
  }
}

/** Thrown by ctx.failRun(). */
class RunFailed extends Error {}

/** The claim was lost, or the run cancelled: nothing of this turn counts. */
class Lost extends Error {}

/** The connection failed where a local step was to be recorded: another turn may do better. */
class Unrecorded extends Error {}

function errorJson(error) {
  if (error instanceof StepFailed) return { ...error.error, message: error.message };
  const json = { message: error?.message ?? String(error) };
  for (const key of ['code', 'detail', 'details', 'retryable']) {
    if (error?.[key] !== undefined) json[key] = error[key];
  }
  return json;
}

function stepOptions({ retries, backoffMs, backoffKind, backoffMaxMs, jitter, timeoutMs, pickupTimeoutMs, queue, priority, requires } = {}) {
  return {
    retries, backoff_ms: backoffMs, backoff_kind: backoffKind, backoff_max_ms: backoffMaxMs,
    jitter, timeout_ms: timeoutMs, pickup_timeout_ms: pickupTimeoutMs, queue, priority, requires,
  };
}

/** As the database gives it back: the keys of jsonb have an order of their own. */
function stored(value) {
  if (typeof value === 'string' || typeof value === 'boolean') return value;
  const json = JSON.stringify(value);
  return json === undefined ? undefined : inOrder(JSON.parse(json));
}

function inOrder(value) {
  if (value === null || typeof value !== 'object') return value;
  if (Array.isArray(value)) return value.map(inOrder);
  const keys = Object.keys(value).map((key) => [Buffer.from(key), key]).sort(([a], [b]) => a.length - b.length || a.compare(b));
  return Object.fromEntries(keys.map(([, key]) => [key, inOrder(value[key])]));
}

/** Not an answer of the server, or that it lets nobody in: the next connection may do better. */
const isDisconnection = (error) => !error.severity || /^(08|57P|53300|28)/.test(error.code);

const ignore = () => {};

const isPending = (recorded) => !recorded || recorded.status === 'pending';

// ------------------------------------------------------------------ a turn --

/** What a body sees. Each function but log() takes one position of the history. */
class Context {
  constructor(turn) {
    this.#turn = turn;
    this.runId = turn.task.run_id;
    this.namespace = turn.task.namespace;
    this.headers = turn.task.headers ?? {};
  }

  #turn;

  /** Dispatch a step to whoever serves its name, and wait for the result. */
  step(name, input, options) { return this.#turn.wait('step', name, { type: 'call', name, input, ...stepOptions(options) }); }

  /** Dispatch a step and go on; the handle for await(), awaitAll() and awaitAny(). */
  stepAsync(name, input, options) { return this.#turn.ask(name, { type: 'call', name, input, ...stepOptions(options) }); }

  await(handle) { return this.#turn.outcomeOf(handle); }

  /** All results, or the first failure in their order. */
  async awaitAll(handles) {
    const [first, last] = [Math.min(...handles), Math.max(...handles)];
    if (handles.length > 1 && last - first === handles.length - 1) this.#turn.fans.push([first, last]);
    const settled = await Promise.allSettled(handles.map((handle) => this.await(handle)));
    const failed = settled.find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
    return settled.map((result) => result.value);
  }

  /** The first of the handles, in their order, that has ended. Nothing else may go on beside it. */
  awaitAny(handles) { return this.#turn.any(handles); }

  /**
   * The same step for many inputs, at most maxInFlight at a time. mode: 'wait_all' gives all results or raises the
   * first failure in their order, 'fail_fast' does not wait for the rest, 'settled' gives { status, value or error } of each.
   */
  stepAll(name, inputs, { mode = 'wait_all', maxInFlight, ...options } = {}) {
    return this.#turn.fan(name, inputs, { mode, max_in_flight: maxInFlight, ...stepOptions(options) });
  }

  /** Run a function here. It is recorded before the turn ends, and may run again if that fails. */
  localStep(name, fn, { input, retries = 1, backoffMs = 0 } = {}) {
    return this.#turn.local(name, input, () => fn(input), { retries, backoffMs });
  }

  /** A local step exactly once: what it writes with the client is committed with its record. */
  transaction(name, fn, { input } = {}) {
    return this.#turn.local(name, input, fn, { retries: 1, transaction: true });
  }

  /** What fn gives, recorded with the turn: for what a body may not decide by itself. */
  sideEffect(fn) { return this.#turn.record('local', 'sideEffect', () => ({ type: 'record_step', name: 'sideEffect', output: fn() ?? null })); }

  sleep(ms) { return this.#turn.wait('sleep', 'sleep', { type: 'sleep', ms }); }

  sleepUntil(date) { return this.#turn.wait('sleep', 'sleep', { type: 'sleep_until', until: +date }); }

  /** The payload of the next signal; StepFailed with code WF004 when it does not come in time. */
  waitForSignal(signal, { timeoutMs } = {}) {
    return this.#turn.wait('signal', signal, { type: 'wait_signal', signal, timeout_ms: timeoutMs });
  }

  child(workflow, input, { childId, priority, version } = {}) {
    const id = childId ?? `${this.runId}.child.${this.#turn.next}`;
    return this.#turn.wait('child', `child:${id}`, { type: 'start_child', workflow, input, child_id: childId, priority, version });
  }

  /** Start a child and go on; its id. */
  startChild(workflow, input, { childId, priority, version } = {}) {
    const id = childId ?? `${this.runId}.child.${this.#turn.next}`;
    this.#turn.record('child', `child:${id}`, { type: 'start_child', workflow, input, child_id: childId, priority, version, await: false });
    return id;
  }

  children(workflow, inputs) { return Promise.all(inputs.map((input) => this.child(workflow, input))); }

  now() {
    const us = this.#turn.record('value', 'now', () => ({
      type: 'now', value: String(Math.round(this.#turn.clock() * 1000) - EPOCH_2000_US),
    }));
    return new Date((Number(us) + EPOCH_2000_US) / 1000);
  }

  random() { return Number(this.#turn.record('value', 'random', () => ({ type: 'random', value: String(Math.random()) }))); }

  uuid() { return this.#turn.record('value', 'uuid', () => ({ type: 'uuid', value: randomUUID() })); }

  /** true for runs that come here with the changed code, false for those that were past it. */
  patched(id) {
    const recorded = this.#turn.recorded(this.#turn.next);
    if (recorded && !(recorded.kind === 'value' && recorded.name.startsWith('patch:'))) return false;
    this.#turn.record('value', `patch:${id}`, { type: 'patched', id });
    return true;
  }

  setEvent(key, value) { this.#turn.record('value', `event:${key}`, { type: 'set_event', key, value }); }

  upsertSearchAttributes(attributes) {
    this.#turn.record('value', 'searchAttributes', { type: 'upsert_search_attributes', attributes });
  }

  log(level, message, data) {
    if (this.#turn.next >= this.#turn.historyEnd) this.#turn.commands.push({ type: 'log', seq: this.#turn.next, level, message, data });
  }

  failRun(message, { code, details } = {}) {
    this.#turn.fatal ??= { type: 'fail_run', message, code, details };
    throw new RunFailed(message);
  }

  /**
   * What undoes what was just done, should the body throw: a step, compensate('refund', input, options), or a local
   * one, compensate('release', function, options). It takes its position when it is executed. One that fails does not keep the
   * others from being executed; the run's error has it in details.compensations. failRun() and a cancel undo nothing.
   */
  compensate(name, undo, options = {}) {
    const local = typeof undo === 'function';
    this.#turn.undos.push({ name, execute: () => (local ? this.localStep(name, undo, options) : this.step(name, undo, options)) });
  }
}

/** One replay of a body, from its beginning to where nothing can go on. */
class Turn {
  /** follows: { known, historyEnd }, when no turn was claimed for it but a step of the last one has ended here. */
  constructor(worker, task, history, follows = null) {
    Object.assign(this, { worker, task, history, follows, next: 0, commands: [], fans: [], undos: [], busy: 0, fatal: null, started: performance.now() });
    this.historyEnd = follows?.historyEnd ?? task.input.history_end;
    this.known = new Map(follows?.known);   // what has been recorded since the history was handed out
    this.open = new Map();         // what was asked for and nobody waits for
    this.blocked = new Set();
    this.ended = new Promise((resolve) => { this.end = resolve; });
  }

  recorded(seq) { return this.known.get(seq) ?? this.history.get(seq); }

  clock() { return this.task.input.now + (performance.now() - this.started); }

  /** The next position, and what the history has there. */
  take(kind, name) {
    if (this.fatal) throw new RunFailed('the run has failed');
    const seq = this.next++;
    const recorded = this.recorded(seq);
    if (recorded && (recorded.kind !== kind || recorded.name !== name)) throw this.mismatch(seq, kind, name, recorded);
    return { seq, recorded };
  }

  mismatch(seq, kind, name, recorded) {
    this.fatal = new NonDeterminism(this.task.run_id, seq, kind, name, recorded);
    return this.fatal;
  }

  /** Something that is known at once, and recorded with the turn. */
  record(kind, name, command) {
    const { seq, recorded } = this.take(kind, name);
    if (recorded) return recorded.output;
    const made = typeof command === 'function' ? command() : command;
    this.commands.push({ ...made, seq });
    const output = stored(made.value ?? made.output);
    this.known.set(seq, { kind, name, status: 'completed', output });
    return output;
  }

  /** Something that the run waits for, unless its outcome is there. */
  async wait(kind, name, command) {
    const { seq, recorded } = this.take(kind, name);
    if (!isPending(recorded)) return this.outcome(recorded);
    return this.block([{ ...command, seq }]);
  }

  outcome(recorded) {
    if (recorded.status !== 'completed') throw new StepFailed(recorded.error);
    return recorded.output;
  }

  /** The body stands here until a later turn. */
  block(commands) {
    for (const command of commands) {
      if (!this.blocked.has(command.seq)) this.commands.push(command);
      this.blocked.add(command.seq);
      this.open.delete(command.seq);
    }
    this.look();
    return new Promise(() => {});
  }

  /** Something with an outcome that somebody may wait for, or nobody. */
  ask(name, command) {
    const { seq, recorded } = this.take('step', name);
    if (isPending(recorded)) this.open.set(seq, { ...command, seq });
    return seq;
  }

  async outcomeOf(handle) {
    const recorded = this.recorded(handle);
    if (!isPending(recorded)) return this.outcome(recorded);
    return this.block([this.open.get(handle)].filter(Boolean));
  }

  async any(handles) {
    const { seq, recorded } = this.take('value', 'await_any');
    if (recorded) return recorded.output;
    const ended = handles.find((handle) => !isPending(this.recorded(handle)));
    if (ended === undefined) {
      this.chooses = true;
      return this.block(handles.map((handle) => this.open.get(handle)).filter(Boolean));
    }
    this.commands.push({ type: 'await_any', seq, handle: ended });
    this.known.set(seq, { kind: 'value', name: 'await_any', status: 'completed', output: ended });
    return ended;
  }

  async fan(name, inputs, options) {
    if (inputs.length === 0) return [];
    const steps = inputs.map(() => this.take('step', name));
    const [{ seq }] = steps;
    const missing = steps.find(({ recorded }) => !recorded);
    // the whole fan was recorded at once: a longer one is another
    if (missing && steps[0].recorded) throw this.mismatch(missing.seq, 'step', name, { kind: 'another', name: 'fan' });
    const failed = steps.find(({ recorded }) => recorded?.status === 'failed');
    const pending = steps.filter(({ recorded }) => isPending(recorded));
    const given = missing ? { inputs } : { count: inputs.length };
    if (pending.length > 0 && !(failed && options.mode === 'fail_fast')) return this.block([{ type: 'call_all', seq, name, ...given, ...options }]);
    if (pending.length > 0) this.commands.push({ type: 'call_off', seq, name, count: inputs.length });
    for (const step of pending) this.known.set(step.seq, { kind: 'step', name, status: 'cancelled' });
    if (options.mode === 'settled') {
      return steps.map(({ recorded: { status, output, error } }) => (status === 'completed' ? { status, value: output ?? null } : { status: 'failed', error }));
    }
    if (failed) throw new StepFailed(failed.recorded.error);
    return steps.map(({ recorded }) => recorded.output);
  }

  /** A step that is executed here. */
  async local(name, input, fn, { retries, backoffMs, transaction }) {
    const { seq, recorded } = this.take('local', name);
    if (!isPending(recorded)) return this.outcome(recorded);
    if (this.follows) { this.end({ status: 'claim' }); return await new Promise(() => {}); }
    this.busy++;
    try {
      const output = stored(await (transaction ? this.worker.stepInTransaction(this.task, seq, name, input, fn)
        : this.worker.localStep(this.task, seq, name, input, fn, retries, backoffMs)));
      this.known.set(seq, { kind: 'local', name, status: 'completed', output });
      return output;
    } catch (error) {
      if (error instanceof StepFailed) this.known.set(seq, { kind: 'local', name, status: 'failed', error: error.error });
      if (error instanceof Lost) { this.worker.lost(this.task); this.end({ lost: true }); return await new Promise(() => {}); }
      if (error instanceof Unrecorded) { this.end({ unrecorded: error.cause }); return await new Promise(() => {}); }
      throw error;
    } finally {
      this.busy--;
      if (this.blocked.size > 0) this.look();
    }
  }

  /** Once all that can go on has: does everything wait? */
  look() {
    setImmediate(() => { if (this.busy === 0 && this.blocked.size > 0) this.end({ status: 'continue' }); });
  }

  /** The body and, when it throws, the undos. */
  async execute(body) {
    try {
      return { status: 'completed', output: await body(new Context(this), this.task.input.input) };
    } catch (thrown) {
      const error = errorJson(thrown);
      const compensations = await this.undo();
      if (compensations.length > 0) error.details = { ...(error.details?.constructor === Object ? error.details : { details: error.details }), compensations };
      return { status: 'failed', error };
    }
  }

  /** All undos, the newest first; those that failed. */
  async undo() {
    const failed = [];
    while (this.undos.length > 0 && !this.fatal) {
      const { name, execute } = this.undos.pop();
      try {
        await execute();
      } catch (thrown) {
        const { message, code } = errorJson(thrown);
        failed.push({ name, message, code });
        // what the database cannot take was not recorded: nothing can follow it
        if (!(thrown instanceof StepFailed)) break;
      }
    }
    return failed;
  }

  /** The whole turn: a decision, or { lost: true }. */
  async run(body) {
    const outcome = await Promise.race([this.execute(body), this.ended]);
    if (outcome.unrecorded) throw outcome.unrecorded;
    if (this.fatal instanceof NonDeterminism) return { status: 'failed', error: errorJson(this.fatal), commands: [] };
    for (const [seq, command] of this.open) if (!this.recorded(seq)) this.commands.push({ ...command, await: false });
    const decision = { ...outcome, commands: this.commands };
    if (this.fatal) decision.commands.push(this.fatal);
    // one fan is all that the run waits for: wake it when the fan is done
    const fan = this.fans.find(([first, last]) => [...this.blocked].every((seq) => seq >= first && seq <= last));
    if (outcome.status === 'continue' && fan) decision.await_all = fan;
    return decision;
  }
}

// --------------------------------------------------------------- the worker --

/** A handler (client, input, task) whose writes with the client are committed together with the step's result. */
export function inTransaction(handler) { return Object.assign((...args) => handler(...args), { transaction: true }); }

export class Worker {
  /**
   * workflows: name, or name@version → body; handlers: name of a step or task → async (input, task) → output.
   * concurrency: bodies and handlers at once; prefetch: tasks that are claimed at most while they are quick.
   * history: turns come with that many checkpoints, and the worker keeps the histories of
   * the last runs; needs the privilege read. null: with all of them. capabilities: what steps and
   * workflows may require of this worker; null: what a worker of protocol 1 can do. beatMs: how long it says nothing
   * of a task at most.
   */
  constructor({ connection, workflows = {}, handlers = {}, queues, namespace = null, name = `node-${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`,
    concurrency = 10, prefetch = 16 * concurrency, leaseMs = 30000, pollMs = 2000, history = null, keepRuns = 2000, capabilities = null, announceMs = 10000, beatMs = 5000,
    log = console.error } = {}) {
    Object.assign(this, { workflows, handlers, namespace, name, concurrency, prefetch, leaseMs, pollMs, history, keepRuns, capabilities, announceMs, beatMs, log });
    this.queues = queues ?? [...new Set([...Object.keys(workflows).map((key) => key.split('@')[0]), ...Object.keys(handlers)])];
    // those on which a step may be, and not only turns
    const turns = new Set(Object.keys(workflows).map((key) => key.split('@')[0]));
    this.stepQueues = this.queues.filter((queue) => queue in handlers || !turns.has(queue));
    this.pool = new pg.Pool({ ...connection, max: FLIGHTS + 4 });
    // who uses a connection that breaks learns it from the query, and else nobody need know
    this.pool.on('connect', (client) => client.on('error', ignore));
    this.pool.on('error', (error) => this.log('connection lost:', error.message));
    // token and task_id → { task, abort, done }: a run has one task for all its turns, and the
    // next may be claimed before this one is forgotten
    this.held = new Map();
    this.waiting = [];             // of them, those that have not begun
    this.working = 0;              // and those that are at it
    this.asked = 0;                // how many more claims are under way for
    this.outbox = [];              // what is done and not handed in
    this.flights = 0;              // exchanges under way
    this.leaving = 0;              // how many they hand in
    this.failures = 0;             // … of them in a row, because there was no connection
    this.flight = 0;               // ms that one takes
    this.done = this.busy = 0;     // tasks that were done of late, and the ms in which any was under way
    this.counted = performance.now();
    this.warm = new Map();         // run_id → the turn that waits for a step which this worker serves
    this.narrow = 0;               // exchanges in a row that have claimed nothing but such steps
    this.kept = new Map();         // run_id → { since, known: Map of its history }, the last used last
    this.running = false;
    this.status = 'up';
  }

  /** Connects, and tells that it is here, before it claims anything: start() does so, too. */
  async connect() {
    const clients = await Promise.allSettled(Array.from({ length: FLIGHTS }, () => this.pool.connect()));
    for (const { value } of clients) value?.release();
    await this.#announce();
  }

  start() {
    this.running = true;
    this.status = 'up';
    this.loop = this.connect().then(() => this.#poll());
    this.announcing = setInterval(() => this.#announce(), this.announceMs);
    this.renewal = setInterval(() => this.#renew().catch((error) => this.log('renewal failed:', error.message)), this.leaseMs / 3);
    this.beat = setInterval(() => this.#heartbeat().catch((error) => this.log('heartbeat failed:', error.message)), this.beatMs / 2);
    this.patience = setInterval(() => this.#handBackLate().catch((error) => this.log('hand-back failed:', error.message)), PATIENCE_MS / 2);
    return this;
  }

  /** Finish what is under way for at most graceMs, then hand the rest back. */
  async stop({ graceMs = 10000 } = {}) {
    this.running = false;
    this.status = 'draining';
    await this.#handBack(this.waiting.splice(0));
    this.wake?.();
    await this.announced;
    await this.#announce();
    await this.loop;
    let timer;
    await Promise.race([
      (async () => { while (this.held.size > 0) await Promise.all([...this.held.values()].map((entry) => entry.done)); })(),
      new Promise((resolve) => { timer = setTimeout(resolve, graceMs); })]);
    clearTimeout(timer);
    clearInterval(this.renewal);
    clearInterval(this.beat);
    clearInterval(this.patience);
    clearInterval(this.announcing);
    await this.announced;
    for (const { abort } of this.held.values()) abort.abort();
    await this.#handBack([...this.held.values()]);
    await this.pool.query('SELECT durable.withdraw_worker($1, $2)', [this.name, this.namespace])
      .catch((error) => this.log('withdrawal failed:', error.message));
    await this.pool.end();
  }

  /** Uncounted. They are held until that is done: stop() waits for it. What cannot be handed back lapses. */
  async #handBack(entries) {
    const rounds = new Map();
    for (const entry of entries) rounds.set(entry.task.token, [...rounds.get(entry.task.token) ?? [], entry]);
    for (const [token, round] of rounds) {
      await this.pool.query('SELECT durable.release($1, $2)', [token, round.map(({ task }) => task.task_id)])
        .catch((error) => this.log('hand-back failed:', error.message));
      for (const entry of round) {
        this.held.delete(entry.key);
        entry.finish();
      }
    }
  }

  /** All slots are busy with what takes long: what waits for one of them is for others, too. */
  async #handBackLate() {
    const late = performance.now() - PATIENCE_MS;
    if (!(this.waiting[0]?.since < late)) return;
    this.done = 0;
    await this.#handBack(this.waiting.splice(0));
    this.wake?.();
  }

  // ---- telling who is here

  /** One at a time: a beat that is due while the last one is under way is left out. */
  #announce() {
    this.announced ??= this.pool.query({
      name: 'announce', text: "SELECT durable.announce_worker($1, $2, $3, $4, '{1,1}', $5, $6, $7) ->> 'outcome' AS outcome",
      values: [this.name, this.queues, [...new Set(Object.keys(this.workflows).map((key) => key.split('@')[0]))], this.capabilities,
        { status: this.status, runtime: 'node', concurrency: { mode: 'fixed', limit: this.concurrency }, inFlight: this.held.size, rssBytes: process.memoryUsage.rss() },
        `${3.5 * this.announceMs} ms`, this.namespace],
    }).then(
      ({ rows: [{ outcome }] }) => { if (outcome === 'incompatible') this.log('this worker and the database speak different protocols: it gets nothing'); },
      (error) => this.log('announcement failed:', error.message),
    ).finally(() => { this.announced = null; });
    return this.announced;
  }

  // ---- claiming

  /** How many tasks to ask for: twice what the slots get through while calls are under way. */
  #room() {
    if (!this.running) return 0;
    this.#countBusy();
    const meanwhile = Math.floor(2 * FLIGHTS * this.flight * this.done / Math.max(this.busy, RECENT_MS / 20));
    const wanted = Math.min(this.concurrency + meanwhile, this.prefetch);
    return Math.max(0, wanted - (this.held.size - this.leaving) - this.asked);
  }

  #countBusy() {
    const now = performance.now();
    if (this.working > 0) {
      const kept = Math.exp((this.counted - now) / RECENT_MS);
      this.done *= kept;
      this.busy = this.busy * kept + now - this.counted;
    }
    this.counted = now;
  }

  /** Waits for work while there is nothing to hand in: an exchange claims, too. */
  async #poll() {
    let failures = 0;
    while (this.running) {
      // what has just come may be done in a moment, and handing that in claims, too
      await new Promise((resolve) => { setImmediate(resolve); });
      if (!this.running) break;
      const room = this.#room();
      if (room === 0 || this.flights > 0 || this.outbox.length > 0) {
        await new Promise((resolve) => { this.wake = resolve; });
        continue;
      }
      this.asked += room;
      try {
        const { rows: [{ tasks }] } = await this.pool.query({
          name: 'claim', text: 'CALL durable.wait_and_claim($1, $2, $3, $4, $5, $6, NULL, $7)',
          values: [this.queues, room, `${this.leaseMs} ms`, `${this.pollMs} ms`, this.name, this.namespace, this.history] });
        failures = 0;
        this.asked -= room;
        this.#take(tasks);
      } catch (error) {
        this.asked -= room;
        this.log('claim failed:', error.message);
        await new Promise((resolve) => { setTimeout(resolve, Math.min(100 * 2 ** failures++, 10000)); });
      }
    }
  }

  #take(tasks) {
    for (const task of tasks ?? []) {
      const entry = { key: `${task.token} ${task.task_id}`, task, since: performance.now(), get abort() { return (this.aborter ??= new AbortController()); } };
      entry.done = new Promise((resolve) => { entry.finish = resolve; });
      this.held.set(entry.key, entry);
      this.waiting.push(entry);
    }
    if (!this.running) this.#handBack(this.waiting.splice(0));
    this.#begin();
  }

  #begin() {
    while (this.working < this.concurrency && this.waiting.length > 0) this.#execute(this.waiting.shift());
  }

  #execute(entry) {
    const { task } = entry;
    this.#countBusy();
    this.working++;
    entry.worked = () => {
      if (entry.free) return;
      entry.free = true;
      this.#countBusy();
      this.working--;
      this.done++;
      this.#begin();
    };
    (task.kind === 'turn' ? this.#turn(entry) : this.#step(entry))
      .catch((error) => {
        this.log(`${task.kind} ${task.name} of ${task.run_id ?? task.task_id}:`, error.message);
        // whatever it was, another attempt may do better
        return this.pool.query('SELECT durable.release($1, ARRAY[$2])', [task.token, task.task_id]).catch(() => {});
      })
      .finally(() => {
        entry.worked();
        this.held.delete(entry.key);
        entry.finish();
        this.wake?.();
      });
  }

  // ---- handing in

  /** What became of it: 0 the claim was lost, 1 settled, 2 the decision after the step was applied, too. */
  #handIn(item, { run_id: run }) {
    return new Promise((resolve, reject) => {
      this.outbox.push({ item, resolve, reject, goesOn: this.warm.has(run) });
      if (this.outbox.length === 1) setImmediate(() => this.#flush());
    });
  }

  /**
   * … and something else instead when the database cannot take it: it is too large, or has a character that jsonb has
   * not. That may be the decision after a step, and the step's result is good.
   */
  async #handInOr(item, task, instead) {
    try {
      return await this.#handIn(item, task);
    } catch (error) {
      if (!/^(22|54)/.test(error.code)) throw error;
      this.warm.delete(task.run_id);
      const { turn, ...rest } = item;
      return turn ? this.#handInOr(rest, task, instead) : this.#handIn({ task_id: item.task_id, token: item.token, ...instead(errorJson(error)) }, task);
    }
  }

  /** All that is done in one call, which brings the next tasks. Several of them at once keep both sides busy. */
  async #flush() {
    if (this.outbox.length === 0 || this.flights === FLIGHTS) return;
    const batch = this.#batch();
    if (this.outbox.length > 0) setImmediate(() => this.#flush());
    this.flights++;
    try {
      await this.#exchange(batch);
      this.failures = 0;
    } catch (error) {
      if (isDisconnection(error) && !this.pool.ending) {
        this.log('not handed in:', error.message);
        await new Promise((resolve) => { setTimeout(resolve, Math.min(100 * 2 ** this.failures++, 2000)); });
        this.outbox.unshift(...batch);
      } else if (batch.length === 1) {
        batch[0].reject(error);
      } else {
        // one of them may be in the way of the others
        for (const one of batch) await this.#exchange([one]).catch(one.reject);
      }
    }
    this.flights--;
    this.wake?.();
    setImmediate(() => this.#flush());
  }

  /** The share of one flight: either what goes on with a step of this worker, or what does not. */
  #batch() {
    const { goesOn } = this.outbox[0];
    const share = Math.max(this.concurrency, Math.ceil(this.outbox.length / FLIGHTS));
    const batch = [];
    this.outbox = this.outbox.filter((one) => one.goesOn !== goesOn || batch.length === share || !batch.push(one));
    return batch;
  }

  async #exchange(batch) {
    // What was begun goes on before more is begun: the steps that these decisions dispatch are
    // claimed in the same commit, and never stand in a list. Now and then it is others' turn.
    const narrow = batch[0].goesOn && this.narrow < NARROW;
    this.leaving += batch.length;
    const room = narrow ? Math.min(batch.length, this.#room()) : this.#room();
    this.narrow = narrow ? this.narrow + 1 : 0;
    this.asked += room;
    const begun = performance.now();
    try {
      const { rows: [{ results, tasks }] } = await this.pool.query({
        name: 'exchange', text: 'SELECT * FROM durable.exchange($1, $2, $3, $4, $5, $6, $7)',
        values: [JSON.stringify(batch.map(({ item }) => item)), narrow ? this.stepQueues : this.queues, room,
          `${this.leaseMs} ms`, this.name, this.namespace, this.history] });
      this.flight = this.flight === 0 ? performance.now() - begun : this.flight + (performance.now() - begun - this.flight) / 8;
      batch.forEach(({ resolve }, i) => resolve(results[i]));
      this.#take(tasks);
    } finally {
      this.asked -= room;
      this.leaving -= batch.length;
    }
  }

  // ---- turns

  #bodyOf({ workflow, version }) { return this.workflows[`${workflow}@${version}`] ?? this.workflows[workflow]; }

  async #turn({ task, worked }) {
    const { workflow } = task.input;
    const body = this.#bodyOf(task.input);
    let decision = { status: 'failed', error: { message: `this worker has no workflow "${workflow}"`, code: 'no_workflow' } };
    let turn;
    this.warm.delete(task.run_id);
    if (body) {
      turn = new Turn(this, task, await this.#historyOf(task));
      decision = await turn.run(body);
    }
    worked();
    if (decision.lost) return;
    if (decision.status !== 'continue') this.kept.delete(task.run_id);
    this.#keepWarm(turn, decision);
    if (await this.#handInOr({ task_id: task.task_id, token: task.token, decision }, task, (error) => ({ decision: { status: 'failed', error } })) === 0) {
      this.warm.delete(task.run_id);
      this.lost(task);
    }
  }

  /** Where all that a run waits for is one step that this worker serves, it may decide at once what comes after. */
  #keepWarm(turn, decision) {
    if (decision.status !== 'continue' || turn.blocked.size !== 1 || turn.chooses) return;
    const [seq] = turn.blocked;
    const command = decision.commands.find((c) => c.seq === seq && c.type === 'call');
    const handler = this.handlers[command?.name];
    if (!handler || handler.transaction || !this.stepQueues.includes(command.queue ?? command.name)) return;
    this.warm.set(turn.task.run_id, { turn, seq, known: turn.known, historyEnd: Math.max(turn.historyEnd, turn.next) });
    if (this.warm.size > this.keepRuns) this.warm.delete(this.warm.keys().next().value);
  }

  /** The decision that follows from a step's result; undefined: a turn has to be claimed for it. */
  async #decideAfter(task, output) {
    const warm = this.warm.get(task.run_id);
    if (warm?.seq !== task.seq) return undefined;
    this.warm.delete(task.run_id);
    warm.known.set(warm.seq, { kind: 'step', name: task.name, status: 'completed', output: stored(output) });
    const { task: claimed, history } = warm.turn;
    const turn = new Turn(this, claimed, history, warm);
    turn.started = warm.turn.started;
    const decision = await turn.run(this.#bodyOf(claimed.input));
    if (decision.status === 'claim') return undefined;
    this.#keepWarm(turn, decision);
    return { token: claimed.token, history_end: warm.historyEnd, decision };
  }

  async #historyOf(task) {
    const { history, history_from: from, now, since } = task.input;
    const kept = this.history === null ? undefined : this.kept.get(task.run_id);
    const known = kept?.since === since ? kept.known : new Map();
    let first = 0;
    while (known.get(first)?.status === 'completed' || known.get(first)?.status === 'failed') first++;
    if (first < from) {
      const { rows } = await this.pool.query(
        `SELECT seq, kind, name, output, error, extract(epoch FROM wake_at) * 1000 AS wake_at,
                CASE WHEN kind = 'sleep' AND extract(epoch FROM wake_at) * 1000 > $3 THEN 'pending' ELSE status END AS status
           FROM durable.history($1, $2)`, [task.run_id, first - 1, now]);
      for (const checkpoint of rows) known.set(checkpoint.seq, { ...checkpoint, output: checkpoint.output ?? undefined });
    }
    for (const checkpoint of history) known.set(checkpoint.seq, checkpoint);
    if (this.history !== null) {
      this.kept.delete(task.run_id);
      this.kept.set(task.run_id, { since, known });
      if (this.kept.size > this.keepRuns) this.kept.delete(this.kept.keys().next().value);
    }
    return known;
  }

  async localStep(task, seq, name, input, fn, retries, backoffMs) {
    const started = new Date();
    let output;
    let error = null;
    let attempts = 0;
    do {
      if (attempts > 0) await new Promise((resolve) => { setTimeout(resolve, backoffMs); });
      attempts++;
      try {
        output = await fn();
        error = null;
      } catch (thrown) {
        error = errorJson(thrown);
      }
    } while (error && error.retryable !== false && attempts < retries);
    const json = (value) => (value === undefined ? null : JSON.stringify(value));
    const { rows: [{ kept }] } = await this.pool.query({
      name: 'record', text: 'SELECT durable.record_step($1, $2, $3, $4, $5, $6, $7, $8, $9) AS kept',
      values: [task.task_id, task.token, seq, name, error ? null : json(output), error && JSON.stringify(error), json(input), attempts, started] })
      .catch((cause) => { throw /^(22|54)/.test(cause.code) ? cause : new Unrecorded(cause.message, { cause }); });
    if (!kept) throw new Lost();
    if (error) throw new StepFailed(error);
    return output;
  }

  async stepInTransaction(task, seq, name, input, fn) {
    const client = await this.pool.connect().catch((cause) => { throw new Unrecorded(cause.message, { cause }); });
    try {
      await client.query('BEGIN');
      const output = await fn(client, input);
      const { rows: [{ kept }] } = await client.query('SELECT durable.record_step($1, $2, $3, $4, $5, input => $6) AS kept',
        [task.task_id, task.token, seq, name, output === undefined ? null : JSON.stringify(output), input === undefined ? null : JSON.stringify(input)]);
      await client.query(kept ? 'COMMIT' : 'ROLLBACK');
      if (!kept) throw new Lost();
      return output;
    } catch (error) {
      const connected = await client.query('ROLLBACK').then(() => true, () => false);
      if (error instanceof Lost) throw error;
      if (!connected) throw new Unrecorded(error.message, { cause: error });
      return await this.localStep(task, seq, name, input, () => { throw error; }, 1, 0);
    } finally {
      client.release();
    }
  }

  // ---- steps and tasks

  async #step(entry) {
    const { task, worked } = entry;
    const handler = this.handlers[task.name];
    if (handler?.transaction) return await this.#stepAndSettle(task, handler);
    const item = { task_id: task.task_id, token: task.token };
    try {
      if (!handler) throw Object.assign(new Error(`no handler for ${task.name}`), { retryable: false });
      item.output = await handler(task.input, { ...task, get signal() { return entry.abort.signal; } });
    } catch (error) {
      item.error = errorJson(error);
    }
    // who gives up because it is being handed back has not done it
    if (!this.running && entry.abort.signal.aborted) return;
    // whatever is wrong with that, the result is good, and a turn will see it
    if (!item.error) item.turn = await this.#decideAfter(task, item.output).catch(() => undefined);
    worked();
    const result = await this.#handInOr(item, task, (error) => ({ error: { ...error, retryable: false } }));
    if (result !== 2 && item.turn) this.warm.delete(task.run_id);
    if (result === 0) this.lost(task);
  }

  async #stepAndSettle(task, handler) {
    const client = await this.pool.connect();
    try {
      await client.query('BEGIN');
      const output = await handler(client, task.input, task);
      const { rows: [{ kept }] } = await client.query('SELECT durable.complete($1, $2, $3) AS kept', [task.task_id, task.token, output === undefined ? null : JSON.stringify(output)]);
      await client.query(kept ? 'COMMIT' : 'ROLLBACK');
      if (!kept) this.lost(task);
    } catch (error) {
      if (!await client.query('ROLLBACK').then(() => true, () => false)) throw error;
      await this.pool.query('SELECT durable.fail($1, $2, $3)', [task.task_id, task.token, JSON.stringify(errorJson(error))]);
    } finally {
      client.release();
    }
  }

  lost(task) { this.log(`${task.kind} ${task.name} of ${task.run_id ?? task.task_id}: refused, the claim was lost`); }

  // ---- staying alive

  async #renew() {
    for (const token of new Set([...this.held.values()].map(({ task }) => task.token))) {
      const { rows: [{ left }] } = await this.pool.query('SELECT durable.renew($1, $2) AS left', [token, `${this.leaseMs} ms`]);
      if (left === 0) for (const entry of this.held.values()) if (entry.task.token === token) entry.abort.abort();
    }
  }

  /** Of what was not claimed just now. Also how a worker learns that a run was cancelled. */
  async #heartbeat() {
    const old = performance.now() - this.beatMs / 2;
    for (const entry of this.held.values()) {
      const { task, since, beaten = since } = entry;
      if (beaten > old) continue;
      const { rows: [{ wanted }] } = await this.pool.query('SELECT durable.heartbeat($1, $2) AS wanted', [task.task_id, task.token]);
      entry.beaten = performance.now();
      if (!wanted) entry.abort.abort();
    }
  }
}
