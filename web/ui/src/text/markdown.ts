// Markdown to safe HTML. Raw HTML in the text is shown, never used; images are
// links, since nothing remote is loaded; links keep only http, https, mailto.

import { Marked, type Token, type Tokens, type TokensList } from 'marked';
import { coloursVersion, highlight } from './highlight';
import { escapeHtml, sanitise } from './sanitise';

const marked = new Marked({
  gfm: true,
  renderer: {
    html({ text }: Tokens.HTML | Tokens.Tag) {
      return escapeHtml(text);
    },
    image({ href, text }: Tokens.Image) {
      const label = escapeHtml(text || href);
      return `<a href="${escapeHtml(href)}">${label}</a>`;
    },
    code({ text, lang }: Tokens.Code) {
      const name = /^[\w+#.-]{0,30}/.exec(lang ?? '')?.[0] ?? '';
      const label = name ? ` data-lang="${escapeHtml(name)}"` : '';
      return `<pre class="code" tabindex="0"${label}><code>${highlight(text, name)}</code></pre>`;
    },
  },
});

export interface Piece {
  readonly raw: string;
  readonly token: Token;
  readonly breaks: boolean;
}

/**
 * The blocks of a text, so that a growing one is drawn again only at its end.
 * People press Enter where they want a new line; `breaks` keeps those.
 */
export function pieces(text: string, breaks = false): Piece[] {
  // Options of one call; the renderer above stays.
  const tokens: TokensList = marked.lexer(text, { gfm: true, breaks });
  return tokens.filter((t) => t.type !== 'space' && t.type !== 'def').map((token) => ({ raw: token.raw, token, breaks }));
}

/** Rows leave the document and come back as the reader scrolls; their HTML is kept. */
const kept = new Map<string, string>();
const keptBlocks = 400;
let keptFor = -1;

/** Safe HTML of one block. */
export function render(piece: Piece): string {
  const colours = coloursVersion.value;
  if (keptFor !== colours) {
    kept.clear();
    keptFor = colours;
  }
  const key = `${piece.token.type} ${piece.breaks}\n${piece.raw}`;
  const known = kept.get(key);
  if (known !== undefined) return known;
  const html = sanitise(marked.parser([piece.token]));
  // Link definitions elsewhere in the text may decide what this block says.
  if (!/\]/.test(piece.raw)) {
    kept.set(key, html);
    if (kept.size > keptBlocks) kept.delete(kept.keys().next().value!);
  }
  return html;
}
