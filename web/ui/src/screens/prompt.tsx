// Exactly what the model gets next, and how the requests so far hang together.

import { useEffect, useState } from 'preact/hooks';
import type { Prompt, Proof, SentRequest, ToolSchema } from '../api/wire';
import { CodeView } from '../parts/code';
import { Badge, CopyButton, Spinner } from '../parts/controls';
import { SidePanel } from '../parts/panel';
import { api } from '../store/app';
import { offers } from '../store/offers';
import type { OpenSession } from '../store/session';
import { strings } from '../strings';
import { bytes, count } from '../text/format';

export function PromptPanel({ session, onClose }: { session: OpenSession; onClose: () => void }) {
  const [prompt, setPrompt] = useState<Prompt | null>(null);
  const [proof, setProof] = useState<Proof | null>(null);
  const [problem, setProblem] = useState('');
  const text = strings.prompt;
  const { settled, preset } = session.transcript.value;

  useEffect(() => {
    let current = true;
    api.get<Prompt>(session.path('/prompt')).then(
      (answer) => current && (setPrompt(answer), setProblem('')),
      (error: Error) => current && setProblem(error.message),
    );
    if (offers('GET /sessions/{}/proof')) {
      api.get<Proof>(session.path('/proof')).then(
        (answer) => current && setProof(answer),
        () => current && setProof(null),
      );
    }
    return () => {
      current = false;
    };
  }, [session, settled, preset?.id]);

  const size = prompt ? Math.ceil((prompt.system.length + JSON.stringify(prompt.tools ?? []).length) / 4) : 0;
  return (
    <SidePanel title={text.title} onClose={onClose}>
      <p class="muted">{text.lead}</p>
      {problem && <p class="problem" role="alert">{problem}</p>}
      {!prompt && !problem && <Spinner />}
      {prompt && (
        <>
          <dl class="facts">
            <dt>{text.hash}</dt>
            <dd>
              <code class="hash" title={prompt.hash}>{prompt.hash}</code>
              <CopyButton text={() => prompt.hash} />
            </dd>
          </dl>
          <h3>
            {text.system} <span class="muted">{text.estimate(count(size))}</span>
          </h3>
          {prompt.system ? <pre class="plain plain--boxed" tabIndex={0}>{prompt.system}</pre> : <p class="muted">{text.noSystem}</p>}
          <h3>
            {text.tools} <span class="muted">{prompt.tools?.length ?? 0}</span>
          </h3>
          {(prompt.tools ?? []).map((tool) => (
            <ToolView key={nameOf(tool)} tool={tool} />
          ))}
        </>
      )}
      {proof && <Chain proof={proof} />}
    </SidePanel>
  );
}

function ToolView({ tool }: { tool: ToolSchema }) {
  const inner = (tool['function'] as ToolSchema | undefined) ?? tool;
  return (
    <details class="schema">
      <summary>
        <code>{nameOf(tool)}</code>
      </summary>
      {inner.description && <pre class="plain">{inner.description}</pre>}
      <CodeView code={JSON.stringify(inner.parameters ?? inner['inputSchema'] ?? inner['schema'] ?? {}, null, 2)} language="json" />
    </details>
  );
}

function nameOf(tool: ToolSchema): string {
  return ((tool['function'] as ToolSchema | undefined) ?? tool).name;
}

function Chain({ proof }: { proof: Proof }) {
  const text = strings.prompt;
  const requests = proof.requests ?? [];
  return (
    <>
      <h3>{text.chain}</h3>
      {requests.length === 0 ? (
        <p class="muted">{text.noRequests}</p>
      ) : (
        <>
          <p class={proof.contiguous ? 'verdict verdict--good' : 'verdict verdict--bad'}>
            {proof.contiguous ? text.contiguous : text.broken}
          </p>
          <div class="table" tabIndex={0} role="group" aria-label={text.chain}>
            <table>
              <thead>
                <tr>
                  <th scope="col">{text.request}</th>
                  <th scope="col">{text.size}</th>
                  <th scope="col">{text.body}</th>
                  <th scope="col">
                    <span class="sr-only">{text.extends}</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {requests.map((r, i) => (
                  <RequestRow key={i} request={r} first={i === 0} />
                ))}
              </tbody>
            </table>
          </div>
        </>
      )}
    </>
  );
}

function RequestRow({ request, first }: { request: SentRequest; first: boolean }) {
  const text = strings.prompt;
  const at = [request.turn, request.step, request.attempt].filter((n) => n !== undefined).join('.');
  const diverges = request.divergesAt !== undefined && request.contiguous !== true;
  return (
    <tr>
      <td>{at}</td>
      <td>{request.bytes === undefined ? '' : bytes(request.bytes)}</td>
      <td>
        <code title={request.bodySha256}>{request.bodySha256?.slice(0, 12)}</code>
      </td>
      <td>
        {diverges && !first ? (
          <Badge tone="error">{text.diverged(String(request.divergesAt))}</Badge>
        ) : (
          <Badge tone="good">{first ? text.first : text.extends}</Badge>
        )}
      </td>
    </tr>
  );
}
