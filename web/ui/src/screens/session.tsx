// One session: header, conversation, composer, and a panel at the side.

import { useEffect, useState } from 'preact/hooks';
import { Button } from '../parts/controls';
import { Icon } from '../parts/icon';
import { acquireSession, releaseSession } from '../store/app';
import { navigate } from '../store/route';
import type { OpenSession } from '../store/session';
import { strings } from '../strings';
import { TranscriptView } from '../transcript/transcript';
import { Composer } from './composer';
import { SessionHeader, type Panel } from './header';
import { PromptPanel } from './prompt';
import { TerminalPanel } from './terminal';

export function SessionScreen({ id, seq }: { id: string; seq?: number }) {
  const [session, setSession] = useState<OpenSession | null>(null);
  const [panel, setPanel] = useState<Panel | null>(null);
  useEffect(() => {
    setSession(acquireSession(id));
    return () => releaseSession(id);
  }, [id]);

  if (!session || session.id !== id) return null;
  const problem = session.problem.value;
  if (problem?.code === 'session-not-found') {
    return (
      <div class="page">
        <div class="page__column">
          <h1>{strings.session.notFound}</h1>
          <p>{strings.session.notFoundDetail}</p>
          <p>
            <Button onClick={() => navigate({ screen: 'new' })}>{strings.sidebar.newSession}</Button>
          </p>
        </div>
      </div>
    );
  }
  const damage = session.info.value?.status === 'damaged' ? (session.info.value.damage ?? '') : null;
  return (
    <div class={panel ? 'session session--split' : 'session'}>
      <div class="session__main">
        <SessionHeader session={session} panel={panel} onPanel={(p) => setPanel(p === panel ? null : p)} />
        {(damage !== null || problem) && (
          <div class="banner banner--error" role="alert">
            <Icon name="warn" />
            <span>
              {damage !== null ? `${strings.session.damaged} ${damage}` : `${problem!.message}`}{' '}
              {problem && <code>{problem.code}</code>}
            </span>
          </div>
        )}
        <TranscriptView key={id} session={session} {...(seq === undefined ? {} : { linked: seq })} />
        {damage === null && <Composer session={session} />}
      </div>
      {panel === 'prompt' && <PromptPanel session={session} onClose={() => setPanel(null)} />}
      {panel === 'terminal' && <TerminalPanel session={session} onClose={() => setPanel(null)} />}
    </div>
  );
}
