// What waits for the person: may this call run, or a question of the agent. What
// is asked is shown exactly, control and bidirectional characters as escapes.

import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api/client';
import type { Approval } from '../api/wire';
import { api, fail, feed } from '../store/app';
import { strings } from '../strings';
import { visible } from '../text/format';
import type { ApprovalItem } from '../transcript/items';
import { Badge, Button } from './controls';
import { Icon } from './icon';
import { Question } from './question';

/** The card in a transcript: open while pending, then one line that says what became of it. */
export function ApprovalCard({ item, session }: { item: ApprovalItem; session: string }) {
  const draft = useState<string>();
  const asked = feed.value.approvals.get(item.id) ?? fromEvent(item, session);
  if (asked.kind === 'question') return <Question asked={asked} item={item} />;
  const label = strings.approvals.asks(visible(asked.tool ?? ''));
  if (!item.outcome) {
    return (
      <article class="approval" aria-label={label}>
        <Head asked={asked} />
        <Facts asked={asked} />
        <Answer asked={asked} draft={draft} />
      </article>
    );
  }
  const written = draft[0]?.trim();
  return (
    <article class="approval" aria-label={label}>
      <header class="approval__head approval__head--settled">
        <Icon name="shield" />
        <code>{visible(commandOf(asked.arguments) ?? `${asked.tool} ${asked.arguments ?? ''}`)}</code>
        <span class="approval__right">
          <Badge tone={/allow/.test(item.outcome) ? 'good' : 'warn'}>{outcomeOf(item.outcome, item.scope)}</Badge>
        </span>
      </header>
      {item.reason && (
        <p class="approval__settled">
          {strings.approvals.reason} {visible(item.reason)}
        </p>
      )}
      {written && written !== item.reason && (
        <p class="approval__settled">
          {strings.approvals.unsent} {written}
        </p>
      )}
    </article>
  );
}

/** Says what was written for nothing. */
function lost(written: string): void {
  fail(new Error(`${strings.approvals.unsent} ${written}`));
}

function outcomeOf(outcome: string, scope: string | undefined): string {
  const text = strings.approvals;
  if (!/allow/.test(outcome)) return text.outcome[outcome] ?? outcome;
  return scope === 'session' ? text.allowedSession : text.allowedOnce;
}

/** The card in the inbox. */
export function Pending({ asked, onOpen }: { asked: Approval; onOpen: () => void }) {
  const open = (
    <Button kind="quiet" onClick={onOpen}>
      {strings.approvals.openSession}
    </Button>
  );
  const draft = useState<string>();
  const written = useRef('');
  written.current = draft[0]?.trim() ?? '';
  // Somebody else decided, and the card goes: not without a word of what was being written.
  useEffect(() => () => {
    if (written.current && !feed.value.approvals.has(asked.id)) lost(written.current);
  }, []);
  if (asked.kind === 'question') return <Question asked={asked}>{open}</Question>;
  return (
    <article class="approval" aria-label={strings.approvals.asks(asked.tool ?? '')}>
      <Head asked={asked}>{open}</Head>
      <Facts asked={asked} />
      <Answer asked={asked} draft={draft} onSent={() => (written.current = '')} />
    </article>
  );
}

/** Posts what the person decided. The first one wins; the note says how an earlier one was, and `settle` gives false. */
export function useSettle(path: string, argsHash: string | undefined) {
  const [busy, setBusy] = useState(false);
  const [settled, setSettled] = useState('');
  const settle = async (body: Record<string, unknown>) => {
    setBusy(true);
    try {
      await api.post(path, { ...body, argsHash: argsHash ?? '' });
      return true;
    } catch (error) {
      if (error instanceof ApiError && error.code === 'approval-settled') setSettled(String(error.problem?.['outcome'] ?? 'settled'));
      else fail(error);
      return false;
    } finally {
      setBusy(false);
    }
  };
  const note = settled && <p class="approval__settled">{strings.approvals.settled(strings.approvals.outcome[settled] ?? settled)}</p>;
  return { busy, settle, note };
}

function Head({ asked, children }: { asked: Approval; children?: preact.ComponentChildren }) {
  return (
    <header class="approval__head">
      <Icon name="shield" />
      <strong>{strings.approvals.asks(visible(asked.tool ?? ''))}</strong>
      <span class="approval__right">{children}</span>
    </header>
  );
}

function Facts({ asked }: { asked: Approval }) {
  const text = strings.approvals;
  const why = [asked.reason, asked.leaves].filter(Boolean).join(' · ');
  const command = commandOf(asked.arguments);
  return (
    <dl class="approval__facts">
      <dt>{command === undefined ? text.arguments : text.command}</dt>
      <dd>
        <pre class="code" tabIndex={0}>{visible(command ?? argumentText(asked.arguments))}</pre>
      </dd>
      {asked.cwd && (
        <>
          <dt>{text.cwd}</dt>
          <dd>
            <code>{visible(asked.cwd)}</code>
          </dd>
        </>
      )}
      {why && (
        <>
          <dt>{text.why}</dt>
          <dd>{visible(why)}</dd>
        </>
      )}
    </dl>
  );
}

interface AnswerProps {
  asked: Approval;
  /** Why it is denied, while that is written; kept by the card, which outlives the form. */
  draft: [string | undefined, (next: string | undefined) => void];
  /** Only where the card goes with the decision. */
  onSent?: () => void;
}

function Answer({ asked, draft: [reason, setReason], onSent }: AnswerProps) {
  const { busy, settle, note } = useSettle(`approvals/${encodeURIComponent(asked.id)}/decision`, asked.argsHash);
  const text = strings.approvals;
  const { covers, never } = (asked.detail ?? {}) as { covers?: string[][]; never?: string };
  const allow = (scope: 'once' | 'session') => () => void settle({ decision: 'allow', scope });

  if (note) return note;
  return (
    <div class="approval__answer">
      {reason !== undefined ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            const why = reason.trim();
            onSent?.();
            void settle({ decision: 'deny', ...(why ? { reason: why } : {}) }).then((won) => {
              if (!won && why && onSent) lost(why);
            });
          }}
        >
          <input
            type="text"
            value={reason}
            maxLength={2000}
            aria-label={text.denyReason}
            placeholder={text.denyReason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
          <Button kind="danger" type="submit" disabled={busy}>
            {text.deny}
          </Button>
          <Button onClick={() => setReason(undefined)}>{strings.cancel}</Button>
        </form>
      ) : (
        <>
          <Button kind="primary" disabled={busy} onClick={allow('once')}>
            {text.allowOnce}
          </Button>
          {!never && (
            <Button disabled={busy} onClick={allow('session')}>
              {text.allowSession}
            </Button>
          )}
          <Button disabled={busy} onClick={() => setReason('')}>
            {text.deny}…
          </Button>
          {never && <p class="approval__note">{visible(text.once(never))}</p>}
          {!never && (
            <p class="approval__note">
              {text.covers} {!covers?.length && `${text.coversCall}.`}
            </p>
          )}
          {!never && covers && covers.length > 0 && (
            <div class="approval__note approval__covers" role="group" aria-label={text.covers} tabIndex={0}>
              {covers.map((words, i) => (
                <code key={i}>{commandText(words)}</code>
              ))}
            </div>
          )}
        </>
      )}
    </div>
  );
}

/** A command's words, each as a shell would need it. */
export function commandText(words: readonly string[]): string {
  return visible(words.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replace(/'/g, `'\\''`)}'`)).join(' '));
}

function fromEvent(item: ApprovalItem, session: string): Approval {
  const text = (name: string) => (typeof item.data[name] === 'string' ? (item.data[name] as string) : undefined);
  const fields = Object.fromEntries(
    ['kind', 'callId', 'tool', 'argsHash', 'reason', 'leaves', 'cwd'].map((name) => [name, text(name)]).filter(([, v]) => v !== undefined),
  );
  return { id: item.id, session, arguments: item.data['arguments'], detail: item.data['detail'], ...fields };
}

/** A shell command alone is easier to judge as text than inside JSON. */
function commandOf(value: unknown): string | undefined {
  try {
    const parsed = JSON.parse(String(value)) as Record<string, unknown>;
    return Object.keys(parsed).length === 1 && typeof parsed['command'] === 'string' ? parsed['command'] : undefined;
  } catch {
    return undefined;
  }
}

function argumentText(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value ?? {}, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
