// Tool cards: one line that says what was done, then the detail of that tool.

import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { Block } from '../api/wire';
import { CodeView, DiffView, NumberedView, TerminalText } from '../parts/code';
import { Badge, CopyButton, Spinner } from '../parts/controls';
import { Icon, type IconName } from '../parts/icon';
import { strings } from '../strings';
import type { LiveBlock, LiveOutput } from '../stream/live';
import { readArgs, stringField, type Args } from '../text/args';
import { lineDiff, parseUnified, splitLines } from '../text/diff';
import { bytes, duration } from '../text/format';
import { languageOf } from '../text/highlight';
import { parseListing } from '../text/numbered';
import { readOutcome, type Outcome } from './outcome';
import type { ToolItem } from './items';

interface Call {
  readonly name: string;
  readonly args: Args;
  readonly raw: string;
  readonly item?: ToolItem;
  readonly output?: LiveOutput;
  readonly writing: boolean;
  /** For the person's leave, or answer. */
  readonly waiting?: boolean;
}

export function ToolCard({ item, output, waiting = false }: { item: ToolItem; output?: LiveOutput; waiting?: boolean }) {
  return <Card call={{ name: item.name, raw: item.args, args: readArgs(item.args), item, ...(output ? { output } : {}), writing: false, waiting }} />;
}

/** A call that the model is still writing. */
export function LiveToolCard({ block }: { block: LiveBlock }) {
  const args = readArgs(block.text);
  const name = block.name ?? (args.fields['path'] && args.fields['command'] ? 'str_replace_editor' : args.fields['command'] ? 'bash' : '');
  return <Card call={{ name, raw: block.text, args, writing: true }} />;
}

function Card({ call }: { call: Call }) {
  const { item } = call;
  const state = call.writing ? 'running' : (item?.state ?? 'running');
  const outcome = readOutcome(item);
  const face = faceOf(call);
  const result = textOf(item?.result);
  return (
    <article class={`tool tool--${state}`} aria-label={`${call.name || strings.tool.input}: ${face.title}`}>
      <header class="tool__head">
        <span class="tool__icon">
          <Icon name={face.icon} />
        </span>
        <span class="tool__verb">{face.verb}</span>
        <code class="tool__title">{face.title}</code>
        {face.extra && <span class="tool__extra">{face.extra}</span>}
        <span class="tool__state">
          <State call={call} state={state} outcome={outcome} />
        </span>
        {item && result && (
          <span class="tool__copy">
            <CopyButton text={() => result} label={strings.tool.copyOutput} />
          </span>
        )}
      </header>
      <div class="tool__body">
        {face.body(call, outcome)}
        {outcome.leftOver.length > 0 && <LeftOver outcome={outcome} />}
      </div>
    </article>
  );
}

function State({ call, state, outcome }: { call: Call; state: string; outcome: Outcome }) {
  const { item } = call;
  if (call.waiting) return <span class="tool__time">{strings.tool.waiting}</span>;
  if (state === 'running') {
    return (
      <>
        <Spinner />
        <span class="tool__time">{call.writing ? strings.tool.writing : <Elapsed since={item?.time ?? Date.now()} />}</span>
      </>
    );
  }
  const took = outcome.ms ?? (item?.endTime && item.args ? item.endTime - item.time : undefined);
  return (
    <>
      {state === 'lost' && <Badge tone="warn">{strings.tool.lost}</Badge>}
      {state === 'failed' && <Badge tone="error" title={item?.error?.code}>{strings.tool.failed}</Badge>}
      {outcome.timedOut && <Badge tone="warn">{strings.tool.timeout}</Badge>}
      {outcome.cancelled && <Badge tone="warn">{strings.tool.cancelled}</Badge>}
      {outcome.signal && <Badge tone="error">{strings.tool.signal(outcome.signal)}</Badge>}
      {outcome.exit !== undefined && <Badge tone={outcome.exit === 0 ? 'good' : 'error'}>{strings.tool.exit(outcome.exit)}</Badge>}
      {took !== undefined && (took >= 1000 || outcome.ms !== undefined) && <span class="tool__time">{duration(took)}</span>}
    </>
  );
}

/** Seconds since the call began; only shown once it takes noticeable time. */
function Elapsed({ since }: { since: number }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const ms = now - since;
  return <>{ms >= 2000 ? duration(Math.floor(ms / 1000) * 1000) : strings.tool.running}</>;
}

interface Face {
  icon: IconName;
  verb: string;
  title: string;
  extra?: string;
  body: (call: Call, outcome: Outcome) => ComponentChildren;
}

function faceOf(call: Call): Face {
  const { args, name } = call;
  const path = stringField(args, 'path') ?? stringField(args, 'file_path') ?? '';
  if (/str_replace|editor/.test(name)) return editorFace(call, path);
  if (/^(bash|shell|exec|run)/.test(name)) {
    const command = stringField(args, 'command') ?? '';
    const first = command.split('\n').find((l) => l.trim()) ?? (args.fields['restart'] ? strings.tool.restart : '');
    return { icon: 'terminal', verb: name, title: first, body: (c, o) => <ShellBody call={c} outcome={o} command={command} first={first} /> };
  }
  if (/read|view/.test(name)) return { icon: 'eye', verb: name, title: path, body: (c) => <ListingBody call={c} path={path} /> };
  if (/edit/.test(name)) return { icon: 'edit', verb: name, title: path, body: (c) => <EditBody call={c} /> };
  if (/write|create/.test(name)) return { icon: 'file', verb: name, title: path, body: (c) => <CreateBody call={c} path={path} /> };
  if (/search|grep|glob|find|^ls|list/.test(name)) {
    const what = stringField(args, 'pattern') ?? stringField(args, 'query') ?? path;
    return { icon: 'search', verb: name, title: what, body: (c) => <PlainResult call={c} /> };
  }
  if (name === 'ask_user') return { icon: 'info', verb: name, title: stringField(args, 'question') ?? '', body: (c) => <PlainResult call={c} /> };
  if (/todo/.test(name)) return { icon: 'list', verb: name, title: '', body: (c) => (c.item?.state === 'failed' ? <PlainResult call={c} /> : null) };
  return { icon: 'tool', verb: name || strings.tool.input, title: '', body: (c) => <GenericBody call={c} /> };
}

function editorFace(call: Call, path: string): Face {
  const command = stringField(call.args, 'command') ?? '';
  const base = { title: path, verb: command || call.name };
  switch (command) {
    case 'view': {
      const range = call.args.fields['view_range'];
      const extra = Array.isArray(range) && range.length === 2 ? strings.tool.lines(Number(range[0]), Number(range[1])) : undefined;
      return { ...base, icon: 'eye', ...(extra ? { extra } : {}), body: (c) => <ListingBody call={c} path={path} /> };
    }
    case 'create':
      return { ...base, icon: 'file', body: (c) => <CreateBody call={c} path={path} /> };
    case 'str_replace':
      return { ...base, ...changed(call), verb: 'edit', icon: 'edit', body: (c) => <EditBody call={c} /> };
    case 'insert': {
      const line = Number(call.args.fields['insert_line']);
      const extra = Number.isFinite(line) ? strings.tool.insertedAt(line) : undefined;
      return { ...base, icon: 'edit', ...(extra ? { extra } : {}), body: (c) => <EditBody call={c} /> };
    }
    case 'undo_edit':
      return { ...base, ...changed(call), verb: strings.tool.undo, icon: 'edit', body: (c) => <EditBody call={c} /> };
    default:
      return { ...base, icon: 'edit', body: (c) => <GenericBody call={c} /> };
  }
}

/** How many lines came and went, where the host counted them. */
function changed(call: Call): { extra?: string } {
  const { added, removed } = (call.item?.meta ?? {}) as { added?: unknown; removed?: unknown };
  if (typeof added !== 'number' && typeof removed !== 'number') return {};
  return { extra: strings.tool.changed(Number(added ?? 0), Number(removed ?? 0)) };
}

function ShellBody({ call, outcome, command, first }: { call: Call; outcome: Outcome; command: string; first: string }) {
  const live = call.output;
  const long = command.trim() !== first.trim() || first.length > 90;
  return (
    <>
      {long && <CodeView code={command} language="bash" />}
      {live && live.skipped > 0 && <p class="tool__skipped">{strings.tool.skipped(bytes(live.skipped))}</p>}
      {live && live.text && <TerminalText text={live.text} tail />}
      {call.item?.result && (outcome.output ? <TerminalText text={outcome.output} /> : <p class="tool__none">{strings.tool.noOutput}</p>)}
    </>
  );
}

function ListingBody({ call, path }: { call: Call; path: string }) {
  const text = textOf(call.item?.result);
  if (call.item?.state === 'failed') return <PlainResult call={call} />;
  const listing = text ? parseListing(text) : null;
  if (!listing) return <PlainResult call={call} />;
  return (
    <>
      <NumberedView lines={listing.lines} language={languageOf(path)} />
      {listing.after && <p class="tool__note">{listing.after}</p>}
    </>
  );
}

function CreateBody({ call, path }: { call: Call; path: string }) {
  const text = stringField(call.args, 'file_text') ?? stringField(call.args, 'content') ?? '';
  if (call.item?.state === 'failed') return <PlainResult call={call} />;
  const lines = splitLines(text).map((line, i) => ({ number: String(i + 1), text: line }));
  return lines.length ? <NumberedView lines={lines} language={languageOf(path)} /> : null;
}

function EditBody({ call }: { call: Call }) {
  const { args, item } = call;
  const given = item?.meta?.['diff'];
  if (item?.state === 'failed') {
    return <PlainResult call={call} />;
  }
  if (typeof given === 'string' && given) return <DiffView lines={parseUnified(given)} />;
  const before = stringField(args, 'old_str') ?? stringField(args, 'old_string') ?? '';
  const after = stringField(args, 'new_str') ?? stringField(args, 'new_string') ?? '';
  if (before || after) return <DiffView lines={lineDiff(before, call.writing && !after ? before : after)} />;
  return <PlainResult call={call} />;
}

function GenericBody({ call }: { call: Call }) {
  const input = call.args.complete ? JSON.stringify(call.args.fields, null, 2) : call.raw;
  return (
    <>
      {input !== '{}' && input !== '' && <CodeView code={input} language="json" />}
      <PlainResult call={call} />
    </>
  );
}

function PlainResult({ call }: { call: Call }) {
  const { item, output } = call;
  if (!item?.result) return output?.text ? <TerminalText text={output.text} tail /> : null;
  const text = textOf(item.result) || item.error?.message || '';
  const code = item.error?.code;
  return (
    <>
      {code && <p class="tool__error"><code>{code}</code></p>}
      {text ? <TerminalText text={text} /> : <p class="tool__none">{strings.tool.noOutput}</p>}
    </>
  );
}

function LeftOver({ outcome }: { outcome: Outcome }) {
  return (
    <div class="leftover">
      <p>{strings.tool.leftOver}</p>
      <ul>
        {outcome.leftOver.map((p) => (
          <li key={p.pid}>
            <span class="leftover__pid">{p.pid}</span> <code>{p.command}</code>
            {p.ports && <Badge>{strings.tool.port(p.ports)}</Badge>}
          </li>
        ))}
      </ul>
    </div>
  );
}

function textOf(result: readonly Block[] | undefined): string {
  return (result ?? []).map((b) => (b.type === 'text' ? b.text : b.type === 'image' ? `[${strings.transcript.image}: ${b.mime}]` : '')).join('\n');
}
