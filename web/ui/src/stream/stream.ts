// One websocket per tab. It delivers, in order, the frames of the sessions this
// tab has open, and it comes back by itself: every subscription is renewed with
// the cursor its owner gives, so that nothing is missed or seen twice.
// What is in flight while the connection is down is not queued here; the host's
// log is the queue.

import type { Frame } from '../api/wire';

export type Connection =
  | { state: 'connecting' }
  | { state: 'online' }
  | { state: 'offline'; retryAt: number };

export interface StreamOptions {
  /** The websocket address. */
  url: URL;
  /** A fresh single-use ticket; null where none is needed. */
  ticket: () => Promise<string | null>;
  onFrame: (frame: Frame) => void;
  onConnection: (connection: Connection) => void;
  /** True when the failure means "log in again": no retry then. */
  isFinal: (error: unknown) => boolean;
}

const firstDelay = 250;
const longestDelay = 10_000;
/** The host pings every 20 s, which a page can't see; a dead path shows as a write or close error. */
const protocol = 'dsh-web.v1';

export class Stream {
  private socket: WebSocket | null = null;
  private delay = firstDelay;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private stopped = true;
  private attempt = 0;
  private readonly cursors = new Map<string, () => number | undefined>();

  constructor(private readonly options: StreamOptions) {}

  start(): void {
    if (!this.stopped) return;
    this.stopped = false;
    window.addEventListener('online', this.hurry);
    window.addEventListener('offline', this.lost);
    document.addEventListener('visibilitychange', this.hurry);
    void this.connect();
  }

  stop(): void {
    this.stopped = true;
    window.removeEventListener('online', this.hurry);
    window.removeEventListener('offline', this.lost);
    document.removeEventListener('visibilitychange', this.hurry);
    clearTimeout(this.timer);
    this.attempt++;
    this.socket?.close(1000);
    this.socket = null;
  }

  /**
   * Follows a session. `cursor` is asked at every connection: the last seq that
   * was applied, or undefined for the newest page.
   */
  subscribe(session: string, cursor: () => number | undefined): void {
    this.cursors.set(session, cursor);
    this.sendSubscribe(session, cursor);
  }

  unsubscribe(session: string): void {
    if (this.cursors.delete(session)) this.send({ type: 'unsubscribe', session });
  }

  private readonly hurry = () => {
    if (this.stopped || this.socket || document.visibilityState === 'hidden') return;
    clearTimeout(this.timer);
    this.delay = firstDelay;
    void this.connect();
  };

  /** The system says the network is gone; a dead socket would notice much later. */
  private readonly lost = () => {
    const socket = this.socket;
    if (!socket) return;
    this.socket = null;
    this.attempt++;
    socket.close();
    this.retry();
  };

  private async connect(): Promise<void> {
    const attempt = ++this.attempt;
    this.options.onConnection({ state: 'connecting' });
    let ticket: string | null;
    try {
      ticket = await this.options.ticket();
    } catch (error) {
      if (attempt !== this.attempt || this.stopped) return;
      if (this.options.isFinal(error)) this.stop();
      else this.retry();
      return;
    }
    if (attempt !== this.attempt || this.stopped) return;
    const protocols = ticket ? [protocol, `ticket.${ticket}`] : [protocol];
    const socket = new WebSocket(this.options.url, protocols);
    this.socket = socket;
    socket.onopen = () => {
      if (attempt !== this.attempt) return;
      this.delay = firstDelay;
      this.options.onConnection({ state: 'online' });
      this.send({ type: 'watch' });
      for (const [session, cursor] of this.cursors) this.sendSubscribe(session, cursor);
    };
    socket.onmessage = (message) => {
      if (attempt === this.attempt && typeof message.data === 'string') {
        this.options.onFrame(JSON.parse(message.data) as Frame);
      }
    };
    socket.onclose = () => {
      if (attempt !== this.attempt || this.stopped) return;
      this.socket = null;
      this.retry();
    };
  }

  private retry(): void {
    const wait = this.delay * (0.8 + Math.random() * 0.4);
    this.delay = Math.min(this.delay * 2, longestDelay);
    this.options.onConnection({ state: 'offline', retryAt: Date.now() + wait });
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.connect(), wait);
  }

  private sendSubscribe(session: string, cursor: () => number | undefined): void {
    const after = cursor();
    this.send({ type: 'subscribe', session, ...(after === undefined ? {} : { after }) });
  }

  private send(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
