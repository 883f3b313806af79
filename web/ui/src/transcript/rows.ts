// What the list draws: the durable rows, then what is in progress.

import type { Live, LiveBlock } from '../stream/live';
import { strings } from '../strings';
import type { Item } from './items';

export type RowModel =
  | { key: string; row: 'item'; item: Item }
  | { key: string; row: 'live'; block: LiveBlock }
  | { key: string; row: 'working' };

export function durableRows(items: readonly Item[]): RowModel[] {
  return items.filter(drawn).map((item) => ({ key: item.key, row: 'item', item }));
}

/** The durable rows and, after them, what is in progress. */
export function withLive(durable: readonly RowModel[], live: Live, running: boolean): readonly RowModel[] {
  const calls = new Set<string>();
  const recent = durable.slice(-50);
  for (const row of recent) if (row.row === 'item' && row.item.kind === 'tool') calls.add(row.item.callId);
  // A tool block whose call is durable already is drawn as that call.
  const blocks = live.blocks.filter((b) => !b.callId || !calls.has(b.callId));
  const rows: RowModel[] = blocks.map((block) => ({
    key: `l${block.turn}.${block.step}.${block.attempt}.${block.block}`,
    row: 'live',
    block,
  }));
  const last = recent.at(-1);
  const busy = rows.length > 0 || (last?.row === 'item' && isOpen(last.item));
  if (running && !busy) rows.push({ key: 'working', row: 'working' });
  return rows.length ? [...durable, ...rows] : durable;
}

/** It shows by itself that something goes on. */
function isOpen(item: Item): boolean {
  return (item.kind === 'tool' && item.state === 'running') || (item.kind === 'approval' && item.outcome === undefined);
}

/** A message that only calls tools has no row of its own: the calls are the rows. */
function drawn(item: Item): boolean {
  if (item.kind !== 'assistant' || item.interrupted) return true;
  return item.content.some((b) => ((b.type === 'text' || b.type === 'reasoning') && b.text.trim() !== '') || b.type === 'image');
}

/** What a search in the conversation looks at. */
export function rowText(row: RowModel): string {
  if (row.row === 'live') return row.block.text;
  if (row.row === 'working') return '';
  const { item } = row;
  switch (item.kind) {
    case 'user':
    case 'assistant':
      return item.content.map((b) => ('text' in b ? b.text : '')).join('\n');
    case 'tool':
      return [item.name, item.args, ...(item.result ?? []).map((b) => ('text' in b ? b.text : ''))].join('\n');
    case 'notice':
      return `${strings.notice[item.what] ?? item.what} ${item.detail ?? ''}`;
    case 'approval':
      return JSON.stringify(item.data);
    case 'todo':
      return item.entries.map((e) => e.text).join('\n');
  }
}
