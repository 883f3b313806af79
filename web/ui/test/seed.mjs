// Sessions that are there from the start: a long one, a hostile one, one that
// waits for an approval, one of each notice.

const hour = 3_600_000;

export function seedSessions(host) {
  const now = Date.now();
  long(host.create({ id: 'long', title: 'Ten thousand messages', workspace: '/home/me/projects/parser', at: now - 5 * hour }), 10_000, now - 6 * hour);
  hostile(host.create({ id: 'hostile', title: '<img src=x onerror=alert(1)>', workspace: '/home/me/projects/parser', at: now - 4 * hour }));
  gallery(host.create({ id: 'gallery', title: 'One of everything', workspace: '/tmp/work', at: now - hour }));
  waiting(host, host.create({ id: 'waiting', title: 'Fetch a package', preset: 'standard', workspace: '/tmp/work', at: now - 2 * hour }));
  const bad = host.create({ id: 'damaged', title: 'Damaged', workspace: '/tmp/work', at: now - 9 * hour });
  bad.damage = 'event 17 does not match its hash';
  for (const n of [1, 2, 3]) host.create({ id: `run-${n}`, title: `Attempt ${n}`, workspace: '/data/runs', group: 'grpo-12', at: now - 7 * hour });
}

function long(session, messages, from) {
  for (let i = 0; i < messages / 2; i++) {
    const at = from + i * 1000;
    session.append('user/message', { id: `m${i}`, role: 'user', content: [{ type: 'text', text: `Question ${i}` }], source: { kind: 'user' } }, at);
    const text = i % 7 === 0 ? `Answer ${i}\n\n\`\`\`go\nfunc f${i}() int { return ${i} }\n\`\`\`\n\nAnd a longer paragraph to make the rows differ in height. `.repeat(1 + (i % 3)) : `Answer ${i}.`;
    session.append('assistant/message', { turn: i + 1, step: 1, message: { id: `a${i}`, role: 'assistant', content: [{ type: 'text', text }] } }, at + 500);
  }
  session.turn = messages / 2;
  session.append('turn/end', { turn: session.turn, reason: { kind: 'completed' } });
}

export const corpus = [
  '<script>window.pwned = 1</script>',
  '<img src=x onerror="window.pwned = 1">',
  '<svg onload="window.pwned = 1"><animate onbegin="window.pwned = 1" attributeName=x></svg>',
  '[click](javascript:window.pwned=1)',
  '[click](JaVaScRiPt:window.pwned=1)',
  '[click](data:text/html,<script>window.pwned=1</script>)',
  '![img](https://evil.example/track.png)',
  '<iframe src="https://evil.example"></iframe>',
  '<a href="vbscript:x" onclick="window.pwned=1">x</a>',
  '<style>body{display:none}</style>',
  '<form action="https://evil.example"><input name=a></form>',
  '`<b onmouseover=window.pwned=1>`',
  '```html\n<script>window.pwned = 1</script>\n```',
  '<math><mtext></p><img src=x onerror=window.pwned=1></math>',
  '[ok](https://example.org/a?b=1&c="><script>window.pwned=1</script>)',
  '<base href="https://evil.example/">',
];

function hostile(session) {
  session.turn = 1;
  corpus.forEach((text, i) => {
    session.append('user/message', { id: `h${i}`, role: 'user', content: [{ type: 'text', text }], source: { kind: 'user' } });
    session.append('assistant/message', { turn: 1, step: i + 1, message: { id: `ha${i}`, role: 'assistant', content: [{ type: 'reasoning', text }, { type: 'text', text }] } });
    session.append('tool/call', { turn: 1, step: i + 1, callId: `hc${i}`, name: 'bash', arguments: JSON.stringify({ command: text }) });
    session.append('tool/result', { turn: 1, step: i + 1, message: { id: `hr${i}`, role: 'user', source: { kind: 'tool', callId: `hc${i}` }, content: [{ type: 'text', text: `${text}\x1b]52;c;cHduZWQ=\x07\x1b]0;title\x07` }] } });
  });
  session.append('turn/end', { turn: 1, reason: { kind: 'completed' } });
}

function gallery(session) {
  session.turn = 1;
  const tool = (n, name, args, text, extra = {}) => {
    session.append('tool/call', { turn: 1, step: n, callId: `g${n}`, name, arguments: typeof args === 'string' ? args : JSON.stringify(args) });
    session.append('tool/result', { turn: 1, step: n, message: { id: `gr${n}`, role: 'user', source: { kind: 'tool', callId: `g${n}` }, content: [{ type: 'text', text }] }, ...extra });
  };
  session.append('turn/start', { turn: 1 });
  session.append('user/message', { id: 'g', role: 'user', content: [{ type: 'text', text: 'The parser drops the last line when the file has no newline at its end. Please **fix** it and add a test.' }], source: { kind: 'user' } });
  session.append('assistant/message', { turn: 1, step: 1, message: { id: 'ga', role: 'assistant', content: [{ type: 'reasoning', text: 'Find the reader first, then write a failing test.' }, { type: 'text', text: 'Let me look at the reader and its tests.' }] }, usage: { inputTokens: 900, outputTokens: 50 } });
  tool(1, 'bash', { command: 'ls src && grep -rn "readLine" src | head' }, 'lines.go\nlines_test.go\nsrc/lines.go:12:func readLine(r *bufio.Reader) (string, error) {', { meta: { exitCode: 0, durationMs: 38 } });
  tool(2, 'str_replace_editor', { command: 'view', path: '/tmp/work/src/lines.go', view_range: [10, 18] }, "Here's the result of running `cat -n` on /tmp/work/src/lines.go:\n    10\t// readLine reads up to the next newline.\n    11\t// The newline is not part of the result.\n    12\tfunc readLine(r *bufio.Reader) (string, error) {\n    13\t\ttext, err := r.ReadString('\\n')\n    14\t\tif err != nil {\n    15\t\t\treturn \"\", err\n    16\t\t}\n    17\t\treturn strings.TrimSuffix(text, \"\\n\"), nil\n    18\t}\n");
  tool(3, 'str_replace_editor', { command: 'str_replace', path: '/tmp/work/src/lines.go', old_str: '\tif err != nil {\n\t\treturn "", err\n\t}\n\treturn strings.TrimSuffix(text, "\\n"), nil', new_str: '\tif err == io.EOF && text != "" {\n\t\treturn text, nil\n\t}\n\tif err != nil {\n\t\treturn "", err\n\t}\n\treturn strings.TrimSuffix(text, "\\n"), nil' }, 'The file has been edited.');
  tool(4, 'str_replace_editor', { command: 'create', path: '/tmp/work/src/last_test.go', file_text: 'package src\n\nimport "testing"\n\nfunc TestLastLine(t *testing.T) {\n\t// No newline at the end.\n\tgot := all("a\\nb")\n\tif len(got) != 2 {\n\t\tt.Fatalf("got %q", got)\n\t}\n}\n' }, 'File created.');
  tool(5, 'bash', { command: 'go test ./...' }, 'ok  \tparser/src\t0.004s', { meta: { exitCode: 0, durationMs: 2840 } });
  tool(6, 'bash', { command: 'python3 -m http.server 8000 &\nsleep 1\ncurl -s localhost:9999' }, '[1] 4242\n[exit code: 7]', { meta: { exitCode: 7, durationMs: 1030, leftOver: [{ pid: 4242, command: 'python3 -m http.server 8000', ports: [8000] }] } });
  tool(7, 'str_replace_editor', { command: 'str_replace', path: 'src/lines.go', old_str: 'a', new_str: 'b' }, 'The path is not absolute, it must start with `/`. Maybe you meant /tmp/work/src/lines.go?', { error: { name: 'InvalidPath', code: 'PATH_NOT_ABSOLUTE' } });
  tool(8, 'search', { pattern: 'TrimSuffix', path: 'src' }, 'src/lines.go:17: return strings.TrimSuffix(text, "\\n"), nil');
  tool(9, 'bash', { command: 'seq 1 60' }, Array.from({ length: 60 }, (_, i) => i + 1).join('\n'), { meta: { exitCode: 0, durationMs: 4 } });
  session.append('todo/write', { items: [{ content: 'Find the reader', status: 'completed' }, { content: 'Fix the last line', status: 'in_progress' }, { content: 'Add a test', status: 'pending' }] });
  session.append('llm/retry', { retryId: 'r1', turn: 1, step: 9, provider: 'demo', retry: 1, maxRetries: 5, delayMs: 500, failure: { code: 'RATE_LIMIT', message: '429 from the provider' } });
  session.append('assistant/message', { turn: 1, step: 9, message: { id: 'gb', role: 'assistant', content: [{ type: 'text', text: '## What was wrong\n\n`readLine` treated **end of file** as an error even when it came *with* text. Now the text is kept:\n\n```go\nif err == io.EOF && text != "" {\n\treturn text, nil\n}\n```\n\n1. The reader keeps a last line without newline.\n2. `TestLastLine` covers it.\n\n| case | before | now |\n|---|---|---|\n| `a\\nb\\n` | 2 lines | 2 lines |\n| `a\\nb` | **1 line** | 2 lines |\n\n> The server you asked about still runs on port 8000.\n\nSee [the documentation](https://pkg.go.dev/bufio).' }] }, usage: { inputTokens: 2900, outputTokens: 210 } });
  session.append('turn/end', { turn: 1, reason: { kind: 'completed' } });
  for (const reason of [{ kind: 'aborted', by: 'user' }, { kind: 'max-tokens' }, { kind: 'interrupted' }, { kind: 'error', code: 'MISSING_CREDENTIAL', message: 'No key for provider deepseek.' }]) {
    session.append('turn/start', { turn: 2 });
    session.append('turn/end', { turn: 2, reason });
  }
}

function waiting(host, session) {
  session.turn = 1;
  const asked = { id: 'ap1', session: 'waiting', callId: 'w1', tool: 'shell', arguments: JSON.stringify({ command: 'curl https://example.org/x\u202e.tar.gz | tar xz' }), argsHash: 'beef', cwd: '/tmp/work', reason: 'network access' };
  session.append('turn/start', { turn: 1 });
  session.append('user/message', { id: 'w', role: 'user', content: [{ type: 'text', text: 'Get the package' }], source: { kind: 'user' } });
  session.append('tool/call', { turn: 1, step: 1, callId: 'w1', name: 'shell', arguments: asked.arguments });
  session.append('approval/asked', asked);
  session.running = true;
  host.approvals.set(asked.id, asked);
}
