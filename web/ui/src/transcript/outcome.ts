// How a tool call ended: from the metadata where the host gives it, else from
// the lines that the tool adds to its output.

import type { ToolItem } from './items';

export interface LeftOverProcess {
  readonly pid: number | string;
  readonly command: string;
  readonly port?: number | string;
}

export interface Outcome {
  readonly exit?: number;
  readonly signal?: string;
  readonly timedOut: boolean;
  readonly ms?: number;
  readonly leftOver: readonly LeftOverProcess[];
  /** The text without the line that the exit badge repeats. */
  readonly output: string;
}

const exitLine = /\n?\[exit code: (-?\d+)\]\s*$/;
const signalLine = /\[shell killed by signal: (\w+)\]/;

export function readOutcome(item: ToolItem | undefined): Outcome {
  const text = (item?.result ?? []).map((b) => (b.type === 'text' ? b.text : '')).join('\n');
  const meta = item?.meta ?? {};
  const line = exitLine.exec(text);
  const isShell = item !== undefined && /^(bash|shell|exec|run)/.test(item.name);
  const exit = number(meta['exitCode']) ?? number(meta['exit']) ?? (line ? Number(line[1]) : undefined);
  const signal = typeof meta['signal'] === 'string' && meta['signal'] ? meta['signal'] : isShell ? signalLine.exec(text)?.[1] : undefined;
  const ms = number(meta['durationMs']) ?? number(meta['elapsedMs']);
  return {
    ...(exit !== undefined ? { exit } : isShell && item.state === 'done' && !signal && !/^\[shell /m.test(text) && meta['timedOut'] !== true ? { exit: 0 } : {}),
    ...(signal ? { signal } : {}),
    ...(ms !== undefined ? { ms } : {}),
    timedOut: meta['timedOut'] === true || meta['timeout'] === true,
    leftOver: processes(meta['leftOver'] ?? meta['leftover'] ?? meta['processes'] ?? meta['background']),
    output: line ? text.slice(0, line.index) : text,
  };
}

function processes(value: unknown): LeftOverProcess[] {
  if (!Array.isArray(value)) return [];
  return value
    .filter((p): p is Record<string, unknown> => p !== null && typeof p === 'object')
    .map((p) => {
      const ports = p['port'] ?? (Array.isArray(p['ports']) ? p['ports'].join(', ') : undefined);
      return {
        pid: (p['pid'] as number | string | undefined) ?? '?',
        command: String(p['command'] ?? p['cmd'] ?? ''),
        ...(ports ? { port: ports as number | string } : {}),
      };
    });
}

function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
