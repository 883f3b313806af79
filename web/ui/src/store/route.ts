// Where the reader is. Routes live in the fragment, so that the page works
// under any base path and the host needs no fallback for unknown paths.

import { signal } from '@preact/signals';

export type Route =
  | { screen: 'new'; preset?: string; workspace?: string }
  | { screen: 'session'; id: string; seq?: number }
  | { screen: 'approvals' }
  | { screen: 'presets'; id?: string }
  | { screen: 'settings' };

export function parseRoute(fragment: string, query = ''): Route {
  const parts = fragment.replace(/^#\/?/, '').split('/').map(decode);
  switch (parts[0]) {
    case 's':
      if (!parts[1]) break;
      return parts[2] && /^\d+$/.test(parts[2])
        ? { screen: 'session', id: parts[1], seq: Number(parts[2]) }
        : { screen: 'session', id: parts[1] };
    case 'approvals':
      return { screen: 'approvals' };
    case 'presets':
      return parts[1] ? { screen: 'presets', id: parts[1] } : { screen: 'presets' };
    case 'settings':
      return { screen: 'settings' };
  }
  const wanted = new URLSearchParams(query);
  const preset = wanted.get('preset');
  const workspace = wanted.get('workspace');
  return { screen: 'new', ...(preset ? { preset } : {}), ...(workspace ? { workspace } : {}) };
}

export function fragmentOf(route: Route): string {
  switch (route.screen) {
    case 'new':
      return '#/';
    case 'session':
      return `#/s/${encodeURIComponent(route.id)}${route.seq === undefined ? '' : `/${route.seq}`}`;
    case 'presets':
      return route.id ? `#/presets/${encodeURIComponent(route.id)}` : '#/presets';
    default:
      return `#/${route.screen}`;
  }
}

export const route = signal<Route>({ screen: 'new' });

export function navigate(to: Route, replace = false): void {
  // The query only preselects the first screen; it has had its say.
  const url = new URL(location.href);
  url.search = '';
  url.hash = fragmentOf(to);
  if (replace) history.replaceState(null, '', url);
  else history.pushState(null, '', url);
  route.value = to;
}

export function followAddressBar(): void {
  const read = () => {
    route.value = parseRoute(location.hash, location.search);
  };
  window.addEventListener('popstate', read);
  window.addEventListener('hashchange', read);
  read();
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
