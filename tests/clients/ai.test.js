import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';
import { start } from './server.js';

let server, model;

before(async () => {
  server = await start({
    replies: [
      { when: '', text: 'Thinking.</think>Hello!' },
      { when: 'weather?', text: 'Look it up.</think><tool_call>weather<arg_key>city</arg_key><arg_value>Köln</arg_value></tool_call>' },
      { when: 'Sunny in Köln', text: 'Good.</think>It is sunny.' },
    ],
  });
  model = createOpenAICompatible({ name: 'lathe', baseURL: `${server.url}/v1`, includeUsage: true })('demo');
});
after(() => server.stop());

test('text, reasoning and usage', async () => {
  const whole = await generateText({ model, prompt: 'Hi', maxRetries: 0 });
  assert.equal(whole.text, 'Hello!');
  assert.equal(whole.reasoningText, 'Thinking.');
  const stream = streamText({ model, prompt: 'Hi', maxRetries: 0 });
  let text = '';
  for await (const part of stream.textStream) text += part;
  assert.equal(text, 'Hello!');
  assert.equal((await stream.usage).outputTokens, whole.usage.outputTokens);
});

test('a loop over tools', async () => {
  const tools = { weather: tool({ description: 'Weather', inputSchema: z.object({ city: z.string() }), execute: async ({ city }) => `Sunny in ${city}` }) };
  const stream = streamText({ model, tools, prompt: 'How is the weather?', stopWhen: stepCountIs(3), maxRetries: 0 });
  assert.equal(await stream.text, 'It is sunny.');
  assert.equal((await stream.steps).length, 2);
});
