// @vitest-environment jsdom
import { describe, expect, it } from 'vitest';
import { corpus } from '../../test/seed.mjs';
import { pieces, render } from './markdown';
import { sanitise } from './sanitise';

const html = (text: string) => pieces(text).map(render).join('');
const dom = (text: string) => {
  const box = document.createElement('div');
  box.innerHTML = html(text);
  return box;
};

describe('hostile text', () => {
  it.each(corpus)('%s', (text) => {
    const box = dom(text);
    expect(box.querySelectorAll('script,img,svg,iframe,style,form,math,base,object,embed,link,meta')).toHaveLength(0);
    for (const element of box.querySelectorAll('*')) {
      for (const attribute of element.getAttributeNames()) {
        expect(attribute).not.toMatch(/^on|^style$|^srcdoc$|^formaction$|^id$|^name$/i);
      }
      const href = element.getAttribute('href');
      if (href !== null) expect(href).toMatch(/^(https?:|mailto:)/);
    }
    // What was written is shown, not swallowed.
    if (text.startsWith('<')) expect(box.textContent).toContain(text.slice(0, 4));
  });

  it('leaves nothing for the sanitiser to be fooled by later', () => {
    for (const text of corpus) expect(sanitise(html(text))).toBe(html(text));
  });

  it('opens links elsewhere and tells the other side nothing', () => {
    const link = dom('[x](https://example.org)').querySelector('a')!;
    expect(link.getAttribute('target')).toBe('_blank');
    expect(link.getAttribute('rel')).toContain('noreferrer');
  });
});

describe('markdown', () => {
  it('keeps code as it is', () => {
    expect(dom('```sh\necho "<b>"\n```').querySelector('pre code')!.textContent).toBe('echo "<b>"');
  });
  it('keeps the lines of a person, and joins those of a model', () => {
    expect(pieces('a\nb', true).map(render).join('')).toContain('<br>');
    expect(html('a\nb')).not.toContain('<br>');
  });
  it('draws tables, lists and tasks', () => {
    const box = dom('| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n- [ ] open\n');
    expect(box.querySelectorAll('td')).toHaveLength(2);
    expect(box.querySelectorAll('input[type=checkbox]')).toHaveLength(2);
  });
  it('splits a growing text so that finished blocks stay the same', () => {
    const text = '# One\n\nTwo *three*.\n\n```js\nlet x = 1;\n```\n\nlast words';
    const done = pieces(text).slice(0, -1).map((p) => p.raw);
    expect(pieces(`${text} and more`).slice(0, -1).map((p) => p.raw)).toEqual(done);
  });
  it('uses link definitions from elsewhere in the text', () => {
    expect(dom('See [x].\n\n[x]: https://example.org/').querySelector('a')!.getAttribute('href')).toBe('https://example.org/');
  });
});
