// Everything that waits for an answer, over all sessions.

import { Pending } from '../parts/approval';
import { feed } from '../store/app';
import { titleOf } from '../store/feed';
import { navigate } from '../store/route';
import { strings } from '../strings';

export function ApprovalsScreen() {
  const { approvals, sessions } = feed.value;
  return (
    <div class="page">
      <div class="page__column">
        <h1>{strings.approvals.title}</h1>
        {approvals.size === 0 && <p class="muted">{strings.approvals.none}</p>}
        {[...approvals.values()].map((asked) => (
          <section key={asked.id}>
            <h2 class="page__sub">{titleOf(sessions.get(asked.session), strings.untitled)}</h2>
            <Pending asked={asked} onOpen={() => navigate({ screen: 'session', id: asked.session })} />
          </section>
        ))}
      </div>
    </div>
  );
}
