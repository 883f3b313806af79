// The page on the real binary with its scripted demo model.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { corpus } from '../test/seed.mjs';
import { RealHost } from './host.mjs';
import { expectAccessible, expectNoSideScroll, launch, openPage, shot, until } from './rig.mjs';

let browser;
let host;
let context; // logged in
before(async () => {
  browser = await launch();
  host = await new RealHost().start();
  context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
  const page = await openPage(browser, { context });
  await page.goto(host.login);
  await page.getByRole('heading', { name: 'New session' }).waitFor();
  assert.equal(new URL(page.url()).hash, '');
  page.expectQuiet();
  await page.close();
});
after(async () => {
  await browser?.close();
  await host?.end();
});

const lost = [/WebSocket|ERR_CONNECTION_REFUSED|ERR_INTERNET_DISCONNECTED/];
const status = (page, text) => page.locator('.header__status', { hasText: text }).waitFor();
const composer = (page) => page.getByRole('textbox', { name: 'Message' });

async function begin(message, { preset = 'minimal', allow } = {}) {
  const page = await openPage(browser, { context, ...(allow ? { allow } : {}) });
  await page.goto(`${host.url}?preset=${preset}&workspace=${encodeURIComponent(host.workspace)}`);
  await page.getByRole('radio', { name: /^Minimal/ }).waitFor();
  if (message) await page.getByLabel('First message').fill(message);
  await page.getByRole('button', { name: 'Start' }).click();
  await composer(page).waitFor();
  return page;
}

test('a login address works once', async () => {
  const page = await openPage(browser, { allow: [/status of 401/] });
  await page.goto(host.login);
  await page.getByText('dsh-web open').waitFor();
  await page.getByRole('alert').filter({ hasText: 'used already' }).waitFor();
  await shot(page, 'host-login');
  page.expectQuiet();
  await page.context().close();
});

test('pick minimal, send, watch two bash calls and a file stream in; reload in mid-turn; a second tab', async () => {
  const page = await begin(
    ['run: for i in 1 2 3; do echo "line $i"; sleep 2; done', 'slow: 150', 'run: cd /usr && pwd; (exit 3)', 'write notes.md: hello from the page'].join('\n'),
  );
  await status(page, 'Running');
  await page.locator('.tool--running .output', { hasText: 'line 1' }).waitFor();
  assert.doesNotMatch(await page.locator('.output').first().innerText(), /line 3/, 'output is live');
  await shot(page, 'host-live-output');
  await page.locator('.message--live').waitFor();
  await page.reload();
  const second = await openPage(browser, { context });
  await second.goto(page.url());
  for (const tab of [page, second]) {
    await tab.locator('.badge', { hasText: 'exit 3' }).waitFor();
    await tab.locator('.tool', { hasText: 'notes.md' }).waitFor();
    await status(tab, 'Idle');
    await tab.locator('.entry__link[aria-current] .dot--idle').waitFor();
    assert.equal(await tab.locator('.tool').count(), 3);
    assert.equal(await tab.locator('.message--live').count(), 0);
  }
  const rows = (tab) => tab.locator('.row').allInnerTexts();
  assert.deepEqual(await rows(page), await rows(second));
  await expectAccessible(page, 'session');
  await shot(page, 'host-session');
  page.expectQuiet();
  second.expectQuiet();
  await page.close();
  await second.close();
});

test('stop keeps what was written; queued messages wait, can be changed, and run in order', async () => {
  const page = await begin('slow: 3000');
  const box = composer(page);
  await page.locator('.message--live').waitFor();
  for (const text of ['say: second', 'say: third', 'say: fourth']) {
    await box.fill(text);
    await box.press('Enter');
  }
  const queue = page.getByRole('list', { name: 'Queued messages' });
  const entry = (text) => queue.getByRole('listitem').filter({ hasText: text });
  await entry('fourth').getByRole('button', { name: 'Remove' }).click();
  await entry('fourth').waitFor({ state: 'detached' });
  await entry('second').getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Edit queued message').fill('say: changed');
  await page.getByLabel('Edit queued message').press('Enter');
  await entry('changed').waitFor();
  await shot(page, 'host-queue');
  await box.press('Escape');
  await page.getByText('Stopped by you.').waitFor();
  await page.getByText('this message is incomplete').waitFor();
  await box.fill('say: last');
  await box.press('Enter');
  await page.locator('.message--user', { hasText: 'say: last' }).waitFor();
  await status(page, 'Idle');
  const said = (await page.locator('.message--user .message__body').allInnerTexts()).map((t) => t.trim());
  assert.deepEqual(said, ['slow: 3000', 'say: changed', 'say: third', 'say: last']);
  page.expectQuiet();
  await page.close();
});

const careful = [
  'version: 1', 'extends: minimal', 'name: Careful', 'rows:',
  '  - {id: approvals, use: approvals, with: {tools: [bash]}}', '  - {id: ask, use: tool-ask}', '',
].join('\n');

/** Makes the preset that asks, with the rights of the page. */
async function makeCareful(page) {
  const done = await page.evaluate(async (text) => {
    const token = localStorage.getItem('dsh-web.token');
    const headers = { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' };
    const send = (method, path, body) => fetch(path, { method, headers, body: JSON.stringify(body) });
    const copied = await send('POST', 'api/v1/presets', { id: 'careful', from: 'minimal' });
    const written = await send('PUT', 'api/v1/presets/careful', { text });
    return [copied.status, written.status];
  }, careful);
  assert.deepEqual(done, [201, 200]);
}

test('a call waits for leave: allow once, from a second tab, for the session, deny with a reason', async () => {
  const first = await openPage(browser, { context });
  await first.goto(host.url);
  await first.getByRole('heading', { name: 'New session' }).waitFor();
  await makeCareful(first);
  await first.close();

  const page = await begin('run: printf "a\u202eb"', { preset: 'careful' });
  const card = (text) => page.locator('.approval', { hasText: text });
  const ask = async (command) => {
    await composer(page).fill(`run: ${command}`);
    await composer(page).press('Enter');
    await card(command).getByRole('button', { name: 'Allow once' }).waitFor();
  };
  await card('printf').getByRole('button', { name: 'Allow once' }).waitFor();
  assert.match(await card('printf').innerText(), /a\\u202eb/, 'what reorders text is shown as an escape');
  assert.doesNotMatch(await card('printf').innerText(), /\u202e/);
  assert.match(await card('printf').innerText(), /only once: it holds characters that can't be seen/);
  assert.equal(await card('printf').getByRole('button', { name: 'Allow for this session' }).count(), 0);
  await card('printf').getByRole('button', { name: 'Allow once' }).click();
  await card('printf').getByText('Allowed once').waitFor();
  assert.match(await card('printf').innerText(), /a\\u202eb/, 'also when it is settled');
  await status(page, 'Idle');

  await ask('echo one > file');
  await status(page, 'Waiting for you');
  await page.locator('.tool', { hasText: 'waiting for you' }).waitFor();
  assert.equal(await page.locator('.entry__link[aria-current] .entry__count').innerText(), '1');
  assert.match(await card('echo one').innerText(), /only once: it redirects/);
  assert.equal(await card('echo one').getByRole('button', { name: 'Allow for this session' }).count(), 0);
  await expectAccessible(page, 'approval');
  await shot(page, 'host-approval');
  await page.reload();
  await card('echo one').getByRole('button', { name: 'Allow once' }).click();
  await card('echo one').getByText('Allowed once').waitFor();
  assert.equal(await page.getByText('waiting for you', { exact: true }).count(), 0);
  await status(page, 'Idle');
  assert.equal(await page.locator('.entry__link[aria-current] .entry__count').count(), 0);

  // Another tab answers; this one is told.
  await ask('ls file');
  const inbox = await openPage(browser, { context });
  await inbox.goto(`${host.url}#/approvals`);
  await inbox.locator('.approval', { hasText: 'ls file' }).getByRole('button', { name: 'Allow for this session' }).waitFor();
  assert.match(await inbox.locator('.approval').innerText(), /For this session allows/);
  await shot(inbox, 'host-approval-inbox');
  await inbox.getByRole('button', { name: 'Allow for this session' }).click();
  await inbox.getByText('Nothing waits for an answer.').waitFor();
  await card('ls file').getByText('Allowed for this session').waitFor();
  assert.ok((await card('ls file').boundingBox()).height < 50, 'what is settled is one line');
  await status(page, 'Idle');

  // The same runs by itself now, and is taken back.
  await composer(page).fill('run: ls file');
  await composer(page).press('Enter');
  await until('the second listing', async () => (await page.locator('.tool').count()) === 4);
  await status(page, 'Idle');
  assert.equal(await page.locator('.approval').count(), 3);
  await page.locator('.header').getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Approvals…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('ls file').waitFor();
  await expectAccessible(page, 'leave');
  await shot(page, 'host-leave');
  await dialog.getByRole('button', { name: 'Take back' }).click();
  await dialog.getByText('Nothing.').waitFor();
  await dialog.getByRole('combobox').selectOption('full');
  await dialog.getByRole('alert').getByText('without asking').first().waitFor();
  await dialog.getByRole('combobox').selectOption('never');
  await page.getByText('Approval policy').waitFor();
  await dialog.getByRole('combobox').selectOption('ask');
  await page.getByText('Approval policy').nth(1).waitFor(); // or the next call is still denied by policy
  await dialog.getByRole('button', { name: 'Close' }).click();

  // Somebody else is first: what was being written isn't lost without a word, in either place.
  const inboxCard = inbox.locator('.approval');
  const note = 'You had written, and it was not sent:';
  await ask('ls -a file');
  await card('ls -a file').getByRole('button', { name: 'Deny…' }).click();
  await page.getByLabel('Reason (the agent sees it)').fill('Better not.');
  await inboxCard.getByRole('button', { name: 'Allow once' }).click();
  await card('ls -a file').getByText(`${note} Better not.`).waitFor();
  await status(page, 'Idle');
  await ask('ls -l file');
  await inboxCard.getByRole('button', { name: 'Deny…' }).click();
  await inbox.getByLabel('Reason (the agent sees it)').fill('Not this.');
  await card('ls -l file').getByRole('button', { name: 'Allow once' }).click();
  await inbox.getByRole('alert').getByText(`${note} Not this.`).waitFor();
  await status(page, 'Idle');
  assert.equal(await card('ls -l file').getByText(note).count(), 0);

  // A long list of commands scrolls by itself.
  await ask(Array.from({ length: 60 }, (_, i) => `echo number-${i}`).join('; '));
  const covers = await card('number-59').locator('.approval__covers').evaluate((e) => [e.clientHeight, e.scrollHeight]);
  assert.ok(covers[0] <= 140 && covers[1] > covers[0], `${covers}`);
  await expectAccessible(page, 'a long list');
  await card('number-59').getByRole('button', { name: 'Deny…' }).click();
  await card('number-59').getByRole('button', { name: 'Deny', exact: true }).click();
  await card('number-59').getByText('Denied').waitFor();
  await status(page, 'Idle');

  await ask('rm file');
  await card('rm file').getByRole('button', { name: 'Deny…' }).click();
  await page.getByLabel('Reason (the agent sees it)').fill('Keep the file.');
  await page.getByLabel('Reason (the agent sees it)').press('Enter');
  await card('rm file').getByText('Denied').waitFor();
  await card('rm file').getByText('Reason: Keep the file.').waitFor();
  assert.equal(await card('rm file').getByText(note).count(), 0);
  await status(page, 'Idle');
  page.expectQuiet();
  inbox.expectQuiet();
  await inbox.close();
  await page.close();
});

test('a question: an option, other words, no answer', async () => {
  const page = await begin('ask: Which one is it? | this | that', { preset: 'careful' });
  const card = (text) => page.locator('.approval--question', { hasText: text });
  await card('Which one').getByRole('button', { name: 'that' }).waitFor();
  await expectAccessible(page, 'question');
  await shot(page, 'host-question');
  await card('Which one').getByRole('button', { name: 'that' }).click();
  await card('Which one').getByText('Answered').waitFor();
  await page.locator('.tool', { hasText: 'that' }).waitFor();
  await status(page, 'Idle');
  for (const [text, act, badge] of [
    ['ask: In other words?', async (q) => { await q.getByLabel('Your answer').fill('<b>none</b>'); await q.getByLabel('Your answer').press('Enter'); }, 'Answered'],
    ['ask: Say nothing?', (q) => q.getByRole('button', { name: 'Don’t answer' }).click(), 'Not answered'],
  ]) {
    await composer(page).fill(text);
    await composer(page).press('Enter');
    await act(card(text.slice(5)));
    await card(text.slice(5)).getByText(badge).waitFor();
    await status(page, 'Idle');
  }
  await card('In other words?').getByText('<b>none</b>').waitFor();
  page.expectQuiet();
  await page.close();
});

test('minimal shows nothing of approvals', async () => {
  const page = await begin('run: echo free');
  await page.locator('.tool', { hasText: 'free' }).waitFor();
  await status(page, 'Idle');
  assert.equal(await page.locator('.approval').count(), 0);
  assert.equal(await page.getByText('Waiting for you').count(), 0);
  await page.locator('.header').getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem').first().waitFor();
  assert.equal(await page.getByRole('menuitem', { name: 'Approvals…' }).count(), 0);
  page.expectQuiet();
  await page.close();
});

test('the host is killed and restarted in mid-turn', async () => {
  const page = await begin('run: echo before\nslow: 600', { allow: lost });
  await page.locator('.message--live').waitFor();
  await host.kill('SIGKILL');
  await page.getByText('Connection lost').waitFor();
  await status(page, 'Running');
  await shot(page, 'host-killed');
  await host.start({ port: host.port });
  await page.getByText('Interrupted: the host stopped').waitFor();
  await page.getByText('Connection lost').waitFor({ state: 'detached' });
  await status(page, 'Idle');
  assert.equal(await page.locator('.tool', { hasText: 'echo before' }).count(), 1);
  await composer(page).fill('run: echo after');
  await composer(page).press('Enter');
  await page.locator('.tool .output', { hasText: 'after' }).waitFor();
  await status(page, 'Idle');
  await shot(page, 'host-restarted');
  page.expectQuiet();
  await page.close();
});

test('offline and back', async () => {
  const page = await begin('slow: 150\nrun: echo made it', { allow: lost });
  await page.locator('.message--live').waitFor();
  await context.setOffline(true);
  await page.getByText('Connection lost').waitFor();
  await status(page, 'Running');
  await context.setOffline(false);
  await page.locator('.tool .output', { hasText: 'made it' }).waitFor();
  await status(page, 'Idle');
  assert.equal(await page.locator('.tool').count(), 1);
  page.expectQuiet();
  await page.close();
});

test('hostile text from the model and from tools stays text', async () => {
  const lines = corpus.filter((c) => !c.includes('\n')).map((c) => `say: ${c}`);
  const page = await begin(['run: printf \'<img src=x onerror="window.pwned=1">\\033]0;evil\\007 \\033[31mred\\033[0m end\\n\'', ...lines].join('\n'));
  await page.locator('.tool .output', { hasText: 'end' }).waitFor();
  await status(page, 'Idle');
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.equal(await page.evaluate(() => document.querySelectorAll('.list img, .list iframe, .list form, .list script, .list style').length), 0);
  page.expectQuiet();
  await page.close();
});

test('exact prompt: one sentence, two tools, an unbroken chain', async () => {
  const page = await begin('run: true\nsay: done');
  await status(page, 'Idle');
  await page.getByRole('button', { name: 'Exact prompt' }).click();
  const panel = page.getByRole('complementary', { name: 'Exact prompt' });
  assert.equal(await panel.locator('.plain--boxed').innerText(), 'You are a helpful software engineer assistant.');
  assert.deepEqual(await panel.locator('.schema summary code').allInnerTexts(), ['bash', 'str_replace_editor']);
  await panel.getByText('Every request extends the one before.').waitFor();
  await expectAccessible(page, 'prompt');
  await shot(page, 'host-prompt');
  page.expectQuiet();
  await page.close();
});

test('terminal: watch the shell of the agent, take the keyboard, hand it back', async () => {
  const page = await begin('run: echo in the shell');
  await page.locator('.tool .output', { hasText: 'in the shell' }).waitFor();
  await status(page, 'Idle');
  await page.getByRole('button', { name: 'Terminal' }).click();
  const screen = page.locator('.terminal');
  await page.getByText('Read-only').waitFor();
  await screen.getByText('in the shell').first().waitFor();
  await page.getByRole('button', { name: 'Take the keyboard' }).click();
  await page.getByText('You have the keyboard').waitFor();
  await page.keyboard.type('echo typed-$((40+2))\n');
  await screen.getByText('typed-42').first().waitFor();
  await shot(page, 'host-terminal');
  await page.getByRole('button', { name: 'Hand back' }).click();
  await page.getByText('Read-only').waitFor();
  await page.getByText('A person used the shell.').waitFor();
  page.expectQuiet();
  await page.close();
});

test('a blank session changes its preset; afterwards it is a label', async () => {
  const page = await begin('');
  const picker = page.getByRole('combobox', { name: 'Preset' });
  await picker.selectOption('standard');
  await page.getByText('Preset chosen').waitFor();
  await picker.selectOption('minimal');
  await page.getByText('Preset chosen').nth(1).waitFor();
  await composer(page).fill('say: hello');
  await composer(page).press('Enter');
  await page.locator('.message--assistant', { hasText: 'hello' }).waitFor();
  await picker.waitFor({ state: 'detached' });
  page.expectQuiet();
  await page.close();
});

test('rename, archive, find, delete', async () => {
  const page = await begin('say: to be renamed', { allow: [/status of 409/] });
  await status(page, 'Idle');
  await page.locator('.header__title button').click();
  await page.getByLabel('Session title').fill('A better name');
  await page.getByLabel('Session title').press('Enter');
  const link = page.getByRole('link', { name: /A better name/ });
  await link.waitFor();
  await page.getByLabel('Search sessions').fill('BETTER');
  await link.waitFor();
  await until('others are gone', async () => (await page.locator('.entry').count()) === 1);
  await page.getByLabel('Search sessions').fill('');
  const actions = page.getByRole('button', { name: 'Actions for A better name' });
  await actions.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('menuitem', { name: 'Archive' }).press('Enter');
  await link.waitFor({ state: 'detached' });
  await page.getByLabel('Archived').check();
  await link.waitFor();
  await actions.focus();
  await page.keyboard.press('Enter');
  await page.getByRole('menuitem', { name: 'Delete…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
  await link.waitFor({ state: 'detached' });
  await page.getByRole('heading', { name: 'New session' }).waitFor();
  page.expectQuiet();
  await page.close();
});

test('presets are read, copied, checked, changed and deleted', async () => {
  const page = await openPage(browser, { context });
  await page.goto(`${host.url}#/presets/minimal`);
  await page.getByText('You are a helpful software engineer assistant.').first().waitFor();
  await page.getByRole('button', { name: 'Copy…' }).click();
  await page.getByLabel('Id of the copy').fill('my-own');
  await page.getByRole('dialog').getByRole('button', { name: 'Copy' }).click();
  const source = page.getByLabel('preset.yml');
  await source.waitFor();
  await source.fill('version: 1\nrowz: []\n');
  await page.getByText('It does not mount.').waitFor();
  await page.locator('.verdict__line', { hasText: 'rowz' }).waitFor();
  await source.fill('version: 1\nextends: minimal\nname: My own\n');
  await page.getByText('It mounts.').waitFor();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByText('Saved.').waitFor();
  await page.getByRole('heading', { name: 'My own' }).waitFor();
  await expectAccessible(page, 'presets');
  await shot(page, 'host-presets');
  await page.getByRole('button', { name: 'Delete…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('link', { name: /My own/ }).waitFor({ state: 'detached' });
  page.expectQuiet();
  await page.close();
});

test('settings store a key and never show it', async () => {
  const page = await openPage(browser, { context });
  await page.goto(`${host.url}#/settings`);
  await page.getByLabel('API key deepseek', { exact: true }).fill('sk-not-a-real-key');
  await page.getByRole('button', { name: 'Set key' }).first().click();
  await page.getByText('A key is set').waitFor();
  assert.doesNotMatch(await page.content(), /sk-not-a-real-key/);
  await shot(page, 'host-settings');
  page.expectQuiet();
  await page.close();
});

test('dark and narrow', async () => {
  const state = await context.storageState();
  const narrow = await browser.newContext({ viewport: { width: 360, height: 740 }, colorScheme: 'dark', storageState: state });
  const page = await openPage(browser, { context: narrow });
  for (const fragment of ['#/', '#/presets/standard', '#/settings']) {
    await page.goto(host.url + fragment);
    await page.locator('h1').waitFor();
    await expectNoSideScroll(page, fragment);
    await expectAccessible(page, fragment);
  }
  await page.getByRole('button', { name: 'Menu' }).click();
  await page.getByRole('link', { name: /run: for i in/ }).click();
  await page.locator('.badge', { hasText: 'exit 3' }).waitFor();
  await expectNoSideScroll(page, 'session');
  await shot(page, 'host-narrow');
  page.expectQuiet();
  await narrow.close();
});

test('under a base path', async (t) => {
  const own = await new RealHost().start({ flags: ['--base-path', '/agents'] });
  t.after(() => own.end());
  const page = await openPage(browser);
  await page.goto(own.login);
  await page.getByRole('textbox', { name: 'Workspace' }).fill(own.workspace);
  await page.getByRole('radio', { name: /^Minimal/ }).check();
  await page.getByLabel('First message').fill('run: echo under a path');
  await page.getByRole('button', { name: 'Start' }).click();
  await page.locator('.tool .output', { hasText: 'under a path' }).waitFor();
  assert.match(new URL(page.url()).pathname, /^\/agents\/$/);
  page.expectQuiet();
  await page.context().close();
});
