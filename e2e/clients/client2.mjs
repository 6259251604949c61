// @modelcontextprotocol/client 2.x over Streamable HTTP: node client2.mjs URL MODE
// MODE is legacy or auto.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { answers, capabilities, drive, tell, watchedFetch } from './drive.mjs';

const [url, mode] = process.argv.slice(2);
const transport = new StreamableHTTPClientTransport(new URL(url), { fetch: watchedFetch });
const client = new Client(
  { name: 'client2', version: '1' },
  {
    capabilities,
    versionNegotiation: { mode },
    listChanged: { tools: { autoRefresh: false, onChanged: () => tell({ event: 'changed' }) } },
  },
);
for (const [method, answer] of Object.entries(answers)) client.setRequestHandler(method, answer);
client.onerror = error => tell({ event: 'error', error: String(error) });

await drive({
  async connect() {
    await client.connect(transport);
    client.autoOpenedSubscription?.closed.then(cause => tell({ event: 'ended', cause }));
    return { ...client.getServerVersion(), revision: client.getNegotiatedProtocolVersion(), session: transport.sessionId };
  },
  async list() {
    return (await client.listTools()).tools;
  },
  async call({ id, tool, arguments: args }) {
    return client.callTool({ name: tool, arguments: args }, {
      onprogress: report => tell({ event: 'progress', id, ...report }),
    });
  },
  // The library leaves it to the application to listen again.
  async listen() {
    await client.listen({ toolsListChanged: true });
  },
  close: () => client.close(),
});
