// Code colours. Until the highlighter is there, code is shown plain; when it
// arrives, everything that asked for it is drawn again.

import { signal } from '@preact/signals';
import { escapeHtml } from './sanitise';

type Highlighter = typeof import('./languages').default;

let hljs: Highlighter | null = null;
/** Grows whenever more languages are there: what it was read for is drawn again. */
export const coloursVersion = signal(0);
const asked = new Set<string>();

const aliases: Record<string, string> = {
  sh: 'bash', shell: 'bash', zsh: 'bash', console: 'bash', py: 'python', javascript: 'typescript', js: 'typescript',
  mjs: 'typescript', jsx: 'typescript', ts: 'typescript', tsx: 'typescript', golang: 'go', rs: 'rust', yml: 'yaml',
  html: 'xml', svg: 'xml', h: 'c', cpp: 'c', cc: 'c', jsonc: 'json', patch: 'diff',
};
const rare = new Set(['c', 'css', 'java', 'rust', 'sql']);

/** Code longer than this is not coloured: it would stall the page. */
const limit = 60_000;

/** HTML of the code, escaped. The caller still sanitises what it builds from it. */
export function highlight(code: string, language: string): string {
  const name = language.toLowerCase();
  const known = aliases[name] ?? name;
  if (!known || code.length > limit) return escapeHtml(code);
  if (!hljs) load('common');
  else if (rare.has(known) && !hljs.getLanguage(known)) load('rare');
  if (!hljs?.getLanguage(known)) return escapeHtml(code);
  return hljs.highlight(code, { language: known, ignoreIllegals: true }).value;
}

/** The language a path's ending suggests; empty when none. */
export function languageOf(path: string): string {
  const name = path.split('/').at(-1) ?? '';
  const ending = /\.([A-Za-z0-9]+)$/.exec(name)?.[1]?.toLowerCase() ?? '';
  return /^(bash|c|cc|cpp|css|diff|go|h|html|java|js|json|jsx|mjs|patch|py|rs|sh|sql|svg|ts|tsx|xml|yaml|yml)$/.test(ending)
    ? ending
    : '';
}

function load(what: 'common' | 'rare'): void {
  if (asked.has(what)) return;
  asked.add(what);
  const loading =
    what === 'common'
      ? import('./languages').then((module) => (hljs = module.default))
      : import('./rarer').then((module) => module.register(hljs!));
  loading.then(
    () => coloursVersion.value++,
    () => asked.delete(what),
  );
}
