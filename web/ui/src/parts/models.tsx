// The model picker. The list is advice: a host may know no list at all.

import { useId } from 'preact/hooks';
import type { ModelRef } from '../api/wire';
import { models } from '../store/app';
import { strings } from '../strings';

export function ModelSelect({ value, onChange }: { value: ModelRef | null; onChange: (model: ModelRef | null) => void }) {
  const id = useId();
  const list = models.value;
  if (list.length === 0) return null;
  const text = strings.newSession;
  const key = (m: ModelRef) => `${m.provider}/${m.model}`;
  return (
    <div class="field">
      <label for={id}>{text.model}</label>
      <select
        id={id}
        value={value ? key(value) : ''}
        onChange={(event) => {
          const chosen = list.find((m) => key(m) === event.currentTarget.value);
          onChange(chosen ? { provider: chosen.provider, model: chosen.model } : null);
        }}
      >
        <option value="">{text.defaultModel}</option>
        {list.map((m) => (
          <option key={key(m)} value={key(m)}>
            {m.name && m.name !== m.model ? `${m.name} — ` : ''}
            {key(m)}
            {m.hasKey === false ? ` (${text.noKey})` : ''}
          </option>
        ))}
      </select>
    </div>
  );
}
