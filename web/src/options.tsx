import { Settings } from './chat';

interface Props {
  settings: Settings;
  change: (s: Settings) => void;
  close: () => void;
}

export function Options({ settings, change, close }: Props) {
  const set = (key: keyof Settings) => (e: Event) => change({ ...settings, [key]: (e.target as HTMLInputElement).value });
  return (
    <section class="options" aria-label="Options" onKeyDown={(e) => e.key === 'Escape' && close()}>
      <label class="wide">System message<textarea rows={2} value={settings.system} onInput={set('system')} /></label>
      <label>Temperature<input type="number" min="0" max="2" step="0.1" placeholder="default" value={settings.temperature} onInput={set('temperature')} /></label>
      <label>Most tokens<input type="number" min="1" step="1" placeholder="all" value={settings.maxTokens} onInput={set('maxTokens')} /></label>
      <label>Effort
        <select value={settings.effort} onInput={set('effort')}>
          <option value="">default</option>
          <option value="low">low</option>
          <option value="high">high</option>
          <option value="max">max</option>
        </select>
      </label>
    </section>
  );
}
