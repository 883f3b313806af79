// The host feed folded: the newest value of every session and approval.

import type { Approval, Frame, Session } from '../api/wire';

export interface Feed {
  readonly sessions: ReadonlyMap<string, Session>;
  readonly approvals: ReadonlyMap<string, Approval>;
  /** Deleted while this page watched: lists read before may still name them. */
  readonly gone: ReadonlySet<string>;
}

export const emptyFeed: Feed = { sessions: new Map(), approvals: new Map(), gone: new Set() };

type FeedFrame = Extract<Frame, { type: 'feed' }>;

/** `first` says that the frame is the full state and not a change. */
export function applyFeed(feed: Feed, frame: FeedFrame, first: boolean): Feed {
  const sessions = new Map(first ? [] : feed.sessions);
  for (const session of frame.sessions ?? []) {
    sessions.set(session.id, { ...feed.sessions.get(session.id), ...session });
  }
  const gone = new Set(feed.gone);
  for (const id of frame.removed ?? []) {
    sessions.delete(id);
    gone.add(id);
  }
  // A frame holds all that is pending in the sessions it names.
  const named = new Set([...(frame.sessions ?? []).map((s) => s.id), ...(frame.removed ?? [])]);
  const approvals = new Map(first ? [] : [...feed.approvals].filter(([, a]) => !named.has(a.session)));
  for (const approval of frame.approvals ?? []) approvals.set(approval.id, approval);
  return { sessions, approvals, gone };
}

/**
 * Sessions from REST answers, joined to what the feed said. An answer may be
 * slower than the feed: an older state never replaces a newer one.
 */
export function addSessions(feed: Feed, list: readonly Session[]): Feed {
  const sessions = new Map(feed.sessions);
  for (const session of list) {
    const known = sessions.get(session.id);
    const older = (session.lastSeq ?? 0) < (known?.lastSeq ?? -1);
    sessions.set(session.id, older ? { ...session, ...known } : { ...known, ...session });
  }
  return { ...feed, sessions };
}

export interface Group {
  readonly workspace: string;
  readonly sessions: readonly Session[];
}

/** Sessions by workspace, newest first in each and over all. */
export function byWorkspace(sessions: Iterable<Session>): Group[] {
  const groups = new Map<string, Session[]>();
  const sorted = [...sessions].sort((a, b) => when(b) - when(a) || (a.id < b.id ? 1 : -1));
  for (const session of sorted) {
    const list = groups.get(session.workspace);
    if (list) list.push(session);
    else groups.set(session.workspace, [session]);
  }
  return [...groups].map(([workspace, list]) => ({ workspace, sessions: list }));
}

export function when(session: Session): number {
  const value = session.updatedAt ?? session.createdAt ?? 0;
  return typeof value === 'number' ? value : Date.parse(value) || 0;
}

export function titleOf(session: Pick<Session, 'title' | 'id'> | undefined, fallback: string): string {
  return session?.title?.trim() || fallback;
}
