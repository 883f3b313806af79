// Buttons, badges, dots, copy: the small controls every screen uses.

import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { strings } from '../strings';
import { Icon, type IconName } from './icon';

interface ButtonProps {
  children?: ComponentChildren;
  icon?: IconName;
  label?: string;
  kind?: 'plain' | 'primary' | 'danger' | 'quiet';
  onClick?: (event: MouseEvent) => void;
  disabled?: boolean;
  type?: 'button' | 'submit';
  pressed?: boolean;
  class?: string;
}

/** With only an icon, `label` is required: it is the control's name. */
export function Button(props: ButtonProps) {
  const { children, icon, label, kind = 'plain', type = 'button', pressed } = props;
  const classes = ['button', `button--${kind}`, children ? '' : 'button--icon', props.class ?? ''].filter(Boolean);
  return (
    <button
      type={type}
      class={classes.join(' ')}
      onClick={props.onClick}
      disabled={props.disabled ?? false}
      aria-label={children ? undefined : label}
      title={children ? undefined : label}
      aria-pressed={pressed}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

export function Badge({ tone = 'plain', title, children }: { tone?: string; title?: string; children: ComponentChildren }) {
  return (
    <span class={`badge badge--${tone}`} title={title}>
      {children}
    </span>
  );
}

export function StatusDot({ status }: { status: string }) {
  const text = strings.status[status] ?? status;
  return (
    <span class={`dot dot--${status}`} role="img" aria-label={text} title={text} />
  );
}

export function CopyButton({ text, label = strings.copy }: { text: () => string; label?: string }) {
  const [done, setDone] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      return;
    }
    setDone(true);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setDone(false), 1500);
  };
  return <Button kind="quiet" icon={done ? 'check' : 'copy'} label={done ? strings.copied : label} onClick={() => void copy()} />;
}

export function Spinner() {
  return <span class="spinner" aria-hidden="true" />;
}
