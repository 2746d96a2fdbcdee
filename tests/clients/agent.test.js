// A coding agent in a scripted conversation: it reads a file, writes another, and says so. The agent, its prompts and its
// tools are real; only the model's words are a script.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { start } from './server.js';

const work = mkdtempSync(join(tmpdir(), 'lathe-agent-'));
const source = join(work, 'numbers.txt'), target = join(work, 'sum.txt');
const call = (name, args) => `<tool_call>${name}${Object.entries(args).map(([k, v]) => `<arg_key>${k}</arg_key><arg_value>${v}</arg_value>`).join('')}</tool_call>`;
let server;

before(async () => {
  writeFileSync(source, 'first 17\nsecond 25\nthe-marker-of-this-file\n');
  server = await start({
    max_context: 120000,
    replies: [
      { when: '', text: 'I should say something.</think>Nothing to do.' },
      { when: 'Add the numbers', text: `First I read it.</think>I'll read the file.${call('read_file', { absolute_path: source, file_path: source })}` },
      { when: 'the-marker-of-this-file', text: `17 + 25 = 42.</think>${call('write_file', { file_path: target, content: 'sum: 42\n"quoted" <b>&amp;</b>' })}` },
      { when: 'Successfully', text: 'Done.</think>The sum is 42, and sum.txt holds it.' },
    ],
  });
});
after(() => server.stop());

function run(command, args, options) {
  return new Promise((resolve) => {
    const child = spawn(command, args, options);
    let out = '', err = '';
    child.stdout.on('data', (d) => { out += d; });
    child.stderr.on('data', (d) => { err += d; });
    const timer = setTimeout(() => child.kill('SIGKILL'), 120000);
    child.on('exit', (code) => { clearTimeout(timer); resolve({ code, out, err }); });
  });
}

test('reads, writes, answers', async () => {
  const agent = join(import.meta.dirname, 'node_modules/@qwen-code/qwen-code/cli.js');
  const result = await run(process.execPath, [agent, '--auth-type', 'openai', '--yolo', '-p', 'Add the numbers in numbers.txt and write the sum into sum.txt.'], {
    cwd: work,
    env: { PATH: process.env.PATH, HOME: work, OPENAI_BASE_URL: `${server.url}/v1`, OPENAI_API_KEY: 'none', OPENAI_MODEL: 'demo', NO_COLOR: '1' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  assert.equal(result.code, 0, result.out + result.err);
  assert.match(result.out, /The sum is 42/);
  assert.equal(readFileSync(target, 'utf8'), 'sum: 42\n"quoted" <b>&amp;</b>');
});
