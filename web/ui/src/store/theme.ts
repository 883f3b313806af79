// Light, dark, or what the system says.

import { signal } from '@preact/signals';

export type Theme = 'system' | 'light' | 'dark';

const key = 'dsh-web.theme';

export const theme = signal<Theme>('system');

export function setTheme(next: Theme): void {
  theme.value = next;
  document.documentElement.dataset['theme'] = next;
  try {
    localStorage.setItem(key, next);
  } catch {
    // Not kept, then.
  }
}

export function restoreTheme(): void {
  let kept: string | null = null;
  try {
    kept = localStorage.getItem(key);
  } catch {
    // Nothing kept.
  }
  setTheme(kept === 'light' || kept === 'dark' ? kept : 'system');
}
