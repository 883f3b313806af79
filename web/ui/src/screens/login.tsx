// Shown when the host knows this browser not, or does not answer.

import { access, accessReason, enter } from '../store/app';
import { Button, CopyButton, Spinner } from '../parts/controls';
import { strings } from '../strings';

export function LoginScreen() {
  const text = strings.login;
  if (access.value === 'checking') {
    return (
      <main class="gate" aria-busy="true">
        <p class="gate__wait">
          <Spinner /> {text.checking}
        </p>
      </main>
    );
  }
  const unreachable = access.value === 'unreachable';
  return (
    <main class="gate">
      <div class="gate__card">
        <Mark />
        <h1>{unreachable ? text.unreachable : text.title}</h1>
        {accessReason.value && !unreachable && (
          <p class="gate__reason" role="alert">
            {accessReason.value}
          </p>
        )}
        {unreachable ? (
          <p>{text.unreachableDetail}</p>
        ) : (
          <>
            <p>{text.lead}</p>
            <div class="gate__command">
              <code>{text.command}</code>
              <CopyButton text={() => text.command} />
            </div>
            <p class="gate__detail">{text.detail}</p>
          </>
        )}
        <Button onClick={() => void enter()}>{strings.retry}</Button>
      </div>
    </main>
  );
}

function Mark() {
  return (
    <svg class="gate__mark" width="40" height="40" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="7" />
      <path d="M8 10l6 6-6 6M17 22h7" />
    </svg>
  );
}
