// The rows of a transcript. They are plain immutable values: a row whose value
// did not change is not drawn again.

import type { Block, LogEvent, Usage } from '../api/wire';

interface Row {
  /** Unique in the transcript, and the same after older pages are added. */
  readonly key: string;
  readonly seq: number;
  readonly time: number;
}

export interface UserItem extends Row {
  readonly kind: 'user';
  readonly id: string;
  readonly content: readonly Block[];
  readonly source: string;
}

export interface AssistantItem extends Row {
  readonly kind: 'assistant';
  readonly id: string;
  readonly turn: number;
  readonly step: number;
  readonly content: readonly Block[];
  readonly interrupted: boolean;
  readonly usage?: Usage;
}

export interface ToolItem extends Row {
  readonly kind: 'tool';
  readonly callId: string;
  readonly turn: number;
  readonly step: number;
  readonly name: string;
  /** Raw text as the model wrote it; it need not be JSON. */
  readonly args: string;
  readonly state: 'running' | 'done' | 'failed' | 'lost';
  readonly result?: readonly Block[];
  readonly error?: { name?: string; code?: string; message?: string };
  readonly meta?: Readonly<Record<string, unknown>>;
  readonly endTime?: number;
}

export interface NoticeItem extends Row {
  readonly kind: 'notice';
  readonly tone: 'info' | 'warn' | 'error';
  /** What happened, a key of the notices in strings.ts. */
  readonly what: string;
  readonly detail?: string;
  readonly code?: string;
}

export interface ApprovalItem extends Row {
  readonly kind: 'approval';
  readonly id: string;
  readonly data: Readonly<Record<string, unknown>>;
  readonly outcome?: string;
  readonly by?: string;
  /** Of what was allowed: once or session. */
  readonly scope?: string;
  /** The owner's, or why nobody decided. */
  readonly reason?: string;
  /** Of a question. */
  readonly answer?: string;
}

export interface TodoItem extends Row {
  readonly kind: 'todo';
  readonly entries: readonly { text: string; status: string }[];
}

export type Item = UserItem | AssistantItem | ToolItem | NoticeItem | ApprovalItem | TodoItem;

export interface Transcript {
  readonly items: readonly Item[];
  readonly firstSeq: number;
  readonly lastSeq: number;
  /** Whether a turn is open, as far as the events seen so far tell. */
  readonly turn: 'open' | 'closed' | 'unknown';
  readonly title?: string;
  readonly preset?: { id: string };
  readonly model?: { provider: string; model: string };
  readonly usage: Required<Pick<Usage, 'inputTokens' | 'outputTokens' | 'cacheReadTokens'>>;
  /** The newest message that is durable, as turn and step. */
  readonly settled: { turn: number; step: number };
  /** Counts changes of the inbox, so that the queue is read again. */
  readonly inboxChanges: number;
  /** Counts changes of what may run without asking. */
  readonly leaveChanges: number;
}

export const emptyTranscript: Transcript = {
  items: [],
  firstSeq: -1,
  lastSeq: -1,
  turn: 'unknown',
  usage: { inputTokens: 0, outputTokens: 0, cacheReadTokens: 0 },
  settled: { turn: 0, step: 0 },
  inboxChanges: 0,
  leaveChanges: 0,
};

export type { LogEvent };
