// The conversation: rows of one session in a scrolling list, with a find bar for
// long ones and an announcement of new messages for those who can't see them.

import { useComputed } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Button, Spinner } from '../parts/controls';
import { Icon } from '../parts/icon';
import { memo } from '../parts/memo';
import { ApprovalCard } from '../parts/approval';
import type { OpenSession } from '../store/session';
import { feed } from '../store/app';
import { strings } from '../strings';
import { FindBar } from './find';
import { plainText } from './fold';
import { VirtualList, wholeList, type ListHandle } from './list';
import { AssistantMessage, LiveMessage, Notice, Todo, UserMessage } from './messages';
import { durableRows, withLive, type RowModel } from './rows';
import { LiveToolCard, ToolCard } from './tool';

export function TranscriptView({ session, linked }: { session: OpenSession; linked?: number }) {
  const durable = useComputed(() => durableRows(session.transcript.value.items));
  const rows = useComputed(() => withLive(durable.value, session.live.value, session.running.value)).value;
  const [following, setFollowing] = useState(true);
  const [finding, setFinding] = useState(false);
  const [marked, setMarked] = useState<string | null>(null);
  const list = useRef<ListHandle | null>(null);
  const { firstSeq, lastSeq } = session.transcript.value;
  const empty = rows.length === 0;

  useLinkedRow(session, rows, linked, (index) => {
    setMarked(rows[index]!.key);
    list.current?.toRow(index);
  });

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      // Short conversations are in the document as a whole; the browser's own find is better there.
      if (!(event.ctrlKey || event.metaKey) || event.key !== 'f' || rows.length <= wholeList || finding) return;
      event.preventDefault();
      setFinding(true);
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [rows.length, finding]);

  return (
    <div class="transcript">
      {finding && (
        <FindBar
          rows={rows}
          onGo={(index) => {
            setMarked(rows[index]!.key);
            list.current?.toRow(index);
          }}
          onClose={() => {
            setFinding(false);
            setMarked(null);
          }}
        />
      )}
      {empty ? (
        <div class="transcript__empty">{lastSeq < 0 && !session.caughtUp.value ? <Spinner /> : session.info.value?.status !== 'damaged' && <p>{strings.transcript.empty}</p>}</div>
      ) : (
        <VirtualList
          count={rows.length}
          keyOf={(index) => rows[index]?.key ?? String(index)}
          label={strings.transcript.label}
          handle={(handle) => (list.current = handle)}
          onFollowing={setFollowing}
          onNearTop={() => void session.loadOlder().catch(() => undefined)}
          head={firstSeq > 0 ? <Older session={session} /> : null}
          render={(index) => {
            const row = rows[index];
            return row ? <Row model={row} session={session} marked={row.key === marked} /> : null;
          }}
        />
      )}
      {!following && !empty && (
        <button type="button" class="jump" onClick={() => list.current?.toEnd()}>
          <Icon name="down" /> {strings.transcript.jump}
        </button>
      )}
      <Announcer session={session} />
    </div>
  );
}

const Row = memo(function Row({ model, session, marked }: { model: RowModel; session: OpenSession; marked: boolean }) {
  return <div class={marked ? 'row row--marked' : 'row'}>{body(model, session)}</div>;
}, (a, b) => a.marked === b.marked && a.session === b.session && sameRow(a.model, b.model));

function sameRow(a: RowModel, b: RowModel): boolean {
  if (a.row === 'item' && b.row === 'item') return a.item === b.item;
  if (a.row === 'live' && b.row === 'live') return a.block === b.block;
  return a.row === b.row;
}

function body(model: RowModel, session: OpenSession) {
  if (model.row === 'working') {
    return (
      <p class="working">
        <Spinner /> {strings.transcript.working}
      </p>
    );
  }
  if (model.row === 'live') return model.block.kind === 'tool' ? <LiveToolCard block={model.block} /> : <LiveMessage block={model.block} />;
  const { item } = model;
  switch (item.kind) {
    case 'user':
      return <UserMessage item={item} session={session.id} />;
    case 'assistant':
      return <AssistantMessage item={item} session={session.id} />;
    case 'tool':
      return item.state === 'running' ? <RunningTool item={item} session={session} /> : <ToolCard item={item} />;
    case 'notice':
      return <Notice item={item} />;
    case 'approval':
      return <ApprovalCard item={item} session={session.id} />;
    case 'todo':
      return <Todo item={item} />;
  }
}

function RunningTool({ item, session }: { item: Parameters<typeof ToolCard>[0]['item']; session: OpenSession }) {
  const output = useComputed(() => session.live.value.outputs.get(item.callId)).value;
  const waiting = useComputed(() => [...feed.value.approvals.values()].some((a) => a.session === session.id && a.callId === item.callId)).value;
  return <ToolCard item={item} waiting={waiting} {...(output ? { output } : {})} />;
}

function Older({ session }: { session: OpenSession }) {
  return (
    <div class="older">
      {session.loadingOlder.value ? (
        <span>
          <Spinner /> {strings.transcript.loadingOlder}
        </span>
      ) : (
        <Button kind="quiet" onClick={() => void session.loadOlder().catch(() => undefined)}>
          {strings.transcript.older}
        </Button>
      )}
    </div>
  );
}

/** Finds the row of a deep link, reading older pages until it is there. */
function useLinkedRow(session: OpenSession, rows: readonly RowModel[], linked: number | undefined, show: (index: number) => void): void {
  const shown = useRef<number | undefined>(undefined);
  const { firstSeq } = session.transcript.value;
  useEffect(() => {
    if (linked === undefined || shown.current === linked || firstSeq < 0) return;
    if (firstSeq > linked) {
      void session.loadOlder().catch(() => undefined);
      return;
    }
    const index = rows.findIndex((r) => r.row === 'item' && r.item.seq >= linked);
    if (index < 0) return;
    shown.current = linked;
    // After the list has drawn and gone to its end.
    const timer = setTimeout(() => show(index), 60);
    return () => clearTimeout(timer);
  }, [linked, firstSeq, rows.length]);
}

/** Says new messages, and not the ones that were there at the beginning. */
function Announcer({ session }: { session: OpenSession }) {
  const said = useRef<number | null>(null);
  const [text, setText] = useState('');
  const { items, lastSeq } = session.transcript.value;
  const ready = session.caughtUp.value;
  useEffect(() => {
    if (!ready) return;
    if (said.current === null) {
      said.current = lastSeq;
      return;
    }
    const last = items.findLast((i) => i.kind === 'assistant' && plainText(i.content).trim() !== '');
    if (last?.kind === 'assistant' && last.seq > said.current) {
      setText(`${strings.transcript.newMessage}: ${plainText(last.content).slice(0, 300)}`);
    }
    said.current = lastSeq;
  }, [lastSeq, ready]);
  return (
    <div class="sr-only" aria-live="polite" role="status">
      {text}
    </div>
  );
}
