/** The choice whose scores are shown, where more than one critic has judged a run. */

import { isReport } from "./data.js";
import { h } from "./dom.js";
import { isolated } from "./words.js";

/**
 * Nothing where there is no choice: a report holds the scores of one critic.
 * @param {string[]} names of the label sets
 * @param {string | null} shown
 * @param {(labels: string) => string} place where it leads
 */
export function labelsChoice(names, shown, place) {
  if (isReport() || names.length < 2) return null;
  const changed = (/** @type {Event} */ event) => {
    location.hash = place(/** @type {HTMLSelectElement} */ (event.target).value);
  };
  return h(
    "label",
    { class: "muted" },
    "critic ",
    h(
      "select",
      { id: "labels", events: { change: changed } },
      names.map((name) => h("option", { value: name, selected: name === shown }, isolated(name))),
    ),
  );
}
