// Turns terminal output into lines of styled runs: colours and weight are kept,
// every other escape is dropped, a lone CR starts the line over and a backspace
// goes one back. Nothing here answers or obeys the terminal.

export interface Run {
  readonly text: string;
  /** Class names, such as `ansi-fg-1 ansi-bold`; empty for plain text. */
  readonly style: string;
}

export type Line = readonly Run[];

interface Pen {
  fg: string;
  bg: string;
  bold: boolean;
  dim: boolean;
  italic: boolean;
  underline: boolean;
  inverse: boolean;
}

const plain: Pen = { fg: '', bg: '', bold: false, dim: false, italic: false, underline: false, inverse: false };

// CSI, then OSC and the other strings (to BEL or ST, or cut off at the end), then two-byte escapes.
const escapes = /\x1b\[([0-?]*)[ -/]*([@-~])|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[ -/]*[0-OQ-WYZ\\`a-~]|\x1b\[?[0-?]*$/g;

export function ansiLines(text: string): Line[] {
  const lines: Line[] = [];
  let pen = plain;
  let cells: { ch: string; style: string }[] = [];
  let column = 0;
  const endLine = () => {
    lines.push(runs(cells));
    cells = [];
    column = 0;
  };
  const write = (chunk: string) => {
    const style = styleOf(pen);
    for (const ch of chunk) {
      if (ch === '\n') endLine();
      else if (ch === '\r') column = 0;
      else if (ch === '\b') column = Math.max(0, column - 1);
      else if (ch === '\t' || ch >= ' ') cells[column++] = { ch, style };
    }
  };
  let from = 0;
  for (const match of text.matchAll(escapes)) {
    write(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === 'm') pen = select(pen, match[1] ?? '');
    else if (match[2] === 'K' && (match[1] ?? '') !== '1') cells.length = Math.min(cells.length, column);
  }
  write(text.slice(from));
  if (cells.length) endLine();
  return lines;
}

function runs(cells: readonly ({ ch: string; style: string } | undefined)[]): Line {
  const out: { text: string; style: string }[] = [];
  for (let i = 0; i < cells.length; i++) {
    const { ch, style } = cells[i] ?? { ch: ' ', style: '' };
    const last = out.at(-1);
    if (last && last.style === style) last.text += ch;
    else out.push({ text: ch, style });
  }
  return out;
}

function select(pen: Pen, parameters: string): Pen {
  const codes = parameters.split(/[;:]/).map((p) => Number(p || '0'));
  let next = { ...pen };
  for (let i = 0; i < codes.length; i++) {
    const code = codes[i]!;
    if (code === 0) next = { ...plain };
    else if (code === 1) next.bold = true;
    else if (code === 2) next.dim = true;
    else if (code === 3) next.italic = true;
    else if (code === 4) next.underline = true;
    else if (code === 7) next.inverse = true;
    else if (code === 22) next.bold = next.dim = false;
    else if (code === 23) next.italic = false;
    else if (code === 24) next.underline = false;
    else if (code === 27) next.inverse = false;
    else if (code >= 30 && code <= 37) next.fg = String(code - 30);
    else if (code >= 90 && code <= 97) next.fg = String(code - 90 + 8);
    else if (code === 39) next.fg = '';
    else if (code >= 40 && code <= 47) next.bg = String(code - 40);
    else if (code >= 100 && code <= 107) next.bg = String(code - 100 + 8);
    else if (code === 49) next.bg = '';
    else if (code === 38 || code === 48) {
      const near = codes[i + 1] === 5 ? from256(codes[i + 2] ?? 0) : fromRgb(codes.slice(i + 2, i + 5));
      if (code === 38) next.fg = near;
      else next.bg = near;
      i += codes[i + 1] === 5 ? 2 : 4;
    }
  }
  return next;
}

/** The nearest of the sixteen colours: they follow the theme, exact ones would not. */
function from256(n: number): string {
  if (n < 16) return String(n);
  if (n >= 232) return n < 244 ? '8' : '7';
  const c = n - 16;
  return fromRgb([Math.floor(c / 36) * 51, (Math.floor(c / 6) % 6) * 51, (c % 6) * 51]);
}

function fromRgb(rgb: readonly number[]): string {
  const [r = 0, g = 0, b = 0] = rgb;
  const top = Math.max(r, g, b);
  if (top < 40) return '0';
  const bit = (v: number) => (v > top * 0.6 ? 1 : 0);
  return String(bit(r) + bit(g) * 2 + bit(b) * 4 + (top > 200 ? 8 : 0));
}

function styleOf(pen: Pen): string {
  const names: string[] = [];
  const fg = pen.inverse ? pen.bg : pen.fg;
  const bg = pen.inverse ? pen.fg : pen.bg;
  if (fg) names.push(`ansi-fg-${fg}`);
  if (bg) names.push(`ansi-bg-${bg}`);
  if (pen.inverse && !bg) names.push('ansi-inverse');
  if (pen.bold) names.push('ansi-bold');
  if (pen.dim) names.push('ansi-dim');
  if (pen.italic) names.push('ansi-italic');
  if (pen.underline) names.push('ansi-underline');
  return names.join(' ');
}
