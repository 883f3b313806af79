// The preset picker, and what a preset mounts.

import { useEffect, useId, useState } from 'preact/hooks';
import type { PresetDetail, PresetRow, PresetSummary } from '../api/wire';
import { api } from '../store/app';
import { strings } from '../strings';
import { Badge } from './controls';

interface Props {
  presets: readonly PresetSummary[];
  chosen: string | null;
  onChoose: (id: string) => void;
}

export function PresetPicker({ presets, chosen, onChoose }: Props) {
  const name = useId();
  const text = strings.newSession;
  return (
    <fieldset class="field presets">
      <legend>{text.preset}</legend>
      {presets.length === 0 && <p class="muted">{text.noPresets}</p>}
      {presets.map((preset) => (
        <label key={preset.id} class={preset.broken ? 'preset preset--broken' : 'preset'}>
          <input
            type="radio"
            name={name}
            value={preset.id}
            checked={chosen === preset.id}
            disabled={Boolean(preset.broken)}
            onChange={() => onChoose(preset.id)}
          />
          <span class="preset__text">
            <span class="preset__name">
              {preset.name ?? preset.id}
              {preset.default && <Badge>{text.defaultPreset}</Badge>}
              {preset.broken ? <Badge tone="error">{text.broken}</Badge> : <FullAccess preset={preset} />}
            </span>
            {preset.description && <span class="preset__description">{preset.description}</span>}
            {preset.broken && <span class="preset__reason">{preset.broken}</span>}
            {!preset.broken && chosen === preset.id && <Mounts id={preset.id} />}
          </span>
        </label>
      ))}
    </fieldset>
  );
}

export function FullAccess({ preset }: { preset: Pick<PresetSummary, 'id' | 'fullAccess'> }) {
  const detail = usePreset(preset.fullAccess === undefined && preset.id !== 'minimal' ? preset.id : null);
  const full = preset.fullAccess ?? (preset.id === 'minimal' || mounts(detail?.rows).includes('fs-local'));
  if (!full) return null;
  return (
    <Badge tone="warn" title={strings.newSession.fullAccessHint}>
      {strings.newSession.fullAccess}
    </Badge>
  );
}

function Mounts({ id }: { id: string }) {
  const detail = usePreset(id);
  const parts = detail ? (detail.tools?.map((tool) => tool.name) ?? mounts(detail.rows)) : [];
  if (parts.length === 0) return null;
  return (
    <span class="preset__mounts">
      {strings.newSession.mounts}{' '}
      {parts.map((part) => (
        <code key={part}>{part}</code>
      ))}
    </span>
  );
}

const known = new Map<string, Promise<PresetDetail>>();

/** Details are asked for once; an edit of the preset forgets them. */
export function forgetPreset(id: string): void {
  known.delete(id);
}

export function usePreset(id: string | null): PresetDetail | null {
  const [detail, setDetail] = useState<PresetDetail | null>(null);
  useEffect(() => {
    if (id === null) return;
    let current = true;
    setDetail(null);
    const asked = known.get(id) ?? api.get<PresetDetail>(`presets/${encodeURIComponent(id)}`);
    known.set(id, asked);
    asked.then(
      (answer) => current && setDetail(answer),
      () => known.delete(id),
    );
    return () => {
      current = false;
    };
  }, [id]);
  return detail;
}

export function mounts(rows: readonly PresetRow[] | undefined): string[] {
  return (rows ?? []).flatMap((row) => [...(row.use ? [row.use] : []), ...mounts(row.rows)]);
}
