/** Where this page stands among the others. */

import { h, link } from "./dom.js";
import { said } from "./words.js";

/** @param {[string, string][]} steps name and address, from the outermost; the list of runs is before them all */
export function crumbs(steps) {
  return h(
    "nav",
    { class: "crumbs", "aria-label": "Where this is" },
    h(
      "ol",
      null,
      [["Runs", "#/"], ...steps].map(([name, place]) => h("li", null, link(place, null, said(name, 120)))),
    ),
  );
}

/** A failure, told where it happened. @param {unknown} error */
export function failureNote(error) {
  return h("p", { class: "note", role: "alert" }, said(error instanceof Error ? error.message : String(error), 600));
}
