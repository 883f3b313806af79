// What the open session's calls may do without asking.

import { useEffect, useState } from 'preact/hooks';
import type { Leave } from '../api/wire';
import { api } from './app';
import { offers } from './offers';
import type { OpenSession } from './session';

/** Read again whenever the session's preset, or what it says of approvals, may have changed. */
export function useLeave(session: OpenSession): Leave | undefined {
  const [leave, setLeave] = useState<Leave>();
  const known = offers('GET /sessions/{}/grants');
  const preset = session.transcript.value.preset?.id ?? session.info.value?.preset?.id;
  const changes = session.transcript.value.leaveChanges;
  useEffect(() => {
    if (!known || !preset) return;
    let current = true;
    api.get<Leave>(session.path('/grants')).then(
      (next) => current && setLeave(next),
      () => current && setLeave(undefined), // the session is gone or damaged; its screen says so
    );
    return () => {
      current = false;
    };
  }, [known, session.id, preset, changes]);
  return leave;
}
