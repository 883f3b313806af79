// The agent's own terminal: watch it, and take the keyboard while no command runs.

import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { Badge, Button, Spinner } from '../parts/controls';
import { SidePanel } from '../parts/panel';
import { api } from '../store/app';
import type { OpenSession } from '../store/session';
import { TerminalStream } from '../stream/terminal';
import { strings } from '../strings';
import { bytes } from '../text/format';
import type { Emulator } from './xterm';

/** How the host calls the agent as the one who writes. */
const agent = 'agent';

type State = 'waiting' | 'online' | 'lost' | 'exited';

export function TerminalPanel({ session, onClose }: { session: OpenSession; onClose: () => void }) {
  const place = useRef<HTMLDivElement>(null);
  const stream = useRef<TerminalStream | null>(null);
  const emulator = useRef<Emulator | null>(null);
  const [state, setState] = useState<State>('waiting');
  const [empty, setEmpty] = useState(true);
  const [asked, setAsked] = useState(false);
  const [writer, setWriter] = useState('');
  const text = strings.terminal;

  useEffect(() => {
    let closed = false;
    const watch = new ResizeObserver(() => {
      const size = emulator.current?.fit();
      if (size) stream.current?.fits(size.rows, size.cols);
    });
    void import('./xterm').then(({ openEmulator }) => {
      if (closed || !place.current) return;
      const screen = openEmulator(place.current, (data) => stream.current?.type(data));
      emulator.current = screen;
      stream.current = new TerminalStream(socketUrl(session), () => api.ticket(), {
        onBytes: (data) => {
          setEmpty(false);
          setState('online');
          screen.write(data);
        },
        onSkipped: (n) => screen.write(`\r\n\x1b[2m${text.skipped(bytes(n))}\x1b[0m\r\n`),
        onWriter: (by) => {
          setWriter(by);
          // Nobody, or the agent: this page's wish is over, or was refused.
          if (by === '' || by === agent) setAsked(false);
        },
        onExit: () => setState('exited'),
        onOnline: (online) => setState(online ? 'online' : 'lost'),
        onRefused: () => {
          setState('exited');
        },
      });
      watch.observe(place.current);
    });
    return () => {
      closed = true;
      watch.disconnect();
      stream.current?.close();
      emulator.current?.dispose();
      stream.current = null;
      emulator.current = null;
    };
  }, [session]);

  // The host names who writes; it is this page when this page has just asked.
  const person = writer !== '' && writer !== agent;
  const mine = person && asked;
  // Before the badge shows: what is typed from then on must not be lost.
  useLayoutEffect(() => {
    emulator.current?.input(mine);
    stream.current?.holds(mine);
  }, [mine]);
  const running = session.running.value;
  return (
    <SidePanel
      title={text.title}
      onClose={onClose}
      flush
      actions={
        <>
          <Badge tone={mine ? 'warn' : 'plain'}>
            {mine ? text.yours : person ? text.theirs : text.readOnly}
          </Badge>
          {mine ? (
            <Button
              onClick={() => {
                stream.current?.release();
                setAsked(false);
                setWriter('');
              }}
            >
              {text.release}
            </Button>
          ) : (
            state === 'online' &&
            !empty &&
            !running &&
            !person && (
              <Button
                onClick={() => {
                  setAsked(true);
                  stream.current?.take();
                }}
              >
                {text.take}
              </Button>
            )
          )}
        </>
      }
    >
      <div class="terminal" ref={place} role="group" aria-label={text.label} />
      <p class="terminal__state" role="status">
        {state === 'waiting' && <Spinner />}
        {state === 'lost' && text.lost}
        {state === 'exited' && text.exited}
        {state === 'online' && empty && text.waiting}
        {state === 'online' && !empty && running && text.busy}
      </p>
    </SidePanel>
  );
}

function socketUrl(session: OpenSession): URL {
  const url = api.url(session.path('/terminal'));
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url;
}
