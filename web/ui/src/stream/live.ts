// Live text: what the model is writing and what a running tool is printing.
// It is provisional. A block goes away when its message is durable or when the
// host withdraws it; the output of a call goes away with the call's result.

import type { BlockKind, Frame } from '../api/wire';
import { byteLength, dropBytes } from './utf8';

export interface LiveBlock {
  readonly block: number;
  readonly turn: number;
  readonly step: number;
  readonly attempt: number;
  readonly kind: BlockKind;
  readonly name?: string;
  readonly callId?: string;
  readonly text: string;
  /** Length of everything received, in UTF-8 bytes. */
  readonly bytes: number;
  /** Kept over a lost connection until the host says what is current. */
  readonly stale?: boolean;
}

export interface LiveOutput {
  readonly callId: string;
  readonly text: string;
  /** Absolute offset just after `text`, in bytes. */
  readonly end: number;
  /** Bytes at the beginning or in the middle that are not in `text`. */
  readonly skipped: number;
}

export interface Live {
  readonly blocks: readonly LiveBlock[];
  readonly outputs: ReadonlyMap<string, LiveOutput>;
}

export const noLive: Live = { blocks: [], outputs: new Map() };

/** Characters of one running call's output that the page keeps. */
export const keptOutput = 128 * 1024;

type LiveFrame = Extract<Frame, { type: 'block' | 'delta' | 'drop' | 'output' }>;

export function applyLive(live: Live, frame: LiveFrame): Live {
  switch (frame.type) {
    case 'block': {
      const fresh: LiveBlock = {
        block: frame.block,
        turn: frame.turn,
        step: frame.step,
        attempt: frame.attempt,
        kind: frame.kind,
        ...(frame.name ? { name: frame.name } : {}),
        ...(frame.callId ? { callId: frame.callId } : {}),
        text: '',
        bytes: 0,
      };
      // Announced again, with a name it did not have before: it begins again, in its place.
      const blocks = live.blocks.filter((b) => !b.stale);
      const at = blocks.findIndex((b) => b.block === frame.block);
      return { ...live, blocks: at < 0 ? [...blocks, fresh] : blocks.with(at, fresh) };
    }
    case 'delta': {
      const at = live.blocks.findIndex((b) => b.block === frame.block);
      if (at < 0) return live;
      const grown = appendDelta(live.blocks[at]!, frame.offset, frame.text);
      return grown === live.blocks[at] ? live : { ...live, blocks: live.blocks.with(at, grown) };
    }
    case 'drop':
      return { ...live, blocks: live.blocks.filter((b) => b.block !== frame.block) };
    case 'output': {
      const before = live.outputs.get(frame.callId);
      const after = appendOutput(before, frame);
      if (after === before) return live;
      const outputs = new Map(live.outputs);
      outputs.set(frame.callId, after);
      return { ...live, outputs };
    }
  }
}

function appendDelta(block: LiveBlock, offset: number, text: string): LiveBlock {
  if (offset > block.bytes) return block; // A hole: the host never sends one; wait for a fresh start.
  const add = dropBytes(text, block.bytes - offset);
  if (add === '') return block;
  return { ...block, text: block.text + add, bytes: block.bytes + byteLength(add) };
}

function appendOutput(
  before: LiveOutput | undefined,
  frame: Extract<Frame, { type: 'output' }>,
): LiveOutput {
  const old = before ?? { callId: frame.callId, text: '', end: 0, skipped: 0 };
  const gap = Math.max(0, frame.offset - old.end);
  const add = gap > 0 ? frame.text : dropBytes(frame.text, old.end - frame.offset);
  if (add === '' && gap === 0 && before) return before;
  let text = old.text + add;
  let skipped = old.skipped + gap;
  if (text.length > keptOutput) {
    const cut = text.indexOf('\n', text.length - keptOutput) + 1 || text.length - keptOutput;
    skipped += byteLength(text.slice(0, cut));
    text = text.slice(cut);
  }
  return { callId: frame.callId, text, end: old.end + gap + byteLength(add), skipped };
}

/** The message of this step is durable: its provisional text has done its work. */
export function settleStep(live: Live, turn: number, step: number): Live {
  const blocks = live.blocks.filter((b) => b.turn !== turn || b.step !== step);
  return blocks.length === live.blocks.length ? live : { ...live, blocks };
}

export function settleCall(live: Live, callId: string): Live {
  if (!live.outputs.has(callId)) return live;
  const outputs = new Map(live.outputs);
  outputs.delete(callId);
  return { ...live, outputs };
}

/** The turn ended: nothing of it is in progress any more. */
export function settleTurn(live: Live): Live {
  return live.blocks.length || live.outputs.size ? noLive : live;
}

/** The connection is gone: show what there is, until it is said again. */
export function markStale(live: Live): Live {
  if (live.blocks.length === 0) return live;
  return { ...live, blocks: live.blocks.map((b) => ({ ...b, stale: true })) };
}

export function dropStale(live: Live): Live {
  const blocks = live.blocks.filter((b) => !b.stale);
  return blocks.length === live.blocks.length ? live : { ...live, blocks };
}
