// A panel beside the conversation; on a narrow screen it lies over it.

import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { strings } from '../strings';
import { Button } from './controls';

export function SidePanel(props: { title: string; onClose: () => void; actions?: ComponentChildren; children: ComponentChildren; flush?: boolean }) {
  const id = useId();
  return (
    <aside
      class="panel"
      aria-labelledby={id}
      onKeyDown={(event) => {
        if (event.key === 'Escape' && !event.defaultPrevented && !(event.target as Element).closest('.terminal')) props.onClose();
      }}
    >
      <header class="panel__head">
        <h2 id={id}>{props.title}</h2>
        <span class="panel__actions">
          {props.actions}
          <Button kind="quiet" icon="close" label={strings.close} onClick={props.onClose} />
        </span>
      </header>
      <div class={props.flush ? 'panel__body panel__body--flush' : 'panel__body'}>{props.children}</div>
    </aside>
  );
}
