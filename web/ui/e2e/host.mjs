// Starts the real binary on a port and a data directory of its own.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, mkdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
export const binary = process.env.DSH_WEB_BIN ?? join(root, 'bin/dsh-web');

export class RealHost {
  constructor() {
    assert.ok(existsSync(binary), `${binary} is not there: run make build`);
    this.dir = mkdtempSync(join(tmpdir(), 'dsh-web-e2e-'));
    this.workspace = join(this.dir, 'ws');
    mkdirSync(this.workspace);
  }

  /** Starts it; `url` and `login` are what it printed. `port` 0 picks one. */
  async start({ port = 0, flags = [] } = {}) {
    const env = { PATH: process.env.PATH, HOME: this.dir, LANG: 'C.UTF-8' };
    this.child = spawn(binary, ['serve', '--listen', `127.0.0.1:${port}`, '--data', join(this.dir, 'data'), ...flags], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    this.errors = '';
    this.child.stderr.on('data', (d) => (this.errors += d));
    this.exited = new Promise((resolve) => this.child.once('exit', (code, signal) => resolve({ code, signal })));
    let text = '';
    const lines = new Promise((resolve, reject) => {
      this.child.stdout.on('data', (d) => {
        text += d;
        if (text.split('\n').length > 2) resolve(text);
      });
      void this.exited.then((how) => reject(new Error(`the host ended at once: ${JSON.stringify(how)} ${this.errors}`)));
    });
    const addresses = (await lines).match(/http:\/\/\S+/g);
    [this.url, this.login] = addresses;
    this.port = Number(new URL(this.url).port);
    return this;
  }

  async kill(signal = 'SIGKILL') {
    this.child.kill(signal);
    return this.exited;
  }

  /** Ends it and removes what it left on disk. */
  async end() {
    if (this.child && this.child.exitCode === null && this.child.signalCode === null) {
      const { code } = await this.kill('SIGTERM');
      assert.equal(code, 0, `the host ended with ${code}: ${this.errors}`);
    }
    rmSync(this.dir, { recursive: true, force: true });
  }
}
