// Theme, keys, what the sandbox enforces, and which host this is.

import { useEffect, useId, useState } from 'preact/hooks';
import { forgetToken } from '../api/token';
import type { Provider } from '../api/wire';
import { CodeView } from '../parts/code';
import { Badge, Button } from '../parts/controls';
import { api, attempt, fail, host, loadModels, logOut, say } from '../store/app';
import { offers } from '../store/offers';
import { setTheme, theme, type Theme } from '../store/theme';
import { strings } from '../strings';

export function SettingsScreen() {
  const text = strings.settings;
  const name = useId();
  const { version, commit, node, sandbox } = host.value;
  return (
    <div class="page">
      <div class="page__column">
        <h1>{text.title}</h1>

        <fieldset class="field">
          <legend>{text.theme}</legend>
          <div class="choice">
            {(['system', 'light', 'dark'] as Theme[]).map((t) => (
              <label key={t}>
                <input type="radio" name={name} checked={theme.value === t} onChange={() => setTheme(t)} />
                {text.themes[t]}
              </label>
            ))}
          </div>
        </fieldset>

        <Providers />

        <section>
          <h2>{text.sandbox}</h2>
          {sandbox ? (
            typeof sandbox === 'string' ? <p>{sandbox}</p> : <CodeView code={JSON.stringify(sandbox, null, 2)} language="json" />
          ) : (
            <p class="muted">{text.noSandbox}</p>
          )}
        </section>

        <section>
          <h2>{text.about}</h2>
          <dl class="facts">
            {version && (<><dt>{text.version}</dt><dd>{version}</dd></>)}
            {commit && (<><dt>{text.commit}</dt><dd><code>{commit}</code></dd></>)}
            {node && (<><dt>{text.node}</dt><dd><code>{node}</code></dd></>)}
          </dl>
          <Button
            onClick={() => {
              forgetToken();
              logOut();
            }}
          >
            {text.logOut}
          </Button>
        </section>
      </div>
    </div>
  );
}

function Providers() {
  const [list, setList] = useState<readonly Provider[] | null>(null);
  const text = strings.settings;
  const load = async () => {
    try {
      setList((await api.get<{ providers: Provider[] }>('providers')).providers ?? []);
    } catch (error) {
      fail(error);
    }
  };
  const offered = offers('GET /providers');
  useEffect(() => {
    if (offered) void load();
  }, [offered]);
  if (!list) return null;
  return (
    <section>
      <h2>{text.providers}</h2>
      <p class="muted">{text.keyHint}</p>
      {list.map((provider) => (
        <ProviderRow
          key={provider.id}
          provider={provider}
          onSaved={() => {
            void load();
            void loadModels();
          }}
        />
      ))}
    </section>
  );
}

function ProviderRow({ provider, onSaved }: { provider: Provider; onSaved: () => void }) {
  const [key, setKey] = useState('');
  const id = useId();
  const text = strings.settings;
  const needsKey = offers('PUT /providers/{}/credential') && provider.kind !== 'script' && provider.kind !== 'replay' && provider.id !== 'demo';
  const save = async () => {
    const done = await attempt(() =>
      api.put(`providers/${encodeURIComponent(provider.id)}/credential`, { key: key.trim() }).then(() => true),
    );
    if (!done) return;
    setKey('');
    say(text.keySaved);
    onSaved();
  };
  return (
    <div class="provider">
      <div class="provider__head">
        <strong>{provider.id}</strong>
        {provider.baseUrl && <code class="muted">{provider.baseUrl}</code>}
        {needsKey && <Badge tone={provider.hasKey ? 'good' : 'plain'}>{provider.hasKey ? text.keySet : text.keyMissing}</Badge>}
      </div>
      {needsKey && (
        <form
          class="field__row"
          onSubmit={(event) => {
            event.preventDefault();
            void save();
          }}
        >
          <label class="sr-only" for={id}>
            {text.key} {provider.id}
          </label>
          <input id={id} type="password" autocomplete="off" placeholder={text.key} value={key} onInput={(event) => setKey(event.currentTarget.value)} />
          <Button type="submit" disabled={key.trim() === ''}>
            {text.keyReplace}
          </Button>
        </form>
      )}
    </div>
  );
}
