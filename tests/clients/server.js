// Starts lathe_scripted_server with a script; it ends with its standard input.
import { spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync, existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const binary = process.env.LATHE_SCRIPTED_SERVER ?? join(import.meta.dirname, '../../build/release/tests/lathe_scripted_server');

export async function start(script) {
  if (!existsSync(binary)) throw new Error(`${binary} isn't built`);
  const file = join(mkdtempSync(join(tmpdir(), 'lathe-clients-')), 'script.json');
  writeFileSync(file, JSON.stringify(script));
  const child = spawn(binary, [file], { stdio: ['pipe', 'pipe', 'inherit'] });
  const port = await new Promise((resolve, reject) => {
    createInterface(child.stdout).once('line', (line) => resolve(Number(line)));
    child.once('exit', (code) => reject(new Error(`the server ended with ${code}`)));
  });
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () => new Promise((resolve) => {
      child.once('exit', resolve);
      child.stdin.end();
    }),
  };
}

// A picture of one colour: 32 by 32 pixels, PNG.
import { deflateSync, crc32 } from 'node:zlib';
export function png() {
  const chunk = (type, data) => {
    const out = Buffer.alloc(12 + data.length);
    out.writeUInt32BE(data.length, 0);
    out.write(type, 4, 'latin1');
    data.copy(out, 8);
    out.writeUInt32BE(crc32(out.subarray(4, 8 + data.length)), 8 + data.length);
    return out;
  };
  const head = Buffer.alloc(13);
  head.writeUInt32BE(32, 0);
  head.writeUInt32BE(32, 4);
  head.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.concat([Buffer.from([0]), Buffer.alloc(96, 0x7f)]);
  const rows = Buffer.concat(Array(32).fill(row));
  return Buffer.concat([Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'), chunk('IHDR', head), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}
