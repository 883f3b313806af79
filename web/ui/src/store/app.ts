// What the whole page shares: who is logged in, the host, the feed, and the one
// stream. Screens read the signals; the functions below are the only writers.

import { batch, computed, signal } from '@preact/signals';
import { ApiError, baseUrl, Client } from '../api/client';
import { codeInFragment } from '../api/token';
import type { Frame, HostInfo, ModelRoute, PresetSummary, Session } from '../api/wire';
import { Stream, type Connection } from '../stream/stream';
import { strings } from '../strings';
import { learnOffers } from './offers';
import { applyFeed, addSessions, emptyFeed, type Feed } from './feed';
import { OpenSession } from './session';

export type Access = 'checking' | 'in' | 'out' | 'unreachable';

export const access = signal<Access>('checking');
/** Why the login page shows, when there is more to say than "log in". */
export const accessReason = signal('');
export const host = signal<HostInfo>({});
export const connection = signal<Connection>({ state: 'connecting' });
export const feed = signal<Feed>(emptyFeed);
export const presets = signal<readonly PresetSummary[]>([]);
export const models = signal<readonly ModelRoute[]>([]);
/** The outcome of the last thing that failed without a place of its own. */
export const toast = signal<{ text: string; tone: 'error' | 'info' } | null>(null);

export const pendingCount = computed(() => feed.value.approvals.size);
/** How many approvals and questions wait in a session. */
export const pendingIn = (session: string): number => [...feed.value.approvals.values()].filter((a) => a.session === session).length;

const base = baseUrl();
export const api = new Client(base, () => logOut());

let logId = '';
let firstFeed = true;
const open = new Map<string, { session: OpenSession; users: number }>();
/** Which session a live block belongs to; the numbers are the connection's own. */
let blocks = new Map<number, string>();

export const stream = new Stream({
  url: streamUrl(base),
  ticket: () => api.ticket(),
  isFinal: (error) => error instanceof ApiError && error.status === 401,
  onConnection: (next) => {
    if (next.state === 'online') {
      firstFeed = true;
      blocks = new Map();
    }
    if (next.state === 'offline') for (const { session } of open.values()) session.disconnected();
    connection.value = next;
  },
  onFrame: receive,
});

export async function start(): Promise<void> {
  const code = codeInFragment(location.hash);
  if (code) {
    // The code is spent either way; it does not stay in the address bar.
    history.replaceState(null, '', location.pathname + location.search);
    try {
      await api.exchange(code);
    } catch (error) {
      accessReason.value = error instanceof ApiError && error.code === 'network' ? '' : strings.login.codeRefused;
    }
  }
  await enter();
}

/** Asks the host who we are; called again from the login page. */
export async function enter(): Promise<void> {
  access.value = 'checking';
  try {
    host.value = await api.get<HostInfo>('host');
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) return;
    if (!(error instanceof ApiError && error.status === 404)) {
      access.value = 'unreachable';
      return;
    }
  }
  batch(() => {
    access.value = 'in';
    accessReason.value = '';
  });
  stream.start();
  await Promise.all([loadPresets(), loadModels(), loadSessions(), learnOffers(() => api.get('openapi.json'))]);
}

export function logOut(): void {
  stream.stop();
  access.value = 'out';
}

export function loadPresets(): Promise<void> {
  return quietly(async () => {
    const answer = await api.get<{ presets: PresetSummary[] }>('presets');
    presets.value = [...(answer.presets ?? [])].sort((a, b) => (a.order ?? 1e9) - (b.order ?? 1e9) || (a.id < b.id ? -1 : 1));
  });
}

export function loadModels(): Promise<void> {
  return quietly(async () => {
    models.value = (await api.get<{ models: ModelRoute[] }>('models')).models ?? [];
  });
}

export function loadSessions(): Promise<void> {
  return quietly(async () => {
    const answer = await api.get<{ sessions: Session[] }>('sessions?limit=100');
    feed.value = addSessions(feed.value, answer.sessions ?? []);
  });
}

export function putSession(session: Session): void {
  feed.value = addSessions(feed.value, [session]);
}

export function removeSession(id: string): void {
  feed.value = applyFeed(feed.value, { type: 'feed', removed: [id] }, false);
}

/** Opens a session for one screen. Give it back with `releaseSession`. */
export function acquireSession(id: string): OpenSession {
  const known = open.get(id);
  if (known) {
    known.users++;
    return known.session;
  }
  const session = new OpenSession(id, api);
  open.set(id, { session, users: 1 });
  stream.subscribe(id, () => session.cursor());
  void session.load();
  return session;
}

export function releaseSession(id: string): void {
  const known = open.get(id);
  if (!known || --known.users > 0) return;
  open.delete(id);
  stream.unsubscribe(id);
  known.session.close();
}

/** Runs a command; what fails is shown, and the answer is null. */
export async function attempt<T>(command: () => Promise<T>): Promise<T | null> {
  try {
    return await command();
  } catch (error) {
    fail(error);
    return null;
  }
}

export function fail(error: unknown): void {
  if (error instanceof ApiError && error.status === 401) return; // The login page says it.
  toast.value = { text: error instanceof Error ? error.message : String(error), tone: 'error' };
}

export function say(text: string): void {
  toast.value = { text, tone: 'info' };
}

/** A list that a host may not have, or whose host is gone, stays empty. */
async function quietly(load: () => Promise<void>): Promise<void> {
  try {
    await load();
  } catch (error) {
    const expected = error instanceof ApiError && (error.status === 404 || error.code === 'network');
    if (!expected) fail(error);
  }
}

function receive(frame: Frame): void {
  switch (frame.type) {
    case 'hello':
      // Another log: what this tab holds may not be in it.
      if (logId && frame.logId !== logId) for (const { session } of open.values()) session.reset();
      logId = frame.logId;
      return;
    case 'feed':
      feed.value = applyFeed(feed.value, frame, firstFeed);
      firstFeed = false;
      return;
    case 'block':
      blocks.set(frame.block, frame.session);
      open.get(frame.session)?.session.receive(frame);
      return;
    case 'delta':
    case 'drop':
      open.get(blocks.get(frame.block) ?? '')?.session.receive(frame);
      return;
    case 'event':
    case 'caughtUp':
    case 'output':
      open.get(frame.session)?.session.receive(frame);
      return;
    case 'error': {
      const session = frame.session === undefined ? undefined : open.get(frame.session)?.session;
      if (!session) return fail(new Error(frame.message));
      if (frame.code === 'cursor-ahead') {
        session.reset();
        stream.subscribe(session.id, () => session.cursor());
      } else session.failed(frame.code, frame.message);
    }
  }
}

function streamUrl(from: URL): URL {
  const url = new URL('api/v1/stream', from);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url;
}
