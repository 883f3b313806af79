// The terminal emulator, a chunk of its own. It answers nothing: no clipboard,
// no title, no colour or device queries, and it caps what an escape may hold.

import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import '@xterm/xterm/css/xterm.css';

export interface Emulator {
  write(bytes: Uint8Array | string): void;
  fit(): { rows: number; cols: number };
  input(enabled: boolean): void;
  dispose(): void;
}

const longestEscape = 4096;

export function openEmulator(place: HTMLElement, onType: (bytes: Uint8Array<ArrayBuffer>) => void): Emulator {
  const style = getComputedStyle(place);
  const color = (name: string) => style.getPropertyValue(name).trim();
  const terminal = new Terminal({
    rows: 40,
    cols: 160,
    // The agent's terminal adds no carriage returns of its own.
    convertEol: true,
    disableStdin: true,
    scrollback: 5000,
    fontFamily: color('--mono') || 'monospace',
    fontSize: 12.5,
    lineHeight: 1.25,
    screenReaderMode: true,
    allowProposedApi: false,
    theme: {
      background: '#16161a',
      foreground: '#e4e4e8',
      cursor: '#e4e4e8',
      selectionBackground: '#44506e',
    },
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  refuseQueries(terminal);
  terminal.open(place);

  let allowed = false;
  const encoder = new TextEncoder();
  const typing = terminal.onData((data) => {
    if (allowed) onType(encoder.encode(data));
  });
  return {
    write: (bytes) => terminal.write(bytes),
    fit: () => {
      fit.fit();
      return { rows: terminal.rows, cols: terminal.cols };
    },
    input: (enabled) => {
      allowed = enabled;
      terminal.options.disableStdin = !enabled;
      terminal.options.cursorBlink = enabled;
      if (enabled) terminal.focus();
    },
    dispose: () => {
      typing.dispose();
      terminal.dispose();
    },
  };
}

/** A handler that says "done" keeps the emulator's own from acting or answering. */
function refuseQueries(terminal: Terminal): void {
  const { parser } = terminal;
  const done = () => true;
  for (const id of [0, 1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 17, 19, 52, 104, 110, 111, 112, 777, 1337]) {
    parser.registerOscHandler(id, (data) => data.length > longestEscape || done());
  }
  parser.registerCsiHandler({ final: 'c' }, done);
  parser.registerCsiHandler({ prefix: '>', final: 'c' }, done);
  parser.registerCsiHandler({ prefix: '=', final: 'c' }, done);
  parser.registerCsiHandler({ final: 'n' }, done);
  parser.registerCsiHandler({ prefix: '?', final: 'n' }, done);
  parser.registerCsiHandler({ final: 't' }, done);
  parser.registerCsiHandler({ intermediates: '$', final: 'p' }, done);
  parser.registerCsiHandler({ prefix: '?', intermediates: '$', final: 'p' }, done);
  parser.registerDcsHandler({ intermediates: '$', final: 'q' }, done);
  parser.registerDcsHandler({ intermediates: '+', final: 'q' }, done);
}
