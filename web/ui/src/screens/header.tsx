// Title, state and the few actions of one session.

import { useRef, useState } from 'preact/hooks';
import { Badge, Button, StatusDot } from '../parts/controls';
import { lazy } from '../parts/lazy';
import { Menu } from '../parts/menu';
import { FullAccess } from '../parts/presets';
import { pendingIn, presets } from '../store/app';
import { useLeave } from '../store/leave';
import { change, download, fork, stop } from '../store/commands';
import { offers } from '../store/offers';
import { navigate } from '../store/route';
import type { OpenSession } from '../store/session';
import { strings } from '../strings';
import { count, shortPath } from '../text/format';
import { DeleteDialog } from './delete';

const LeaveDialog = lazy(() => import('./more').then((m) => m.LeaveDialog), null);

export type Panel = 'prompt' | 'terminal';

export function SessionHeader(props: { session: OpenSession; panel: Panel | null; onPanel: (panel: Panel) => void }) {
  const { session } = props;
  const [deleting, setDeleting] = useState(false);
  const [showing, setShowing] = useState(false);
  const info = session.info.value;
  const running = session.running.value;
  const asked = pendingIn(session.id) > 0;
  const leave = useLeave(session);
  const status = info?.status === 'damaged' ? 'damaged' : !running ? 'idle' : asked ? 'waiting' : 'running';
  const text = strings.session;
  const model = session.transcript.value.model ?? info?.model;
  const usage = session.info.value?.usage ?? session.transcript.value.usage;
  const tokens = (usage.inputTokens ?? 0) + (usage.cacheReadTokens ?? 0);
  const parent = info?.parent;
  const exportAs = (format: string) =>
    void download(session.path(`/export?format=${format}`), `${session.id}.${format === 'jsonl' || format === 'openai' ? 'jsonl' : format === 'atif' ? 'json' : 'bundle'}`);

  const exports = offers('GET /sessions/{}/export') ? Object.entries(text.exportAs) : [];

  return (
    <header class="header">
      <div class="header__first">
        <Title session={session} />
        <div class="header__actions">
          {running && (
            <Button class="header__stop" kind="danger" icon="stop" onClick={() => void stop(session)}>
              {text.stop}
            </Button>
          )}
          {offers('GET /sessions/{}/prompt') && (
            <Button kind="quiet" icon="code" label={text.prompt} pressed={props.panel === 'prompt'} onClick={() => props.onPanel('prompt')} />
          )}
          {offers('GET /sessions/{}/terminal') && (
            <Button
              kind="quiet"
              icon="terminal"
              label={text.terminal}
              pressed={props.panel === 'terminal'}
              onClick={() => props.onPanel('terminal')}
            />
          )}
          <Menu
            label={text.more}
            icon="more"
            entries={[
              ...(offers('POST /sessions/{}/fork') ? [{ label: text.fork, run: () => void fork(session) }] : []),
              ...exports.map(([format, label]) => ({
                label: `${text.export}: ${label}`,
                run: () => exportAs(format),
              })),
              ...(leave?.policy ? [{ label: `${strings.approvals.menu}…`, run: () => setShowing(true) }] : []),
              ...(info ? [{ label: `${strings.sidebar.delete}…`, run: () => setDeleting(true), danger: true }] : []),
            ]}
          />
        </div>
      </div>
      <div class="header__facts">
        <span class="header__status" role="status">
          <StatusDot status={status} /> {strings.status[status]}
        </span>
        <PresetLabel session={session} />
        {model && (
          <span class="fact" title={text.model}>
            {model.provider}/{model.model}
          </span>
        )}
        {info && (
          <span class="fact mono" title={info.workspace}>
            {shortPath(info.workspace)}
          </span>
        )}
        {tokens > 0 && (
          <span class="fact" title={text.tokensLabel}>
            {text.tokens(count(tokens), count(usage.outputTokens ?? 0))}
          </span>
        )}
        {parent && (
          <button type="button" class="fact fact--link" onClick={() => navigate({ screen: 'session', id: parent })}>
            {text.forkedFrom} {parent.slice(0, 8)}
          </button>
        )}
      </div>
      {showing && leave?.policy && <LeaveDialog session={session} leave={leave} onClose={() => setShowing(false)} />}
      {deleting && info && <DeleteDialog session={info} onClose={() => setDeleting(false)} />}
    </header>
  );
}

function Title({ session }: { session: OpenSession }) {
  const [draft, setDraft] = useState<string | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const title = session.transcript.value.title ?? session.info.value?.title ?? '';
  if (draft === null) {
    return (
      <h1 class="header__title">
        <button type="button" ref={button} title={strings.session.rename} onClick={() => setDraft(title)}>
          {title || strings.untitled}
        </button>
      </h1>
    );
  }
  const save = () => {
    const next = draft.trim();
    setDraft(null);
    if (next && next !== title) void change(session, { title: next });
  };
  return (
    <form
      class="header__rename"
      onSubmit={(event) => {
        event.preventDefault();
        save();
      }}
    >
      <input
        type="text"
        maxLength={200}
        value={draft}
        aria-label={strings.session.titleLabel}
        ref={(box) => {
          if (box && document.activeElement !== box) box.focus();
        }}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onBlur={save}
        onKeyDown={(event) => {
          if (event.key !== 'Escape') return;
          event.stopPropagation();
          setDraft(null);
        }}
      />
    </form>
  );
}

/** While nothing was said yet the preset can still be changed; then it is a label. */
function PresetLabel({ session }: { session: OpenSession }) {
  const info = session.info.value;
  const preset = session.transcript.value.preset ?? info?.preset;
  if (!preset) return null;
  const listed = presets.value.find((p) => p.id === preset.id);
  const name = listed?.name ?? preset.id;
  const blank = info?.blank === true && info.status !== 'damaged' && session.transcript.value.turn === 'unknown' && session.queue.value.length === 0;
  return (
    <span class="header__preset">
      {blank && presets.value.length > 1 ? (
        <select
          class="select--small"
          aria-label={strings.session.preset}
          value={preset.id}
          onChange={(event) => void change(session, { preset: event.currentTarget.value })}
        >
          {presets.value.map((p) => (
            <option key={p.id} value={p.id} disabled={Boolean(p.broken)}>
              {p.name ?? p.id}
            </option>
          ))}
        </select>
      ) : (
        <Badge title={strings.session.preset}>{name}</Badge>
      )}
      <FullAccess preset={listed ?? preset} />
    </span>
  );
}
