// How a tool call ended: from the metadata where the host gives it, else from
// the lines that the tool adds to its output.

import type { ToolItem } from './items';

export interface LeftOverProcess {
  readonly pid: number;
  readonly command: string;
  readonly ports?: string;
}

export interface Outcome {
  readonly exit?: number;
  readonly signal?: string;
  readonly timedOut: boolean;
  readonly cancelled: boolean;
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
  const exit = number(meta['exitCode']) ?? (line ? Number(line[1]) : undefined);
  // Without metadata, a shell that says nothing of an exit code means 0.
  const silent = isShell && item.meta === undefined && item.state === 'done' && !/^\[shell /m.test(text);
  const signal = typeof meta['signal'] === 'string' && meta['signal'] ? meta['signal'] : isShell ? signalLine.exec(text)?.[1] : undefined;
  const ms = number(meta['durationMs']);
  return {
    ...(exit !== undefined ? { exit } : silent ? { exit: 0 } : {}),
    ...(signal ? { signal } : {}),
    ...(ms !== undefined ? { ms } : {}),
    timedOut: meta['timedOut'] === true,
    cancelled: meta['cancelled'] === true,
    leftOver: processes(meta['leftOver']),
    output: line ? text.slice(0, line.index) : text,
  };
}

function processes(value: unknown): LeftOverProcess[] {
  if (!Array.isArray(value)) return [];
  return value
    .filter((p): p is Record<string, unknown> => p !== null && typeof p === 'object')
    .map((p) => {
      const ports = Array.isArray(p['ports']) ? p['ports'].join(', ') : '';
      return { pid: Number(p['pid']), command: String(p['command'] ?? ''), ...(ports ? { ports } : {}) };
    });
}

function number(value: unknown): number | undefined {
  return typeof value === 'number' ? value : undefined;
}
