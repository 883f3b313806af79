// What travels between the page and the host: the REST bodies and the stream
// frames. Fields that an older or newer host may leave out are optional here,
// and unknown ones are ignored, so that the page survives either.

export interface Problem {
  status: number;
  code: string;
  title?: string;
  detail?: string;
  errors?: { message?: string; location?: string }[];
  [extra: string]: unknown;
}

export type Block =
  | { type: 'text'; text: string }
  | { type: 'reasoning'; text: string; signature?: string }
  | { type: 'image'; attachmentId: string; mime: string }
  | { type: 'tool-call'; id: string; name: string; arguments: string }
  | { type: 'tool-result'; toolCallId: string; content: Block[]; isError?: boolean };

export interface Message {
  id: string;
  role: string;
  content: Block[];
  source?: { kind: string; callId?: string; [extra: string]: unknown };
}

export interface LogEvent {
  seq: number;
  time: number;
  type: string;
  data: Record<string, unknown>;
  prev?: string;
  ignorable?: boolean;
}

export interface Usage {
  inputTokens?: number;
  outputTokens?: number;
  cacheReadTokens?: number;
  cacheWriteTokens?: number;
  reasoningTokens?: number;
}

export interface ModelRef {
  provider: string;
  model: string;
}

export interface QueuedMessage {
  id: string;
  content: Block[] | string;
  placement?: string;
}

export interface Session {
  id: string;
  title?: string;
  preset: { id: string; name?: string; hash?: string };
  workspace: string;
  model?: ModelRef;
  status: string;
  live?: boolean;
  blank?: boolean;
  archived?: boolean;
  labels?: Record<string, string>;
  group?: string;
  createdAt?: string | number;
  updatedAt?: string | number;
  lastSeq?: number;
  usage?: Usage;
  pendingApprovals?: number;
  queue?: QueuedMessage[];
  parent?: string;
  damage?: string;
  sandboxMode?: string;
  approvalPolicy?: string;
}

export interface PresetSummary {
  id: string;
  name?: string;
  description?: string;
  order?: number;
  origin?: string;
  default?: boolean;
  hash?: string;
  broken?: string;
  fullAccess?: boolean;
}

export interface PresetRow {
  id?: string;
  use?: string;
  isolate?: string[];
  rows?: PresetRow[];
  with?: Record<string, unknown>;
}

export interface ToolSchema {
  name: string;
  description?: string;
  parameters?: unknown;
  [extra: string]: unknown;
}

export interface PresetDetail extends PresetSummary {
  text?: string;
  rows?: PresetRow[];
  prompt?: string;
  promptHash?: string;
  tokens?: number;
  tools?: ToolSchema[];
}

export interface CheckResult {
  problem?: { message: string; file?: string; line?: number; column?: number };
  prompt?: string;
  promptHash?: string;
  tokens?: number;
  tools?: ToolSchema[];
}

export interface ModelRoute extends ModelRef {
  name?: string;
  hasKey?: boolean;
  demo?: boolean;
  default?: boolean;
}

export interface Provider {
  id: string;
  kind?: string;
  baseUrl?: string;
  hasKey?: boolean;
  models?: (string | ModelRoute)[];
}

export interface Directory {
  name: string;
  path: string;
}

export interface Workspaces {
  path: string;
  parent?: string;
  entries: Directory[];
  truncated?: boolean;
  recent: string[];
}

export interface HostInfo {
  version?: string;
  commit?: string;
  node?: string;
  uptime?: number | string;
  demo?: boolean;
  limits?: Record<string, unknown>;
  sandbox?: unknown;
  defaultPreset?: string;
  [extra: string]: unknown;
}

/** A call that waits for leave, or a question that waits for an answer. */
export interface Approval {
  id: string;
  session: string;
  kind?: string;
  callId?: string;
  tool?: string;
  arguments?: unknown;
  argsHash?: string;
  cwd?: string;
  reason?: string;
  leaves?: string;
  /** Of an approval: covers, never. Of a question: question, options. */
  detail?: unknown;
}

/** What a session's calls may do without asking. Without a policy its preset asks about nothing. */
export interface Leave {
  policy?: 'ask' | 'never' | 'full';
  grants: { id: string; tool: string; arguments: string; covers?: string[][] }[];
}

export interface Prompt {
  system: string;
  tools: ToolSchema[];
  hash: string;
}

export interface SentRequest {
  turn?: number;
  step?: number;
  attempt?: number;
  bodySha256?: string;
  prefixSha256?: string;
  bytes?: number;
  contiguous?: boolean;
  divergesAt?: number | string;
  [extra: string]: unknown;
}

export interface Proof {
  requests: SentRequest[];
  contiguous: boolean;
}

export interface EventsPage {
  events: LogEvent[];
  lastSeq: number;
  hasMore: boolean;
}

export type BlockKind = 'text' | 'reasoning' | 'tool';

export type Frame =
  | { type: 'hello'; logId: string; node?: string; version?: string }
  | { type: 'event'; session: string; event: LogEvent }
  | { type: 'caughtUp'; session: string; seq: number }
  | {
      type: 'block';
      block: number;
      session: string;
      turn: number;
      step: number;
      attempt: number;
      kind: BlockKind;
      name?: string;
      callId?: string;
    }
  | { type: 'delta'; block: number; offset: number; text: string }
  | { type: 'drop'; block: number }
  | { type: 'output'; session: string; callId: string; offset: number; text: string; skipped?: number }
  | {
      type: 'feed';
      sessions?: Session[];
      removed?: string[];
      approvals?: Approval[];
      status?: unknown;
    }
  | { type: 'error'; code: string; message: string; session?: string };
