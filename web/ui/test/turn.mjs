// One scripted turn: reasoning, text, two bash calls with live output, an edit.

import { randomUUID } from 'node:crypto';
import { liveBlock } from './fixture.mjs';

export async function playTurn(session, message, delay) {
  const turn = ++session.turn;
  let stopped = false;
  session.cancelled = () => (stopped = true);
  const pause = (n = 1) => new Promise((resolve) => setTimeout(resolve, delay * n));
  const say = async (step, blocks) => {
    const content = [];
    for (const [kind, text] of blocks) {
      const live = liveBlock(session, { turn, step, kind });
      let written = '';
      for (const word of text.match(/\S+\s*/g)) {
        if (stopped) break;
        written += word;
        live.delta(word);
        await pause();
      }
      content.push({ type: kind, text: written });
      live.settle();
    }
    return content;
  };
  const call = async (step, name, args, output, meta = {}) => {
    const id = `call_${randomUUID().slice(0, 8)}`;
    const raw = JSON.stringify(args);
    const live = liveBlock(session, { turn, step, kind: 'tool', name, callId: id });
    for (let i = 0; i < raw.length; i += 24) {
      live.delta(raw.slice(i, i + 24));
      await pause(0.5);
    }
    live.settle();
    return { id, name, raw, output, meta };
  };
  const finish = (step, content) => {
    session.append('assistant/message', {
      turn, step, message: { id: randomUUID(), role: 'assistant', content, source: { kind: 'model' } },
      usage: { inputTokens: 600, outputTokens: 40 }, timing: { ttftMs: 12, totalMs: 80 }, ...(stopped ? { interrupted: true } : {}),
    });
  };
  const run = async (step, { id, name, raw, output, meta }) => {
    session.append('tool/call', { turn, step, callId: id, name, arguments: raw });
    let text = '';
    for (const line of output) {
      if (stopped) break;
      session.frame({ type: 'output', session: session.id, callId: id, offset: Buffer.byteLength(text), text: line });
      text += line;
      session.outputs.set(id, text);
      await pause(3);
    }
    session.outputs.delete(id);
    const plain = text.replace(/\x1b\[[0-9;]*m/g, '').replace(/\n$/, '');
    session.append('tool/result', {
      turn, step, message: { id: randomUUID(), role: 'user', source: { kind: 'tool', callId: id }, content: [{ type: 'tool-result', toolCallId: id, content: [{ type: 'text', text: plain }] }] },
      meta,
    });
  };
  const steps = [
    async (step) => {
      const content = await say(step, [['reasoning', 'The person wants to see the tools work. First look around.'], ['text', 'I will look at the workspace first.']]);
      if (stopped) return finish(step, content);
      const tool = await call(step, 'bash', { command: 'ls -la --color' }, ['total 8\n', '\x1b[34mdocs\x1b[0m\n', 'README.md\n'], { exitCode: 0 });
      finish(step, [...content, { type: 'tool-call', id: tool.id, name: tool.name, arguments: tool.raw }]);
      await run(step, tool);
    },
    async (step) => {
      const tool = await call(step, 'bash', { command: 'for i in 1 2 3; do\n  echo "line $i"\ndone\nexit_with() { return 3; }; exit_with' }, ['line 1\n', 'line 2\n', 'line 3\n', '[exit code: 3]\n'], { exitCode: 3, leftOver: [{ pid: 4242, command: 'python3 -m http.server', ports: [8000] }] });
      finish(step, [{ type: 'tool-call', id: tool.id, name: tool.name, arguments: tool.raw }]);
      await run(step, tool);
    },
    async (step) => {
      const tool = await call(step, 'str_replace_editor', { command: 'str_replace', path: '/tmp/work/README.md', old_str: '# Title\nold line\nend', new_str: '# Title\nnew line\nanother line\nend' }, ['The file /tmp/work/README.md has been edited.\n']);
      finish(step, [{ type: 'tool-call', id: tool.id, name: tool.name, arguments: tool.raw }]);
      await run(step, tool);
    },
    async (step) => {
      finish(step, await say(step, [['text', 'Done. Here is a **summary**:\n\n- looked around\n- edited `README.md`\n\n```python\ndef add(a, b):\n    return a + b\n```\n\n| file | change |\n|---|---|\n| README.md | 2 lines |\n']]));
    },
  ];
  session.append('turn/start', { turn });
  session.append('user/message', { id: message.id, role: 'user', content: message.content, source: { kind: 'user' } });
  for (const [i, play] of steps.entries()) {
    if (stopped || session.host.closed) break;
    session.append('step/start', { turn, step: i + 1 });
    session.append('request/sent', { turn, step: i + 1, attempt: 1, bodySha256: 'ab12cd34'.repeat(8), bytes: 2048 + i * 300, contiguous: true });
    await play(i + 1);
    session.append('step/end', { turn, step: i + 1 });
  }
  session.append('turn/end', { turn, reason: stopped ? { kind: 'aborted', by: 'user' } : { kind: 'completed' } });
}
