import { describe, expect, it } from 'vitest';
import type { LogEvent } from '../api/wire';
import { noLive } from '../stream/live';
import { extend, fold, prepend } from './fold';
import { emptyTranscript, type ToolItem } from './items';
import { durableRows, withLive } from './rows';

let log: LogEvent[] = [];
const put = (type: string, data: Record<string, unknown> = {}) => {
  log.push({ seq: log.length, time: 1000 + log.length, type, data });
};

function sample(): LogEvent[] {
  log = [];
  put('agent/inbox/spliced', { target: 'next-turn', start: 0, inserted: [{}] });
  put('turn/start', { turn: 1 });
  put('user/message', { id: 'u1', role: 'user', content: [{ type: 'text', text: 'go' }], source: { kind: 'user' } });
  put('request/header', { header: { config: { provider: 'demo', model: 'demo-1' }, system: 's', tools: [] }, reason: 'initial' });
  put('assistant/message', {
    turn: 1, step: 1, usage: { inputTokens: 10, outputTokens: 5, cacheReadTokens: 2 },
    message: { id: 'a1', role: 'assistant', content: [{ type: 'text', text: 'I will' }, { type: 'tool-call', id: 'c1', name: 'bash', arguments: '{}' }] },
  });
  put('tool/call', { turn: 1, step: 1, callId: 'c1', name: 'bash', arguments: '{"command":"ls"}' });
  put('tool/result', {
    turn: 1, step: 1, meta: { exitCode: 0 },
    message: { id: 'r1', role: 'user', source: { kind: 'tool', callId: 'c1' }, content: [{ type: 'tool-result', toolCallId: 'c1', content: [{ type: 'text', text: 'docs' }] }] },
  });
  put('tool/call', { turn: 1, step: 2, callId: 'c2', name: 'bash', arguments: 'not json' });
  put('tool/result', { turn: 1, step: 2, error: { name: 'X', code: 'BAD' }, message: { id: 'r2', role: 'user', source: { kind: 'tool', callId: 'c2' }, content: [{ type: 'text', text: 'no' }] } });
  put('future/thing', { a: 1 });
  put('assistant/message', { turn: 1, step: 3, usage: { inputTokens: 1, outputTokens: 1 }, message: { id: 'a2', role: 'assistant', content: [{ type: 'text', text: 'done' }] } });
  put('session/title', { title: 'A title' });
  put('turn/end', { turn: 1, reason: { kind: 'error', code: 'SERVER', message: 'overloaded' } });
  return log;
}

describe('fold', () => {
  const events = sample();
  const whole = fold(events);

  it('makes rows of messages, calls and ends', () => {
    expect(whole.items.map((i) => i.kind)).toEqual(['user', 'assistant', 'tool', 'tool', 'assistant', 'notice']);
    expect(whole).toMatchObject({ firstSeq: 0, lastSeq: 12, turn: 'closed', title: 'A title', model: { provider: 'demo', model: 'demo-1' } });
    expect(whole.usage).toEqual({ inputTokens: 11, outputTokens: 6, cacheReadTokens: 2 });
    expect(whole.settled).toEqual({ turn: 1, step: 3 });
  });

  it('joins a result to its call', () => {
    const [ok, bad] = whole.items.filter((i): i is ToolItem => i.kind === 'tool');
    expect(ok).toMatchObject({ state: 'done', name: 'bash', result: [{ type: 'text', text: 'docs' }], meta: { exitCode: 0 } });
    expect(bad).toMatchObject({ state: 'failed', args: 'not json', error: { code: 'BAD' } });
  });

  it('gives the same rows however the events come', () => {
    for (let cut = 0; cut <= events.length; cut++) {
      expect(extend(extend(emptyTranscript, events.slice(0, cut)), events.slice(cut))).toEqual(whole);
    }
    expect(events.reduce((t, e) => extend(t, [e]), emptyTranscript)).toEqual(whole);
  });

  it('ignores what it has seen', () => {
    expect(extend(whole, events)).toBe(whole);
  });

  it('gives the same rows when older pages come later, at every cut', () => {
    for (let cut = 1; cut < events.length; cut++) {
      const joined = prepend(fold(events.slice(cut)), events.slice(0, cut));
      expect(joined.items.map((i) => ({ ...i, seq: 0, time: 0 }))).toEqual(whole.items.map((i) => ({ ...i, seq: 0, time: 0 })));
      expect(joined).toMatchObject({ firstSeq: 0, lastSeq: 12, turn: 'closed', title: 'A title', usage: whole.usage });
    }
  });

  it('ends calls that a turn left open', () => {
    log = [];
    put('turn/start', { turn: 1 });
    put('tool/call', { turn: 1, step: 1, callId: 'x', name: 'bash', arguments: '{}' });
    expect(fold(log)).toMatchObject({ turn: 'open', items: [{ state: 'running' }] });
    put('turn/end', { turn: 1, reason: { kind: 'interrupted' } });
    expect(fold(log)).toMatchObject({ turn: 'closed', items: [{ state: 'lost' }, { what: 'interrupted', tone: 'warn' }] });
  });

  it('says who stopped a turn', () => {
    log = [];
    put('turn/end', { turn: 1, reason: { kind: 'aborted', by: 'user' } });
    expect(fold(log).items[0]).toMatchObject({ what: 'aborted-user', tone: 'info' });
  });

  it('follows an approval to its outcome', () => {
    log = [];
    put('approval/asked', { id: 'p', tool: 'shell' });
    put('approval/decided', { id: 'p', outcome: 'allowed', scope: 'session', by: 'owner' });
    expect(fold(log).items).toMatchObject([{ kind: 'approval', outcome: 'allowed', scope: 'session', by: 'owner' }]);
    put('approval/asked', { id: 'q', kind: 'question', tool: 'ask_user', detail: { question: 'Which?' } });
    put('approval/decided', { id: 'q', outcome: 'allowed', by: 'owner', answer: 'this' });
    expect(fold(log).items[1]).toMatchObject({ kind: 'approval', outcome: 'allowed', answer: 'this' });
    put('approval/asked', { id: 'r', tool: 'shell' });
    put('approval/decided', { id: 'r', outcome: 'expired', by: 'host', reason: 'nobody answered within 1h' });
    expect(fold(log).items[2]).toMatchObject({ outcome: 'expired', reason: 'nobody answered within 1h' });
  });

  it('takes 10,000 messages in a moment', () => {
    log = [];
    for (let i = 0; i < 10_000; i++) put('user/message', { id: String(i), content: [{ type: 'text', text: 'x' }] });
    const big = fold(log);
    expect(big.items).toHaveLength(10_000);
    put('user/message', { id: 'last', content: [] });
    expect(extend(big, log).items).toHaveLength(10_001);
  });
});

describe('rows', () => {
  it('leave out messages that only call tools', () => {
    log = [];
    put('assistant/message', { turn: 1, step: 1, message: { id: 'a', content: [{ type: 'tool-call', id: 'c', name: 'bash', arguments: '{}' }] } });
    expect(durableRows(fold(log).items)).toEqual([]);
  });

  it('show work in progress only when nothing else shows it', () => {
    const durable = durableRows(fold(sample()).items);
    expect(withLive(durable, noLive, true).at(-1)).toEqual({ key: 'working', row: 'working' });
    expect(withLive(durable, noLive, false)).toBe(durable);
    const block = { block: 1, turn: 2, step: 1, attempt: 1, kind: 'text' as const, text: 'x', bytes: 1 };
    expect(withLive(durable, { ...noLive, blocks: [block] }, true).at(-1)).toMatchObject({ row: 'live' });
  });

  it('show a call once, also while its live text lingers', () => {
    log = [];
    put('tool/call', { turn: 1, step: 1, callId: 'c', name: 'bash', arguments: '{}' });
    const block = { block: 1, turn: 1, step: 1, attempt: 1, kind: 'tool' as const, callId: 'c', text: '{}', bytes: 2 };
    expect(withLive(durableRows(fold(log).items), { ...noLive, blocks: [block] }, true)).toHaveLength(1);
  });
});
