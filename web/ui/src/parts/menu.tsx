// A small popup of actions, with the arrow keys and Escape.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from './icon';

export interface MenuEntry {
  label: string;
  run: () => void;
  danger?: boolean;
}

export function Menu(props: { label: string; icon?: IconName; entries: readonly MenuEntry[]; children?: ComponentChildren; up?: boolean }) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const trigger = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    if (!open) return;
    const outside = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('pointerdown', outside);
    root.current?.querySelector<HTMLElement>('[role=menuitem]')?.focus();
    return () => document.removeEventListener('pointerdown', outside);
  }, [open]);

  const close = () => {
    setOpen(false);
    trigger.current?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    const items = [...(root.current?.querySelectorAll<HTMLElement>('[role=menuitem]') ?? [])];
    const at = items.indexOf(document.activeElement as HTMLElement);
    if (event.key === 'Escape') close();
    else if (event.key === 'ArrowDown') items[(at + 1) % items.length]?.focus();
    else if (event.key === 'ArrowUp') items[(at - 1 + items.length) % items.length]?.focus();
    else if (event.key === 'Tab') return setOpen(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="menu" ref={root} onKeyDown={open ? onKey : undefined}>
      <button
        type="button"
        ref={trigger}
        class={props.children ? 'button button--plain' : 'button button--quiet button--icon'}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={props.children ? undefined : props.label}
        title={props.children ? undefined : props.label}
        onClick={(event) => {
          event.preventDefault();
          event.stopPropagation();
          setOpen(!open);
        }}
      >
        {props.icon && <Icon name={props.icon} />}
        {props.children}
      </button>
      {open && (
        <div class={props.up ? 'menu__list menu__list--up' : 'menu__list'} role="menu" aria-label={props.label}>
          {props.entries.map((entry) => (
            <button
              type="button"
              role="menuitem"
              tabIndex={-1}
              key={entry.label}
              class={entry.danger ? 'menu__item menu__item--danger' : 'menu__item'}
              onClick={(event) => {
                event.preventDefault();
                event.stopPropagation();
                close();
                entry.run();
              }}
            >
              {entry.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
