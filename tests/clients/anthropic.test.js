import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';
import { start, png } from './server.js';

const tools = [{ name: 'weather', description: 'Weather of a city', input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } }];
let server, client;

before(async () => {
  server = await start({
    replies: [
      { when: '', text: 'Thinking.</think>Hello, wörld!' },
      { when: 'weather?', text: 'Look it up.</think>One moment.<tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value></tool_call>' },
      { when: 'Sunny in Köln', text: '</think>It is sunny.' },
      { when: 'picture', text: '</think>A grey square.' },
    ],
  });
  client = new Anthropic({ baseURL: server.url, apiKey: 'none', maxRetries: 0 });
});
after(() => server.stop());

const ask = (content, more = {}) => ({ model: 'demo', max_tokens: 2000, messages: [{ role: 'user', content }], ...more });
const thinking = { type: 'enabled', budget_tokens: 1024 };

test('stream with thinking equals the whole message', async () => {
  const whole = await client.messages.create(ask('Hi', { thinking }));
  assert.deepEqual(whole.content.map((b) => b.type), ['thinking', 'text']);
  const stream = client.messages.stream(ask('Hi', { thinking }));
  let text = '', thought = '';
  stream.on('text', (t) => { text += t; });
  stream.on('thinking', (t) => { thought += t; });
  const final = await stream.finalMessage();
  assert.equal(text, 'Hello, wörld!');
  assert.equal(thought, 'Thinking.');
  assert.deepEqual(final.content, whole.content);
  assert.deepEqual(final.usage.output_tokens, whole.usage.output_tokens);
  assert.equal(final.stop_reason, 'end_turn');
});

test('tools, and the conversation that follows', async () => {
  const first = await client.messages.stream(ask('How is the weather?', { thinking, tools })).finalMessage();
  assert.equal(first.stop_reason, 'tool_use');
  const call = first.content.at(-1);
  assert.deepEqual(call.input, { city: 'Köln' });
  const second = await client.messages.create({
    model: 'demo', max_tokens: 2000, tools,
    messages: [{ role: 'user', content: 'How is the weather?' }, { role: 'assistant', content: first.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: call.id, content: 'Sunny in Köln' }] }],
  });
  assert.equal(second.content[0].text, 'It is sunny.');
});

test('images and counting', async () => {
  const content = [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: png().toString('base64') } }, { type: 'text', text: 'What is in the picture?' }];
  const reply = await client.messages.create(ask(content));
  assert.equal(reply.content[0].text, 'A grey square.');
  const count = await client.messages.countTokens({ model: 'demo', messages: [{ role: 'user', content }] });
  assert.equal(count.input_tokens, reply.usage.input_tokens + reply.usage.cache_read_input_tokens);
});

test('errors', async () => {
  await assert.rejects(client.messages.create(ask('Hi', { temperature: 3 })), Anthropic.BadRequestError);
  await assert.rejects(client.messages.create(ask([{ type: 'document', source: { type: 'text', media_type: 'text/plain', data: 'x' } }])), Anthropic.BadRequestError);
});
