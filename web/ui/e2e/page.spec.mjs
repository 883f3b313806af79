// The page against the fixture: what takes a scripted host to show.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startFixture as startHost } from '../test/fixture.mjs';
import { expectAccessible, expectNoSideScroll, launch, openPage, shot, until } from './rig.mjs';

let browser;
let fixture;
before(async () => {
  browser = await launch();
  fixture = await startHost({ delay: 15 });
});
after(async () => {
  await browser?.close();
  await fixture?.close();
});

/** A fixture of one test, closed whatever becomes of the test. */
const startFixture = async (t, options) => {
  const own = await startHost(options);
  t.after(() => own.close());
  return own;
};
const open = async (fragment, options) => {
  const page = await openPage(browser, options);
  await page.goto(fixture.url + fragment);
  return page;
};
const refused = /status of (401|404|409|422)/;

test('a browser that is not logged in is told how', async (t) => {
  const locked = await startFixture(t, { auth: true });
  const page = await openPage(browser, { allow: [refused] });
  await page.goto(locked.url);
  await page.getByText('dsh-web open').waitFor();
  await expectAccessible(page, 'login');
  await shot(page, 'login');

  await page.goto(`${locked.url}#code=wrong`);
  await page.reload();
  await page.getByRole('alert').filter({ hasText: 'used already' }).waitFor();
  assert.equal(new URL(page.url()).hash, '');

  await page.goto(`${locked.url}#code=letmein`);
  await page.reload();
  await page.getByRole('heading', { name: 'New session' }).waitFor();
  assert.equal(new URL(page.url()).hash, '', 'the code does not stay in the address');
  await page.reload();
  await page.getByRole('heading', { name: 'New session' }).waitFor();

  locked.host.token = 'another';
  // By address: the page may meet the 401 by itself before a link could be clicked.
  await page.evaluate(() => {
    location.hash = '#/settings';
  });
  await page.getByText('dsh-web open').waitFor();
  page.expectQuiet();
  await page.context().close();
});

test('pick minimal, send, watch two calls and an edit stream in; reload in mid-turn; a second tab', async (t) => {
  const slow = await startFixture(t, { delay: 100 });
  const page = await openPage(browser);
  await page.goto(`${slow.url}?preset=minimal&workspace=/tmp/xyz`);
  assert.equal(await page.getByRole('textbox', { name: 'Workspace' }).inputValue(), '/tmp/xyz');
  assert.equal(await page.getByRole('radio', { name: /Minimal/ }).isChecked(), true);
  await page.getByText('Full access').first().waitFor();
  await page.getByText('unknown key "rowz"').waitFor();
  await expectAccessible(page, 'new session');
  await shot(page, 'new');
  await page.getByLabel('First message').fill('show me');
  await page.keyboard.press('Enter');

  await page.locator('.message--live, .reasoning').first().waitFor();
  await page.locator('.header__status', { hasText: 'Running' }).waitFor();
  await page.locator('.tool__title', { hasText: 'ls -la' }).waitFor();
  await page.reload();
  const second = await openPage(browser, { context: page.context() });
  await second.goto(page.url());
  for (const tab of [page, second]) {
    await tab.locator('.badge', { hasText: 'exit 3' }).waitFor();
    await tab.getByText('Still running in the background').waitFor();
    await tab.locator('.diff__line--add', { hasText: 'another line' }).waitFor();
    await tab.locator('strong', { hasText: 'summary' }).waitFor();
    await tab.locator('.header__status', { hasText: 'Idle' }).waitFor();
  }
  const rows = (tab) => tab.locator('.row').allInnerTexts();
  assert.deepEqual(await rows(page), await rows(second));
  assert.equal(new Set(await rows(page)).size, (await rows(page)).length, 'no row twice');
  await expectAccessible(page, 'session');
  await shot(page, 'session');
  page.expectQuiet();
  second.expectQuiet();
  await page.context().close();
});

test('stop, queue, edit, take out, recall', async (t) => {
  const slow = await startFixture(t, { delay: 500 });
  const page = await openPage(browser);
  await page.goto(slow.url);
  await page.getByLabel('First message').fill('first');
  await page.keyboard.press('Enter');
  const box = page.getByRole('textbox', { name: 'Message' });
  await page.locator('.message--live, .reasoning').first().waitFor();
  await box.fill('second');
  await box.press('Enter');
  await box.fill('third');
  await box.press('Enter');
  const queue = page.getByRole('list', { name: 'Queued messages' });
  await queue.getByText('third').waitFor();
  await queue.getByRole('listitem').filter({ hasText: 'third' }).getByRole('button', { name: 'Remove' }).click();
  await queue.getByText('third').waitFor({ state: 'detached' });
  await queue.getByRole('listitem').filter({ hasText: 'second' }).getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit queued message').fill('second, changed');
  await page.getByLabel('Edit queued message').press('Enter');
  await queue.getByText('second, changed').waitFor();
  await shot(page, 'queue');
  await box.press('Escape');
  await page.getByText('Stopped by you.').waitFor();
  await page.locator('.message--user', { hasText: 'second, changed' }).waitFor();
  await box.press('Escape');
  await page.locator('.header__status', { hasText: 'Idle' }).waitFor();
  await box.press('ArrowUp');
  assert.equal(await box.inputValue(), 'second, changed');
  page.expectQuiet();
  await page.context().close();
});

test('one of everything reads well, light, dark and narrow', async () => {
  for (const [name, options] of [
    ['light', { height: 3200 }],
    ['dark', { height: 3200, dark: true }],
    ['narrow', { width: 360, height: 700 }],
  ]) {
    const page = await open('#/s/gallery', options);
    await page.getByText('MISSING_CREDENTIAL').waitFor();
    await page.locator('.hljs-keyword').first().waitFor();
    await expectNoSideScroll(page, name);
    await expectAccessible(page, `gallery ${name}`);
    await shot(page, `gallery-${name}`);
    page.expectQuiet();
    await page.context().close();
  }
});

test('every screen fits 360 px and has nothing serious for axe, in both schemes', async () => {
  for (const dark of [false, true]) {
    const page = await open('#/', { width: 360, height: 700, dark });
    for (const [fragment, sign] of [
      ['#/', 'First message'],
      ['#/approvals', 'Exact command'],
      ['#/presets/mine', 'preset.yml'],
      ['#/settings', 'Providers'],
      ['#/s/waiting', 'Exact command'],
      ['#/s/damaged', 'does not match'],
    ]) {
      await page.goto(fixture.url + fragment);
      await page.getByText(sign).first().waitFor();
      await expectNoSideScroll(page, fragment);
      await expectAccessible(page, `${fragment} ${dark}`);
      await shot(page, `narrow-${dark ? 'dark' : 'light'}-${fragment.replace(/\W+/g, '') || 'new'}`);
    }
    await page.getByRole('button', { name: 'Menu' }).click();
    await page.getByRole('link', { name: 'One of everything' }).click();
    await page.getByText('MISSING_CREDENTIAL').waitFor();
    page.expectQuiet();
    await page.context().close();
  }
});

test('ten thousand messages: bounded document, follow, jump, deep link, find', async () => {
  const page = await open('#/s/long');
  await page.getByText('Answer 4999.').waitFor();
  const list = page.locator('.list');
  const nodes = () => page.evaluate(() => document.querySelectorAll('.list *').length);
  const top = () => list.evaluate((e) => (e.scrollTop = 0));
  for (let i = 0; i < 4; i++) {
    const size = () => list.evaluate((e) => e.scrollHeight);
    const was = await size();
    await top();
    await until('an older page', async () => (await size()) > was);
  }
  await page.getByRole('button', { name: 'Newest' }).click();
  await page.getByText('Answer 4999.').waitFor();
  assert.ok((await nodes()) < 4000, `${await nodes()} elements`);

  await page.keyboard.press('Control+f');
  await page.getByLabel('Find in conversation').fill('Question 4800');
  await page.locator('.row--marked', { hasText: 'Question 4800' }).waitFor();
  await shot(page, 'find');
  await page.keyboard.press('Escape');

  await page.goto(`${fixture.url}#/s/long/9000`);
  await page.locator('.row--marked', { hasText: 'Question 4500' }).waitFor();
  page.expectQuiet();
  await page.context().close();
});

test('reading back is not disturbed by new text', async () => {
  const page = await open('#/s/long');
  await page.getByText('Answer 4999.').waitFor();
  const list = page.locator('.list');
  await list.evaluate((e) => (e.scrollTop = e.scrollHeight - 3000));
  await page.getByRole('button', { name: 'Newest' }).waitFor();
  const seen = () => page.evaluate(() => {
    const box = document.querySelector('.list').getBoundingClientRect();
    return [...document.querySelectorAll('.row')].find((r) => r.getBoundingClientRect().bottom > box.top + 10)?.innerText;
  });
  await new Promise((resolve) => setTimeout(resolve, 300));
  const was = await seen();
  fixture.host.sessions.get('long').message({ content: 'while you read' });
  await until('the turn', () => !fixture.host.sessions.get('long').running);
  assert.equal(await seen(), was);
  page.expectQuiet();
  await page.context().close();
});

test('hostile text stays text', async () => {
  const page = await open('#/s/hostile');
  await page.getByText('window.pwned').first().waitFor();
  const list = page.locator('.list');
  for (let at = 0; at < 8; at++) {
    await list.evaluate((e, n) => (e.scrollTop = (e.scrollHeight * n) / 8), at);
    await new Promise((resolve) => setTimeout(resolve, 80));
  }
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.equal(await page.evaluate(() => document.querySelectorAll('.list img, .list iframe, .list form, .list script').length), 0);
  assert.equal(await page.title(), '(1) <img src=x onerror=alert(1)> · dsh-web');
  await shot(page, 'hostile');
  page.expectQuiet();
  await page.context().close();
});

test('approve in another tab', async () => {
  const page = await open('#/s/waiting');
  await page.getByText('\\u202e').waitFor();
  await page.setViewportSize({ width: 360, height: 700 });
  const cut = await page.locator('.approval .code').evaluate((e) => e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight);
  assert.equal(cut, false, 'the whole command is in sight, also on a narrow page');
  await page.setViewportSize({ width: 1280, height: 860 });
  assert.match(await page.title(), /^\(1\)/);
  const inbox = await openPage(browser, { context: page.context() });
  await inbox.goto(`${fixture.url}#/approvals`);
  await inbox.getByRole('button', { name: 'Allow once' }).waitFor();
  await shot(inbox, 'approvals');
  await inbox.getByRole('button', { name: 'Allow once' }).press('Enter');
  await inbox.getByText('Nothing waits for an answer.').waitFor();
  await page.locator('.approval', { hasText: 'Allowed' }).waitFor();
  assert.equal(await page.getByRole('button', { name: 'Allow once' }).count(), 0);
  assert.doesNotMatch(await page.title(), /^\(/);
  page.expectQuiet();
  inbox.expectQuiet();
  await page.context().close();
});

test('offline and back: nothing missed, and the agent never looks stopped', async (t) => {
  const slow = await startFixture(t, { delay: 60 });
  const page = await openPage(browser, { allow: [/ERR_INTERNET_DISCONNECTED/, /WebSocket/] });
  await page.goto(slow.url);
  await page.getByLabel('First message').fill('go');
  await page.keyboard.press('Enter');
  await page.locator('.tool').first().waitFor();
  await page.context().setOffline(true);
  await page.getByText('Connection lost').waitFor();
  assert.equal((await page.locator('.header__status').innerText()).trim(), 'Running');
  await shot(page, 'offline');
  await until('the turn', () => [...slow.host.sessions.values()].every((s) => s.id === 'waiting' || !s.running));
  await page.context().setOffline(false);
  await page.locator('strong', { hasText: 'summary' }).waitFor();
  await page.getByText('Connection lost').waitFor({ state: 'detached' });
  assert.equal(await page.locator('.tool').count(), 3);
  page.expectQuiet();
  await page.context().close();
});

test('another log behind the same address is read from its beginning', async (t) => {
  const one = await startFixture(t, { logId: 'one' });
  const page = await openPage(browser, { allow: [/WebSocket|ERR_CONNECTION_REFUSED/] });
  await page.goto(`${one.url}#/s/gallery`);
  await page.getByText('MISSING_CREDENTIAL').waitFor();
  const port = Number(new URL(one.url).port);
  await one.close();
  const two = await startFixture(t, { logId: 'two', port });
  two.host.sessions.get('gallery').events = [];
  two.host.sessions.get('gallery').append('user/message', { id: 'n', content: [{ type: 'text', text: 'a new beginning' }], source: { kind: 'user' } });
  await page.getByText('a new beginning').waitFor();
  assert.equal(await page.getByText('MISSING_CREDENTIAL').count(), 0);
  page.expectQuiet();
  await page.context().close();
});

test('presets: copy, check, edit, delete', async () => {
  const page = await open('#/presets/minimal');
  await page.getByRole('button', { name: 'Copy…' }).click();
  await page.getByLabel('Id of the copy').fill('fresh');
  await page.getByRole('dialog').getByRole('button', { name: 'Copy' }).click();
  const source = page.getByLabel('preset.yml');
  await source.fill('version: 1\nrowz: []\n');
  await page.getByText('3:5: unknown key "rowz"').waitFor();
  await shot(page, 'preset-check');
  await source.fill('version: 1\nextends: minimal\nname: x\n');
  await page.getByText('It mounts.').waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('link', { name: /^fresh/ }).waitFor({ state: 'detached' });
  page.expectQuiet();
  await page.context().close();
});

test('settings: theme and a key that is never shown', async () => {
  const page = await open('#/settings');
  await page.getByLabel('Dark').check();
  assert.equal(await page.evaluate(() => getComputedStyle(document.body).backgroundColor), 'rgb(22, 22, 24)');
  await page.reload();
  assert.equal(await page.getByLabel('Dark').isChecked(), true);
  await page.getByLabel('API key deepseek').fill('sk-secret');
  await page.getByRole('button', { name: 'Set key' }).click();
  await page.getByText('A key is set').waitFor();
  assert.equal(await page.getByLabel('API key deepseek').inputValue(), '');
  await shot(page, 'settings');
  page.expectQuiet();
  await page.context().close();
});

test('sidebar: search, archive, delete a running one', async () => {
  const page = await open('#/s/gallery', { allow: [refused] });
  await page.getByLabel('Search sessions').fill('ten thou');
  assert.equal(await page.getByLabel('Search sessions').inputValue(), 'ten thou');
  await page.getByRole('link', { name: /One of everything/ }).waitFor({ state: 'detached' });
  await page.getByRole('link', { name: /Ten thousand/ }).waitFor();
  await page.getByLabel('Search sessions').fill('');
  const actions = (title) => page.getByRole('button', { name: `Actions for ${title}` });
  await actions('Damaged').focus();
  await page.keyboard.press('Enter');
  await page.getByRole('menuitem', { name: 'Archive' }).press('Enter');
  await page.getByRole('link', { name: /Damaged/ }).waitFor({ state: 'detached' });
  await page.getByLabel('Archived').check();
  await page.getByRole('link', { name: /Damaged/ }).waitFor();
  await page.getByLabel('Archived').uncheck();
  await actions('Fetch a package').focus();
  await page.keyboard.press('Enter');
  await page.getByRole('menuitem', { name: 'Delete…' }).click();
  await page.getByRole('button', { name: 'End and delete' }).click();
  await page.getByRole('link', { name: /Fetch a package/ }).waitFor({ state: 'detached' });
  page.expectQuiet();
  await page.context().close();
});

test('terminal: watch, take the keyboard, hand it back', async () => {
  const page = await open('#/s/gallery');
  await page.getByRole('button', { name: 'Terminal' }).click();
  await page.getByText('Read-only').waitFor();
  await page.locator('.terminal').getByText('README.md').first().waitFor();
  await page.getByRole('button', { name: 'Take the keyboard' }).click();
  await page.getByText('You have the keyboard').waitFor();
  await page.keyboard.type('pwd');
  await page.locator('.terminal').getByText('$ pwd').first().waitFor();
  await shot(page, 'terminal');
  await page.getByRole('button', { name: 'Hand back' }).click();
  await page.getByText('Read-only').waitFor();
  page.expectQuiet();
  await page.context().close();
});

test('exact prompt: system text, tools, hash, chain', async () => {
  const page = await open('#/s/gallery');
  fixture.host.sessions.get('gallery').append('request/sent', { turn: 1, step: 1, attempt: 1, bodySha256: 'ab'.repeat(32), bytes: 2048, contiguous: true });
  await page.getByRole('button', { name: 'Exact prompt' }).click();
  await page.getByText('You are a helpful software engineer assistant.').waitFor();
  await page.getByText('f00dcafe').first().waitFor();
  await page.getByText('Every request extends the one before.').waitFor();
  await expectAccessible(page, 'prompt');
  await shot(page, 'prompt');
  page.expectQuiet();
  await page.context().close();
});
