// A stdio MCP server of @modelcontextprotocol/sdk 1.x that asks its client: node server1.mjs
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';

const server = new McpServer({ name: 'server1', version: '1' }, { capabilities: { logging: {} } });

const elicit = () => server.server.elicitInput({
  message: 'What is your name?',
  requestedSchema: { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] },
});
const sample = () => server.server.createMessage({
  messages: [{ role: 'user', content: { type: 'text', text: 'Say something.' } }], maxTokens: 10,
});
const roots = () => server.server.listRoots();

const said = (name, line, root) => ({
  content: [{ type: 'text', text: `${name.action} ${name.content?.name}, ${line.content.text}, ${root.roots[0].uri}` }],
});

server.registerTool('in_turn', { description: 'Asks one question after the other.' },
  async () => said(await elicit(), await sample(), await roots()));
server.registerTool('at_once', { description: 'Asks all its questions at once.' },
  async () => said(...await Promise.all([elicit(), sample(), roots()])));

await server.connect(new StdioServerTransport());
