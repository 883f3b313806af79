// Offsets on the stream count UTF-8 bytes; strings here count UTF-16 units.

/** How many bytes `text` takes in UTF-8. A lone surrogate counts as U+FFFD. */
export function byteLength(text: string): number {
  let bytes = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0x80) bytes += 1;
    else if (unit < 0x800) bytes += 2;
    else if (unit >= 0xd800 && unit < 0xdc00 && isLow(text.charCodeAt(i + 1))) {
      bytes += 4;
      i++;
    } else bytes += 3;
  }
  return bytes;
}

/**
 * `text` without its first `count` bytes. A cut inside a character drops the
 * whole character: the other side never cuts there.
 */
export function dropBytes(text: string, count: number): string {
  let left = count;
  let i = 0;
  while (left > 0 && i < text.length) {
    const code = text.codePointAt(i)!;
    left -= code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    i += code < 0x10000 ? 1 : 2;
  }
  return text.slice(i);
}

function isLow(unit: number): boolean {
  return unit >= 0xdc00 && unit < 0xe000;
}
