// The transcript is a fold of the log: the same events always give the same
// rows, whether they came one by one, in pages or all at once. An event that
// was seen already changes nothing, and one this page does not know is skipped.

import type { Block, LogEvent, Message, Usage } from '../api/wire';
import { emptyTranscript, type Item, type NoticeItem, type ToolItem, type Transcript } from './items';

interface Draft {
  items: Item[];
  state: Transcript;
  /** Where the row of a call or an approval is, by key. */
  at: Map<string, number>;
}

/** Adds events that follow the ones in `before`. */
export function extend(before: Transcript, events: readonly LogEvent[]): Transcript {
  const fresh = events.filter((e) => e.seq > before.lastSeq);
  if (fresh.length === 0) return before;
  const draft: Draft = { items: [...before.items], state: before, at: new Map() };
  // Only open rows can still change; they sit near the end.
  draft.items.forEach((item, i) => {
    if (item.kind === 'tool' || item.kind === 'approval') draft.at.set(item.key, i);
  });
  for (const event of fresh) step(draft, event);
  const first = before.firstSeq < 0 ? fresh[0]!.seq : before.firstSeq;
  return { ...draft.state, items: draft.items, firstSeq: first, lastSeq: fresh.at(-1)!.seq };
}

/** The transcript of a run of consecutive events. */
export function fold(events: readonly LogEvent[]): Transcript {
  return extend(emptyTranscript, events);
}

/** Adds a page of older events in front of `after`. */
export function prepend(after: Transcript, events: readonly LogEvent[]): Transcript {
  const older = events.filter((e) => after.firstSeq < 0 || e.seq < after.firstSeq);
  if (older.length === 0) return after;
  const before = fold(older);
  const results = new Map<string, ToolItem>();
  for (const item of after.items) if (item.kind === 'tool' && item.args === '') results.set(item.key, item);
  // A call whose result came in the newer page has a row in both.
  const joined = before.items.map((item) => {
    const end = item.kind === 'tool' ? results.get(item.key) : undefined;
    if (item.kind !== 'tool' || !end) return item;
    const { result, error, meta, state, endTime } = end;
    return { ...item, state, ...defined({ result, error, meta, endTime }) } as ToolItem;
  });
  const seen = new Set(joined.map((item) => item.key));
  const title = after.title ?? before.title;
  const preset = after.preset ?? before.preset;
  const model = after.model ?? before.model;
  return {
    ...after,
    ...defined({ title, preset, model }),
    items: [...joined, ...after.items.filter((item) => !seen.has(item.key))],
    firstSeq: before.firstSeq,
    turn: after.turn === 'unknown' ? before.turn : after.turn,
    usage: addUsage(after.usage, before.usage),
  };
}

function step(draft: Draft, event: LogEvent): void {
  const { data, seq, time } = event;
  const set = (patch: Partial<Transcript>) => {
    draft.state = { ...draft.state, ...patch };
  };
  const notice = (tone: NoticeItem['tone'], what: string, extra: { detail?: unknown; code?: unknown } = {}) => {
    draft.items.push({
      kind: 'notice',
      key: `n${seq}`,
      seq,
      time,
      tone,
      what,
      ...defined({ detail: text(extra.detail), code: text(extra.code) }),
    });
  };

  switch (event.type) {
    case 'user/message': {
      const message = data as unknown as Message;
      draft.items.push({
        kind: 'user',
        key: `u${seq}`,
        seq,
        time,
        id: message.id ?? '',
        content: blocksOf(message.content),
        source: message.source?.kind ?? 'user',
      });
      return;
    }
    case 'assistant/message': {
      const message = data['message'] as Message | undefined;
      const usage = data['usage'] as Usage | undefined;
      const turn = number(data['turn']);
      const step = number(data['step']);
      draft.items.push({
        kind: 'assistant',
        key: `a${seq}`,
        seq,
        time,
        id: message?.id ?? '',
        turn,
        step,
        content: blocksOf(message?.content),
        interrupted: data['interrupted'] === true,
        ...(usage ? { usage } : {}),
      });
      set({ settled: { turn, step }, usage: addUsage(draft.state.usage, usage ?? {}) });
      return;
    }
    case 'tool/call': {
      const callId = text(data['callId']) ?? `seq-${seq}`;
      draft.at.set(`t${callId}`, draft.items.length);
      draft.items.push({
        kind: 'tool',
        key: `t${callId}`,
        seq,
        time,
        callId,
        turn: number(data['turn']),
        step: number(data['step']),
        name: text(data['name']) ?? '',
        args: rawArguments(data['arguments']),
        state: 'running',
      });
      return;
    }
    case 'tool/result':
      return finishCall(draft, event);
    case 'turn/start':
      return set({ turn: 'open' });
    case 'turn/end': {
      set({ turn: 'closed' });
      closeCalls(draft, time);
      const reason = (data['reason'] ?? {}) as Record<string, unknown>;
      const kind = text(reason['kind']) ?? 'completed';
      if (kind === 'completed') return;
      const by = text(reason['by']);
      const what = kind === 'aborted' && by ? `aborted-${by}` : kind;
      const tone = kind === 'error' || kind === 'context-full' ? 'error' : kind === 'aborted' ? 'info' : 'warn';
      return notice(tone, what, { detail: reason['message'], code: reason['code'] });
    }
    case 'llm/retry': {
      const failure = data['failure'] as { message?: unknown; code?: unknown } | string | undefined;
      const detail = typeof failure === 'string' ? failure : failure?.message;
      const code = typeof failure === 'string' ? undefined : failure?.code;
      return notice('warn', 'retry', { detail, code });
    }
    case 'request/header': {
      const config = ((data['header'] as Record<string, unknown>)?.['config'] ?? {}) as Record<string, unknown>;
      const provider = text(config['provider']);
      const model = text(config['model']);
      if (provider && model) set({ model: { provider, model } });
      return;
    }
    case 'session/title':
      return set({ title: text(data['title']) ?? '' });
    case 'agent-preset/selected': {
      const id = text((data['agentPreset'] as Record<string, unknown> | undefined)?.['id']);
      if (id) set({ preset: { id } });
      return notice('info', 'preset', { detail: id });
    }
    case 'agent/inbox/spliced':
      return set({ inboxChanges: draft.state.inboxChanges + 1 });
    case 'approval/asked': {
      const id = text(data['id']) ?? `seq-${seq}`;
      draft.at.set(`p${id}`, draft.items.length);
      draft.items.push({ kind: 'approval', key: `p${id}`, seq, time, id, data });
      return;
    }
    case 'approval/decided': {
      const id = text(data['id']) ?? '';
      const at = draft.at.get(`p${id}`);
      const row = at === undefined ? undefined : draft.items[at];
      if (at === undefined || row?.kind !== 'approval') return;
      if (data['scope'] === 'session') set({ leaveChanges: draft.state.leaveChanges + 1 });
      const [by, scope, reason, answer] = ['by', 'scope', 'reason', 'answer'].map((name) => text(data[name]));
      draft.items[at] = { ...row, outcome: text(data['outcome']) ?? 'settled', ...defined({ by, scope, reason, answer }) };
      return;
    }
    case 'todo/write': {
      const list = (data['items'] ?? []) as Record<string, unknown>[];
      const entries = list.map((t) => ({
        text: text(t['content']) ?? '',
        status: text(t['status']) ?? 'pending',
      }));
      draft.items.push({ kind: 'todo', key: `d${seq}`, seq, time, entries });
      return;
    }
    case 'sandbox/mode':
      return notice('info', 'sandbox-mode', { detail: data['mode'] });
    case 'approval/revoked':
      set({ leaveChanges: draft.state.leaveChanges + 1 });
      return notice('info', 'approval-revoked');
    case 'approval/policy':
      set({ leaveChanges: draft.state.leaveChanges + 1 });
      return notice('info', 'approval-policy', { detail: data['policy'] });
    case 'compaction/summary':
      return notice('info', 'compaction', { detail: plainText(blocksOf((data['message'] as Message | undefined)?.content)) });
    case 'shell/reset':
      return notice('info', 'shell-reset', { detail: data['note'] ?? data['cause'] });
    case 'shell/taken':
      return notice('info', 'shell-taken');
    case 'agent/evicted':
      return notice('info', 'evicted');
    case 'session/end-seed':
      return notice('info', 'seed');
    default:
      return;
  }
}

function finishCall(draft: Draft, event: LogEvent): void {
  const { data, seq, time } = event;
  const message = data['message'] as Message | undefined;
  const content = blocksOf(message?.content);
  const wrapped = content.find((b) => b.type === 'tool-result');
  const callId = text(data['callId']) ?? message?.source?.callId ?? wrapped?.toolCallId ?? `seq-${seq}`;
  const result = wrapped ? wrapped.content : content;
  const error = data['error'] as ToolItem['error'] | undefined;
  const meta = data['meta'] as ToolItem['meta'] | undefined;
  const failed = error !== undefined || wrapped?.isError === true;
  const end = {
    state: failed ? ('failed' as const) : ('done' as const),
    result,
    endTime: time,
    ...defined({ error, meta }),
  };
  const key = `t${callId}`;
  const at = draft.at.get(key);
  const row = at === undefined ? undefined : draft.items[at];
  if (at !== undefined && row?.kind === 'tool') {
    draft.items[at] = { ...row, ...end };
    return;
  }
  // The call is on an older page that has not been read yet.
  draft.at.set(key, draft.items.length);
  draft.items.push({
    kind: 'tool',
    key,
    seq,
    time,
    callId,
    turn: number(data['turn']),
    step: number(data['step']),
    name: text(data['name']) ?? '',
    args: '',
    ...end,
  });
}

/** A turn never ends with a call in the air; an old log may still hold one. */
function closeCalls(draft: Draft, time: number): void {
  for (let i = draft.items.length - 1; i >= 0; i--) {
    const item = draft.items[i]!;
    if (item.kind === 'user') return;
    if (item.kind === 'tool' && item.state === 'running') draft.items[i] = { ...item, state: 'lost', endTime: time };
  }
}

export function blocksOf(content: unknown): Block[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }];
  return Array.isArray(content) ? (content as Block[]) : [];
}

/** The plain text of a message, as the composer would hold it. */
export function plainText(content: readonly Block[]): string {
  return content
    .filter((b) => b.type === 'text')
    .map((b) => b.text)
    .join('\n');
}

function addUsage(a: Usage, b: Usage): Transcript['usage'] {
  return {
    inputTokens: (a.inputTokens ?? 0) + (b.inputTokens ?? 0),
    outputTokens: (a.outputTokens ?? 0) + (b.outputTokens ?? 0),
    cacheReadTokens: (a.cacheReadTokens ?? 0) + (b.cacheReadTokens ?? 0),
  };
}

function rawArguments(value: unknown): string {
  return typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value);
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function number(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}

type Defined<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

function defined<T extends Record<string, unknown>>(fields: T): Defined<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, v]) => v !== undefined)) as Defined<T>;
}
