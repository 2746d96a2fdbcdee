import { eventData } from './events';

export interface Message {
  role: 'user' | 'assistant';
  content: string;
  reasoning?: string;
  image?: string; // data: URI
  error?: string;
}

export interface Settings {
  system: string;
  temperature: string; // '': the server's
  maxTokens: string;
  effort: string;
}

// What happened to one request, in milliseconds since its start.
export interface Timing {
  id: number;
  start: number; // performance.now()
  first?: number;
  end?: number;
  tokens: number;
  prompt: number;
  cached: number;
  state: 'waiting' | 'streaming' | 'done' | 'stopped' | 'failed';
}

export interface Delta {
  content?: string;
  reasoning_content?: string;
}

function toWire(m: Message) {
  if (m.role === 'assistant') return { role: m.role, content: m.content, reasoning_content: m.reasoning || undefined };
  if (!m.image) return { role: m.role, content: m.content };
  return {
    role: m.role,
    content: [
      { type: 'image_url', image_url: { url: m.image } },
      { type: 'text', text: m.content },
    ],
  };
}

export function requestBody(messages: Message[], s: Settings) {
  const system = s.system.trim() ? [{ role: 'system', content: s.system }] : [];
  return {
    messages: [...system, ...messages.filter((m) => !m.error || m.content).map(toWire)],
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    ...(s.temperature === '' ? {} : { temperature: Number(s.temperature) }),
    ...(s.maxTokens === '' ? {} : { max_tokens: Number(s.maxTokens) }),
    ...(s.effort === '' ? {} : { reasoning_effort: s.effort }),
  };
}

// Sends the conversation; calls back with what comes and how it goes. Resolves when the reply has ended.
export async function stream(body: unknown, timing: Timing, abort: AbortSignal, onDelta: (d: Delta) => void, onTiming: (t: Timing) => void) {
  const since = () => performance.now() - timing.start;
  try {
    const reply = await fetch('v1/chat/completions', {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body),
      signal: abort,
    });
    if (!reply.ok || !reply.body) {
      const error = await reply.json().catch(() => null);
      throw new Error(error?.error?.message ?? `the server answered ${reply.status}`);
    }
    let complete = false;
    for await (const data of eventData(reply.body)) {
      if (data === '[DONE]') {
        complete = true;
        break;
      }
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) {
        timing.tokens = chunk.usage.completion_tokens;
        timing.prompt = chunk.usage.prompt_tokens;
        timing.cached = chunk.usage.prompt_tokens_details.cached_tokens;
      }
      const delta: Delta | undefined = chunk.choices[0]?.delta;
      if (delta && (delta.content || delta.reasoning_content)) {
        timing.first ??= since();
        timing.state = 'streaming';
        onDelta(delta);
      }
      onTiming({ ...timing });
    }
    if (!complete) throw new Error('the reply ended early');
    timing.state = 'done';
  } catch (e) {
    timing.state = abort.aborted ? 'stopped' : 'failed';
    if (!abort.aborted) throw e;
  } finally {
    timing.end = since();
    onTiming({ ...timing });
  }
}
