// Where messages are written. Enter sends, or queues while the agent works;
// Ctrl or Cmd with Enter steers it; Escape stops it; arrow up brings back the
// last message.

import { useEffect, useRef, useState } from 'preact/hooks';
import { Button } from '../parts/controls';
import { send, stop } from '../store/commands';
import type { OpenSession } from '../store/session';
import { strings } from '../strings';
import { plainText } from '../transcript/fold';
import { QueueView } from './queue';

/** Drafts survive a look at another session. */
const drafts = new Map<string, string>();

export function Composer({ session }: { session: OpenSession }) {
  const [text, setText] = useState(drafts.get(session.id) ?? '');
  const area = useRef<HTMLTextAreaElement>(null);
  const running = session.running.value;
  const words = strings.composer;

  useEffect(() => {
    setText(drafts.get(session.id) ?? '');
    if (matchMedia('(hover: hover)').matches) area.current?.focus({ preventScroll: true });
  }, [session]);
  useEffect(() => {
    const box = area.current!;
    box.style.height = 'auto';
    box.style.height = `${Math.min(box.scrollHeight, 280)}px`;
  }, [text]);

  const write = (next: string) => {
    setText(next);
    if (next) drafts.set(session.id, next);
    else drafts.delete(session.id);
  };
  const submit = (placement: 'queue' | 'steer') => {
    const body = text.trim();
    if (!body) return;
    write('');
    void send(session, body, placement);
  };
  const recall = () => {
    const sent = session.transcript.value.items.findLast((i) => i.kind === 'user' && i.source === 'user');
    if (sent?.kind !== 'user') return;
    const old = plainText(sent.content);
    write(old);
    requestAnimationFrame(() => area.current?.setSelectionRange(old.length, old.length));
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      submit((event.ctrlKey || event.metaKey) && running ? 'steer' : 'queue');
    } else if (event.key === 'Escape' && running) {
      event.preventDefault();
      void stop(session);
    } else if (event.key === 'ArrowUp' && text === '') {
      event.preventDefault();
      recall();
    }
  };

  const first = session.transcript.value.lastSeq < 0 || session.info.value?.blank === true;
  const placeholder = running ? words.placeholderRunning : first ? words.placeholderFirst : words.placeholder;
  return (
    <div class="composer">
      <QueueView session={session} />
      <form
        class="composer__box"
        onSubmit={(event) => {
          event.preventDefault();
          submit('queue');
        }}
      >
        <textarea
          ref={area}
          rows={1}
          value={text}
          aria-label={words.label}
          placeholder={placeholder}
          onInput={(event) => write(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
        <div class="composer__buttons">
          {running && text.trim() !== '' && <Button onClick={() => submit('steer')}>{words.steer}</Button>}
          {running && (
            <Button kind="danger" icon="stop" onClick={() => void stop(session)}>
              {words.stop}
            </Button>
          )}
          {(!running || text.trim() !== '') && (
            <Button kind="primary" icon="send" type="submit" disabled={text.trim() === ''}>
              {running ? words.queue : words.send}
            </Button>
          )}
        </div>
      </form>
    </div>
  );
}
