// A modal dialog on the platform's own element: focus stays inside, Escape
// closes, and focus returns to where it was.

import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';
import { strings } from '../strings';
import { Button } from './controls';

export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const dialog = ref.current!;
    const before = document.activeElement as HTMLElement | null;
    dialog.showModal();
    return () => {
      if (dialog.open) dialog.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      class={props.wide ? 'dialog dialog--wide' : 'dialog'}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
      onClick={(event) => event.target === ref.current && props.onClose()}
    >
      <div class="dialog__inside">
        <header class="dialog__head">
          <h2 id={id}>{props.title}</h2>
          <Button kind="quiet" icon="close" label={strings.close} onClick={props.onClose} />
        </header>
        {props.children}
      </div>
    </dialog>
  );
}
