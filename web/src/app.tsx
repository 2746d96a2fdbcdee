import { useEffect, useRef, useState } from 'preact/hooks';
import { Message, Settings, Timing, requestBody, stream } from './chat';
import { Composer } from './composer';
import { Dashboard } from './dashboard';
import { Thread } from './thread';
import { Options } from './options';

const kSettings: Settings = { system: '', temperature: '', maxTokens: '', effort: '' };
const kShownRequests = 24;

export function App() {
  const [model, setModel] = useState('');
  const [takesImages, setTakesImages] = useState(false);
  const [messages, setMessages] = useState<Message[]>([]);
  const [settings, setSettings] = useState(kSettings);
  const [timings, setTimings] = useState<Timing[]>([]);
  const [view, setView] = useState<'chat' | 'status'>('chat');
  const [showOptions, setShowOptions] = useState(false);
  const running = useRef<AbortController | null>(null);
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    let stop = false;
    // The server may still be loading the model.
    const ask = async () => {
      try {
        const reply = await fetch('v1/models');
        const list = await reply.json();
        setModel(list.data[0].id);
        setTakesImages(list.data[0].modalities.input.includes('image'));
        if (list.data[0].max_model_len) return;
      } catch {
        // asked again below
      }
      if (!stop) setTimeout(ask, 2000);
    };
    ask();
    return () => {
      stop = true;
    };
  }, []);

  const noteTiming = (t: Timing) => setTimings((all) => [t, ...all.filter((x) => x.id !== t.id)].sort((a, b) => b.id - a.id).slice(0, kShownRequests));

  const send = async (history: Message[]) => {
    setMessages([...history, { role: 'assistant', content: '', reasoning: '' }]);
    const change = (f: (m: Message) => Message) => setMessages((all) => [...all.slice(0, -1), f(all[all.length - 1])]);
    const timing: Timing = { id: Date.now(), start: performance.now(), tokens: 0, prompt: 0, cached: 0, state: 'waiting' };
    running.current = new AbortController();
    setBusy(true);
    noteTiming({ ...timing });
    try {
      await stream(requestBody(history, settings), timing, running.current.signal,
        (d) => change((m) => ({ ...m, content: m.content + (d.content ?? ''), reasoning: (m.reasoning ?? '') + (d.reasoning_content ?? '') })),
        noteTiming);
    } catch (e) {
      change((m) => ({ ...m, error: e instanceof Error ? e.message : String(e) }));
    } finally {
      running.current = null;
      setBusy(false);
    }
  };

  const ask = (text: string, image?: string) => send([...messages, { role: 'user', content: text, image }]);
  const stop = () => running.current?.abort();
  const again = () => {
    const last = messages.map((m) => m.role).lastIndexOf('user');
    if (last >= 0) send(messages.slice(0, last + 1));
  };

  return (
    <div class={`shell show-${view}`}>
      <header>
        <h1>Lathe</h1>
        <span class="model">{model || 'connecting…'}</span>
        <nav aria-label="Views">
          <button class={view === 'chat' ? 'on' : ''} aria-pressed={view === 'chat'} onClick={() => setView('chat')}>Chat</button>
          <button class={view === 'status' ? 'on' : ''} aria-pressed={view === 'status'} onClick={() => setView('status')}>Status</button>
        </nav>
        <button aria-expanded={showOptions} onClick={() => setShowOptions(!showOptions)}>Options</button>
        <button disabled={busy || !messages.length} onClick={() => setMessages([])}>New chat</button>
      </header>
      {showOptions && <Options settings={settings} change={setSettings} close={() => setShowOptions(false)} />}
      <main class="chat" aria-label="Chat">
        <Thread messages={messages} busy={busy} again={again} />
        <Composer busy={busy} takesImages={takesImages} send={ask} stop={stop} />
      </main>
      <aside class="status" aria-label="Status">
        <Dashboard timings={timings} />
      </aside>
    </div>
  );
}
