import { describe, expect, it } from 'vitest';
import { codeInFragment } from '../api/token';
import type { Session } from '../api/wire';
import { addSessions, applyFeed, byWorkspace, emptyFeed } from './feed';
import { operationsOf } from './offers';
import { fragmentOf, parseRoute } from './route';

const session = (id: string, more: Partial<Session> = {}): Session => ({ id, preset: { id: 'minimal' }, workspace: '/w', status: 'idle', ...more });

describe('feed', () => {
  it('takes the first frame as the whole state', () => {
    const before = addSessions(emptyFeed, [session('gone')]);
    const after = applyFeed(before, { type: 'feed', sessions: [session('a')], removed: [], approvals: [] }, true);
    expect([...after.sessions.keys()]).toEqual(['a']);
  });

  it('keeps the newest value of each session', () => {
    let feed = applyFeed(emptyFeed, { type: 'feed', sessions: [session('a'), session('b')], removed: [], approvals: [] }, true);
    feed = applyFeed(feed, { type: 'feed', sessions: [session('a', { status: 'running' })], removed: ['b'], approvals: [] }, false);
    expect([...feed.sessions.values()]).toMatchObject([{ id: 'a', status: 'running' }]);
    expect([...feed.gone]).toEqual(['b']);
  });

  it('replaces the approvals of the sessions a frame names, and no others', () => {
    let feed = applyFeed(emptyFeed, { type: 'feed', sessions: [session('a'), session('b')], approvals: [{ id: '1', session: 'a' }, { id: '2', session: 'b' }] }, true);
    feed = applyFeed(feed, { type: 'feed', sessions: [session('a')], removed: [], approvals: [] }, false);
    expect([...feed.approvals.keys()]).toEqual(['2']);
    feed = applyFeed(feed, { type: 'feed', sessions: [], removed: ['b'], approvals: [] }, false);
    expect(feed.approvals.size).toBe(0);
  });

  it('does not let a slow answer undo what the feed said', () => {
    const feed = applyFeed(emptyFeed, { type: 'feed', sessions: [session('a', { lastSeq: 17 })], removed: [] }, true);
    expect(addSessions(feed, [session('a', { lastSeq: 1, status: 'running' })]).sessions.get('a')!.status).toBe('idle');
    expect(addSessions(feed, [session('a', { lastSeq: 17, archived: true })]).sessions.get('a')!.archived).toBe(true);
  });

  it('groups by workspace, newest first', () => {
    const list = [session('a', { updatedAt: 1 }), session('b', { updatedAt: 3, workspace: '/x' }), session('c', { updatedAt: 2 })];
    expect(byWorkspace(list).map((g) => [g.workspace, g.sessions.map((s) => s.id)])).toEqual([['/x', ['b']], ['/w', ['c', 'a']]]);
  });
});

describe('routes', () => {
  it.each(['#/', '#/s/abc', '#/s/a.b-c_1/42', '#/presets', '#/presets/mine', '#/settings', '#/approvals'])('%s comes back', (fragment) => {
    expect(fragmentOf(parseRoute(fragment))).toBe(fragment);
  });
  it('preselects from the query', () => {
    expect(parseRoute('', '?preset=minimal&workspace=/a%20b')).toEqual({ screen: 'new', preset: 'minimal', workspace: '/a b' });
  });
  it('sends nonsense to the first screen', () => {
    for (const fragment of ['', '#', '#x', '#/s', '#/s/', '#/%E0%A4%A']) expect(parseRoute(fragment).screen).toBe('new');
  });
  it('reads a login code and nothing else', () => {
    expect(codeInFragment('#code=a%2Fb')).toBe('a/b');
    expect(codeInFragment('#/s/code=1')).toBeNull();
    expect(codeInFragment('#code=')).toBeNull();
  });
});

describe('what a host offers', () => {
  it('is read from its document, under any base path and parameter name', () => {
    const found = operationsOf({ paths: { '/x/api/v1/sessions/{sessionId}/messages/{m}': { patch: {}, delete: {} }, '/api/v1/host': { get: {} } } });
    expect([...found].sort()).toEqual(['DELETE /sessions/{}/messages/{}', 'GET /host', 'PATCH /sessions/{}/messages/{}']);
  });
  it('is nothing in a document without paths', () => expect(operationsOf({}).size).toBe(0));
});
