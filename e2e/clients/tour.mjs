// Uses everything that a server offers: node tour.mjs LIBRARY TARGET...
// LIBRARY is sdk1, or client2 in the mode legacy or auto: client2-legacy, client2-auto.
// TARGET is the URL of an MCP endpoint, or a command that speaks over stdio.
import { drive, tell } from './drive.mjs';

const [library, ...target] = process.argv.slice(2);
const one = library === 'sdk1';
const { Client, StreamableHTTPClientTransport, StdioClientTransport, types } = one ? {
  ...await import('@modelcontextprotocol/sdk/client/index.js'),
  ...await import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
  ...await import('@modelcontextprotocol/sdk/client/stdio.js'),
  types: await import('@modelcontextprotocol/sdk/types.js'),
} : {
  ...await import('@modelcontextprotocol/client'),
  ...await import('@modelcontextprotocol/client/stdio'),
};

const client = new Client({ name: 'tour', version: '1' }, {
  capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } },
  ...(one ? {} : { versionNegotiation: { mode: library.split('-')[1] } }),
});

let answers; // to what the server asks, by method; from the test
for (const [method, schema] of Object.entries({
  'elicitation/create': 'ElicitRequestSchema',
  'sampling/createMessage': 'CreateMessageRequestSchema',
  'roots/list': 'ListRootsRequestSchema',
})) {
  client.setRequestHandler(one ? types[schema] : method, async request => {
    tell({ event: 'asked', value: { method, params: request.params } });
    return answers[method];
  });
}
for (const [method, schema] of Object.entries({
  'notifications/message': 'LoggingMessageNotificationSchema',
  'notifications/resources/updated': 'ResourceUpdatedNotificationSchema',
  'notifications/resources/list_changed': 'ResourceListChangedNotificationSchema',
})) {
  client.setNotificationHandler(one ? types[schema] : method, async notification => {
    tell({ event: 'told', value: notification });
  });
}
client.onerror = error => tell({ event: 'error', error: String(error) });

const transport = target.length === 1
  ? new StreamableHTTPClientTransport(new URL(target[0]))
  : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: 'ignore' });
const modern = () => !one && client.getNegotiatedProtocolVersion() >= '2026-07-28';
let subscription; // of a revision in which it is a request that stays open
let level; // of a revision in which each request says it

// whole reads a list to its last page.
async function whole(list, member) {
  const all = [];
  for (let cursor; ;) {
    const page = await list.call(client, cursor === undefined ? {} : { cursor });
    all.push(...page[member]);
    if ((cursor = page.nextCursor) === undefined) return all;
  }
}

const commands = {
  async connect(params) {
    ({ answers } = params);
    await client.connect(transport);
    if (modern()) await client.listen({ resourcesListChanged: true });
    return {
      server: client.getServerVersion(),
      instructions: client.getInstructions(),
      capabilities: client.getServerCapabilities(),
    };
  },
  'tools/list': () => whole(client.listTools, 'tools'),
  'prompts/list': () => whole(client.listPrompts, 'prompts'),
  'resources/list': () => whole(client.listResources, 'resources'),
  'resources/templates/list': () => whole(client.listResourceTemplates, 'resourceTemplates'),
  'tools/call': params => {
    const meta = level === undefined ? {} : { _meta: { 'io.modelcontextprotocol/logLevel': level } };
    const options = { onprogress: report => tell({ event: 'told', value: { method: 'notifications/progress', params: report } }) };
    return one ? client.callTool(params, undefined, options) : client.callTool({ ...params, ...meta }, options);
  },
  'prompts/get': params => client.getPrompt(params),
  'resources/read': params => client.readResource(params),
  'completion/complete': params => client.complete(params),
  'resources/subscribe': async params => {
    if (!modern()) return client.subscribeResource(params);
    subscription = await client.listen({ resourceSubscriptions: [params.uri] });
    return {};
  },
  'resources/unsubscribe': async params => {
    if (!modern()) return client.unsubscribeResource(params);
    await subscription.close();
    return {};
  },
  'logging/setLevel': async params => {
    if (!modern()) return client.setLoggingLevel(params.level);
    level = params.level;
    return {};
  },
};

await drive({
  ...Object.fromEntries(Object.entries(commands).map(([name, run]) => [name, async ({ params }) => {
    try {
      return { result: await run(params) };
    } catch (error) {
      if (error.code === undefined) return { error: { message: String(error) } };
      return { error: { code: error.code, message: error.message, data: error.data } };
    }
  }])),
  close: () => client.close(),
});
