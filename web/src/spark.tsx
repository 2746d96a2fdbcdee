// A small line of the last values; it says nothing that the number above it doesn't.
export function Spark({ values }: { values: number[] }) {
  if (values.length < 2) return <svg class="spark" aria-hidden="true" />;
  const most = Math.max(...values, 1e-9);
  const points = values.map((v, i) => `${((i / (values.length - 1)) * 100).toFixed(1)},${(19 - (18 * v) / most).toFixed(1)}`);
  return (
    <svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points.join(' ')} vector-effect="non-scaling-stroke" />
    </svg>
  );
}
