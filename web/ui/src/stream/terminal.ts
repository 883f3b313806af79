// The wire of one terminal: raw bytes from an absolute offset, who holds the
// keyboard, and what to do when the connection breaks (come back at the offset).

export interface TerminalEvents {
  onBytes: (bytes: Uint8Array) => void;
  onSkipped: (bytes: number) => void;
  onWriter: (by: string) => void;
  onExit: () => void;
  onOnline: (online: boolean) => void;
  /** The host has no terminal for this session, or no such route. */
  onRefused: () => void;
}

const firstDelay = 300;
const longestDelay = 10_000;

export class TerminalStream {
  private socket: WebSocket | null = null;
  private offset = 0;
  private delay = firstDelay;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private closed = false;
  private neverOpened = 0;
  private mine = false;
  private size: { rows: number; cols: number } | null = null;

  constructor(
    private readonly url: URL,
    private readonly ticket: () => Promise<string | null>,
    private readonly events: TerminalEvents,
  ) {
    void this.connect();
  }

  take(): void {
    this.send({ type: 'take' });
  }

  release(): void {
    this.send({ type: 'release' });
  }

  /** The agent's terminal keeps its size until a person holds the keyboard. */
  holds(mine: boolean): void {
    this.mine = mine;
    if (mine && this.size) this.send({ type: 'resize', ...this.size });
  }

  /** The size of the window onto the terminal. */
  fits(rows: number, cols: number): void {
    this.size = { rows, cols };
    if (this.mine) this.send({ type: 'resize', rows, cols });
  }

  type(data: Uint8Array<ArrayBuffer>): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(data);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close(1000);
    this.socket = null;
  }

  private async connect(): Promise<void> {
    let ticket: string | null;
    try {
      ticket = await this.ticket();
    } catch {
      return this.retry();
    }
    if (this.closed) return;
    const url = new URL(this.url);
    url.searchParams.set('offset', String(this.offset));
    const socket = new WebSocket(url, ticket ? ['dsh-web.v1', `ticket.${ticket}`] : ['dsh-web.v1']);
    socket.binaryType = 'arraybuffer';
    this.socket = socket;
    let opened = false;
    socket.onopen = () => {
      opened = true;
      this.neverOpened = 0;
      this.delay = firstDelay;
      this.events.onOnline(true);
    };
    socket.onmessage = (message) => this.receive(message.data as ArrayBuffer | string);
    socket.onclose = () => {
      if (this.closed || this.socket !== socket) return;
      this.socket = null;
      this.events.onOnline(false);
      if (!opened && ++this.neverOpened >= 3) return this.events.onRefused();
      this.retry();
    };
  }

  private receive(data: ArrayBuffer | string): void {
    if (typeof data === 'string') {
      const message = JSON.parse(data) as { type: string; bytes?: number; by?: string };
      if (message.type === 'skipped') this.events.onSkipped(message.bytes ?? 0);
      else if (message.type === 'writer') this.events.onWriter(message.by ?? '');
      else if (message.type === 'exit') this.events.onExit();
      return;
    }
    if (data.byteLength < 8) return;
    // The host begins where this copy ends; an agent that came back begins at 0 again.
    this.offset = Number(new DataView(data).getBigUint64(0)) + data.byteLength - 8;
    this.events.onBytes(new Uint8Array(data, 8));
  }

  private retry(): void {
    if (this.closed) return;
    this.timer = setTimeout(() => void this.connect(), this.delay);
    this.delay = Math.min(this.delay * 2, longestDelay);
  }

  private send(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }
}
