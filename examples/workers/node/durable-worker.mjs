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

import pg from 'pg';
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';

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

function errorJson(error) {
  if (error instanceof StepFailed) return { ...error.error, message: error.message };
  const json = { message: error?.message ?? String(error) };
  for (const key of ['code', 'detail', 'details', 'retryable']) {
    if (error?.[key] !== undefined) json[key] = error[key];
  }
  return json;
}

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
  step(name, input, { retries, backoffMs, backoffKind, backoffMaxMs, jitter, timeoutMs, pickupTimeoutMs, queue, priority, requires } = {}) {
    return this.#turn.wait('step', name, {
      type: 'call', name, input, retries, backoff_ms: backoffMs, backoff_kind: backoffKind,
      backoff_max_ms: backoffMaxMs, jitter, timeout_ms: timeoutMs, pickup_timeout_ms: pickupTimeoutMs, queue, priority, requires,
    });
  }

  /** The same step for many inputs; all results, or the first failure in their order. */
  async stepAll(name, inputs, options) {
    const first = this.#turn.next;
    const steps = inputs.map((input) => this.step(name, input, options));
    if (steps.length > 1) this.#turn.fans.push([first, first + steps.length - 1]);
    const settled = await Promise.allSettled(steps);
    const failed = settled.find((result) => result.status === 'rejected');
    if (failed) throw failed.reason;
    return settled.map((result) => result.value);
  }

  /** Run a function here. It is recorded before the turn ends, and may run again if that fails. */
  localStep(name, fn, { input, retries = 1, backoffMs = 0 } = {}) {
    return this.#turn.local(name, input, () => fn(input), { retries, backoffMs });
  }

  /** A local step exactly once: what it writes with the client is committed with its record. */
  transaction(name, fn, { input } = {}) {
    return this.#turn.local(name, input, fn, { retries: 1, transaction: true });
  }

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
    const recorded = this.#turn.history.get(this.#turn.next);
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

  /** Undo what was done, in reverse order: saga.add(() => ctx.step('refund', …)), then await saga.undo(). */
  saga() {
    const undos = [];
    return {
      add: (undo) => undos.push(undo),
      undo: async () => { while (undos.length > 0) await undos.pop()(); },
    };
  }
}

/** One replay of a body, from its beginning to where nothing can go on. */
class Turn {
  constructor(worker, task, history) {
    Object.assign(this, { worker, task, history, next: 0, commands: [], fans: [], busy: 0, fatal: null, started: performance.now() });
    this.historyEnd = task.input.history_end;
    this.blocked = new Set();
    this.ended = new Promise((resolve) => { this.end = resolve; });
  }

  clock() { return this.task.input.now + (performance.now() - this.started); }

  /** The next position, and what the history has there. */
  take(kind, name) {
    if (this.fatal) throw new RunFailed('the run has failed');
    const seq = this.next++;
    const recorded = this.history.get(seq);
    if (recorded && (recorded.kind !== kind || recorded.name !== name)) {
      this.fatal = new NonDeterminism(this.task.run_id, seq, kind, name, recorded);
      throw this.fatal;
    }
    return { seq, recorded };
  }

  /** Something that is known at once, and recorded with the turn. */
  record(kind, name, command) {
    const { seq, recorded } = this.take(kind, name);
    if (recorded) return recorded.output;
    const made = typeof command === 'function' ? command() : command;
    this.commands.push({ ...made, seq });
    return made.value;
  }

  /** Something that the run waits for, unless its outcome is there. */
  async wait(kind, name, command) {
    const { seq, recorded } = this.take(kind, name);
    if (recorded?.status === 'completed') return recorded.output;
    if (recorded?.status === 'failed') throw new StepFailed(recorded.error);
    this.commands.push({ ...command, seq });
    this.blocked.add(seq);
    this.look();
    return new Promise(() => {});
  }

  /** A step that is executed here. */
  async local(name, input, fn, { retries, backoffMs, transaction }) {
    const { seq, recorded } = this.take('local', name);
    if (recorded?.status === 'completed') return recorded.output;
    if (recorded?.status === 'failed') throw new StepFailed(recorded.error);
    this.busy++;
    try {
      return await (transaction ? this.worker.stepInTransaction(this.task, seq, name, input, fn)
        : this.worker.localStep(this.task, seq, name, input, fn, retries, backoffMs));
    } catch (error) {
      if (error instanceof Lost) { this.worker.lost(this.task); this.end({ lost: true }); return await new Promise(() => {}); }
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

  /** The whole turn: a decision, or { lost: true }. */
  async run(body) {
    const ctx = new Context(this);
    const finished = (async () => body(ctx, this.task.input.input))().then(
      (output) => ({ status: 'completed', output }),
      (error) => ({ status: 'failed', error: errorJson(error) }));
    const outcome = await Promise.race([finished, this.ended]);
    if (this.fatal instanceof NonDeterminism) return { status: 'failed', error: errorJson(this.fatal), commands: [] };
    const decision = { ...outcome, commands: this.commands };
    if (this.fatal) decision.commands.push(this.fatal);
    // one fan is all that the run waits for: wake it when the fan is done
    const fan = this.fans.find(([first, last]) => [...this.blocked].every((seq) => seq >= first && seq <= last));
    if (outcome.status === 'continue' && fan) decision.await_all = fan;
    return decision;
  }
}

// --------------------------------------------------------------- the worker --

/** Sends what comes while the last batch is under way as the next batch. */
class Batcher {
  constructor(send) { this.send = send; this.queue = []; this.sending = null; }

  add(item) {
    return new Promise((resolve, reject) => {
      this.queue.push({ item, resolve, reject });
      this.sending ??= this.#flush().finally(() => { this.sending = null; });
    });
  }

  async #flush() {
    await null;
    while (this.queue.length > 0) {
      const batch = this.queue.splice(0);
      try {
        const results = await this.send(batch.map((entry) => entry.item));
        batch.forEach((entry, i) => entry.resolve(results[i]));
      } catch (error) {
        // one of them may be in the way of the others
        if (batch.length === 1) batch[0].reject(error);
        else for (const entry of batch) await this.send([entry.item]).then(([result]) => entry.resolve(result), entry.reject);
      }
    }
  }
}

export class Worker {
  /**
   * workflows: name, or name@version → body; handlers: name of a step or task → async (input, task) → output.
   * history: turns come with that many checkpoints, and the worker keeps the histories of
   * the last runs; needs the privilege read. null: with all of them. capabilities: what steps and
   * workflows may require of this worker; null: what a worker of protocol 1 can do.
   */
  constructor({ connection, workflows = {}, handlers = {}, queues, namespace = null, name = `node-${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`,
    concurrency = 10, leaseMs = 30000, pollMs = 2000, history = null, keepRuns = 1000, capabilities = null, announceMs = 10000, log = console.error } = {}) {
    Object.assign(this, { capabilities, announceMs, workflows, handlers, namespace, name, concurrency, leaseMs, pollMs, history, keepRuns, log });
    this.queues = queues ?? [...new Set([...Object.keys(workflows).map((key) => key.split('@')[0]), ...Object.keys(handlers)])];
    this.pool = new pg.Pool({ ...connection, max: 5 });
    this.pool.on('error', (error) => this.log('connection lost:', error.message));
    // token and task_id → { task, abort, done }: a run has one task for all its turns, and the
    // next may be claimed before this one is forgotten
    this.held = new Map();
    this.working = 0;              // of them, those that are not done but for telling the database
    this.kept = new Map();         // run_id → { since, known: Map of its history }, the last used last
    this.running = false;
    this.decisions = new Batcher((items) => this.#decide(items));
    this.outcomes = new Batcher((items) => this.#complete(items));
  }

  start() {
    this.running = true;
    this.status = 'up';
    this.loop = this.#announce().then(() => this.#poll());
    this.announcing = setInterval(() => this.#announce(), this.announceMs);
    this.renewal = setInterval(() => this.#renew().catch((error) => this.log('renewal failed:', error.message)), this.leaseMs / 3);
    this.beat = setInterval(() => this.#heartbeat().catch((error) => this.log('heartbeat failed:', error.message)), 5000);
    return this;
  }

  /** Finish what is under way for at most graceMs, then hand the rest back. */
  async stop({ graceMs = 10000 } = {}) {
    this.running = false;
    this.status = 'draining';
    this.wake?.();
    await this.announced;
    await this.#announce();
    await this.loop;
    let timer;
    await Promise.race([
      Promise.all([...this.held.values()].map((entry) => entry.done)),
      new Promise((resolve) => { timer = setTimeout(resolve, graceMs); })]);
    clearTimeout(timer);
    clearInterval(this.renewal);
    clearInterval(this.beat);
    clearInterval(this.announcing);
    await this.announced;
    for (const { task, abort } of this.held.values()) {
      abort.abort();
      await this.pool.query('SELECT durable.release($1, ARRAY[$2])', [task.token, task.task_id]);
    }
    await this.pool.query('SELECT durable.withdraw_worker($1, $2)', [this.name, this.namespace])
      .catch((error) => this.log('withdrawal failed:', error.message));
    await this.pool.end();
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

  async #poll() {
    let failures = 0;
    while (this.running) {
      const free = Math.min(this.concurrency - this.working, 4 * this.concurrency - this.held.size);
      if (free <= 0) {
        await new Promise((resolve) => { this.wake = resolve; });
        continue;
      }
      try {
        const { rows: [{ tasks }] } = await this.pool.query({
          name: 'claim', text: 'CALL durable.wait_and_claim($1, $2, $3, $4, $5, $6, NULL, $7)',
          values: [this.queues, free, `${this.leaseMs} ms`, `${this.pollMs} ms`, this.name, this.namespace, this.history] });
        failures = 0;
        for (const task of tasks ?? []) this.#take(task);
      } catch (error) {
        this.log('claim failed:', error.message);
        await new Promise((resolve) => { setTimeout(resolve, Math.min(100 * 2 ** failures++, 10000)); });
      }
    }
  }

  #take(task) {
    const abort = new AbortController();
    const entry = { task, abort };
    const key = `${task.token} ${task.task_id}`;
    this.held.set(key, entry);
    this.working++;
    entry.worked = () => {
      if (entry.free) return;
      entry.free = true;
      this.working--;
      this.wake?.();
    };
    entry.done = (task.kind === 'turn' ? this.#turn(entry) : this.#step(entry))
      .catch((error) => {
        this.log(`${task.kind} ${task.name} of ${task.run_id ?? task.task_id}:`, error.message);
        // whatever it was, another attempt may do better
        return this.pool.query('SELECT durable.release($1, ARRAY[$2])', [task.token, task.task_id]).catch(() => {});
      })
      .finally(() => {
        entry.worked();
        this.held.delete(key);
        this.wake?.();
      });
  }

  // ---- turns

  async #turn({ task, worked }) {
    const { workflow, version } = task.input;
    const body = this.workflows[`${workflow}@${version}`] ?? this.workflows[workflow];
    let decision = { status: 'failed', error: { message: `this worker has no workflow "${workflow}"`, code: 'no_workflow' } };
    if (body) decision = await new Turn(this, task, await this.#historyOf(task)).run(body);
    worked();
    if (decision.lost) return;
    if (decision.status !== 'continue') this.kept.delete(task.run_id);
    if (!await this.decisions.add({ task, decision })) this.lost(task);
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

  async #decide(items) {
    // locks are taken in the order of the rows: the same one everywhere
    const order = items.map((_, i) => i).sort((a, b) => Number(items[a].task.task_id.slice(1)) - Number(items[b].task.task_id.slice(1)));
    const { rows } = await this.pool.query({
      name: 'decide', text: 'SELECT durable.complete_turn(t, k, d) AS applied FROM unnest($1::text[], $2::uuid[], $3::jsonb[]) AS u (t, k, d)',
      values: [order.map((i) => items[i].task.task_id), order.map((i) => items[i].task.token), order.map((i) => JSON.stringify(items[i].decision))] });
    const applied = [];
    order.forEach((i, n) => { applied[i] = rows[n].applied; });
    return applied;
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
      values: [task.task_id, task.token, seq, name, error ? null : json(output), error && JSON.stringify(error), json(input), attempts, started] });
    if (!kept) throw new Lost();
    if (error) throw new StepFailed(error);
    return output;
  }

  async stepInTransaction(task, seq, name, input, fn) {
    const client = await this.pool.connect();
    try {
      await client.query('BEGIN');
      const output = await fn(client, input);
      const { rows: [{ kept }] } = await client.query('SELECT durable.record_step($1, $2, $3, $4, $5, input => $6) AS kept',
        [task.task_id, task.token, seq, name, output === undefined ? null : JSON.stringify(output), input === undefined ? null : JSON.stringify(input)]);
      await client.query(kept ? 'COMMIT' : 'ROLLBACK');
      if (!kept) throw new Lost();
      return output;
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {});
      if (error instanceof Lost) throw error;
      return await this.localStep(task, seq, name, input, () => { throw error; }, 1, 0);
    } finally {
      client.release();
    }
  }

  // ---- steps and tasks

  async #step({ task, abort: { signal }, worked }) {
    const handler = this.handlers[task.name];
    let output;
    try {
      if (!handler) throw Object.assign(new Error(`no handler for ${task.name}`), { retryable: false });
      output = await handler(task.input, { ...task, signal });
    } catch (error) {
      if (this.running || !signal.aborted) await this.pool.query('SELECT durable.fail($1, $2, $3)', [task.task_id, task.token, JSON.stringify(errorJson(error))]);
      return;
    }
    worked();
    if (!await this.outcomes.add({ task, output })) this.lost(task);
  }

  lost(task) { this.log(`${task.kind} ${task.name} of ${task.run_id ?? task.task_id}: refused, the claim was lost`); }

  async #complete(items) {
    const tokens = Map.groupBy ? Map.groupBy(items, (item) => item.task.token) : items.reduce(
      (map, item) => map.set(item.task.token, [...(map.get(item.task.token) ?? []), item]), new Map());
    const settled = new Set();
    for (const [token, group] of tokens) {
      const { rows } = await this.pool.query({
        name: 'complete', text: 'SELECT durable.complete_many($1, $2, $3) AS id',
        values: [token, group.map(({ task }) => task.task_id), group.map(({ output }) => (output === undefined ? null : JSON.stringify(output)))] });
      for (const { id } of rows) settled.add(id);
    }
    return items.map(({ task }) => settled.has(task.task_id));
  }

  // ---- staying alive

  async #renew() {
    for (const token of new Set([...this.held.values()].map(({ task }) => task.token))) {
      const { rows: [{ left }] } = await this.pool.query('SELECT durable.renew($1, $2) AS left', [token, `${this.leaseMs} ms`]);
      if (left === 0) for (const { task, abort } of this.held.values()) if (task.token === token) abort.abort();
    }
  }

  /** Also how a worker learns that a run was cancelled. */
  async #heartbeat() {
    for (const { task, abort } of this.held.values()) {
      const { rows: [{ wanted }] } = await this.pool.query('SELECT durable.heartbeat($1, $2) AS wanted', [task.task_id, task.token]);
      if (!wanted) abort.abort();
    }
  }
}
