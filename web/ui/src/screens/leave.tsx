// What a session's calls may do without asking: its policy, and what was allowed
// for the whole session. Only where the preset asks at all.

import { useId, useState } from 'preact/hooks';
import type { Leave } from '../api/wire';
import { commandText } from '../parts/approval';
import { Button } from '../parts/controls';
import { Dialog } from '../parts/dialog';
import { api, attempt } from '../store/app';
import { change } from '../store/commands';
import type { OpenSession } from '../store/session';
import { strings } from '../strings';
import { visible } from '../text/format';

export function LeaveDialog({ session, leave, onClose }: { session: OpenSession; leave: Leave; onClose: () => void }) {
  const id = useId();
  const [full, setFull] = useState(false);
  const text = strings.approvals;
  const choose = (policy: string) => {
    if (policy === 'full') return setFull(true);
    setFull(false);
    void change(session, { approvalPolicy: policy });
  };
  return (
    <Dialog title={text.menu} onClose={onClose}>
      <div class="field">
        <label for={id}>{text.policy}</label>
        <select id={id} value={full ? 'full' : leave.policy} onChange={(event) => choose(event.currentTarget.value)}>
          {Object.entries(text.policies).map(([policy, label]) => (
            <option key={policy} value={policy}>
              {label}
            </option>
          ))}
        </select>
      </div>
      {full && leave.policy !== 'full' && (
        <div role="alert" class="banner banner--error">
          <span>{text.fullText}</span>
          <Button
            kind="danger"
            onClick={() => {
              setFull(false);
              void change(session, { approvalPolicy: 'full', acknowledgeFullAccess: true });
            }}
          >
            {text.policies['full']}
          </Button>
        </div>
      )}
      <h3>{text.grants}</h3>
      {leave.grants.length === 0 && <p class="muted">{text.noGrants}</p>}
      <ul class="leave">
        {leave.grants.map((grant) => (
          <li key={grant.id}>
            <span>
              {(grant.covers ?? []).map((words, i) => (
                <code key={i}>{commandText(words)}</code>
              ))}
              {!grant.covers && (
                <code>
                  {visible(grant.tool)} {visible(grant.arguments)}
                </code>
              )}
            </span>
            <Button onClick={() => void attempt(() => api.delete(session.path(`/grants/${encodeURIComponent(grant.id)}`)))}>{text.revoke}</Button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
