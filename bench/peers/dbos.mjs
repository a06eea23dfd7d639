// DBOS from npm, as its manual has it: a registered workflow of three steps, started
// and awaited in its own process, many at a time. A process for each core, or as many
// as durable has sessions.
import { fork } from 'node:child_process';
import { cpus } from 'node:os';
import { once } from 'node:events';
import { connectionString, freshDatabase, query } from '../lib/db.mjs';
import { drains, timed } from './workflows.mjs';

export const dbos = {
  label: 'DBOS',
  database: 'bench_dbos',
  workflow: 'three',
  count: () => Math.min(drains.count, cpus().length),

  async install(database) {
    this.processes = [];
    await freshDatabase(database);
    await query(database, 'CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n bigint, step int)');
    // one after the other: the first one makes its tables
    for (let i = 0; i < this.count(); i++) {
      const child = fork(new URL('dbos_process.mjs', import.meta.url), [connectionString(database), `bench-${i}`, this.workflow], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      this.processes.push(child);
      await answer(child);
    }
  },

  async run(count) {
    const each = Math.ceil(count / this.processes.length);
    const { rate } = await timed(each * this.processes.length, () =>
      Promise.all(
        this.processes.map((child) => {
          child.send(each);
          return answer(child);
        }),
      ),
    );
    return { rate }; // its sessions stay: no count of their CPU time
  },

  async stop() {
    for (const child of this.processes) {
      child.disconnect();
      await once(child, 'exit');
    }
    this.processes = [];
  },
};

// Its next message; an error when it ends instead.
async function answer(child) {
  await new Promise((resolve, reject) => {
    const failed = (code) => reject(new Error(`a DBOS process ended (${code})`));
    child.once('exit', failed);
    child.once('message', () => {
      child.off('exit', failed);
      resolve();
    });
  });
}
