import { useEffect, useRef } from 'preact/hooks';
import { Message } from './chat';

const kPrompts = ['What is Lathe?', 'What is 123 + 456?', 'Why is the sky blue?'];

export function Thread({ messages, busy, again }: { messages: Message[]; busy: boolean; again: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const follow = useRef(true);
  // Follows the reply, unless the reader has scrolled up.
  useEffect(() => {
    if (follow.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [messages]);
  const onScroll = () => {
    const b = box.current!;
    follow.current = b.scrollHeight - b.scrollTop - b.clientHeight < 40;
  };
  return (
    <div class="thread" ref={box} onScroll={onScroll} role="log" aria-live="polite" aria-busy={busy} tabIndex={0}>
      {!messages.length && (
        <div class="empty">
          <p>Ask the model something.</p>
          <p class="hint">For instance: {kPrompts.map((p) => `“${p}”`).join(', ')}</p>
        </div>
      )}
      {messages.map((m, i) => {
        const last = i === messages.length - 1;
        return (
          <article key={i} class={m.role}>
            <h2>{m.role === 'user' ? 'You' : 'Model'}</h2>
            {m.image && <img src={m.image} alt="Your picture" />}
            {m.reasoning && (
              <details open={last && busy && !m.content}>
                <summary>Thinking</summary>
                <p class="text">{m.reasoning}</p>
              </details>
            )}
            {m.content && <p class="text">{m.content}</p>}
            {last && busy && !m.content && !m.reasoning && <p class="wait" aria-label="Waiting">…</p>}
            {m.error && <p class="error" role="alert">{m.error}</p>}
            {last && !busy && m.role === 'assistant' && <button class="small" onClick={again}>Ask again</button>}
          </article>
        );
      })}
    </div>
  );
}
