import { describe, expect, it } from 'vitest';
import type { ToolItem } from './items';
import { readOutcome } from './outcome';

const item = (text: string, more: Partial<ToolItem> = {}): ToolItem => ({
  kind: 'tool', key: 't', seq: 0, time: 0, callId: 'c', turn: 1, step: 1, name: 'bash', args: '{}', state: 'done', result: [{ type: 'text', text }], ...more,
});

describe('outcome', () => {
  it('reads the metadata', () => {
    const meta = { exitCode: 2, durationMs: 30, timedOut: true, leftOver: [{ pid: 7, command: 'serve', ports: [80, 443] }] };
    expect(readOutcome(item('out\n[exit code: 2]', { meta }))).toEqual({
      exit: 2, ms: 30, timedOut: true, cancelled: false, leftOver: [{ pid: 7, command: 'serve', ports: '80, 443' }], output: 'out',
    });
  });
  it('reads the text where there is no metadata', () => {
    expect(readOutcome(item('out\n[exit code: 3]'))).toMatchObject({ exit: 3, output: 'out' });
    expect(readOutcome(item('out'))).toMatchObject({ exit: 0 });
    expect(readOutcome(item('[shell killed by signal: SIGKILL]'))).toMatchObject({ signal: 'SIGKILL' });
    expect(readOutcome(item('[shell exited: code 1]')).exit).toBeUndefined();
  });
  it('claims no exit code for other tools, failures, or what is running', () => {
    expect(readOutcome(item('x', { name: 'str_replace_editor' })).exit).toBeUndefined();
    expect(readOutcome(item('x', { state: 'failed' })).exit).toBeUndefined();
    expect(readOutcome(undefined).exit).toBeUndefined();
  });
});
