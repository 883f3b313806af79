// Reads the arguments of a tool call, also while they are still being written:
// the fields that are complete, and the last string as far as it goes.

export interface Args {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly complete: boolean;
}

export function readArgs(raw: string): Args {
  try {
    const value: unknown = JSON.parse(raw);
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      return { fields: value as Record<string, unknown>, complete: true };
    }
    return { fields: {}, complete: true };
  } catch {
    return { fields: readPartial(raw), complete: false };
  }
}

function readPartial(raw: string): Record<string, unknown> {
  const fields: Record<string, unknown> = {};
  let at = skip(raw, 0, /[\s{]/);
  while (at < raw.length) {
    const key = readString(raw, at);
    if (!key?.closed) break;
    at = skip(raw, key.end, /[\s:]/);
    if (raw[at] === '"') {
      const value = readString(raw, at)!;
      fields[key.text] = value.text;
      if (!value.closed) break;
      at = value.end;
    } else {
      const end = valueEnd(raw, at);
      if (end < 0) break;
      try {
        fields[key.text] = JSON.parse(raw.slice(at, end));
      } catch {
        break;
      }
      at = end;
    }
    at = skip(raw, at, /[\s,]/);
  }
  return fields;
}

function readString(raw: string, at: number): { text: string; end: number; closed: boolean } | null {
  if (raw[at] !== '"') return null;
  let end = at + 1;
  while (end < raw.length && raw[end] !== '"') end += raw[end] === '\\' ? 2 : 1;
  const closed = end < raw.length;
  let body = raw.slice(at + 1, Math.min(end, raw.length));
  // A cut escape can't be read yet.
  if (!closed) body = body.replace(/(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?$/, '$1');
  try {
    return { text: JSON.parse(`"${body}"`) as string, end: end + 1, closed };
  } catch {
    return { text: body, end: end + 1, closed };
  }
}

/** The end of a number, literal, array or object; −1 while it is unfinished. */
function valueEnd(raw: string, at: number): number {
  let depth = 0;
  for (let i = at; i < raw.length; i++) {
    const ch = raw[i]!;
    if (ch === '"') {
      const inner = readString(raw, i)!;
      if (!inner.closed) return -1;
      i = inner.end - 1;
    } else if (ch === '[' || ch === '{') depth++;
    else if (ch === ']' || ch === '}') {
      if (depth === 0) return i;
      depth--;
      if (depth === 0) return i + 1;
    } else if (depth === 0 && (ch === ',' || /\s/.test(ch))) return i;
  }
  return -1;
}

function skip(raw: string, at: number, what: RegExp): number {
  let i = at;
  while (i < raw.length && what.test(raw[i]!)) i++;
  return i;
}

export function stringField(args: Args, name: string): string | undefined {
  const value = args.fields[name];
  return typeof value === 'string' ? value : undefined;
}
