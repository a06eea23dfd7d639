// What bench/run starts once the server is up: node main.mjs [--quick]
// [--rounds=N] [--calm] [--patience=SECONDS] [--drains=N] [--drain=work|workers]
// [--json=FILE] [--stand-in] [SCENARIO...]
import { writeFile } from 'node:fs/promises';
import { asJson, note, render } from './lib/report.mjs';
import { reportCpu, settings } from './lib/compare.mjs';
import { durable } from './peers/durable.mjs';
import { hand } from './peers/handwritten.mjs';
import { cycle, settle } from './scenarios/cycle.mjs';
import { batch, clients } from './scenarios/batch.mjs';
import { fan } from './scenarios/fan.mjs';
import { flat } from './scenarios/flat.mjs';
import { xmin } from './scenarios/xmin.mjs';
import { latency } from './scenarios/latency.mjs';
import { background } from './scenarios/background.mjs';
import { wal } from './scenarios/wal.mjs';
import { payload } from './scenarios/payload.mjs';
import { long, workflow } from './scenarios/workflow.mjs';
import { full, timers, wfxmin } from './scenarios/workflow_full.mjs';
import { externalWorkers as external } from './scenarios/external.mjs';
import { admission } from './scenarios/admission.mjs';
import { limiter } from './scenarios/limiter.mjs';
import { retention } from './scenarios/retention.mjs';
import { drains } from './peers/workflows.mjs';

const scenarios = {
  cycle, settle, batch, clients, fan, flat, xmin, latency, background, wal, payload, workflow, long, full, timers, wfxmin, external, admission, limiter, retention,
};

const flags = Object.fromEntries(
  process.argv
    .slice(2)
    .filter((a) => a.startsWith('--'))
    .map((a) => a.slice(2).split('=')),
);
const names = process.argv.slice(2).filter((a) => !a.startsWith('--'));
for (const name of names) {
  if (!scenarios[name]) {
    process.stderr.write(`unknown scenario '${name}'; there are: ${Object.keys(scenarios).join(' ')}\n`);
    process.exit(2);
  }
}

const quick = 'quick' in flags;
settings.calm = 'calm' in flags;
settings.patience = Number(flags.patience ?? 0);
drains.count = Number(flags.drains ?? drains.count);
drains.mechanism = flags.drain ?? drains.mechanism;
// With --stand-in, a second hand-written queue takes durable's place: what the
// ratios then show is the noise of the machine.
const mine = 'stand-in' in flags ? Object.assign(Object.create(hand), { label: 'stand-in', database: 'bench_stand_in' }) : durable;
const rounds = (full, few) => Number(flags.rounds ?? (quick ? few : full));

let failed = false;
for (const name of names.length > 0 ? names : Object.keys(scenarios)) {
  note(`scenario ${name}`);
  try {
    await scenarios[name]({ quick, mine, rounds });
  } catch (error) {
    failed = true;
    process.stderr.write(`scenario ${name} failed: ${error.stack ?? error}\n`);
  }
}
reportCpu();

process.stdout.write(render());
if (flags.json) await writeFile(flags.json, asJson());
process.exit(failed ? 1 : 0);
