// Messages of people and of the model, and notices between them.

import { useState } from 'preact/hooks';
import type { Block } from '../api/wire';
import { Button, CopyButton } from '../parts/controls';
import { Icon } from '../parts/icon';
import { Markdown } from '../parts/markdown';
import { fragmentOf } from '../store/route';
import { strings } from '../strings';
import type { LiveBlock } from '../stream/live';
import { clock } from '../text/format';
import { plainText } from './fold';
import type { AssistantItem, NoticeItem, TodoItem, UserItem } from './items';

export function UserMessage({ item, session }: { item: UserItem; session: string }) {
  const name = item.source === 'user' ? strings.transcript.you : strings.transcript.host;
  return (
    <article class={`message message--${item.source === 'user' ? 'user' : 'host'}`} aria-label={name}>
      <Meta name={name} time={item.time} session={session} seq={item.seq} text={() => plainText(item.content)} />
      <div class="message__body">
        <Content blocks={item.content} markdown={item.source === 'user'} breaks />
      </div>
    </article>
  );
}

export function AssistantMessage({ item, session }: { item: AssistantItem; session: string }) {
  return (
    <article class="message message--assistant" aria-label={strings.transcript.assistant}>
      <Meta
        name={strings.transcript.assistant}
        time={item.time}
        session={session}
        seq={item.seq}
        text={() => plainText(item.content)}
      />
      <div class="message__body">
        <Content blocks={item.content} markdown />
        {item.interrupted && (
          <p class="message__cut">
            <Icon name="warn" /> {strings.transcript.interrupted}
          </p>
        )}
      </div>
    </article>
  );
}

export function LiveMessage({ block }: { block: LiveBlock }) {
  if (block.kind === 'reasoning') return <Reasoning text={block.text} live />;
  return (
    <article class="message message--assistant message--live" aria-label={strings.transcript.assistant} aria-busy="true">
      <div class="message__meta">
        <span class="message__name">{strings.transcript.assistant}</span>
      </div>
      <div class="message__body">
        <Markdown text={block.text} />
      </div>
    </article>
  );
}

function Content({ blocks, markdown, breaks = false }: { blocks: readonly Block[]; markdown: boolean; breaks?: boolean }) {
  return (
    <>
      {blocks.map((block, i) => {
        switch (block.type) {
          case 'text':
            if (block.text.trim() === '') return null;
            return markdown ? <Markdown key={i} text={block.text} breaks={breaks} /> : <pre class="plain" key={i}>{block.text}</pre>;
          case 'reasoning':
            return block.text.trim() ? <Reasoning key={i} text={block.text} /> : null;
          case 'image':
            return <p key={i} class="message__image">{strings.transcript.image} · {block.mime}</p>;
          default:
            return null;
        }
      })}
    </>
  );
}

function Reasoning({ text, live = false }: { text: string; live?: boolean }) {
  const [open, setOpen] = useState(false);
  return (
    <div class="reasoning">
      <button type="button" class="reasoning__toggle" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class={open ? 'turned' : ''}>
          <Icon name="chevron" size={14} />
        </span>
        {live ? strings.transcript.reasoningLive : strings.transcript.reasoning}
      </button>
      {open && (
        <div class="reasoning__text">
          <Markdown text={text} />
        </div>
      )}
    </div>
  );
}

function Meta(props: { name: string; time: number; session: string; seq: number; text: () => string }) {
  const link = () => new URL(fragmentOf({ screen: 'session', id: props.session, seq: props.seq }), location.href.split('#')[0]).href;
  return (
    <div class="message__meta">
      <span class="message__name">{props.name}</span>
      <time class="message__time" dateTime={new Date(props.time).toISOString()}>
        {clock(props.time)}
      </time>
      <span class="message__tools">
        <CopyButton text={props.text} />
        <Button
          kind="quiet"
          icon="link"
          label={strings.transcript.link}
          onClick={() => void navigator.clipboard?.writeText(link()).catch(() => undefined)}
        />
      </span>
    </div>
  );
}

export function Notice({ item }: { item: NoticeItem }) {
  const text = strings.notice[item.what] ?? item.what;
  const advice = item.code && item.what !== 'retry' ? strings.advice[item.code.toLowerCase().replaceAll('_', '-')] : undefined;
  const inline = item.what === 'preset' || item.what === 'sandbox-mode' || item.what === 'approval-policy';
  return (
    <div class={`notice notice--${item.tone}`} role={item.tone === 'error' ? 'alert' : undefined}>
      <Icon name={item.tone === 'info' ? 'info' : 'warn'} />
      <div class="notice__text">
        <p>
          {text}
          {inline && item.detail ? `: ${item.detail}` : ''} {item.code && <code class="notice__code">{item.code}</code>}
        </p>
        {!inline && item.detail && <p class="notice__detail">{item.detail}</p>}
        {advice && <p class="notice__advice">{advice}</p>}
      </div>
    </div>
  );
}

export function Todo({ item }: { item: TodoItem }) {
  return (
    <section class="todo" aria-label={strings.tool.todo}>
      <h3 class="todo__title">{strings.tool.todo}</h3>
      <ul>
        {item.entries.map((entry, i) => (
          <li key={i} class={`todo__entry todo__entry--${entry.status}`}>
            <span class="todo__box" aria-hidden="true">
              {/done|completed/.test(entry.status) && <Icon name="check" size={12} />}
            </span>
            <span>{entry.text}</span>
            <span class="sr-only"> ({entry.status})</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
