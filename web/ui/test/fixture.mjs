// A small stand-in for the host, for work on the page and its tests: the same
// REST routes and stream frames, from scripted sessions kept in memory. It is a
// test fixture, not a server for anybody.
//
//   node test/fixture.mjs [--port N] [--auth]     serves ../../dist

import { createServer } from 'node:http';
import { readFileSync, existsSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { randomUUID } from 'node:crypto';
import { WebSocketServer } from 'ws';
import { seedSessions } from './seed.mjs';
import { playTurn } from './turn.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, '../../dist');

export async function startFixture({ port = 0, auth = false, delay = 15, logId = 'log-1' } = {}) {
  const host = new Host({ auth, delay, logId });
  seedSessions(host);
  const server = createServer((request, response) => handle(host, request, response));
  const sockets = new WebSocketServer({ noServer: true, handleProtocols: () => 'dsh-web.v1' });
  server.on('upgrade', (request, socket, head) => {
    const offered = String(request.headers['sec-websocket-protocol'] ?? '').split(/, */);
    const ticket = offered.find((p) => p.startsWith('ticket.'))?.slice(7);
    if (!host.tickets.delete(ticket)) return socket.destroy();
    sockets.handleUpgrade(request, socket, head, (ws) => {
      if (request.url.includes('/terminal')) terminal(host, ws, request.url);
      else new Subscriber(host, ws);
    });
  });
  await new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
  return {
    host,
    url: `http://127.0.0.1:${server.address().port}/`,
    async close() {
      host.closed = true;
      for (const ws of sockets.clients) ws.terminate();
      server.closeAllConnections();
      if (server.listening) await new Promise((resolve) => server.close(resolve));
    },
  };
}

class Host {
  sessions = new Map();
  approvals = new Map();
  subscribers = new Set();
  tickets = new Set();
  closed = false;
  presets = [
    { id: 'minimal', name: 'Minimal', description: 'Persistent bash and str_replace_editor, nothing else.', order: 3, origin: 'shipped', default: true, hash: 'a1b2c3' },
    { id: 'standard', name: 'Standard', description: 'An ordinary coding agent on the confined file system.', order: 5, origin: 'shipped', default: false, hash: 'd4e5f6' },
    { id: 'mine', name: 'mine', description: '', order: 9, origin: 'user', default: false, hash: '77', text: 'version: 1\nextends: minimal\n' },
    { id: 'odd', name: 'odd', description: '', order: 99, origin: 'user', default: false, broken: 'line 3, column 5: unknown key "rowz"' },
  ];

  constructor({ auth, delay, logId }) {
    Object.assign(this, { auth, delay, logId });
    this.token = 'fixture-token';
    this.code = 'letmein';
  }

  create({ id = randomUUID(), preset = 'minimal', workspace = '/tmp/work', title = '', group, at = Date.now() }) {
    const found = this.presets.find((p) => p.id === preset);
    const session = new Session(this, { id, preset: { id: preset, name: found?.name, hash: found?.hash }, workspace, title, group, at });
    this.sessions.set(id, session);
    this.changed(session);
    return session;
  }

  changed(session) {
    const frame = { type: 'feed', sessions: [session.view()], removed: [], approvals: [...this.approvals.values()] };
    for (const s of this.subscribers) if (s.watching) s.send(frame);
  }
}

class Session {
  events = [];
  queue = [];
  live = new Map();
  outputs = new Map();
  running = false;
  archived = false;
  cancelled = null;
  turn = 0;

  constructor(host, fields) {
    this.host = host;
    Object.assign(this, fields);
    this.updatedAt = fields.at;
  }

  view() {
    const { id, title, preset, workspace, archived, group, at, updatedAt } = this;
    return {
      id, title, preset, workspace, archived, ...(group ? { group } : {}),
      model: { provider: 'demo', model: 'demo' },
      status: this.damage ? 'damaged' : this.running ? 'running' : 'idle',
      ...(this.damage ? { damage: this.damage } : {}),
      live: true, blank: this.turn === 0, labels: {}, createdAt: new Date(at).toISOString(), updatedAt: new Date(updatedAt).toISOString(),
      lastSeq: this.events.length - 1, usage: { inputTokens: 1200, outputTokens: 310 },
      pendingApprovals: [...this.host.approvals.values()].filter((a) => a.session === id).length,
      queue: this.queue.map((m) => ({ id: m.id, content: m.content, placement: m.placement })),
    };
  }

  append(type, data, time = Date.now()) {
    const event = { seq: this.events.length, time, type, data, prev: '' };
    this.events.push(event);
    this.updatedAt = time;
    for (const s of this.host.subscribers) if (s.follows.has(this.id)) s.send({ type: 'event', session: this.id, event });
    return event;
  }

  frame(frame) {
    for (const s of this.host.subscribers) if (s.follows.has(this.id)) s.send(frame);
  }

  message({ id = randomUUID(), content, placement = 'queue' }) {
    const blocks = typeof content === 'string' ? [{ type: 'text', text: content }] : content;
    if (!this.title) this.title = blocks[0]?.text?.split('\n')[0].slice(0, 80) ?? '';
    this.queue.push({ id, content: blocks, placement });
    this.append('agent/inbox/spliced', { target: placement === 'steer' ? 'next-step' : 'next-turn', start: this.queue.length - 1, inserted: [{ id }] });
    this.host.changed(this);
    if (!this.running) void this.run();
    return id;
  }

  async run() {
    this.running = true;
    while (this.queue.length && !this.host.closed) {
      const message = this.queue.shift();
      this.cancelled = null;
      this.host.changed(this);
      await playTurn(this, message, this.host.delay);
    }
    this.running = false;
    this.host.changed(this);
  }
}

let nextBlock = 1;

class Subscriber {
  follows = new Map();
  watching = false;

  constructor(host, ws) {
    this.host = host;
    this.ws = ws;
    host.subscribers.add(this);
    ws.on('close', () => host.subscribers.delete(this));
    ws.on('message', (raw) => this.receive(JSON.parse(String(raw))));
    this.send({ type: 'hello', logId: host.logId, node: 'fixture', version: 'test' });
  }

  send(frame) {
    if (this.ws.readyState === 1) this.ws.send(JSON.stringify(frame));
  }

  receive(message) {
    if (message.type === 'watch') {
      this.watching = true;
      const sessions = [...this.host.sessions.values()].filter((s) => !s.archived).map((s) => s.view());
      this.send({ type: 'feed', sessions, removed: [], approvals: [...this.host.approvals.values()], status: 'ready' });
    } else if (message.type === 'subscribe') {
      const session = this.host.sessions.get(message.session);
      if (!session) return this.send({ type: 'error', code: 'session-not-found', message: 'no such session', session: message.session });
      const from = message.after === undefined ? Math.max(0, session.events.length - 200) : message.after + 1;
      if (from > session.events.length) return this.send({ type: 'error', code: 'cursor-ahead', message: 'cursor beyond the end', session: session.id });
      this.follows.set(session.id, true);
      for (const event of session.events.slice(from)) this.send({ type: 'event', session: session.id, event });
      this.send({ type: 'caughtUp', session: session.id, seq: session.events.length - 1 });
      for (const live of session.live.values()) {
        this.send({ type: 'block', session: session.id, ...live.head });
        this.send({ type: 'delta', block: live.head.block, offset: 0, text: live.text });
      }
      for (const [callId, text] of session.outputs) this.send({ type: 'output', session: session.id, callId, offset: 0, text });
    } else if (message.type === 'unsubscribe') this.follows.delete(message.session);
  }
}

export function liveBlock(session, fields) {
  const head = { block: nextBlock++, attempt: 1, ...fields };
  const live = { head, text: '' };
  session.live.set(head.block, live);
  session.frame({ type: 'block', session: session.id, ...head });
  return {
    delta(text) {
      const offset = Buffer.byteLength(live.text);
      live.text += text;
      session.frame({ type: 'delta', block: head.block, offset, text });
    },
    drop() {
      session.live.delete(head.block);
      session.frame({ type: 'drop', block: head.block });
    },
    settle: () => session.live.delete(head.block),
  };
}

const offered = [
  'GET /host', 'GET /presets', 'POST /presets', 'GET /presets/{id}', 'PUT /presets/{id}', 'DELETE /presets/{id}', 'POST /presets/check', 'GET /models', 'GET /providers',
  'PUT /providers/{id}/credential', 'GET /workspaces', 'GET /sessions', 'POST /sessions', 'PATCH /sessions/{id}/messages/{messageId}', 'DELETE /sessions/{id}/messages/{messageId}',
  'POST /sessions/{id}/fork', 'GET /sessions/{id}/prompt', 'GET /sessions/{id}/proof', 'GET /sessions/{id}/export', 'GET /sessions/{id}/terminal', 'POST /approvals/{id}/decision',
];

const policy =
  "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; connect-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

async function handle(host, request, response) {
  const url = new URL(request.url, 'http://x');
  response.setHeader('Content-Security-Policy', policy);
  response.setHeader('X-Content-Type-Options', 'nosniff');
  if (!url.pathname.startsWith('/api/v1/')) return asset(url.pathname, response);
  const path = url.pathname.slice('/api/v1/'.length).split('/').map(decodeURIComponent);
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString() || '{}') : {};
  const answer = (status, value) => {
    response.writeHead(status, { 'Content-Type': status < 400 ? 'application/json' : 'application/problem+json', 'Cache-Control': 'no-store' });
    response.end(value === undefined ? '' : JSON.stringify(value));
  };
  const fail = (status, code, detail) => answer(status, { status, code, title: code, detail });
  if (path.join('/') === 'auth/exchange') {
    return body.code === host.code ? answer(200, { token: host.token, id: 't1' }) : fail(401, 'unauthorized', 'the code is not valid');
  }
  if (host.auth && request.headers.authorization !== `Bearer ${host.token}`) return fail(401, 'unauthorized', 'log in first');
  route(host, request.method, path, url.searchParams, body, answer, fail);
}

function route(host, method, path, query, body, answer, fail) {
  const session = path[0] === 'sessions' && path[1] ? host.sessions.get(path[1]) : undefined;
  const key = `${method} ${path[0]}${path.length > 1 ? '/*' : ''}${path[2] ? `/${path[2]}` : ''}${path[3] ? '/*' : ''}`;
  if (path[0] === 'sessions' && path[1] && !session) return fail(404, 'session-not-found', 'there is no such session');
  switch (key) {
    case 'GET host':
      return answer(200, { version: '0.1.0', commit: 'fixture', node: 'fixture', demo: true, sandbox: { state: 'ok', by: 'bwrap' } });
    case 'POST auth/*': {
      const ticket = randomUUID();
      host.tickets.add(ticket);
      return answer(200, { ticket, expiresAt: new Date(Date.now() + 30_000).toISOString() });
    }
    case 'GET openapi.json':
      return answer(200, { paths: Object.fromEntries(offered.map((o) => o.split(' ')).map(([m, p]) => [`/api/v1${p}`, p]).map(([full, p]) => [full, Object.fromEntries(offered.filter((o) => o.endsWith(` ${p}`)).map((o) => [o.split(' ')[0].toLowerCase(), {}]))])) });
    case 'GET presets':
      return answer(200, { presets: host.presets.map(({ text, ...p }) => p) });
    case 'GET presets/*': {
      const preset = host.presets.find((p) => p.id === path[1]);
      if (!preset) return fail(404, 'preset-not-found', 'no such preset');
      const tools = preset.id === 'standard' ? ['shell', 'read_file', 'edit_file', 'search', 'todo'] : ['bash', 'str_replace_editor'];
      return answer(200, {
        ...preset, text: preset.text ?? 'version: 1\nname: Minimal\nrows:\n  - id: persona\n    use: persona\n',
        rows: [{ id: 'fs', use: preset.id === 'standard' ? 'fs-host' : 'fs-local' }],
        prompt: 'You are a helpful software engineer assistant.', tools: tools.map((name) => ({ name, description: name, parameters: {} })),
      });
    }
    case 'POST presets':
      host.presets.push({ ...host.presets.find((p) => p.id === body.from), id: body.id, name: body.id, origin: 'user', default: false, text: 'version: 1\nextends: minimal\n' });
      return answer(201, { id: body.id });
    case 'POST presets/*':
      return answer(200, /rowz/.test(body.text) ? { problem: { line: 3, column: 5, message: 'unknown key "rowz"' } } : {});
    case 'PUT presets/*':
      host.presets.find((p) => p.id === path[1]).text = body.text;
      return answer(200, {});
    case 'DELETE presets/*':
      host.presets = host.presets.filter((p) => p.id !== path[1]);
      return answer(204);
    case 'GET models':
      return answer(200, { models: [{ provider: 'demo', model: 'demo', name: 'Demo', hasKey: true }, { provider: 'deepseek', model: 'deepseek-v4-flash', hasKey: false }] });
    case 'GET providers':
      return answer(200, { providers: [{ id: 'deepseek', kind: 'openai', baseUrl: 'https://api.deepseek.com', hasKey: host.key ?? false }, { id: 'demo', kind: 'script', hasKey: true }] });
    case 'PUT providers/*/credential':
      host.key = true;
      return answer(204);
    case 'GET workspaces': {
      const path = query.get('path') ?? '/';
      return answer(200, { path, entries: ['alpha', 'beta'].map((name) => ({ name, path: `${path.replace(/\/$/, '')}/${name}` })), recent: ['/tmp/work', '/home/me/projects/parser'] });
    }
    case 'GET sessions': {
      const q = (query.get('q') ?? '').toLowerCase();
      const archived = query.get('archived') === 'true';
      const list = [...host.sessions.values()].filter((s) => s.archived === archived && (!q || s.title.toLowerCase().includes(q)));
      return answer(200, { sessions: list.sort((a, b) => b.updatedAt - a.updatedAt).map((s) => s.view()) });
    }
    case 'POST sessions': {
      if (!String(body.workspace).startsWith('/')) return fail(422, 'workspace-invalid', 'The workspace must be an absolute path.');
      const made = host.create(body);
      if (body.message) made.message({ content: body.message });
      return answer(201, made.view());
    }
    case 'GET sessions/*':
      return answer(200, session.view());
    case 'PATCH sessions/*': {
      if (body.preset && session.turn) return fail(409, 'preset-locked', 'The preset is fixed once the session has begun.');
      if (body.preset) session.preset = { id: body.preset, name: host.presets.find((p) => p.id === body.preset)?.name };
      if (body.title !== undefined) {
        session.title = body.title;
        session.append('session/title', { title: body.title });
      }
      if (body.preset) session.append('agent-preset/selected', { agentPreset: session.preset });
      if (body.archived !== undefined) session.archived = body.archived;
      host.changed(session);
      return answer(200, session.view());
    }
    case 'DELETE sessions/*':
      if (session.running && query.get('force') !== 'true') return fail(409, 'session-running', 'The session is running.');
      host.sessions.delete(session.id);
      for (const s of host.subscribers) if (s.watching) s.send({ type: 'feed', sessions: [], removed: [session.id], approvals: [...host.approvals.values()] });
      return answer(204);
    case 'POST sessions/*/messages':
      return answer(202, { messageId: session.message(body) });
    case 'PATCH sessions/*/messages/*':
    case 'DELETE sessions/*/messages/*': {
      const at = session.queue.findIndex((m) => m.id === path[3]);
      if (at < 0) return fail(409, 'message-started', 'The message is being worked on.');
      if (method === 'DELETE') session.queue.splice(at, 1);
      else {
        if (body.content) session.queue[at].content = [{ type: 'text', text: body.content }];
        if (body.placement) session.queue[at].placement = body.placement;
      }
      session.append('agent/inbox/spliced', { target: 'next-turn', start: at, removedCount: 1, inserted: [] });
      return answer(200, {});
    }
    case 'POST sessions/*/cancel':
      session.cancelled?.();
      return answer(202, {});
    case 'POST sessions/*/fork': {
      const child = host.create({ workspace: session.workspace, title: `${session.title} (fork)`, preset: session.preset.id });
      child.events = session.events.map((e) => ({ ...e }));
      child.turn = session.turn;
      child.parent = session.id;
      return answer(201, child.view());
    }
    case 'GET sessions/*/events': {
      const before = Number(query.get('before') ?? session.events.length);
      const limit = Number(query.get('limit') ?? 200);
      const events = session.events.slice(Math.max(0, before - limit), before);
      return answer(200, { events, lastSeq: session.events.length - 1, hasMore: (events[0]?.seq ?? 0) > 0 });
    }
    case 'GET sessions/*/prompt':
      return answer(200, { system: 'You are a helpful software engineer assistant.', tools: [{ name: 'bash', description: 'Run a command.', parameters: { type: 'object' } }, { name: 'str_replace_editor', description: 'Edit files.', parameters: { type: 'object' } }], hash: 'f00dcafe'.repeat(8) });
    case 'GET sessions/*/proof':
      return answer(200, { contiguous: true, requests: session.events.filter((e) => e.type === 'request/sent').map((e) => e.data) });
    case 'GET sessions/*/export':
      return answer(200, session.events);
    case 'GET approvals':
      return answer(200, { approvals: [...host.approvals.values()] });
    case 'POST approvals/*/decision': {
      const asked = host.approvals.get(path[1]);
      if (!asked) return answer(409, { status: 409, code: 'approval-settled', title: 'settled', outcome: 'allowed' });
      host.approvals.delete(asked.id);
      const of = host.sessions.get(asked.session);
      of.append('approval/decided', { id: asked.id, outcome: body.decision === 'allow' ? 'allowed' : 'rejected', scope: body.scope, by: 'owner' });
      host.changed(of);
      return answer(200, { outcome: body.decision });
    }
  }
  return fail(404, 'route-not-found', 'no such route');
}

function terminal(host, ws, url) {
  const bytes = Buffer.from('$ ls -la\r\n\x1b[34mdocs\x1b[0m  README.md\r\n$ ');
  const offset = Number(new URL(url, 'http://x').searchParams.get('offset') ?? 0);
  let end = bytes.length;
  const put = (at, data) => {
    const head = Buffer.alloc(8);
    head.writeBigUInt64BE(BigInt(at));
    ws.send(Buffer.concat([head, data]));
  };
  if (offset < end) put(offset, bytes.subarray(offset));
  ws.on('message', (raw, binary) => {
    if (binary) {
      put(end, raw);
      end += raw.length;
      return;
    }
    const message = JSON.parse(String(raw));
    if (message.type === 'take') ws.send(JSON.stringify({ type: 'writer', by: 'you' }));
    if (message.type === 'release') ws.send(JSON.stringify({ type: 'writer', by: '' }));
  });
}

const kinds = { html: 'text/html; charset=utf-8', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

function asset(path, response) {
  const name = normalize(path === '/' ? '/index.html' : path);
  const file = join(dist, name);
  if (!file.startsWith(dist) || !existsSync(file)) {
    response.writeHead(404);
    return response.end();
  }
  response.writeHead(200, { 'Content-Type': kinds[file.split('.').at(-1)] ?? 'application/octet-stream' });
  response.end(readFileSync(file));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const at = process.argv.indexOf('--port');
  const fixture = await startFixture({ port: at > 0 ? Number(process.argv[at + 1]) : 3180, auth: process.argv.includes('--auth'), delay: 40 });
  console.log(`${fixture.url}${process.argv.includes('--auth') ? '#code=letmein' : ''}`);
}
