// Code colours. Until the highlighter is there, code is shown plain; when it
// arrives, everything that asked for it is drawn again.

import { signal } from '@preact/signals';
import { escapeHtml } from './sanitise';

type Highlighter = typeof import('./languages').default;

export const highlighter = signal<Highlighter | null>(null);
let asked = false;

const aliases: Record<string, string> = {
  sh: 'bash', shell: 'bash', zsh: 'bash', console: 'bash', py: 'python', js: 'javascript', mjs: 'javascript',
  jsx: 'javascript', ts: 'typescript', tsx: 'typescript', golang: 'go', rs: 'rust', yml: 'yaml', html: 'xml', svg: 'xml',
  h: 'c', cpp: 'c', cc: 'c', jsonc: 'json', patch: 'diff',
};

/** Code longer than this is not coloured: it would stall the page. */
const limit = 60_000;

/** HTML of the code, escaped. The caller still sanitises what it builds from it. */
export function highlight(code: string, language: string): string {
  const name = language.toLowerCase();
  const known = aliases[name] ?? name;
  if (!known || code.length > limit) return escapeHtml(code);
  const ready = highlighter.value;
  if (!ready) {
    load();
    return escapeHtml(code);
  }
  if (!ready.getLanguage(known)) return escapeHtml(code);
  return ready.highlight(code, { language: known, ignoreIllegals: true }).value;
}

/** The language a path's ending suggests; empty when none. */
export function languageOf(path: string): string {
  const name = path.split('/').at(-1) ?? '';
  const ending = /\.([A-Za-z0-9]+)$/.exec(name)?.[1]?.toLowerCase() ?? '';
  return /^(bash|c|cc|cpp|css|diff|go|h|html|js|json|jsx|mjs|patch|py|rs|sh|sql|svg|ts|tsx|xml|yaml|yml)$/.test(ending)
    ? ending
    : '';
}

function load(): void {
  if (asked) return;
  asked = true;
  import('./languages').then(
    (module) => (highlighter.value = module.default),
    () => (asked = false),
  );
}
