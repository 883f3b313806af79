// What the browser tests share: one Chromium, pages that fail on console noise,
// screenshots as artefacts, and the accessibility rules.

import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, 'out');
mkdirSync(out, { recursive: true });

const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];

export function launch() {
  return chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: flags });
}

/**
 * A page in a context of its own (or in `context`), which notes every console
 * message, page error and request that leaves the host. `expectQuiet` asserts
 * that there were none; `allow` names what a test causes on purpose.
 */
export async function openPage(browser, { context, width = 1280, height = 860, dark = false, allow = [] } = {}) {
  const own = context ?? (await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light' }));
  const page = await own.newPage();
  page.setDefaultTimeout(30_000);
  const noise = [];
  const note = (text) => allow.some((pattern) => pattern.test(text)) || noise.push(text);
  page.on('console', (message) => note(`${message.type()}: ${message.text()}`));
  page.on('pageerror', (error) => note(`page error: ${error.message}`));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (!['127.0.0.1', 'localhost'].includes(url.hostname) && !['data:', 'blob:'].includes(url.protocol)) noise.push(`left the host: ${url}`);
  });
  page.expectQuiet = () => assert.deepEqual(noise, []);
  return page;
}

export function shot(page, name) {
  return page.screenshot({ path: join(out, `${name}.png`) });
}

const axeSource = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Asserts that axe finds nothing serious or critical. */
export async function expectAccessible(page, where) {
  await page.evaluate(axeSource);
  const found = await page.evaluate(async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ['violations'] });
    return violations
      .filter((v) => v.impact === 'serious' || v.impact === 'critical')
      .map((v) => `${v.id}: ${v.nodes.map((n) => `${n.target.join(' ')} ${n.any[0]?.message ?? ''}`).join(' | ')}`);
  });
  assert.deepEqual(found, [], where);
}

/** Nothing may stick out of the window sideways. */
export async function expectNoSideScroll(page, where) {
  const wide = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth;
    const scrolls = (e) => {
      for (let p = e; p; p = p.parentElement) if (/auto|scroll|hidden/.test(getComputedStyle(p).overflowX)) return true;
      return false;
    };
    return [...document.querySelectorAll('body *')]
      .filter((e) => e.getBoundingClientRect().right > limit + 1 && !scrolls(e.parentElement))
      .map((e) => `${e.tagName}.${e.className}`);
  });
  assert.deepEqual(wide, [], where);
}

/** Waits until `read` gives something true; says what it gave last when it never does. */
export async function until(what, read, ms = 20_000) {
  const end = Date.now() + ms;
  let last;
  while (Date.now() < end) {
    last = await read();
    if (last) return last;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${what} (last: ${JSON.stringify(last)})`);
}
