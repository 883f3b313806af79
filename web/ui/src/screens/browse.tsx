// Walks the host's directories to choose one.

import { useEffect, useState } from 'preact/hooks';
import type { Workspaces } from '../api/wire';
import { Button, Spinner } from '../parts/controls';
import { Dialog } from '../parts/dialog';
import { Icon } from '../parts/icon';
import { api } from '../store/app';
import { strings } from '../strings';

export function BrowseDialog(props: { from: string; onChoose: (path: string) => void; onClose: () => void }) {
  const [path, setPath] = useState(props.from.startsWith('/') ? props.from : '');
  const [listing, setListing] = useState<Workspaces | null>(null);
  const [problem, setProblem] = useState('');
  const text = strings.browse;

  useEffect(() => {
    let current = true;
    const load = async () => {
      try {
        const answer = await api.get<Workspaces>(`workspaces${path ? `?path=${encodeURIComponent(path)}` : ''}`);
        if (!current) return;
        setListing(answer);
        setProblem('');
      } catch (error) {
        if (!current) return;
        // A path that is not there yet: begin at the top instead.
        if (path && path === props.from) setPath('/');
        else setProblem(error instanceof Error ? error.message : String(error));
      }
    };
    void load();
    return () => {
      current = false;
    };
  }, [path]);

  const here = listing?.path ?? path ?? '/';
  const entries = listing?.entries ?? [];
  const parent = listing?.parent;
  return (
    <Dialog title={text.title} onClose={props.onClose}>
      <p class="browse__path mono">{here}</p>
      {problem && <p class="problem" role="alert">{problem}</p>}
      <ul class="browse">
        {parent !== undefined && parent !== here && (
          <li>
            <button type="button" onClick={() => setPath(parent)}>
              <Icon name="up" /> {text.up}
            </button>
          </li>
        )}
        {entries.map((entry) => (
          <li key={entry.path}>
            <button type="button" onClick={() => setPath(entry.path)}>
              <Icon name="folder" /> {entry.name}
            </button>
          </li>
        ))}
        {!listing && !problem && <li><Spinner /></li>}
        {listing && entries.length === 0 && <li class="browse__none">{text.empty}</li>}
      </ul>
      <footer class="dialog__foot">
        <Button onClick={props.onClose}>{strings.cancel}</Button>
        <Button kind="primary" onClick={() => props.onChoose(here)}>
          {text.use}
        </Button>
      </footer>
    </Dialog>
  );
}
