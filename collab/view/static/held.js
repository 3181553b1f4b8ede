/** What a report lacks. */

import { heldOf } from "./data.js";
import { h } from "./dom.js";
import { plural } from "./words.js";

/**
 * Nothing where it holds all, and with a server.
 * @param {string} run or training @param {string} told what that means for this page
 */
export function heldNote(run, told) {
  const held = heldOf(run);
  return held && h("p", { class: "note" }, `This report holds ${held.episodes} of ${plural(held.of, "episode")}; ${told}.`);
}
