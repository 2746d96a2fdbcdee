// The few numbers that the page shows, out of Prometheus' text.
export interface Sample {
  at: number; // performance.now(), milliseconds
  values: Map<string, number>; // by name, summed over labels
}

const kGenerating = /route="\/v1\/(chat\/completions|completions|messages|responses)"/;

export function parseMetrics(text: string): Map<string, number> {
  const values = new Map<string, number>();
  for (const line of text.split('\n')) {
    if (!line || line.startsWith('#')) continue;
    const space = line.lastIndexOf(' ');
    const brace = line.indexOf('{');
    const name = line.slice(0, brace < 0 ? space : brace);
    if (name.endsWith('_bucket')) continue;
    if (name === 'lathe_requests_total' && !kGenerating.test(line)) continue; // this page asks for its numbers, too
    values.set(name, (values.get(name) ?? 0) + Number(line.slice(space + 1)));
  }
  return values;
}

// Growth a second of a counter between two samples.
export function rate(a: Sample | undefined, b: Sample | undefined, name: string): number | undefined {
  const to = b?.values.get(name);
  if (to === undefined || !a || !b || b.at <= a.at) return undefined;
  const from = a.values.get(name) ?? 0; // counters appear when they first count
  return ((to - from) / (b.at - a.at)) * 1000;
}

// Mean of a histogram's observations between two samples; of all of them where there were none.
export function mean(a: Sample | undefined, b: Sample | undefined, name: string): number | undefined {
  const sum = (s?: Sample) => s?.values.get(`${name}_sum`) ?? 0;
  const count = (s?: Sample) => s?.values.get(`${name}_count`) ?? 0;
  if (count(b) > count(a)) return (sum(b) - sum(a)) / (count(b) - count(a));
  return count(b) ? sum(b) / count(b) : undefined;
}
