import { useState } from 'preact/hooks';
import type { Session } from '../api/wire';
import { Button } from '../parts/controls';
import { Dialog } from '../parts/dialog';
import { remove } from '../store/commands';
import { titleOf } from '../store/feed';
import { navigate, route } from '../store/route';
import { strings } from '../strings';

export function DeleteDialog({ session, onClose }: { session: Session; onClose: () => void }) {
  const [running, setRunning] = useState(session.status === 'running');
  const [busy, setBusy] = useState(false);
  const text = strings.delete;
  const go = async () => {
    setBusy(true);
    const outcome = await remove(session.id, running);
    setBusy(false);
    if (outcome === 'running') return setRunning(true);
    if (outcome === 'gone' && route.value.screen === 'session' && route.value.id === session.id) navigate({ screen: 'new' }, true);
    onClose();
  };
  return (
    <Dialog title={text.title} onClose={onClose}>
      <p>{text.text(titleOf(session, strings.untitled))}</p>
      {running && <p>{text.running}</p>}
      <footer class="dialog__foot">
        <Button onClick={onClose}>{strings.cancel}</Button>
        <Button kind="danger" disabled={busy} onClick={() => void go()}>
          {running ? text.confirmRunning : text.confirm}
        </Button>
      </footer>
    </Dialog>
  );
}
