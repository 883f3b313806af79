// A question of the agent: one of its options, or other words.

import { useId, useState } from 'preact/hooks';
import type { Approval } from '../api/wire';
import { strings } from '../strings';
import { visible } from '../text/format';
import type { ApprovalItem } from '../transcript/items';
import { useSettle } from './approval';
import { Badge, Button } from './controls';
import { Icon } from './icon';

interface Props {
  asked: Approval;
  /** Of a transcript: how it ended. */
  item?: ApprovalItem;
  children?: preact.ComponentChildren;
}

export function Question({ asked, item, children }: Props) {
  const id = useId();
  const { question, options } = (asked.detail ?? {}) as { question?: string; options?: string[] };
  const outcome = item?.outcome;
  const text = strings.questions;
  return (
    <article class="approval approval--question" aria-labelledby={id}>
      <header class="approval__head">
        <Icon name="info" />
        <strong>{text.asks}</strong>
        <span class="approval__right">
          {children}
          {outcome && <Badge tone={outcome === 'allowed' ? 'good' : 'warn'}>{outcomeText(outcome)}</Badge>}
        </span>
      </header>
      <p class="approval__question" id={id}>
        {visible(question ?? '')}
      </p>
      {outcome ? (
        <p class="approval__settled">{visible(item.answer ?? item.reason ?? '')}</p>
      ) : (
        <Answer asked={asked} options={options ?? []} />
      )}
    </article>
  );
}

function outcomeText(outcome: string): string {
  if (outcome === 'allowed') return strings.questions.answered;
  if (outcome === 'rejected') return strings.questions.declined;
  return strings.approvals.outcome[outcome] ?? outcome;
}

function Answer({ asked, options }: { asked: Approval; options: readonly string[] }) {
  const [own, setOwn] = useState('');
  const { busy, settle, note } = useSettle(`questions/${encodeURIComponent(asked.id)}/answer`, asked.argsHash);
  const text = strings.questions;
  if (note) return note;
  return (
    <div class="approval__answer">
      {options.map((option) => (
        <Button key={option} disabled={busy} onClick={() => void settle({ answer: option })}>
          {visible(option)}
        </Button>
      ))}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (own.trim()) void settle({ answer: own.trim() });
        }}
      >
        <input type="text" value={own} maxLength={20000} aria-label={text.other} placeholder={text.other} onInput={(event) => setOwn(event.currentTarget.value)} />
        <Button kind="primary" type="submit" disabled={busy || !own.trim()}>
          {text.send}
        </Button>
        <Button disabled={busy} onClick={() => void settle({ decline: true })}>
          {text.decline}
        </Button>
      </form>
    </div>
  );
}
