/** Texts from outside: isolated from the line around them, and cut where they are endless. */

import { button, fill, h } from "./dom.js";

const LONG_TEXT = 2000;

/** Where a long name may go on in the next line: behind a path's parts, between the words of aCompoundName. */
const SEAM = /(?<=[/_.])(?=[^/_.])|(?<=[a-z0-9])(?=[A-Z[])/g;
const LONG_NAME = /\S{12,}/g;

/**
 * A short text from outside on a line of ours, whatever its direction of writing.
 * @param {string | null | undefined} value
 * @param {number} [limit] characters that are shown
 */
export function said(value, limit = 200) {
  const text = value ?? "";
  const shown = clipped(text, limit);
  return h("bdi", { class: "said", title: shown === text ? null : clipped(text, 1000) }, breakable(shown));
}

/** A path from outside; its end tells most, so a long one loses its beginning. @param {string} path @param {number} [limit] */
export function saidPath(path, limit = 80) {
  const shown = path.length <= limit ? path : `…${[...path].slice(1 - limit).join("")}`;
  return h("bdi", { class: "said", title: shown === path ? null : clipped(path, 1000) }, breakable(shown));
}

/** A text whose long names break where their parts meet. @param {string} text */
function breakable(text) {
  const parts = [];
  let shown = 0;
  for (const name of text.matchAll(LONG_NAME)) {
    for (const seam of name[0].matchAll(SEAM)) {
      const end = name.index + seam.index;
      parts.push(text.slice(shown, end), h("wbr"));
      shown = end;
    }
  }
  return [...parts, text.slice(shown)];
}

/**
 * A text from outside where no element can stand, as in a choice: whatever its direction, what follows keeps its own.
 * @param {string} text
 */
export function isolated(text) {
  return `\u2068${text.replace(/[\u202a-\u202e\u2066-\u2069]/g, "")}\u2069`;
}

/** Keys can scroll what scrolls: it takes the focus then, and only then. */
const sizes = new ResizeObserver((changes) => {
  for (const { target } of changes) {
    if (target.scrollHeight > target.clientHeight) target.setAttribute("tabindex", "0");
    else if (target !== document.activeElement) target.removeAttribute("tabindex");
  }
});

/**
 * A long text from outside with its line breaks; what is beyond the limit is shown when asked for.
 * @param {string | null | undefined} value
 * @param {{limit?: number, label?: string}} [options] label: what it is, for screen readers
 */
export function passage(value, { limit = LONG_TEXT, label } = {}) {
  const text = value ?? "";
  const block = h("pre", { class: "passage scroll", dir: "auto", "aria-label": label, role: label ? "group" : null });
  sizes.observe(block);
  if (text.length <= limit) {
    fill(block, text);
    return block;
  }
  const shown = () => {
    block.dataset.whole = "";
    fill(block, text);
  };
  const whole = button(`Show all ${text.length.toLocaleString("en")} characters`, shown, { class: "quiet whole" });
  fill(block, clipped(text, limit), "\n", whole);
  return block;
}

/**
 * As `passage`, of a text that was answered in part.
 * @param {{text: string, cut: number}} told @param {{limit?: number, label?: string}} [options]
 */
export function cutPassage({ text, cut }, options) {
  const left = `${cut.toLocaleString("en")} more characters stand in the run`;
  return [passage(text, options), cut > 0 && h("p", { class: "muted" }, left)];
}

/**
 * The beginning of a text, never half a character of it.
 * @param {string} text @param {number} limit
 */
export function clipped(text, limit) {
  if (text.length <= limit) return text;
  const end = text.charCodeAt(limit - 2);
  return `${text.slice(0, end >= 0xd800 && end <= 0xdbff ? limit - 2 : limit - 1)}…`;
}

/** "1 step", "2 steps". @param {number} count @param {string} noun @param {string} [many] */
export function plural(count, noun, many) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : (many ?? `${noun}s`)}`;
}
