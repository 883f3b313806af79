import { describe, expect, it } from 'vitest';
import { ansiLines } from './ansi';
import { readArgs } from './args';
import { lineDiff, parseUnified } from './diff';
import { bytes, duration, visible } from './format';
import { languageOf } from './highlight';
import { parseListing } from './numbered';

const plain = (text: string) => ansiLines(text).map((l) => l.map((r) => r.text).join(''));

describe('terminal text', () => {
  it('keeps colours and weight', () => {
    expect(ansiLines('\x1b[1;31mred\x1b[0m plain')).toEqual([
      [
        { text: 'red', style: 'ansi-fg-1 ansi-bold' },
        { text: ' plain', style: '' },
      ],
    ]);
  });
  it('knows 256 and true colours', () => {
    expect(ansiLines('\x1b[38;5;9mx')[0]![0]!.style).toBe('ansi-fg-9');
    expect(ansiLines('\x1b[38;2;250;10;10mx')[0]![0]!.style).toBe('ansi-fg-9');
    expect(ansiLines('\x1b[48;5;21mx')[0]![0]!.style).toMatch(/^ansi-bg-/);
  });
  it('shows the last frame of a progress line', () => {
    expect(plain('10%\r50%\r100%\nend\n')).toEqual(['100%', 'end']);
    expect(plain('long line\rab\x1b[K\n')).toEqual(['ab']);
    expect(plain('abc\b\bX')).toEqual(['aXc']);
    expect(plain('a\r\nb')).toEqual(['a', 'b']);
  });
  it.each([
    ['title', '\x1b]0;evil\x07ok'],
    ['clipboard', '\x1b]52;c;cHduZWQ=\x1b\\ok'],
    ['device string', '\x1bPq#0\x1b\\ok'],
    ['cursor', '\x1b[2J\x1b[10;5Hok'],
    ['two bytes', '\x1b=\x1b(Bok'],
    ['bell and nul', '\x07\x00ok'],
    ['cut off', 'ok\x1b[3'],
    ['cut off string', 'ok\x1b]0;no end'],
  ])('drops: %s', (_, text) => expect(plain(text)).toEqual(['ok']));
});

describe('arguments', () => {
  it('reads whole ones', () => {
    expect(readArgs('{"command":"ls","n":[1,2]}')).toEqual({ fields: { command: 'ls', n: [1, 2] }, complete: true });
  });
  it('reads every prefix without throwing, and never wrongly', () => {
    const raw = JSON.stringify({ command: 'str_replace', path: '/a "b"\\c', view_range: [1, -1], old_str: 'é\n\t日😀', flag: true });
    const all = readArgs(raw).fields;
    for (let i = 0; i < raw.length; i++) {
      for (const [key, value] of Object.entries(readArgs(raw.slice(0, i)).fields)) {
        if (typeof value === 'string') expect((all[key] as string).startsWith(value.replace(/[\ud800-\udbff]$/, ''))).toBe(true);
        else expect(value).toEqual(all[key]);
      }
    }
  });
  it('shows a string that is being written', () => {
    expect(readArgs('{"command": "echo hel').fields).toEqual({ command: 'echo hel' });
    expect(readArgs('{"command": "a\\').fields).toEqual({ command: 'a' });
    expect(readArgs('{"command": "a\\u00').fields).toEqual({ command: 'a' });
  });
  it('takes anything', () => {
    for (const raw of ['', '[]', '7', 'null', 'nonsense', '{', '{"', '{]']) expect(readArgs(raw).fields).toEqual({});
  });
});

describe('diff', () => {
  const show = (a: string, b: string) => lineDiff(a, b).map((l) => `${{ add: '+', del: '-', same: ' ', gap: '@' }[l.kind]}${l.text}`);
  it('finds what changed', () => {
    expect(show('a\nb\nc', 'a\nx\nc')).toEqual([' a', '-b', '+x', ' c']);
    expect(show('', 'a\nb')).toEqual(['+a', '+b']);
    expect(show('a\nb', '')).toEqual(['-a', '-b']);
    expect(show('a', 'a')).toEqual([' a']);
    expect(show('a\nb\nc\nd', 'b\nc\nx\nd')).toEqual(['-a', ' b', ' c', '+x', ' d']);
  });
  it('stays quick on big texts', () => {
    const big = (word: string) => Array.from({ length: 5000 }, (_, i) => `${word}${i}`).join('\n');
    expect(lineDiff(big('a'), big('b'))).toHaveLength(10_000);
  });
  it('reads unified diffs', () => {
    expect(parseUnified('--- a\n+++ b\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n').map((l) => l.kind)).toEqual(['gap', 'same', 'del', 'add']);
  });
});

describe('listing', () => {
  it('reads numbered lines with what stands around them', () => {
    expect(parseListing('Header\n     9\ta\n    10\t\n[cut]')).toEqual({
      before: 'Header',
      lines: [{ number: '9', text: 'a' }, { number: '10', text: '' }],
      after: '[cut]',
    });
    expect(parseListing('no numbers')).toBeNull();
  });
});

describe('format', () => {
  it('reads well', () => {
    expect([12, 1500, 42_000, 125_000].map(duration)).toEqual(['12 ms', '1.5 s', '42 s', '2 min 5 s']);
    expect([10, 2048, 20_480, 3_145_728].map(bytes)).toEqual(['10 B', '2.0 KiB', '20 KiB', '3.0 MiB']);
    expect(languageOf('/a/b.c/x.py')).toBe('py');
    expect(languageOf('/a/Makefile')).toBe('');
  });
  it('shows what would hide or reorder itself', () => {
    expect(visible('a\u202eb\u200bc\x1b[0m\nd')).toBe('a\\u202eb\\u200bc\\u001b[0m\nd');
    expect(visible('\u{e0041}\ud800\ufe0f\u3164\u2066\r é 漢 😀')).toBe('\\u{e0041}\\ud800\\ufe0f\\u3164\\u2066\\u000d é 漢 😀');
  });
});
