// What a person can tell a session to do. Each is one REST request; the log
// brings the effect back.

import { ApiError } from '../api/client';
import type { QueuedMessage, Session } from '../api/wire';
import { blocksOf, plainText } from '../transcript/fold';
import { api, attempt, fail, putSession, removeSession } from './app';
import { navigate } from './route';
import type { OpenSession } from './session';

export async function send(session: OpenSession, text: string, placement: 'queue' | 'steer'): Promise<void> {
  // The id makes a repeat harmless: the host gives the first answer again.
  const id = newId();
  session.addPending({ id, text, placement });
  try {
    await api.post(session.path('/messages'), { id, content: text, placement });
  } catch (error) {
    session.dropPending(id);
    session.addPending({ id, text, placement, error: error instanceof Error ? error.message : String(error) });
  }
}

export async function resend(session: OpenSession, id: string): Promise<void> {
  const failed = session.pending.value.find((p) => p.id === id);
  if (!failed) return;
  session.dropPending(id);
  session.addPending({ id, text: failed.text, placement: failed.placement });
  try {
    await api.post(session.path('/messages'), { id, content: failed.text, placement: failed.placement });
  } catch (error) {
    session.dropPending(id);
    session.addPending({ ...failed, error: error instanceof Error ? error.message : String(error) });
  }
}

export const stop = (session: OpenSession) => attempt(() => api.post(session.path('/cancel'), { keepQueue: true }));

export async function editQueued(session: OpenSession, id: string, change: { content?: string; placement?: string }): Promise<void> {
  await attempt(() => api.patch(session.path(`/messages/${encodeURIComponent(id)}`), change));
  await session.load();
}

export async function removeQueued(session: OpenSession, id: string): Promise<void> {
  await attempt(() => api.delete(session.path(`/messages/${encodeURIComponent(id)}`)));
  await session.load();
}

export async function change(session: OpenSession, patch: Record<string, unknown>): Promise<void> {
  const next = await attempt(() => api.patch<Session>(session.path(), patch));
  if (next) {
    session.adopt(next);
    putSession(next);
  } else await session.load();
}

export async function fork(session: OpenSession): Promise<void> {
  const child = await attempt(() => api.post<Session>(session.path('/fork')));
  if (!child) return;
  putSession(child);
  navigate({ screen: 'session', id: child.id });
}

export async function archive(session: Session, archived: boolean): Promise<void> {
  const next = await attempt(() => api.patch<Session>(`sessions/${encodeURIComponent(session.id)}`, { archived }));
  if (next) putSession(next);
}

/** True when it is gone. A running one is asked about again by the caller. */
export async function remove(id: string, force: boolean): Promise<'gone' | 'running' | 'failed'> {
  try {
    await api.delete(`sessions/${encodeURIComponent(id)}${force ? '?force=true' : ''}`);
  } catch (error) {
    if (error instanceof ApiError && error.code === 'session-running') return 'running';
    if (!(error instanceof ApiError && error.code === 'session-not-found')) {
      fail(error);
      return 'failed';
    }
  }
  removeSession(id);
  return 'gone';
}

export async function download(path: string, name: string): Promise<void> {
  const blob = await attempt(() => api.blob(path));
  if (!blob) return;
  const url = URL.createObjectURL(blob);
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A queued message as the composer shows it. */
export function queuedText(entry: QueuedMessage): { id: string; text: string; placement: string } {
  return { id: entry.id, text: plainText(blocksOf(entry.content)), placement: entry.placement ?? 'queue' };
}

function newId(): string {
  // randomUUID exists only where the page is a secure context; loopback is one.
  if (typeof crypto.randomUUID === 'function') return crypto.randomUUID();
  return [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, '0')).join('');
}
