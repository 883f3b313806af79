// Find in a conversation that is too long to be in the document as a whole.

import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Button } from '../parts/controls';
import { strings } from '../strings';
import { rowText, type RowModel } from './rows';

interface Props {
  rows: readonly RowModel[];
  onGo: (index: number) => void;
  onClose: () => void;
}

export function FindBar({ rows, onGo, onClose }: Props) {
  const [query, setQuery] = useState('');
  const [at, setAt] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => input.current?.focus(), []);

  const hits = useMemo(() => {
    const wanted = query.trim().toLowerCase();
    if (!wanted) return [];
    return rows.flatMap((row, i) => (rowText(row).toLowerCase().includes(wanted) ? [i] : []));
  }, [query, rows]);

  const go = (next: number) => {
    if (hits.length === 0) return;
    const wrapped = (next + hits.length) % hits.length;
    setAt(wrapped);
    onGo(hits[wrapped]!);
  };
  useEffect(() => go(hits.length - 1), [query]);

  return (
    <form
      class="find"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        go(at - 1);
      }}
      onKeyDown={(event) => event.key === 'Escape' && onClose()}
    >
      <input
        ref={input}
        type="search"
        aria-label={strings.transcript.find}
        placeholder={strings.transcript.find}
        value={query}
        onInput={(event) => setQuery(event.currentTarget.value)}
      />
      <span class="find__count" role="status">
        {query.trim() && (hits.length ? strings.transcript.findCount(at + 1, hits.length) : strings.transcript.findNone)}
      </span>
      <Button kind="quiet" icon="up" label={strings.transcript.previous} onClick={() => go(at - 1)} />
      <Button kind="quiet" icon="down" label={strings.transcript.next} onClick={() => go(at + 1)} />
      <Button kind="quiet" icon="close" label={strings.close} onClick={onClose} />
    </form>
  );
}
