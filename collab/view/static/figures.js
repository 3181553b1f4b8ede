/** Numbers as people read them. Null is told as "–": not known, which is not zero. */

const NOT_KNOWN = "–";

/** A share in [0, 1]. @param {number | null | undefined} share @param {number} [digits] */
export function percent(share, digits = 0) {
  return isKnown(share) ? `${(100 * Number(share)).toFixed(digits)}%` : NOT_KNOWN;
}

/** @param {number | null | undefined} value @param {number} [digits] after the point */
export function decimal(value, digits = 2) {
  return isKnown(value) ? Number(value).toFixed(digits) : NOT_KNOWN;
}

/** A whole number; large ones short: 12,345 → "12.3k". @param {number | null | undefined} value */
export function amount(value) {
  if (!isKnown(value)) return NOT_KNOWN;
  const number = Number(value);
  if (Math.abs(number) >= 1e9) return `${(number / 1e9).toFixed(1)}G`;
  if (Math.abs(number) >= 1e6) return `${(number / 1e6).toFixed(1)}M`;
  return Math.abs(number) >= 1e4 ? `${(number / 1e3).toFixed(1)}k` : number.toLocaleString("en");
}

/** @param {number | null | undefined} seconds */
export function duration(seconds) {
  if (!isKnown(seconds)) return NOT_KNOWN;
  const value = Number(seconds);
  if (value < 1) return `${Math.round(1000 * value)} ms`;
  if (value < 60) return `${value.toFixed(1)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(value % 60)} s`;
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
