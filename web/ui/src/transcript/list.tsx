// The scrolling list. Short conversations are drawn whole, so that the browser's
// own find works; long ones keep only what is near the window, plus what the
// reader has selected. The list follows its end until the reader scrolls away.

import {
  elementScroll,
  measureElement,
  observeElementOffset,
  observeElementRect,
  Virtualizer,
  defaultRangeExtractor,
  type Range,
  type VirtualizerOptions,
} from '@tanstack/virtual-core';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';

/** Up to this many rows the whole conversation is in the document. */
export const wholeList = 300;
const pinnedRows = 200;
const endThreshold = 32;

export interface ListHandle {
  toEnd(): void;
  toRow(index: number): void;
}

interface Props {
  count: number;
  keyOf: (index: number) => string;
  render: (index: number) => ComponentChildren;
  label: string;
  /** Above the first row: the control for older pages. */
  head?: ComponentChildren;
  onNearTop: () => void;
  onFollowing: (following: boolean) => void;
  handle: (handle: ListHandle) => void;
}

type V = Virtualizer<HTMLDivElement, HTMLDivElement>;

export function VirtualList(props: Props) {
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const scroller = useRef<HTMLDivElement>(null);
  const inner = useRef<HTMLDivElement>(null);
  const following = useRef(true);
  const latest = useRef(props);
  latest.current = props;

  const [stable] = useState(() => ({
    // The same functions every time: new ones would make the list measure everything again.
    getScrollElement: () => scroller.current,
    getItemKey: (index: number) => latest.current.keyOf(index),
    estimateSize: () => 96,
    rangeExtractor: (range: Range) => withSelection(range, inner.current),
    onChange: () => redraw(undefined as never),
  }));
  const [list] = useState<V>(() => new Virtualizer(options()));
  function options(): VirtualizerOptions<HTMLDivElement, HTMLDivElement> {
    return {
      count: latest.current.count,
      ...stable,
      overscan: latest.current.count <= wholeList ? wholeList : 8,
      anchorTo: 'end',
      followOnAppend: true,
      scrollEndThreshold: endThreshold,
      observeElementRect,
      observeElementOffset,
      scrollToFn: elementScroll,
      measureElement,
    };
  }
  list.setOptions(options());

  useLayoutEffect(() => list._didMount(), [list]);
  useLayoutEffect(() => list._willUpdate());

  // The first page is shown from its end.
  const filled = props.count > 0;
  useLayoutEffect(() => {
    if (filled) list.scrollToEnd();
  }, [filled]);

  useLayoutEffect(() => {
    props.handle({
      toEnd: () => list.scrollToEnd(),
      toRow: (index) => list.scrollToIndex(index, { align: 'center' }),
    });
  }, [list]);

  const onScroll = () => {
    const box = scroller.current!;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight <= endThreshold * 2;
    if (atEnd !== following.current) {
      following.current = atEnd;
      latest.current.onFollowing(atEnd);
    }
    if (box.scrollTop < 800) latest.current.onNearTop();
  };

  const rows = list.getVirtualItems();
  return (
    <div class="list" ref={scroller} onScroll={onScroll} tabIndex={0} role="region" aria-label={props.label}>
      {props.head}
      <div class="list__size" ref={inner} style={{ height: `${list.getTotalSize()}px` }}>
        <div class="list__window" style={{ transform: `translateY(${rows[0]?.start ?? 0}px)` }}>
          {rows.map((row) => (
            <div key={row.key} data-index={row.index} class="list__row" ref={list.measureElement}>
              {props.render(row.index)}
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}

/** Rows that hold the reader's selection stay in the document while it stands. */
function withSelection(range: Range, inner: HTMLElement | null): number[] {
  const indexes = defaultRangeExtractor(range);
  const selection = inner ? document.getSelection() : null;
  if (!selection || selection.isCollapsed || !inner?.contains(selection.anchorNode)) return indexes;
  const ends = [rowIndex(selection.anchorNode), rowIndex(selection.focusNode)].filter((i): i is number => i !== null);
  const from = Math.min(indexes[0] ?? 0, ...ends);
  const to = Math.min(Math.max(indexes.at(-1) ?? 0, ...ends), range.count - 1);
  if (to - from > pinnedRows) return indexes;
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

function rowIndex(node: Node | null): number | null {
  const element = node instanceof Element ? node : node?.parentElement;
  const row = element?.closest<HTMLElement>('[data-index]');
  return row ? Number(row.dataset['index']) : null;
}
