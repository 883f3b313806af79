// The one door from text to HTML. What comes out may be put into the page; the
// content policy lets nothing else in (trusted types, policy `dompurify`).

import DOMPurify from 'dompurify';

const settings = {
  ALLOWED_TAGS: [
    'a', 'b', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'hr', 'i', 'input', 'kbd',
    'li', 'ol', 'p', 'pre', 's', 'span', 'strong', 'sub', 'sup', 'table', 'tbody', 'td', 'th', 'thead', 'tr', 'ul',
  ],
  ALLOWED_ATTR: ['href', 'class', 'align', 'start', 'type', 'checked', 'disabled', 'title', 'data-lang', 'tabindex', 'target', 'rel'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  // Only href holds an address; the pattern above would refuse the others' values.
  ADD_URI_SAFE_ATTR: ['align', 'start', 'type', 'data-lang', 'tabindex', 'target', 'rel'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_TRUSTED_TYPE: true,
} as const;

let prepared = false;

/** Safe HTML; `TrustedHTML` where the browser knows it. */
export function sanitise(html: string): string {
  if (!prepared) {
    prepared = true;
    DOMPurify.addHook('afterSanitizeAttributes', (node) => {
      if (node.nodeName === 'A') {
        // A link leaves this page and tells the other side nothing about it.
        node.setAttribute('target', '_blank');
        node.setAttribute('rel', 'noopener noreferrer nofollow');
      }
      if (node.nodeName === 'INPUT' && node.getAttribute('type') !== 'checkbox') node.remove();
    });
  }
  return DOMPurify.sanitize(html, settings as never) as unknown as string;
}

export function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (ch) => `&#${ch.charCodeAt(0)};`);
}
