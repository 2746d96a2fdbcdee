import { useEffect, useRef, useState } from 'preact/hooks';

const kMostImageBytes = 20 << 20;

function readImage(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

interface Props {
  busy: boolean;
  takesImages: boolean;
  send: (text: string, image?: string) => void;
  stop: () => void;
}

export function Composer({ busy, takesImages, send, stop }: Props) {
  const [text, setText] = useState('');
  const [image, setImage] = useState<string>();
  const [problem, setProblem] = useState('');
  const area = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);

  useEffect(() => area.current?.focus(), [busy]);
  useEffect(() => {
    const a = area.current!;
    a.style.height = 'auto';
    a.style.height = `${Math.min(a.scrollHeight, 200)}px`;
  }, [text]);

  const go = () => {
    if (busy || !text.trim()) return;
    send(text, image);
    setText('');
    setImage(undefined);
  };
  const onKey = (e: KeyboardEvent) => {
    if (e.key === 'Escape' && busy) stop();
    if (e.key !== 'Enter' || e.shiftKey || e.isComposing) return;
    e.preventDefault();
    go();
  };
  const take = async (picked?: File | null) => {
    setProblem('');
    if (!picked) return;
    if (!/^image\/(png|jpeg|webp)$/.test(picked.type)) return setProblem('PNG, JPEG or WebP, please');
    if (picked.size > kMostImageBytes) return setProblem('The picture is larger than 20 MiB');
    setImage(await readImage(picked));
  };
  const onPaste = (e: ClipboardEvent) => {
    const picked = takesImages ? [...(e.clipboardData?.files ?? [])].find((f) => f.type.startsWith('image/')) : undefined;
    if (!picked) return;
    e.preventDefault();
    take(picked);
  };

  return (
    <form class="composer" onSubmit={(e) => { e.preventDefault(); go(); }}>
      {image && (
        <div class="attached">
          <img src={image} alt="Picture to be sent" />
          <button type="button" class="small" onClick={() => setImage(undefined)}>Remove</button>
        </div>
      )}
      {problem && <p class="error" role="alert">{problem}</p>}
      <textarea ref={area} rows={1} value={text} placeholder="Message" aria-label="Message" onKeyDown={onKey} onPaste={onPaste}
        onInput={(e) => setText((e.target as HTMLTextAreaElement).value)} />
      <div class="buttons">
        {takesImages && (
          <>
            <input ref={file} type="file" accept="image/png,image/jpeg,image/webp" hidden
              onChange={(e) => { const input = e.target as HTMLInputElement; take(input.files?.[0]); input.value = ''; }} />
            <button type="button" onClick={() => file.current?.click()}>Picture</button>
          </>
        )}
        {busy ? <button type="button" class="primary" onClick={stop}>Stop</button>
          : <button type="submit" class="primary" disabled={!text.trim()}>Send</button>}
      </div>
    </form>
  );
}
