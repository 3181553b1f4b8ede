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

/** Sizes of units and their names, largest first. @type {Record<string, [number, string][]>} */
const UNITS = {
  share: [[0.01, "%"]],
  number: [[1, ""]],
  amount: [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ],
  time: [
    [3600, " h"],
    [60, " min"],
    [1, " s"],
  ],
};

/** @typedef {"share" | "number" | "amount" | "time"} Kind of values; times are in seconds */

/**
 * Marks of an axis, in the unit in which the largest value is a small number.
 * @param {Kind} kind @param {number} low @param {number} high of the values
 * @returns {{at: number, words: string}[]} evenly spaced, first to last
 */
export function axisMarks(kind, low, high) {
  const units = UNITS[kind];
  const [size, name] = units.find(([one]) => high >= one) ?? units[units.length - 1];
  const found = ticks(low / size, high / size);
  const step = found[1] - found[0];
  return found.map((value) => ({ at: value * size, words: value === 0 ? "0" : plain(value, step) + name }));
}

/** With as many decimals as the distance to the next mark needs. @param {number} value @param {number} step */
function plain(value, step) {
  const digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  const whole = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
  return value.toFixed(whole ? digits : digits + 1);
}

/** Whole numbers of a range, thinned where there are many. @param {number} low @param {number} high @param {number} [most] */
export function wholeTicks(low, high, most = 8) {
  const step = Math.max(1, Math.ceil((high - low) / most));
  const found = [];
  for (let value = low; value <= high; value += step) found.push(value);
  return found;
}
