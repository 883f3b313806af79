// What this host can do, from its own API document. A control whose route the
// host does not have is not shown, so that there are no dead buttons.

import { signal } from '@preact/signals';

/** Operations as `GET /sessions/{}/prompt`; null until known, 'all' when the host does not say. */
const operations = signal<ReadonlySet<string> | 'all' | null>(null);

export type Operation = `${'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'} /${string}`;

export function offers(operation: Operation): boolean {
  const known = operations.value;
  return known === 'all' || (known?.has(operation) ?? false);
}

export async function learnOffers(read: () => Promise<unknown>): Promise<void> {
  try {
    operations.value = operationsOf(await read());
  } catch {
    operations.value = 'all';
  }
}

export function operationsOf(document: unknown): Set<string> {
  const found = new Set<string>();
  const paths = (document as { paths?: Record<string, object> }).paths ?? {};
  for (const [path, item] of Object.entries(paths)) {
    const name = path.replace(/^.*\/api\/v1(?=\/)/, '').replace(/\{[^}]*\}/g, '{}');
    for (const method of Object.keys(item)) found.add(`${method.toUpperCase()} ${name}`);
  }
  return found;
}
