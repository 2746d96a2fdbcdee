import { useEffect, useState } from 'preact/hooks';
import { Timing } from './chat';

const kStates = { waiting: 'waiting', streaming: 'streaming', done: 'done', stopped: 'stopped', failed: 'failed' };
const seconds = (x: number) => (x < 1000 ? `${Math.round(x)} ms` : `${(x / 1000).toFixed(x < 10000 ? 2 : 1)} s`);

// Waiting (until the first token) and streaming of each request, on one scale.
export function Timeline({ timings }: { timings: Timing[] }) {
  const [, tick] = useState(0);
  const live = timings.some((t) => t.end === undefined);
  useEffect(() => {
    if (!live) return;
    const timer = setInterval(() => tick((n) => n + 1), 100);
    return () => clearInterval(timer);
  }, [live]);
  if (!timings.length) return <p class="hint">None yet.</p>;
  const length = (t: Timing) => t.end ?? performance.now() - t.start;
  const most = Math.max(...timings.map(length), 1);
  return (
    <ol class="timeline">
      {timings.map((t) => {
        const total = length(t);
        const first = t.first ?? total;
        const perSecond = t.tokens > 1 && total > first ? ((t.tokens - 1) / (total - first)) * 1000 : undefined;
        return (
          <li key={t.id}>
            <div class="bar" role="img" aria-label={`first token after ${seconds(first)}, ended after ${seconds(total)}`}>
              <span class="wait" style={{ width: `${(100 * first) / most}%` }} />
              <span class={`run ${t.state}`} style={{ width: `${(100 * (total - first)) / most}%` }} />
            </div>
            <p>
              <b class={t.state}>{kStates[t.state]}</b> {t.first === undefined ? '' : `first token ${seconds(first)}, `}
              {seconds(total)}{t.tokens ? `, ${t.tokens} tokens` : ''}{perSecond ? `, ${perSecond.toFixed(1)}/s` : ''}
              {t.prompt ? `, prompt ${t.prompt}` : ''}{t.cached ? ` (${t.cached} cached)` : ''}
            </p>
          </li>
        );
      })}
    </ol>
  );
}
