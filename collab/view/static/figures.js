/** Numbers as people read them. Null is told as "–": not known, which is not zero. */

const NOT_KNOWN = "–";

/** Closer to 0 or 1 than this, a share is one of them: intervals end there but for the last digit. */
const NEXT_TO = 1e-9;

/** Sizes of large numbers. @type {[number, string][]} */
const SIZES = [
  [1e3, "k"],
  [1e6, "M"],
  [1e9, "G"],
];

/**
 * A share in [0, 1]. Only what is 0 or 1 reads as 0% or 100%: others have one decimal more before they would.
 * @param {number | null | undefined} share
 */
export function percent(share) {
  if (!isKnown(share)) return NOT_KNOWN;
  const value = 100 * Number(share);
  const [none, all] = [value < 100 * NEXT_TO, value > 100 * (1 - NEXT_TO)];
  const isEdge = (/** @type {string} */ text) => Number(text) === 0 || Number(text) === 100;
  if (none || all || !isEdge(value.toFixed(0))) return `${value.toFixed(0)}%`;
  if (isEdge(value.toFixed(1))) return value < 50 ? "<0.1%" : ">99.9%";
  return `${value.toFixed(1)}%`;
}

/** Nothing that is rounded to zero has a sign. @param {number | null | undefined} value @param {number} [digits] after the point */
export function decimal(value, digits = 2) {
  if (!isKnown(value)) return NOT_KNOWN;
  const text = Number(value).toFixed(digits);
  return Number(text) === 0 ? text.replace("-", "") : text;
}

/** To three digits that count, however small: a sure word has a log-probability of -0.000412. @param {number | null | undefined} value */
export function precise(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  const number = Number(value);
  return Math.abs(number) >= 100 ? decimal(number, 0) : String(Number(number.toPrecision(3)) || 0);
}

/** A whole number; large ones short: 12,345 → "12.3k". @param {number | null | undefined} value */
export function amount(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  const number = Number(value);
  if (Math.abs(number) < 1e4) return number.toLocaleString("en");
  const fits = SIZES.find(([size]) => Math.round((10 * Math.abs(number)) / size) < 10_000);
  const [size, sign] = fits ?? SIZES[SIZES.length - 1];
  return `${(number / size).toFixed(1)}${sign}`;
}

/** Rounded before it is split into units: 119.6 s are 2 min 0 s. @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (!isKnown(seconds)) return NOT_KNOWN;
  const value = Number(seconds);
  if (Math.round(1000 * value) < 1000) return `${Math.round(1000 * value)} ms`;
  if (Math.round(10 * value) < 600) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  const minutes = Math.round(value / 60);
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** @param {number | null | undefined} usd */
export function money(usd) {
  if (!isKnown(usd)) return NOT_KNOWN;
  const value = Number(usd);
  return value === 0 ? "$0" : `$${value < 0.1 ? value.toPrecision(2) : value.toFixed(2)}`;
}

/** The time of an event, UTC, to the minute. @param {string | null | undefined} iso */
export function moment(iso) {
  return iso ? iso.slice(0, 16).replace("T", " ") : NOT_KNOWN;
}

/** Whether there is a number. @param {any} value */
export function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}
