import { defineConfig } from 'vite';
import { viteSingleFile } from 'vite-plugin-singlefile';

// One file, so that the binary can carry it. `npm run dev` talks to a server on the usual port.
const server = 'http://127.0.0.1:8000';
export default defineConfig({
  plugins: [viteSingleFile()],
  build: { target: 'es2022', reportCompressedSize: false },
  server: { proxy: { '/v1': server, '/metrics': server, '/health': server, '/version': server } },
});
