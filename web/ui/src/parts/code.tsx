// Blocks of text from tools: code with line numbers, diffs, terminal output.
// Long ones start folded.

import { useState } from 'preact/hooks';
import { ansiLines, type Line } from '../text/ansi';
import type { DiffLine } from '../text/diff';
import { coloursVersion, highlight } from '../text/highlight';
import { sanitise } from '../text/sanitise';
import { strings } from '../strings';

const foldedLines = 18;
/** Lines drawn even when unfolded; the rest can be copied or exported. */
const mostLines = 4000;

/** Folds a list of lines; `tail` keeps the end in view instead of the beginning. */
function useFold<T>(lines: readonly T[], tail = false): { shown: readonly T[]; toggle: preact.JSX.Element | null } {
  const [open, setOpen] = useState(false);
  const hidden = lines.length - foldedLines;
  if (hidden <= 3) return { shown: lines, toggle: null };
  const limit = open ? mostLines : foldedLines;
  const shown = tail ? lines.slice(-limit) : lines.slice(0, limit);
  const toggle = (
    <button type="button" class="fold" aria-expanded={open} onClick={() => setOpen(!open)}>
      {open ? strings.showLess : strings.showMore(hidden)}
    </button>
  );
  return { shown, toggle };
}

export function CodeView({ code, language }: { code: string; language: string }) {
  const lines = code.replace(/\n$/, '').split('\n');
  const { shown, toggle } = useFold(lines);
  void coloursVersion.value; // Drawn again when the colours arrive.
  const html = sanitise(highlight(shown.join('\n'), language));
  return (
    <>
      <pre class="code" tabIndex={0}>
        <code dangerouslySetInnerHTML={{ __html: html }} />
      </pre>
      {toggle}
    </>
  );
}

export function NumberedView(props: { lines: readonly { number: string; text: string }[]; language: string }) {
  const { shown, toggle } = useFold(props.lines);
  void coloursVersion.value;
  const html = sanitise(highlight(shown.map((l) => l.text).join('\n'), props.language));
  return (
    <>
      <div class="numbered" tabIndex={0} role="group">
        <pre class="numbered__gutter" aria-hidden="true">
          {shown.map((l) => l.number).join('\n')}
        </pre>
        <pre class="numbered__code">
          <code dangerouslySetInnerHTML={{ __html: html }} />
        </pre>
      </div>
      {toggle}
    </>
  );
}

const marks = { add: '+', del: '−', same: ' ', gap: ' ' } as const;

export function DiffView({ lines }: { lines: readonly DiffLine[] }) {
  const { shown, toggle } = useFold(lines);
  return (
    <>
      <pre class="diff" tabIndex={0}>
        {shown.map((line, i) => (
          <span key={i} class={`diff__line diff__line--${line.kind}`}>
            <span class="diff__mark">{marks[line.kind]}</span>
            {line.text + '\n'}
          </span>
        ))}
      </pre>
      {toggle}
    </>
  );
}

export function TerminalText({ text, tail = false }: { text: string; tail?: boolean }) {
  const { shown, toggle } = useFold(ansiLines(text), tail);
  return (
    <>
      {tail && toggle}
      <pre class="output" tabIndex={0}>
        {shown.map((line, i) => (
          <LineView key={i} line={line} />
        ))}
      </pre>
      {!tail && toggle}
    </>
  );
}

function LineView({ line }: { line: Line }) {
  return (
    <>
      {line.map((run, i) => (run.style ? <span key={i} class={run.style}>{run.text}</span> : run.text))}
      {'\n'}
    </>
  );
}
