// Keeps the page small: fails when the built files, compressed as the host
// sends them, pass their budgets.

import { gzipSync } from 'node:zlib';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const dist = join(dirname(fileURLToPath(import.meta.url)), '../../dist');
const kib = 1024;
const budgets = { all: 250 * kib, beforeTerminal: 100 * kib };

const files = readdirSync(dist, { recursive: true, withFileTypes: true })
  .filter((f) => f.isFile())
  .map((f) => join(f.parentPath ?? f.path, f.name));
const sizes = files.map((file) => [file.slice(dist.length + 1), gzipSync(readFileSync(file), { level: 9 }).length]);
const sum = (list) => list.reduce((n, [, size]) => n + size, 0);
const all = sum(sizes);
// What a visit without the terminal fetches; the rarer languages and screens come when they are needed.
const beforeTerminal = sum(sizes.filter(([name]) => !/xterm|rarer|more/.test(name)));

for (const [name, size] of sizes.sort((a, b) => b[1] - a[1])) console.log(`${(size / kib).toFixed(1).padStart(7)} KiB  ${name}`);
console.log(`${(beforeTerminal / kib).toFixed(1).padStart(7)} KiB  before the terminal, of ${budgets.beforeTerminal / kib}`);
console.log(`${(all / kib).toFixed(1).padStart(7)} KiB  in all, of ${budgets.all / kib}`);
if (all > budgets.all || beforeTerminal > budgets.beforeTerminal) {
  console.error('over budget');
  process.exit(1);
}
