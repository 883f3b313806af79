// Presets: read what each is made of, copy one, change the copy.

import { useEffect, useState } from 'preact/hooks';
import type { CheckResult, PresetDetail, PresetSummary } from '../api/wire';
import { CodeView } from '../parts/code';
import { Badge, Button, Spinner } from '../parts/controls';
import { Dialog } from '../parts/dialog';
import { forgetPreset, FullAccess, usePreset } from '../parts/presets';
import { api, attempt, loadPresets, presets, say } from '../store/app';
import { offers } from '../store/offers';
import { fragmentOf, navigate } from '../store/route';
import { strings } from '../strings';

export function PresetsScreen({ id }: { id?: string }) {
  const text = strings.presets;
  const chosen = presets.value.find((p) => p.id === id);
  return (
    <div class="page">
      <div class="page__column page__column--wide">
        <h1>{text.title}</h1>
        <p class="muted">{text.lead}</p>
        <div class="two">
          <ul class="two__list" aria-label={text.title}>
            {presets.value.map((p) => (
              <li key={p.id}>
                <a
                  class="two__entry"
                  href={fragmentOf({ screen: 'presets', id: p.id })}
                  aria-current={p.id === id ? 'page' : undefined}
                  onClick={(event) => {
                    event.preventDefault();
                    navigate({ screen: 'presets', id: p.id });
                  }}
                >
                  <span>{p.name ?? p.id}</span>
                  <span class="muted">{text.origin[p.origin ?? ''] ?? p.origin}</span>
                  {p.broken && <Badge tone="error">{strings.newSession.broken}</Badge>}
                </a>
              </li>
            ))}
          </ul>
          <div class="two__detail">{chosen ? <PresetView key={chosen.id} preset={chosen} /> : <p class="muted">{text.choose}</p>}</div>
        </div>
      </div>
    </div>
  );
}

function PresetView({ preset }: { preset: PresetSummary }) {
  const [version, setVersion] = useState(0);
  const detail = usePreset(`${preset.id}`);
  const [copying, setCopying] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const text = strings.presets;
  const mine = preset.origin === 'user' && offers('PUT /presets/{}');
  const authoring = offers('POST /presets');
  void version;
  return (
    <>
      <header class="two__head">
        <h2>{preset.name ?? preset.id}</h2>
        <FullAccess preset={preset} />
        <span class="two__actions">
          {!preset.broken && (
            <Button
              onClick={() => {
                navigate({ screen: 'new', preset: preset.id });
              }}
            >
              {text.use}
            </Button>
          )}
          {authoring && <Button onClick={() => setCopying(true)}>{text.copyAs}…</Button>}
          {mine && (
            <Button kind="danger" onClick={() => setDeleting(true)}>
              {text.delete}…
            </Button>
          )}
        </span>
      </header>
      {preset.description && <p>{preset.description}</p>}
      {preset.broken && <p class="problem">{preset.broken}</p>}
      {!detail ? (
        <Spinner />
      ) : (
        <>
          <Source key={`${preset.id}-${version}`} preset={preset} detail={detail} editable={mine} onSaved={() => setVersion(version + 1)} />
          {detail.prompt !== undefined && !preset.broken && (
            <>
              <h3>{text.systemText}</h3>
              <pre class="plain plain--boxed" tabIndex={0}>{detail.prompt}</pre>
            </>
          )}
          {detail.tools && detail.tools.length > 0 && (
            <>
              <h3>{text.tools}</h3>
              <p class="chips">
                {detail.tools.map((t) => (
                  <code key={t.name}>{t.name}</code>
                ))}
              </p>
            </>
          )}
          {(detail.hash ?? preset.hash) && (
            <p class="muted">
              {text.hash} <code class="hash">{detail.hash ?? preset.hash}</code>
            </p>
          )}
        </>
      )}
      {copying && <CopyDialog from={preset.id} onClose={() => setCopying(false)} />}
      {deleting && <DeletePreset id={preset.id} onClose={() => setDeleting(false)} />}
    </>
  );
}

function Source(props: { preset: PresetSummary; detail: PresetDetail; editable: boolean; onSaved: () => void }) {
  const { preset, detail, editable } = props;
  const [draft, setDraft] = useState(detail.text ?? '');
  const [busy, setBusy] = useState(false);
  const check = useCheck(draft, editable);
  const text = strings.presets;
  const changed = draft !== (detail.text ?? '');

  const save = async () => {
    setBusy(true);
    const done = await attempt(() => api.put(`presets/${encodeURIComponent(preset.id)}`, { text: draft }).then(() => true));
    setBusy(false);
    if (!done) return;
    forgetPreset(preset.id);
    await loadPresets();
    say(text.saved);
    props.onSaved();
  };

  if (!editable) {
    if (!detail.text) return null;
    return (
      <>
        <h3>
          {text.source} <span class="muted">{text.readOnly}</span>
        </h3>
        <CodeView code={detail.text} language="yaml" />
      </>
    );
  }
  return (
    <>
      <h3>
        <label for="preset-source">{text.source}</label> {changed && <span class="muted">{text.unsaved}</span>}
      </h3>
      <textarea
        id="preset-source"
        class="source mono"
        rows={22}
        spellcheck={false}
        value={draft}
        onInput={(event) => setDraft(event.currentTarget.value)}
      />
      {check && (
        <div class={check.problems.length ? 'verdict verdict--bad' : 'verdict verdict--good'} role="status">
          <p>{check.problems.length ? text.checkFailed : text.checkOk}</p>
          {check.problems.map((p, i) => (
            <p key={i} class="verdict__line">{p}</p>
          ))}
        </div>
      )}
      <p>
        <Button kind="primary" disabled={!changed || busy} onClick={() => void save()}>
          {strings.save}
        </Button>
      </p>
    </>
  );
}

/** A dry mount of what is in the editor, a moment after the last keystroke. */
function useCheck(draft: string, active: boolean): { problems: string[] } | null {
  const [result, setResult] = useState<{ problems: string[] } | null>(null);
  useEffect(() => {
    if (!active || !offers('POST /presets/check')) return;
    let current = true;
    const timer = setTimeout(async () => {
      try {
        const answer = await api.post<CheckResult>('presets/check', { text: draft });
        if (current) setResult({ problems: problemsOf(answer) });
      } catch (error) {
        if (!current) return;
        setResult({ problems: [(error as Error).message] });
      }
    }, 400);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [draft, active]);
  return result;
}

function problemsOf(answer: CheckResult): string[] {
  const { problem } = answer;
  if (!problem) return [];
  const place = problem.line ? `${problem.line}${problem.column ? `:${problem.column}` : ''}: ` : '';
  return [place + problem.message];
}

function CopyDialog({ from, onClose }: { from: string; onClose: () => void }) {
  const [id, setId] = useState(`${from}-copy`);
  const [problem, setProblem] = useState('');
  const text = strings.presets;
  const copy = async () => {
    try {
      await api.post('presets', { id: id.trim(), from });
    } catch (error) {
      return setProblem((error as Error).message);
    }
    await loadPresets();
    onClose();
    navigate({ screen: 'presets', id: id.trim() });
  };
  return (
    <Dialog title={text.copyAs} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void copy();
        }}
      >
        <div class="field">
          <label for="copy-id">{text.copyId}</label>
          <input id="copy-id" class="mono" type="text" pattern="[a-z0-9][a-z0-9\-]*" maxLength={64} required value={id} onInput={(event) => setId(event.currentTarget.value)} />
          <p class="muted">{text.copyHint}</p>
        </div>
        {problem && <p class="problem" role="alert">{problem}</p>}
        <footer class="dialog__foot">
          <Button onClick={onClose}>{strings.cancel}</Button>
          <Button kind="primary" type="submit">
            {text.copyAs}
          </Button>
        </footer>
      </form>
    </Dialog>
  );
}

function DeletePreset({ id, onClose }: { id: string; onClose: () => void }) {
  const text = strings.presets;
  const go = async () => {
    const done = await attempt(() => api.delete(`presets/${encodeURIComponent(id)}`).then(() => true));
    onClose();
    if (!done) return;
    forgetPreset(id);
    await loadPresets();
    navigate({ screen: 'presets' }, true);
  };
  return (
    <Dialog title={text.delete} onClose={onClose}>
      <p>{text.deleteConfirm(id)}</p>
      <footer class="dialog__foot">
        <Button onClick={onClose}>{strings.cancel}</Button>
        <Button kind="danger" onClick={() => void go()}>
          {text.delete}
        </Button>
      </footer>
    </Dialog>
  );
}
