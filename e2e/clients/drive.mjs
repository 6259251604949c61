// Lets a test drive a client: one JSON command a line on standard input, one JSON
// line on standard output for its answer and for everything that happens.
//
//	{"id":1,"do":"call","tool":"greet","arguments":{}}  →  {"id":1,"value":…} or {"id":1,"error":"…"}
//	{"event":"changed"}, {"event":"progress",…}, {"event":"request",…}, …
//
// The process ends with its standard input.
import { createInterface } from 'node:readline';

export function tell(line) {
  process.stdout.write(JSON.stringify(line) + '\n');
}

// watchedFetch is fetch that tells which requests went out and what came back.
export async function watchedFetch(url, init = {}) {
  const method = init.body ? JSON.parse(init.body).method : init.method;
  const session = new Headers(init.headers).get('mcp-session-id') ?? '';
  const answer = await fetch(url, init);
  tell({ event: 'request', method, session, status: answer.status });
  return answer;
}

// Answers are what every client of these tests answers to a server's questions.
export const answers = {
  'elicitation/create': async () => ({ action: 'accept', content: { name: 'Zoë' } }),
  'sampling/createMessage': async () => ({ role: 'assistant', content: { type: 'text', text: 'something' }, model: 'm' }),
  'roots/list': async () => ({ roots: [{ uri: 'file:///home/zoe' }] }),
};

export const capabilities = { elicitation: {}, sampling: {}, roots: {} };

// drive runs commands, each beside the others, with the functions of that name.
export async function drive(commands) {
  for await (const line of createInterface({ input: process.stdin })) {
    const { id, do: name, ...rest } = JSON.parse(line);
    commands[name]({ id, ...rest }).then(
      value => tell({ id, value: value ?? null }),
      error => tell({ id, error: String(error) }),
    );
  }
  await commands.close();
  process.exit(0);
}
