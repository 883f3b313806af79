// One question from the host to the person: may this leave the sandbox? What is
// asked is shown exactly, control and bidirectional characters as escapes.

import { useState } from 'preact/hooks';
import { ApiError } from '../api/client';
import type { Approval } from '../api/wire';
import { api, fail, feed } from '../store/app';
import { strings } from '../strings';
import { visible } from '../text/format';
import type { ApprovalItem } from '../transcript/items';
import { Badge, Button } from './controls';
import { Icon } from './icon';

/** The card in a transcript: open while pending, then what became of it. */
export function ApprovalCard({ item, session }: { item: ApprovalItem; session: string }) {
  const pending = feed.value.approvals.get(item.id);
  const asked = pending ?? fromEvent(item, session);
  const outcome = item.outcome;
  return (
    <article class="approval" aria-label={strings.approvals.asks(asked.tool ?? '')}>
      <Head asked={asked}>
        {outcome && <Badge tone={/allow/.test(outcome) ? 'good' : 'warn'}>{strings.approvals.outcome[outcome] ?? outcome}</Badge>}
      </Head>
      <Facts asked={asked} />
      {!outcome && <Answer asked={asked} />}
    </article>
  );
}

/** The card in the inbox. */
export function PendingApproval({ asked, onOpen }: { asked: Approval; onOpen: () => void }) {
  return (
    <article class="approval" aria-label={strings.approvals.asks(asked.tool ?? '')}>
      <Head asked={asked}>
        <Button kind="quiet" onClick={onOpen}>
          {strings.approvals.openSession}
        </Button>
      </Head>
      <Facts asked={asked} />
      <Answer asked={asked} />
    </article>
  );
}

function Head({ asked, children }: { asked: Approval; children: preact.ComponentChildren }) {
  return (
    <header class="approval__head">
      <Icon name="shield" />
      <strong>{strings.approvals.asks(asked.tool ?? '')}</strong>
      <span class="approval__right">{children}</span>
    </header>
  );
}

function Facts({ asked }: { asked: Approval }) {
  const why = [asked.reason, asked.leaves].filter(Boolean).join(' · ');
  return (
    <dl class="approval__facts">
      <dt>{strings.approvals.arguments}</dt>
      <dd>
        <pre class="code" tabIndex={0}>{visible(argumentText(asked.arguments))}</pre>
      </dd>
      {asked.cwd && (
        <>
          <dt>{strings.approvals.cwd}</dt>
          <dd>
            <code>{visible(asked.cwd)}</code>
          </dd>
        </>
      )}
      {why && (
        <>
          <dt>{strings.approvals.why}</dt>
          <dd>{visible(why)}</dd>
        </>
      )}
    </dl>
  );
}

function Answer({ asked }: { asked: Approval }) {
  const [denying, setDenying] = useState(false);
  const [reason, setReason] = useState('');
  const [busy, setBusy] = useState(false);
  const [settled, setSettled] = useState('');

  const decide = async (decision: 'allow' | 'deny', scope: 'once' | 'session') => {
    setBusy(true);
    try {
      await api.post(`approvals/${encodeURIComponent(asked.id)}/decision`, {
        decision,
        scope,
        argsHash: asked.argsHash ?? '',
        ...(decision === 'deny' && reason.trim() ? { reason: reason.trim() } : {}),
      });
    } catch (error) {
      if (error instanceof ApiError && error.code === 'approval-settled') {
        setSettled(String(error.problem?.['outcome'] ?? 'settled'));
      } else fail(error);
    } finally {
      setBusy(false);
    }
  };

  if (settled) return <p class="approval__settled">{strings.approvals.settled(strings.approvals.outcome[settled] ?? settled)}</p>;
  return (
    <div class="approval__answer">
      {denying ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void decide('deny', 'once');
          }}
        >
          <input
            type="text"
            value={reason}
            aria-label={strings.approvals.denyReason}
            placeholder={strings.approvals.denyReason}
            onInput={(event) => setReason(event.currentTarget.value)}
          />
          <Button kind="danger" type="submit" disabled={busy}>
            {strings.approvals.deny}
          </Button>
          <Button onClick={() => setDenying(false)}>{strings.cancel}</Button>
        </form>
      ) : (
        <>
          <Button kind="primary" disabled={busy} onClick={() => void decide('allow', 'once')}>
            {strings.approvals.allowOnce}
          </Button>
          <Button disabled={busy} onClick={() => void decide('allow', 'session')}>
            {strings.approvals.allowSession}
          </Button>
          <Button disabled={busy} onClick={() => setDenying(true)}>
            {strings.approvals.deny}…
          </Button>
        </>
      )}
    </div>
  );
}

function fromEvent(item: ApprovalItem, session: string): Approval {
  const text = (name: string) => (typeof item.data[name] === 'string' ? (item.data[name] as string) : undefined);
  const fields = {
    callId: text('callId'),
    tool: text('tool'),
    argsHash: text('argsHash'),
    reason: text('reason'),
    leaves: text('leaves'),
    cwd: text('cwd'),
  };
  const known = Object.fromEntries(Object.entries(fields).filter(([, v]) => v !== undefined));
  return { id: item.id, session, arguments: item.data['arguments'], ...known };
}

function argumentText(value: unknown): string {
  if (typeof value !== 'string') return JSON.stringify(value ?? {}, null, 2);
  try {
    return JSON.stringify(JSON.parse(value), null, 2);
  } catch {
    return value;
  }
}
