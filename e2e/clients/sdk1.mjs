// @modelcontextprotocol/sdk 1.x over Streamable HTTP: node sdk1.mjs URL
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { answers, capabilities, drive, tell, watchedFetch } from './drive.mjs';

const transport = new StreamableHTTPClientTransport(new URL(process.argv[2]), { fetch: watchedFetch });
const client = new Client(
  { name: 'sdk1', version: '1' },
  { capabilities, listChanged: { tools: { autoRefresh: false, onChanged: () => tell({ event: 'changed' }) } } },
);
for (const schema of [CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema]) {
  client.setRequestHandler(schema, answers[schema.shape.method.value]);
}
client.onerror = error => tell({ event: 'error', error: String(error) });

await drive({
  async connect() {
    await client.connect(transport);
    return { ...client.getServerVersion(), revision: transport.protocolVersion, session: transport.sessionId };
  },
  async list() {
    return (await client.listTools()).tools;
  },
  async call({ id, tool, arguments: args }) {
    return client.callTool({ name: tool, arguments: args }, undefined, {
      onprogress: report => tell({ event: 'progress', id, ...report }),
    });
  },
  close: () => client.close(),
});
