// One session that a screen has open: its transcript, its live text, its queue.
// Frames are gathered and applied together once per frame of the screen, so that
// a fast stream costs one drawing.

import { batch, computed, signal } from '@preact/signals';
import type { Client } from '../api/client';
import { ApiError } from '../api/client';
import type { EventsPage, Frame, LogEvent, QueuedMessage, Session } from '../api/wire';
import { applyLive, dropStale, markStale, noLive, settleCall, settleStep, settleTurn, type Live } from '../stream/live';
import { extend, prepend } from '../transcript/fold';
import { emptyTranscript, type Transcript } from '../transcript/items';

export interface Pending {
  readonly id: string;
  readonly text: string;
  readonly placement: 'queue' | 'steer';
  readonly error?: string;
}

const pageSize = 200;

export class OpenSession {
  readonly transcript = signal<Transcript>(emptyTranscript);
  readonly live = signal<Live>(noLive);
  /** What the host says about the session; null until it has answered. */
  readonly info = signal<Session | null>(null);
  readonly queue = signal<readonly QueuedMessage[]>([]);
  /** Sent from here, not yet seen in the log or in the queue. */
  readonly pending = signal<readonly Pending[]>([]);
  readonly caughtUp = signal(false);
  readonly loadingOlder = signal(false);
  readonly problem = signal<{ code: string; message: string } | null>(null);

  readonly running = computed(() => {
    const turn = this.transcript.value.turn;
    if (turn !== 'unknown') return turn === 'open';
    return this.info.value?.status === 'running';
  });

  private waiting: Frame[] = [];
  private scheduled = false;
  private closed = false;
  private refreshing = false;
  private refreshAgain = false;

  constructor(
    readonly id: string,
    private readonly api: Client,
  ) {}

  /** Where the stream goes on: undefined before anything was applied. */
  cursor(): number | undefined {
    this.flush();
    const last = this.transcript.value.lastSeq;
    return last < 0 ? undefined : last;
  }

  path(rest = ''): string {
    return `sessions/${encodeURIComponent(this.id)}${rest}`;
  }

  async load(): Promise<void> {
    try {
      this.adopt(await this.api.get<Session>(this.path()));
    } catch (error) {
      if (error instanceof ApiError && error.code !== 'network' && error.status !== 401) {
        this.failed(error.code, error.message);
      }
    }
  }

  adopt(info: Session): void {
    // Two questions may be on their way at once; the older answer is no news.
    if ((info.lastSeq ?? 0) < (this.info.value?.lastSeq ?? -1)) return;
    batch(() => {
      this.info.value = info;
      this.queue.value = info.queue ?? [];
      const known = new Set(this.queue.value.map((q) => q.id));
      this.pending.value = this.pending.value.filter((p) => p.error || !known.has(p.id));
    });
  }

  receive(frame: Frame): void {
    if (this.closed) return;
    this.waiting.push(frame);
    if (this.scheduled) return;
    this.scheduled = true;
    // A hidden tab draws no frames, but must keep up all the same.
    if (document.visibilityState === 'hidden') setTimeout(() => this.flush(), 50);
    else requestAnimationFrame(() => this.flush());
  }

  /** The page before the oldest event here. */
  async loadOlder(): Promise<void> {
    const first = this.transcript.value.firstSeq;
    if (first <= 0 || this.loadingOlder.value) return;
    this.loadingOlder.value = true;
    try {
      const page = await this.api.get<EventsPage>(this.path(`/events?before=${first}&limit=${pageSize}`));
      if (this.closed) return;
      const next = prepend(this.transcript.value, page.events);
      // An empty page below a positive seq: nothing more can be read.
      this.transcript.value = page.events.length ? next : { ...next, firstSeq: 0 };
    } finally {
      this.loadingOlder.value = false;
    }
  }

  disconnected(): void {
    this.flush();
    this.live.value = markStale(this.live.value);
    this.caughtUp.value = false;
  }

  reset(): void {
    this.waiting = [];
    batch(() => {
      this.transcript.value = emptyTranscript;
      this.live.value = noLive;
      this.problem.value = null;
      this.caughtUp.value = false;
      this.info.value = null;
    });
    void this.load();
  }

  failed(code: string, message: string): void {
    this.problem.value = { code, message };
  }

  close(): void {
    this.closed = true;
    this.waiting = [];
  }

  addPending(pending: Pending): void {
    this.pending.value = [...this.pending.value, pending];
  }

  dropPending(id: string): void {
    this.pending.value = this.pending.value.filter((p) => p.id !== id);
  }

  private flush(): void {
    this.scheduled = false;
    const frames = this.waiting;
    if (frames.length === 0) return;
    this.waiting = [];
    const before = this.transcript.value;
    const events: LogEvent[] = [];
    for (const frame of frames) if (frame.type === 'event') events.push(frame.event);
    const after = extend(before, events);
    batch(() => {
      this.transcript.value = after;
      this.live.value = this.applyFrames(frames, before);
      for (const event of events) if (event.type === 'user/message') this.dropPending(String(event.data['id']));
      if (frames.some((f) => f.type === 'caughtUp')) this.caughtUp.value = true;
    });
    if (after.inboxChanges !== before.inboxChanges || after.turn !== before.turn) void this.refresh();
  }

  /** In the order of arrival: a message settles the text before it, not after it. */
  private applyFrames(frames: readonly Frame[], before: Transcript): Live {
    let live = this.live.value;
    let settled = before.settled;
    for (const frame of frames) {
      if (frame.type === 'event') {
        const { type, data } = frame.event;
        if (type === 'assistant/message') {
          settled = { turn: Number(data['turn']), step: Number(data['step']) };
          live = settleStep(live, settled.turn, settled.step);
        } else if (type === 'tool/result') {
          const message = data['message'] as { source?: { callId?: string }; content?: { toolCallId?: string }[] } | undefined;
          const callId = data['callId'] ?? message?.source?.callId ?? message?.content?.[0]?.toolCallId;
          live = settleCall(live, String(callId));
        } else if (type === 'turn/end') live = settleTurn(live);
      } else if (frame.type === 'caughtUp') live = dropStale(live);
      else if (frame.type === 'block') {
        const old = frame.turn < settled.turn || (frame.turn === settled.turn && frame.step <= settled.step);
        if (!old) live = applyLive(live, frame);
      } else if (frame.type === 'delta' || frame.type === 'drop' || frame.type === 'output') live = applyLive(live, frame);
    }
    return live;
  }

  /** Reads the session's own state again: queue, status, usage. One at a time. */
  private async refresh(): Promise<void> {
    if (this.refreshing) {
      this.refreshAgain = true;
      return;
    }
    this.refreshing = true;
    try {
      do {
        this.refreshAgain = false;
        this.adopt(await this.api.get<Session>(this.path()));
      } while (this.refreshAgain && !this.closed);
    } catch {
      // The next change asks again; a lost connection is shown elsewhere.
    } finally {
      this.refreshing = false;
    }
  }
}
