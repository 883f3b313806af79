// The frame around every screen: sidebar, connection, demo notice, toast.

import { useEffect, useState } from 'preact/hooks';
import { Button } from './parts/controls';
import { Icon } from './parts/icon';
import { lazy } from './parts/lazy';
import { ApprovalsScreen } from './screens/approvals';
import { LoginScreen } from './screens/login';
import { NewScreen } from './screens/new';
import { SessionScreen } from './screens/session';
import { Sidebar } from './screens/sidebar';
import { access, connection, feed, host, pendingCount, toast } from './store/app';
import { titleOf } from './store/feed';
import { route } from './store/route';
import { strings } from './strings';

const PresetsScreen = lazy(() => import('./screens/more').then((m) => m.PresetsScreen));
const SettingsScreen = lazy(() => import('./screens/more').then((m) => m.SettingsScreen));

export function App() {
  useTitle();
  if (access.value !== 'in') return <LoginScreen />;
  return <Frame />;
}

function Frame() {
  const [drawer, setDrawer] = useState(false);
  useEffect(() => {
    if (!drawer) return;
    const onKey = (event: KeyboardEvent) => event.key === 'Escape' && setDrawer(false);
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [drawer]);
  return (
    <div class={drawer ? 'frame frame--drawer' : 'frame'}>
      <a
        class="skip"
        href="#content"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById('content')?.focus();
        }}
      >
        {strings.skipToContent}
      </a>
      <div class="frame__side">
        <Sidebar onNavigate={() => setDrawer(false)} />
      </div>
      {drawer && <div class="frame__shade" onClick={() => setDrawer(false)} />}
      <main class="frame__main" id="content" tabIndex={-1}>
        <div class="frame__menu">
          <Button kind="quiet" icon="menu" label={strings.menu} onClick={() => setDrawer(true)} />
          <span>{strings.appName}</span>
        </div>
        <ConnectionBar />
        {isDemo() && <p class="banner banner--info">{strings.demo}</p>}
        <Screen />
      </main>
      <Toast />
    </div>
  );
}

function Screen() {
  const at = route.value;
  switch (at.screen) {
    case 'new':
      return <NewScreen {...at} key={`${at.preset}|${at.workspace}`} />;
    case 'session':
      return <SessionScreen id={at.id} {...(at.seq === undefined ? {} : { seq: at.seq })} key={at.id} />;
    case 'approvals':
      return <ApprovalsScreen />;
    case 'presets':
      return <PresetsScreen {...(at.id ? { id: at.id } : {})} />;
    case 'settings':
      return <SettingsScreen />;
  }
}

/** The connection is its own thing: it says nothing about whether agents run. */
function ConnectionBar() {
  const { state } = connection.value;
  const [slow, setSlow] = useState(false);
  useEffect(() => {
    if (state === 'online') return setSlow(false);
    // A blink is not news.
    const timer = setTimeout(() => setSlow(true), 800);
    return () => clearTimeout(timer);
  }, [state]);
  return (
    <div role="status" class="connection">
      {state !== 'online' && slow && (
        <p class="banner banner--warn">
          <Icon name="pulse" />
          <span>{state === 'connecting' && host.value.version === undefined ? strings.connection.connecting : strings.connection.offline}</span>
        </p>
      )}
    </div>
  );
}

function Toast() {
  const shown = toast.value;
  useEffect(() => {
    if (!shown) return;
    const timer = setTimeout(() => (toast.value = null), shown.tone === 'error' ? 10_000 : 3000);
    return () => clearTimeout(timer);
  }, [shown]);
  return (
    <div class="toasts" role={shown?.tone === 'error' ? 'alert' : 'status'}>
      {shown && (
        <div class={`toast toast--${shown.tone}`}>
          <span>{shown.text}</span>
          <Button kind="quiet" icon="close" label={strings.dismiss} onClick={() => (toast.value = null)} />
        </div>
      )}
    </div>
  );
}

function isDemo(): boolean {
  const { demo, model } = host.value as { demo?: unknown; model?: { demo?: unknown } };
  return demo === true || model?.demo === true;
}

function useTitle(): void {
  const at = route.value;
  const count = pendingCount.value;
  const name =
    at.screen === 'session'
      ? titleOf(feed.value.sessions.get(at.id), strings.untitled)
      : at.screen === 'new'
        ? strings.newSession.title
        : strings.sidebar[at.screen];
  useEffect(() => {
    document.title = `${count ? `(${count}) ` : ''}${name} · ${strings.appName}`;
  }, [name, count]);
}
