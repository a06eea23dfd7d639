// What else the machine does meanwhile.
import { readFile } from 'node:fs/promises';
import os from 'node:os';
import { serverTicks, sleep } from './db.mjs';

const TICKS = 100; // a second

// Begin to watch; the returned function tells what share of the cores went to
// processes that are not of this benchmark, since then.
export async function watchOthers() {
  const begin = await now();
  return async () => {
    const end = await now();
    const others = end.busy - begin.busy - (end.own - begin.own);
    return Math.max(0, others / ((end.at - begin.at) * TICKS * os.cpus().length));
  };
}

// Wait, but no longer than patience seconds, until others leave the machine alone.
export async function waitForCalm(patience) {
  const end = performance.now() + patience * 1000;
  while (performance.now() < end) {
    const shareOfOthers = await watchOthers();
    await sleep(400);
    if ((await shareOfOthers()) < 0.25) return;
  }
}

async function now() {
  const [, user, nice, system, , , irq, softirq] = (await readFile('/proc/stat', 'utf8')).split('\n')[0].split(/ +/).map(Number);
  const stat = await readFile('/proc/self/stat', 'utf8');
  const mine = stat.slice(stat.lastIndexOf(')') + 2).split(' ').slice(11, 15).map(Number); // with children that have ended
  return {
    at: performance.now() / 1000,
    busy: user + nice + system + irq + softirq,
    own: mine.reduce((a, b) => a + b) + (await serverTicks()),
  };
}
