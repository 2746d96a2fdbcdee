import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import OpenAI from 'openai';
import { start, png } from './server.js';

const tools = [{ type: 'function', function: { name: 'weather', description: 'Weather of a city', parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] } } }];
let server, client;

before(async () => {
  server = await start({
    cached_tokens: 3,
    replies: [
      { when: '', text: 'Thinking.</think>Hello, wörld! 数字 🙂' },
      { when: 'weather', text: 'Look it up.</think><tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value></tool_call>' },
      { when: 'Sunny in Köln', text: '</think>It is sunny.' },
      { when: 'picture', text: '</think>A grey square.' },
      { when: 'as JSON', text: '</think>{"sum": 42}' },
    ],
  });
  client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
});
after(() => server.stop());

const ask = (content, more = {}) => client.chat.completions.create({ model: 'demo', messages: [{ role: 'user', content }], ...more });

test('whole and stream say the same', async () => {
  const whole = await ask('Hi');
  assert.equal(whole.choices[0].message.content, 'Hello, wörld! 数字 🙂');
  assert.equal(whole.choices[0].message.reasoning_content, 'Thinking.');
  let text = '', usage, finish;
  for await (const chunk of await ask('Hi', { stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, 'stop');
  assert.deepEqual(usage, whole.usage);
  assert.equal(usage.prompt_tokens_details.cached_tokens, 3);
});

test('the stream helper assembles a message with a tool call, and the conversation goes on', async () => {
  const messages = [{ role: 'user', content: 'What is the weather?' }];
  const runner = client.chat.completions.runTools({
    model: 'demo', messages, stream: true,
    tools: [{ type: 'function', function: { ...tools[0].function, parse: JSON.parse, function: ({ city }) => `Sunny in ${city}` } }],
  });
  assert.equal(await runner.finalContent(), 'It is sunny.');
  const call = runner.messages.find((m) => m.tool_calls)?.tool_calls[0];
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Köln' });
});

test('images', async () => {
  const reply = await client.chat.completions.create({
    model: 'demo',
    messages: [{ role: 'user', content: [{ type: 'text', text: 'What is in the picture?' }, { type: 'image_url', image_url: { url: `data:image/png;base64,${png().toString('base64')}` } }] }],
  });
  assert.equal(reply.choices[0].message.content, 'A grey square.');
  assert.ok(reply.usage.prompt_tokens_details.image_tokens > 0);
});

test('JSON schema', async () => {
  const reply = await ask('12 + 30 as JSON', {
    response_format: { type: 'json_schema', json_schema: { name: 'sum', strict: true, schema: { type: 'object', properties: { sum: { type: 'integer' } }, required: ['sum'], additionalProperties: false } } },
  });
  assert.deepEqual(JSON.parse(reply.choices[0].message.content), { sum: 42 });
});

test('logprobs', async () => {
  const reply = await ask('Hi', { logprobs: true, top_logprobs: 2 });
  const { content } = reply.choices[0].logprobs;
  assert.equal(content.length, reply.usage.completion_tokens);
  assert.equal(content[0].top_logprobs.length, 2);
  assert.equal(Buffer.from(content.flatMap((t) => t.bytes)).toString(), 'Thinking.</think>Hello, wörld! 数字 🙂');
});

test('completions, models, errors', async () => {
  const text = await client.completions.create({ model: 'demo', prompt: ['a', 'b'], max_tokens: 4 });
  assert.equal(text.choices.length, 2);
  assert.equal((await client.models.list()).data[0].id, 'demo');
  await assert.rejects(ask('Hi', { temperature: 3 }), (e) => e instanceof OpenAI.BadRequestError && e.param === 'temperature');
  await assert.rejects(client.chat.completions.create({ model: 'other', messages: [{ role: 'user', content: 'Hi' }] }), OpenAI.NotFoundError);
});

test('responses, whole and streamed', async () => {
  const whole = await client.responses.create({ model: 'demo', input: 'Hi', store: false });
  assert.equal(whole.output_text, 'Hello, wörld! 数字 🙂');
  const stream = client.responses.stream({ model: 'demo', input: 'Hi', store: false });
  let text = '';
  stream.on('response.output_text.delta', (e) => { text += e.delta; });
  const last = await stream.finalResponse();
  assert.equal(text, whole.output_text);
  assert.equal(last.output.at(-1).content[0].text, whole.output_text);  // the library fills output_text for whole replies only
  const call = await client.responses.create({ model: 'demo', input: 'weather?', store: false, tools: [{ type: 'function', strict: false, ...tools[0].function }] });
  assert.equal(call.output.at(-1).type, 'function_call');
});

test('leaving a stream cancels it', async () => {
  const stream = await ask('Hi', { stream: true });
  for await (const chunk of stream) if (chunk) break;
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  assert.match(metrics, /lathe_requests_total/);
});
