// The page at / in a real browser, at the width of a desk and of a phone. LATHE_SHOTS=FOLDER keeps pictures of it.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { start, png } from './server.js';

const executablePath = process.env.CHROMIUM ?? ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((p) => existsSync(p));
const skip = executablePath ? false : 'chromium is not installed';
let server, browser;

before(async () => {
  if (skip) return;
  server = await start({
    step_seconds: 0.03, most_tokens: 2,
    replies: [
      { when: '', text: 'The user greets me.</think>Hello! I am a scripted model, and <b>this</b> is text.' },
      { when: 'picture', text: '</think>A grey square.' },
      { when: 'forever', text: '</think>on and on ', endless: true },
    ],
  });
  browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

async function open(size) {
  const page = await browser.newPage({ viewport: size });
  page.problems = [];
  page.on('pageerror', (e) => page.problems.push(String(e)));
  page.on('console', (m) => m.type() === 'error' && page.problems.push(m.text()));
  page.on('request', (r) => new URL(r.url()).origin === server.url || r.url().startsWith('data:') || page.problems.push(`fetches ${r.url()}`));
  await page.goto(server.url);
  await page.getByText('demo', { exact: true }).first().waitFor({ state: 'attached' });
  return page;
}
const shot = (page, name) => process.env.LATHE_SHOTS && page.screenshot({ path: join(process.env.LATHE_SHOTS, `${name}.png`) });

test('chat by keyboard alone, with the numbers beside it', { skip }, async () => {
  const page = await open({ width: 1280, height: 800 });
  await page.keyboard.type('Hi there');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Ask again' }).waitFor();
  assert.match(await page.getByRole('log').innerText(), /Hello! I am a scripted model, and <b>this<\/b> is text\./);
  await page.getByText('Thinking').click();
  assert.match(await page.getByRole('log').innerText(), /The user greets me\./);
  await page.getByText(/first token \d+ ms/).waitFor();
  await page.getByText('ready').waitFor();
  await page.waitForTimeout(1500);
  await shot(page, 'desk');
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('stop, ask again, a picture', { skip }, async () => {
  const page = await open({ width: 1280, height: 800 });
  await page.keyboard.type('Go on forever');
  await page.keyboard.press('Enter');
  await page.getByText('on and on').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('stopped').waitFor();
  await page.getByRole('button', { name: 'New chat' }).click();
  await page.locator('input[type=file]').setInputFiles({ name: 'grey.png', mimeType: 'image/png', buffer: png() });
  await page.getByAltText('Picture to be sent').waitFor();
  await page.getByLabel('Message').fill('What is in the picture?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('A grey square.').waitFor();
  assert.deepEqual(page.problems, []);
  await page.close();
});

test('on a phone', { skip }, async () => {
  const page = await open({ width: 375, height: 720 });
  await page.getByLabel('Message').fill('Hi');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('button', { name: 'Ask again' }).waitFor();
  await shot(page, 'phone-chat');
  const wide = () => page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
  assert.equal(await wide(), false, 'nothing sticks out');
  await page.getByRole('button', { name: 'Status' }).click();
  await page.getByText('Requests of this page').waitFor();
  assert.equal(await wide(), false);
  await page.waitForTimeout(1500);
  await shot(page, 'phone-status');
  await page.getByRole('button', { name: 'Options' }).click();
  await shot(page, 'phone-options');
  assert.equal(await wide(), false);
  assert.deepEqual(page.problems, []);
  await page.close();
});
