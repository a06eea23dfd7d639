// Medians and percentiles.

export function sorted(values) {
  return [...values].sort((a, b) => a - b);
}

// The p-quantile (0..1) of values, linearly interpolated.
export function quantile(values, p) {
  const s = sorted(values);
  if (s.length === 0) return NaN;
  const at = (s.length - 1) * p;
  const low = Math.floor(at);
  const high = Math.ceil(at);
  return s[low] + (s[high] - s[low]) * (at - low);
}

export function median(values) {
  return quantile(values, 0.5);
}

export function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

// The ratios a[i] / b[i] of two series measured side by side.
export function paired(a, b) {
  return a.map((x, i) => x / b[i]).filter(Number.isFinite);
}
