// Reads the numbered listing that the editor's view gives back.

export interface Listing {
  /** Text before the first numbered line. */
  readonly before: string;
  readonly lines: readonly { number: string; text: string }[];
  /** Notices after the last numbered line. */
  readonly after: string;
}

const numbered = /^ *(\d+)(?:\t|  )(.*)$/;

/** Null when the text holds no numbered lines. */
export function parseListing(text: string): Listing | null {
  const all = text.split('\n');
  const first = all.findIndex((l) => numbered.test(l));
  if (first < 0) return null;
  let end = first;
  const lines: { number: string; text: string }[] = [];
  while (end < all.length) {
    const match = numbered.exec(all[end]!);
    if (!match) break;
    lines.push({ number: match[1]!, text: match[2]! });
    end++;
  }
  return {
    before: all.slice(0, first).join('\n').trim(),
    lines,
    after: all.slice(end).join('\n').trim(),
  };
}
