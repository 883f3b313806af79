// Messages that wait for their turn: they can be changed, taken out, or moved to
// the next step.

import { useState } from 'preact/hooks';
import { Badge, Button, Spinner } from '../parts/controls';
import { editQueued, queuedText, removeQueued, resend } from '../store/commands';
import { offers } from '../store/offers';
import type { OpenSession } from '../store/session';
import { strings } from '../strings';

export function QueueView({ session }: { session: OpenSession }) {
  const queue = session.queue.value.map(queuedText);
  const pending = session.pending.value;
  if (queue.length === 0 && pending.length === 0) return null;
  return (
    <ul class="queue" aria-label={strings.composer.queueLabel}>
      {queue.map((entry) => (
        <Queued key={entry.id} session={session} {...entry} />
      ))}
      {pending.map((entry) => (
        <li key={entry.id} class={entry.error ? 'queue__entry queue__entry--failed' : 'queue__entry'}>
          {entry.error ? <Badge tone="error" title={entry.error}>{strings.composer.notSent}</Badge> : <Spinner />}
          <span class="queue__text">{entry.text}</span>
          {entry.error && (
            <>
              <span class="queue__error">{entry.error}</span>
              <Button kind="quiet" onClick={() => void resend(session, entry.id)}>{strings.retry}</Button>
              <Button kind="quiet" icon="close" label={strings.remove} onClick={() => session.dropPending(entry.id)} />
            </>
          )}
        </li>
      ))}
    </ul>
  );
}

function Queued(props: { session: OpenSession; id: string; text: string; placement: string }) {
  const { session, id, placement } = props;
  const [draft, setDraft] = useState<string | null>(null);
  const words = strings.composer;
  const changeable = offers('PATCH /sessions/{}/messages/{}');
  const save = () => {
    const content = draft?.trim();
    setDraft(null);
    if (content && content !== props.text) void editQueued(session, id, { content });
  };
  return (
    <li class="queue__entry">
      <Badge tone={placement === 'steer' ? 'warn' : 'plain'}>{placement === 'steer' ? words.steering : words.queued}</Badge>
      {draft === null ? (
        <span class="queue__text">{props.text}</span>
      ) : (
        <textarea
          class="queue__edit"
          rows={2}
          value={draft}
          aria-label={words.editLabel}
          ref={(box) => box?.focus()}
          onInput={(event) => setDraft(event.currentTarget.value)}
          onBlur={save}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && !event.shiftKey) {
              event.preventDefault();
              save();
            } else if (event.key === 'Escape') {
              event.stopPropagation();
              setDraft(null);
            }
          }}
        />
      )}
      {draft === null && (
        <>
          {changeable && placement !== 'steer' && (
            <Button kind="quiet" onClick={() => void editQueued(session, id, { placement: 'steer' })}>
              {words.promote}
            </Button>
          )}
          {changeable && <Button kind="quiet" icon="edit" label={strings.edit} onClick={() => setDraft(props.text)} />}
          {offers('DELETE /sessions/{}/messages/{}') && (
            <Button kind="quiet" icon="close" label={strings.remove} onClick={() => void removeQueued(session, id)} />
          )}
        </>
      )}
    </li>
  );
}
