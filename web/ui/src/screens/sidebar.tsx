// Sessions by workspace, with search, and the way to the other screens.

import { useEffect, useMemo, useState } from 'preact/hooks';
import type { Session } from '../api/wire';
import { Icon, type IconName } from '../parts/icon';
import { Menu } from '../parts/menu';
import { StatusDot } from '../parts/controls';
import { archive } from '../store/commands';
import { api, feed, pendingCount, pendingIn } from '../store/app';
import { byWorkspace, titleOf } from '../store/feed';
import { offers } from '../store/offers';
import { fragmentOf, navigate, route, type Route } from '../store/route';
import { strings } from '../strings';
import { ago, shortPath } from '../text/format';
import { DeleteDialog } from './delete';

export function Sidebar({ onNavigate }: { onNavigate: () => void }) {
  const [query, setQuery] = useState('');
  const [archived, setArchived] = useState(false);
  const [deleting, setDeleting] = useState<Session | null>(null);
  const found = useSearch(query, archived);
  const { sessions: all, gone } = feed.value;

  const groups = useMemo(() => {
    const list = found ? found.sessions.map((s) => ({ ...s, ...all.get(s.id) })) : [...all.values()];
    return byWorkspace(list.filter((s) => (s.archived ?? false) === archived && !gone.has(s.id)));
  }, [all, found, archived, gone]);

  const go = (to: Route) => {
    navigate(to);
    onNavigate();
  };
  const text = strings.sidebar;
  return (
    <nav class="sidebar" aria-label={text.label}>
      <div class="sidebar__top">
        <a class="button button--primary sidebar__new" href={fragmentOf({ screen: 'new' })} onClick={follow({ screen: 'new' }, go)}>
          <Icon name="plus" /> {text.newSession}
        </a>
        <label class="sidebar__search">
          <Icon name="search" />
          <input
            type="search"
            placeholder={text.search}
            aria-label={text.search}
            value={query}
            onInput={(event) => setQuery(event.currentTarget.value)}
          />
        </label>
      </div>
      <div class="sidebar__list">
        {groups.length === 0 && <p class="sidebar__none">{query || archived ? text.noneFound : text.none}</p>}
        {groups.map((group) => (
          <section key={group.workspace} aria-label={group.workspace}>
            <h2 class="sidebar__workspace" title={group.workspace}>
              {shortPath(group.workspace)}
            </h2>
            <ul>
              {gathered(group.sessions).map((entry) =>
                'runs' in entry ? (
                  <li key={`group-${entry.name}`}>
                    <details class="runs" open={entry.runs.some(isCurrent)}>
                      <summary>{text.group(entry.name, entry.runs.length)}</summary>
                      <ul>{entry.runs.map((s) => <Entry key={s.id} session={s} go={go} onDelete={setDeleting} />)}</ul>
                    </details>
                  </li>
                ) : (
                  <Entry key={entry.id} session={entry} go={go} onDelete={setDeleting} />
                ),
              )}
            </ul>
          </section>
        ))}
        {found?.truncated && <p class="sidebar__none">{text.truncated}</p>}
      </div>
      <div class="sidebar__foot">
        <label class="sidebar__archived">
          <input type="checkbox" checked={archived} onChange={(event) => setArchived(event.currentTarget.checked)} />
          {text.showArchived}
        </label>
        {(pendingCount.value > 0 || route.value.screen === 'approvals') && <Place to={{ screen: 'approvals' }} icon="shield" label={text.approvals} go={go} count={pendingCount.value} />}
        {offers('GET /presets/{}') && <Place to={{ screen: 'presets' }} icon="layers" label={text.presets} go={go} />}
        <Place to={{ screen: 'settings' }} icon="gear" label={text.settings} go={go} />
      </div>
      {deleting && <DeleteDialog session={deleting} onClose={() => setDeleting(null)} />}
    </nav>
  );
}

function Entry(props: { session: Session; go: (to: Route) => void; onDelete: (session: Session) => void }) {
  const { session } = props;
  const to: Route = { screen: 'session', id: session.id };
  const title = titleOf(session, strings.untitled);
  const waiting = pendingIn(session.id);
  return (
    <li class="entry">
      <a
        class="entry__link"
        href={fragmentOf(to)}
        onClick={follow(to, props.go)}
        aria-current={isCurrent(session) ? 'page' : undefined}
      >
        <StatusDot status={waiting > 0 ? 'waiting' : session.status} />
        <span class="entry__title">{title}</span>
        {waiting > 0 && (
          <span class="place__count entry__count" title={strings.sidebar.waiting(waiting)}>
            {waiting}
          </span>
        )}
        <span class="entry__when">{ago(session.updatedAt ?? session.createdAt)}</span>
      </a>
      <span class="entry__menu">
        <Menu
          label={strings.sidebar.actions(title)}
          icon="more"
          entries={[
            {
              label: session.archived ? strings.sidebar.unarchive : strings.sidebar.archive,
              run: () => void archive(session, !session.archived),
            },
            { label: `${strings.sidebar.delete}…`, run: () => props.onDelete(session), danger: true },
          ]}
        />
      </span>
    </li>
  );
}

function Place(props: { to: Route; icon: IconName; label: string; go: (to: Route) => void; count?: number }) {
  const current = route.value.screen === props.to.screen;
  return (
    <a class="place" href={fragmentOf(props.to)} onClick={follow(props.to, props.go)} aria-current={current ? 'page' : undefined}>
      <Icon name={props.icon} /> {props.label}
      {props.count ? <span class="place__count">{props.count}</span> : null}
    </a>
  );
}

/** A link that is still a link: with a modifier it opens in another tab. */
function follow(to: Route, go: (to: Route) => void) {
  return (event: MouseEvent) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to);
  };
}

function isCurrent(session: Session): boolean {
  return route.value.screen === 'session' && route.value.id === session.id;
}

/** Runs of one group stand together, where the newest of them is. */
function gathered(sessions: readonly Session[]): (Session | { name: string; runs: Session[] })[] {
  const runs = new Map<string, Session[]>();
  for (const s of sessions) if (s.group) runs.set(s.group, [...(runs.get(s.group) ?? []), s]);
  const out: (Session | { name: string; runs: Session[] })[] = [];
  const seen = new Set<string>();
  for (const s of sessions) {
    const list = s.group ? runs.get(s.group) : undefined;
    if (!s.group || !list || list.length < 2) out.push(s);
    else if (!seen.has(s.group)) {
      seen.add(s.group);
      out.push({ name: s.group, runs: list });
    }
  }
  return out;
}

interface Found {
  sessions: readonly Session[];
  truncated: boolean;
}

function useSearch(query: string, archived: boolean): Found | null {
  const [found, setFound] = useState<Found | null>(null);
  const wanted = query.trim();
  useEffect(() => {
    if (!wanted && !archived) {
      setFound(null);
      return;
    }
    let current = true;
    const timer = setTimeout(async () => {
      const parameters = new URLSearchParams({ limit: '100' });
      if (wanted) parameters.set('q', wanted);
      if (archived) parameters.set('archived', 'true');
      try {
        const answer = await api.get<{ sessions: Session[]; truncated?: boolean }>(`sessions?${parameters}`);
        if (current) setFound({ sessions: answer.sessions, truncated: answer.truncated === true });
      } catch {
        // The titles that are here anyway are better than nothing.
        const here = [...feed.value.sessions.values()].filter((s) => (s.title ?? '').toLowerCase().includes(wanted.toLowerCase()));
        if (current) setFound({ sessions: here, truncated: false });
      }
    }, 150);
    return () => {
      current = false;
      clearTimeout(timer);
    };
  }, [wanted, archived]);
  return found;
}
