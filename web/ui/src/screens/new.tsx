// A new session: where the agent works, what it is made of, what it should do.

import { useEffect, useId, useMemo, useState } from 'preact/hooks';
import { ApiError } from '../api/client';
import type { ModelRef, Session, Workspaces } from '../api/wire';
import { Button } from '../parts/controls';
import { ModelSelect } from '../parts/models';
import { PresetPicker } from '../parts/presets';
import { api, feed, presets, putSession } from '../store/app';
import { when } from '../store/feed';
import { offers } from '../store/offers';
import { navigate } from '../store/route';
import { strings } from '../strings';
import { shortPath } from '../text/format';
import { BrowseDialog } from './browse';

export function NewScreen({ preset, workspace }: { preset?: string; workspace?: string }) {
  const recent = useRecent();
  const [chosenPath, setPath] = useState<string | null>(workspace ?? null);
  const [chosenPreset, setPreset] = useState<string | null>(preset ?? null);
  const [model, setModel] = useState<ModelRef | null>(null);
  const [message, setMessage] = useState('');
  const [browsing, setBrowsing] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<{ code: string; text: string } | null>(null);
  const ids = { path: useId(), message: useId(), problem: useId() };

  const path = chosenPath ?? recent[0] ?? '';
  const mountable = presets.value.filter((p) => !p.broken);
  const fallback = mountable.find((p) => p.default) ?? mountable.find((p) => p.id === 'minimal') ?? mountable[0];
  const presetId = chosenPreset ?? fallback?.id ?? null;
  const text = strings.newSession;

  const create = async () => {
    if (!path.trim()) {
      setProblem({ code: 'workspace-invalid', text: text.workspaceMissing });
      document.getElementById(ids.path)?.focus();
      return;
    }
    setBusy(true);
    setProblem(null);
    try {
      const session = await api.post<Session>('sessions', {
        workspace: path.trim(),
        ...(presetId ? { preset: presetId } : {}),
        ...(model ? { model } : {}),
        ...(message.trim() ? { message: message.trim() } : {}),
      });
      putSession(session);
      navigate({ screen: 'session', id: session.id });
    } catch (error) {
      const code = error instanceof ApiError ? error.code : '';
      setProblem({ code, text: error instanceof Error ? error.message : String(error) });
    } finally {
      setBusy(false);
    }
  };

  const badPath = problem?.code === 'workspace-invalid';
  return (
    <div class="page">
      <form
        class="page__column new"
        onSubmit={(event) => {
          event.preventDefault();
          void create();
        }}
      >
        <h1>{text.title}</h1>

        <div class="field">
          <label for={ids.path}>{text.workspace}</label>
          <div class="field__row">
            <input
              id={ids.path}
              type="text"
              class="mono"
              value={path}
              placeholder="/home/me/project"
              spellcheck={false}
              autocapitalize="off"
              autocomplete="off"
              aria-invalid={badPath}
              aria-describedby={problem ? ids.problem : undefined}
              onInput={(event) => setPath(event.currentTarget.value)}
            />
            {offers('GET /workspaces') && (
              <Button icon="folder" onClick={() => setBrowsing(true)}>
                {text.browse}
              </Button>
            )}
          </div>
          {recent.length > 0 && (
            <div class="chips" role="group" aria-label={text.recent}>
              {recent.slice(0, 6).map((p) => (
                <button type="button" key={p} class="chip" title={p} aria-pressed={p === path} onClick={() => setPath(p)}>
                  {shortPath(p)}
                </button>
              ))}
            </div>
          )}
        </div>

        <PresetPicker presets={presets.value} chosen={presetId} onChoose={setPreset} />

        <ModelSelect value={model} onChange={setModel} />

        <div class="field">
          <label for={ids.message}>{text.message}</label>
          <textarea
            id={ids.message}
            rows={4}
            value={message}
            placeholder={text.messagePlaceholder}
            onInput={(event) => setMessage(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
              event.preventDefault();
              if (!busy) void create();
            }}
          />
        </div>

        {problem && (
          <p id={ids.problem} class="problem" role="alert">
            {problem.text}
          </p>
        )}
        <div class="new__foot">
          <Button kind="primary" type="submit" disabled={busy}>
            {busy ? text.creating : text.create}
          </Button>
        </div>
      </form>
      {browsing && (
        <BrowseDialog
          from={path}
          onChoose={(chosen) => {
            setPath(chosen);
            setBrowsing(false);
          }}
          onClose={() => setBrowsing(false)}
        />
      )}
    </div>
  );
}

/** Workspaces used before, as the host and the session list know them. */
function useRecent(): string[] {
  const [told, setTold] = useState<string[]>([]);
  const offered = offers('GET /workspaces');
  useEffect(() => {
    if (!offered) return;
    let current = true;
    api.get<Workspaces>('workspaces').then(
      (w) => current && setTold(w.recent),
      () => undefined,
    );
    return () => {
      current = false;
    };
  }, [offered]);
  const sessions = feed.value.sessions;
  return useMemo(() => {
    const used = [...sessions.values()].sort((a, b) => when(b) - when(a)).map((s) => s.workspace);
    return [...new Set([...told, ...used])];
  }, [told, sessions]);
}
