import { describe, expect, it } from 'vitest';
import { applyLive, dropStale, keptOutput, markStale, noLive, settleCall, settleStep, settleTurn, type Live } from './live';
import { byteLength, dropBytes } from './utf8';

const block = (block: number, more: object = {}) =>
  ({ type: 'block', block, session: 's', turn: 1, step: 1, attempt: 1, kind: 'text', ...more }) as const;
const delta = (block: number, offset: number, text: string) => ({ type: 'delta', block, offset, text }) as const;
const output = (offset: number, text: string, skipped?: number) =>
  ({ type: 'output', session: 's', callId: 'c', offset, text, ...(skipped ? { skipped } : {}) }) as const;
const play = (...frames: Parameters<typeof applyLive>[1][]): Live => frames.reduce(applyLive, noLive);

describe('bytes', () => {
  it.each([
    ['', 0],
    ['abc', 3],
    ['é', 2],
    ['日本', 6],
    ['😀', 4],
    ['\ud800', 3],
    ['a\ud800b', 5],
  ])('%j takes %i', (text, bytes) => expect(byteLength(text)).toBe(bytes));

  it('agrees with the platform on mixed text', () => {
    const text = 'aé日😀\n'.repeat(50);
    expect(byteLength(text)).toBe(new TextEncoder().encode(text).length);
  });

  it('drops whole characters', () => {
    expect(dropBytes('é日😀x', 2)).toBe('日😀x');
    expect(dropBytes('é日😀x', 5)).toBe('😀x');
    expect(dropBytes('é日😀x', 9)).toBe('x');
    expect(dropBytes('abc', 0)).toBe('abc');
    expect(dropBytes('abc', 9)).toBe('');
  });
});

describe('live blocks', () => {
  it('grow by byte offsets, over characters of every width', () => {
    const live = play(block(7), delta(7, 0, 'é'), delta(7, 2, '日'), delta(7, 5, '😀'), delta(7, 9, '!'));
    expect(live.blocks[0]).toMatchObject({ text: 'é日😀!', bytes: 10 });
  });

  it('take only what is new of a catch-up delta', () => {
    const live = play(block(7), delta(7, 0, 'é日'), delta(7, 0, 'é日本'));
    expect(live.blocks[0]!.text).toBe('é日本');
  });

  it('ignore a repeat, a hole and an unknown block', () => {
    const one = play(block(7), delta(7, 0, 'abc'));
    expect(applyLive(one, delta(7, 0, 'ab'))).toBe(one);
    expect(applyLive(one, delta(7, 9, 'x'))).toBe(one);
    expect(applyLive(one, delta(8, 0, 'x'))).toBe(one);
  });

  it('begin again in their place when announced again', () => {
    const live = play(block(1, { kind: 'tool' }), delta(1, 0, '{"a'), block(2), block(1, { kind: 'tool', name: 'bash' }), delta(1, 0, '{"ab'));
    expect(live.blocks.map((b) => [b.block, b.text])).toEqual([[1, '{"ab'], [2, '']]);
    expect(live.blocks[0]!.name).toBe('bash');
  });

  it('go when withdrawn, when their message is durable, when the turn ends', () => {
    const two = play(block(1), block(2, { step: 2 }));
    expect(applyLive(two, { type: 'drop', block: 1 }).blocks.map((b) => b.block)).toEqual([2]);
    expect(settleStep(two, 1, 1).blocks.map((b) => b.block)).toEqual([2]);
    expect(settleTurn(two)).toBe(noLive);
    expect(settleStep(two, 9, 9)).toBe(two);
  });

  it('stay over a lost connection until the host says what is current', () => {
    const lost = markStale(play(block(1), delta(1, 0, 'half')));
    expect(lost.blocks[0]!.text).toBe('half');
    const back = applyLive(lost, block(1));
    expect(back.blocks).toHaveLength(1);
    expect(applyLive(back, delta(1, 0, 'half and more')).blocks[0]!.text).toBe('half and more');
    expect(dropStale(lost).blocks).toEqual([]);
  });
});

describe('live output', () => {
  it('joins pieces and forgets repeats', () => {
    expect(play(output(0, 'ab'), output(2, 'cd'), output(0, 'abcd')).outputs.get('c')).toMatchObject({ text: 'abcd', end: 4, skipped: 0 });
  });

  it('counts what was skipped', () => {
    expect(play(output(0, 'ab'), output(10, 'cd', 8)).outputs.get('c')).toMatchObject({ text: 'abcd', end: 12, skipped: 8 });
  });

  it('keeps the end of endless output', () => {
    let live = noLive;
    const line = `${'x'.repeat(99)}\n`;
    for (let i = 0; i < 2000; i++) live = applyLive(live, output(i * 100, line));
    const kept = live.outputs.get('c')!;
    expect(kept.text.length).toBeLessThanOrEqual(keptOutput);
    expect(kept.skipped + byteLength(kept.text)).toBe(kept.end);
    expect(kept.text.startsWith('x')).toBe(true);
  });

  it('goes with the result of its call', () => {
    const live = play(output(0, 'ab'));
    expect(settleCall(live, 'c').outputs.size).toBe(0);
    expect(settleCall(live, 'other')).toBe(live);
  });
});
