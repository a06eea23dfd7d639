// One pgbench run. Statements are prepared once per connection for every peer
// (-M prepared); a JSON literal in a script needs a blank after its colons, or
// pgbench takes what follows for a variable.
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { serverCpu } from './db.mjs';

// options:
//   scripts       list of scripts, each a list of lines; more than one are mixed evenly
//   clients       concurrent connections
//   seconds       run that long, or
//   transactions  run that many per client
//   variables     { name: value } set before the first statement
//   progress      collect the rate of every second
// Returns { rate, transactions, cpu, progress: [rate of second 1, …] }; cpu is what
// the server's sessions used, in microseconds per transaction.
export async function pgbench(database, options) {
  const { scripts, clients = 4, seconds, transactions, variables = {}, progress = false } = options;
  const dir = await mkdtemp(path.join(tmpdir(), 'pgbench-'));
  try {
    const args = ['-n', '-M', 'prepared', '-c', String(clients), '-j', clients > 4 ? '2' : '1'];
    args.push(...(transactions ? ['-t', String(transactions)] : ['-T', String(seconds)]));
    if (progress) args.push('-P', '1');
    for (const [name, value] of Object.entries(variables)) args.push('-D', `${name}=${value}`);
    for (const [i, lines] of scripts.entries()) {
      const file = path.join(dir, `${i}.sql`);
      await writeFile(file, lines.join('\n') + '\n');
      args.push('-f', file);
    }
    args.push(database);
    const before = await serverCpu();
    const result = parse(await run('pgbench', args));
    return { ...result, cpu: ((await serverCpu()) - before) / result.transactions };
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

function run(command, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let out = '';
    child.stdout.on('data', (d) => (out += d));
    child.stderr.on('data', (d) => (out += d));
    child.on('error', reject);
    child.on('close', (code) => {
      if (code === 0 && !/aborted|ERROR/.test(out)) resolve(out);
      else reject(new Error(`pgbench failed (${code}):\n${out.slice(0, 4000)}`));
    });
  });
}

function parse(out) {
  const rate = Number(/^tps = ([\d.]+)/m.exec(out)?.[1]);
  const transactions = Number(/transactions actually processed: (\d+)/.exec(out)?.[1]);
  if (!Number.isFinite(rate)) throw new Error(`no rate in pgbench's output:\n${out}`);
  const progress = [...out.matchAll(/^progress: [\d.]+ s, ([\d.]+) tps/gm)].map((m) => Number(m[1]));
  return { rate, transactions, progress };
}
