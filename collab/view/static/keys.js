/** What keys do. A page names its own; those of the whole are search and help. */

/** @typedef {Record<string, () => void>} Keys key as the browser names it → what it does */

/** @type {Keys} */
let pageKeys = {};

/** @type {Keys} */
let commonKeys = {};

/** @param {Keys} common keys of every page */
export function listenToKeys(common) {
  commonKeys = common;
  document.addEventListener("keydown", pressed);
}

/** The keys of the page that is shown. @param {Keys} keys */
export function setKeys(keys) {
  pageKeys = keys;
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || isBusy(event)) return;
  const act = pageKeys[event.key] ?? commonKeys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

/** Whether the key belongs to what has the focus: a field that takes it, an open dialog, something that scrolls. @param {KeyboardEvent} event */
function isBusy(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (target.matches("input:not([type=checkbox]), select, textarea") || target.closest("dialog[open]")) return true;
  const scrolls =
    target.matches(".scroll") && (target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight);
  return scrolls && event.key.startsWith("Arrow");
}

/** What the keys do, for people: key and meaning. */
export const KEY_NAMES = [
  ["← →", "the step before, the next step"],
  ["↑ ↓", "the episode before, the next episode: of the list that one came from, else of the run"],
  ["1 … 9", "look at an agent; again: its next round"],
  ["0", "look at no agent"],
  ["/", "search"],
  ["?", "this help"],
  ["Esc", "close"],
];
