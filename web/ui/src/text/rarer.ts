// Languages that are fetched when the first code in one of them appears.

import type { HLJSApi } from 'highlight.js';
import c from 'highlight.js/lib/languages/c';
import css from 'highlight.js/lib/languages/css';
import java from 'highlight.js/lib/languages/java';
import rust from 'highlight.js/lib/languages/rust';
import sql from 'highlight.js/lib/languages/sql';

export function register(hljs: HLJSApi): void {
  for (const [name, language] of Object.entries({ c, css, java, rust, sql })) hljs.registerLanguage(name, language);
}
