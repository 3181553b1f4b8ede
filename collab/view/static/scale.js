/** Scales of charts: where a value stands, and the round numbers beside an axis. */

/**
 * @param {number} low @param {number} high of the values @param {number} from @param {number} to in the drawing
 * @returns {(value: number) => number}
 */
export function linear(low, high, from, to) {
  const span = high - low || 1;
  return (value) => from + ((value - low) / span) * (to - from);
}

/**
 * Round numbers that cover a range.
 * @param {number} low @param {number} high @param {number} [count] about how many
 */
export function ticks(low, high, count = 4) {
  if (low === high) return low === 0 ? [0, 1] : [Math.min(0, low), Math.max(0, low)];
  const span = high - low;
  const rough = span / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999) ?? 10 * power;
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => Number(((first + place) * step).toPrecision(12)));
}

/** Whole numbers of a range, thinned where there are many. @param {number} low @param {number} high @param {number} [most] */
export function wholeTicks(low, high, most = 8) {
  const step = Math.max(1, Math.ceil((high - low) / most));
  const found = [];
  for (let value = low; value <= high; value += step) found.push(value);
  return found;
}
