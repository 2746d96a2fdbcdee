import { useEffect, useState } from 'preact/hooks';
import { Timing } from './chat';
import { Sample, mean, parseMetrics, rate } from './metrics';
import { Spark } from './spark';
import { Timeline } from './timeline';

const kEvery = 1000; // milliseconds
const kKept = 120;

const whole = (x?: number) => (x === undefined ? '–' : Math.round(x).toLocaleString('en'));
const short = (x?: number) => (x === undefined ? '–' : x >= 100 ? Math.round(x).toString() : x.toPrecision(3));
const ms = (x?: number) => (x === undefined ? '–' : x >= 10 ? `${short(x)} s` : `${Math.round(x * 1000)} ms`);

function useSamples(): { samples: Sample[]; ready: string } {
  const [samples, setSamples] = useState<Sample[]>([]);
  const [ready, setReady] = useState('connecting');
  useEffect(() => {
    let stop = false;
    const ask = async () => {
      if (!document.hidden) {
        try {
          const [metrics, health] = await Promise.all([fetch('metrics'), fetch('health/ready')]);
          const values = parseMetrics(await metrics.text());
          const state = health.ok ? 'ready' : (await health.json()).error.code;
          if (stop) return;
          setReady(state);
          setSamples((all) => [...all.slice(1 - kKept), { at: performance.now(), values }]);
        } catch {
          if (!stop) setReady('unreachable');
        }
      }
      if (!stop) setTimeout(ask, kEvery);
    };
    ask();
    return () => {
      stop = true;
    };
  }, []);
  return { samples, ready };
}

export function Dashboard({ timings }: { timings: Timing[] }) {
  const { samples, ready } = useSamples();
  const now = samples[samples.length - 1];
  const before = samples[Math.max(0, samples.length - 6)];
  const value = (name: string) => now?.values.get(name);
  const rates = (name: string) => samples.map((s, i) => (i ? rate(samples[i - 1], s, name) ?? 0 : 0));
  const cards: [string, string, number[]?][] = [
    ['Running', whole(value('lathe_requests_running')), samples.map((s) => s.values.get('lathe_requests_running') ?? 0)],
    ['Waiting', whole(value('lathe_requests_waiting')), samples.map((s) => s.values.get('lathe_requests_waiting') ?? 0)],
    ['Output tokens/s', short(rate(before, now, 'lathe_generation_tokens_total')), rates('lathe_generation_tokens_total')],
    ['Prompt tokens/s', short(rate(before, now, 'lathe_prompt_tokens_total')), rates('lathe_prompt_tokens_total')],
    ['First token', ms(mean(before, now, 'lathe_time_to_first_token_seconds'))],
    ['Between tokens', ms(mean(before, now, 'lathe_inter_token_latency_seconds'))],
    ['Cache in use', value('lathe_kv_usage_ratio') === undefined ? '–' : `${short(100 * value('lathe_kv_usage_ratio')!)} %`,
      samples.map((s) => s.values.get('lathe_kv_usage_ratio') ?? 0)],
    ['Requests', whole(value('lathe_requests_total'))],
  ];
  return (
    <>
      <h2>Server <span class={`state ${ready}`}>{ready}</span></h2>
      <dl class="cards">
        {cards.map(([name, text, line]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{text}</dd>
            {line && <Spark values={line} />}
          </div>
        ))}
      </dl>
      <h2>Requests of this page</h2>
      <Timeline timings={timings} />
    </>
  );
}
