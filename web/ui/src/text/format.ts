// Small numbers and dates, as people read them.

export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return '';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  const minutes = Math.floor(ms / 60_000);
  const seconds = Math.round((ms % 60_000) / 1000);
  return minutes < 60 ? `${minutes} min ${seconds} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function bytes(n: number): string {
  if (n < 1024) return `${n} B`;
  if (n < 1024 * 1024) return `${(n / 1024).toFixed(n < 10_240 ? 1 : 0)} KiB`;
  return `${(n / 1024 / 1024).toFixed(1)} MiB`;
}

export function count(n: number): string {
  return n < 10_000 ? n.toLocaleString('en') : `${(n / 1000).toFixed(n < 100_000 ? 1 : 0)}k`;
}

// Made once: making one takes longer than drawing the row that shows it.
const clockFormat = new Intl.DateTimeFormat([], { hour: '2-digit', minute: '2-digit' });
const dayFormat = new Intl.DateTimeFormat([], { month: 'short', day: 'numeric' });

export function clock(ms: number): string {
  return clockFormat.format(ms);
}

/** "now", "5 min", "3 h", else a date. */
export function ago(when: string | number | undefined, now = Date.now()): string {
  if (when === undefined) return '';
  const at = typeof when === 'number' ? when : Date.parse(when);
  if (!Number.isFinite(at)) return '';
  const minutes = Math.floor((now - at) / 60_000);
  if (minutes < 1) return 'now';
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  return dayFormat.format(at);
}

/** The last two parts of a path: enough to tell workspaces apart. */
export function shortPath(path: string): string {
  const parts = path.split('/').filter(Boolean);
  return parts.length <= 2 ? path : `…/${parts.slice(-2).join('/')}`;
}

/**
 * Text that someone must judge: control and bidirectional characters are shown
 * as escapes, so that nothing hides or reorders itself.
 */
export function visible(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\u{e0000}-\u{e0fff}]/gu,
    (ch) => {
      const hex = ch.codePointAt(0)!.toString(16);
      return hex.length > 4 ? `\\u{${hex}}` : `\\u${hex.padStart(4, '0')}`;
    },
  );
}
