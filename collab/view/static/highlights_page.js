/** Steps that are worth looking at: the three jumps. */

import { crumbs } from "./crumbs.js";
import { getHighlights } from "./data.js";
import { fill, h, link } from "./dom.js";
import { heldNote } from "./held.js";
import { drawWhenFree, keeping } from "./keep.js";
import { labelsChoice } from "./labels.js";
import { highlightsPlace, stepPlace } from "./place.js";
import { trailTo } from "./trail.js";
import { plural, said } from "./words.js";

/** @type {Record<string, [string, string]>} */
export const KINDS_OF_HIGHLIGHTS = {
  "first-wrong": [
    "First wrong step",
    "Of every episode that ended unsolved, the first step that the critic does not reward.",
  ],
  overruled: ["Vote overruled the best proposal", "Steps that are not rewarded, although some cell is."],
  disagrees: [
    "Critic disagrees with outcome",
    "Solved episodes of which at most half is rewarded, and others that are rewarded throughout.",
  ],
};

/** Links to all three. @param {string} run @param {string | null} [labels] */
export function highlightLinks(run, labels = null) {
  return h(
    "nav",
    { class: "highlights", "aria-label": "Steps worth looking at" },
    h("span", { class: "muted" }, "Jump to"),
    Object.entries(KINDS_OF_HIGHLIGHTS).map(([kind, [name]]) => link(highlightsPlace(run, kind, labels), { class: "chip" }, name)),
  );
}

/** @param {import("./place.js").Place} place */
export async function highlightsPage(place) {
  const [id, kind = "first-wrong"] = place.parts;
  const [name, meaning] = KINDS_OF_HIGHLIGHTS[kind] ?? [kind, ""];
  const labels = place.query.get("labels");
  const along = { labels, from: highlightsPlace(id, kind, labels) };
  const element = h("div");
  const draw = async () => {
    const [{ view, trail }, found] = await Promise.all([trailTo(id, labels), getHighlights(id, kind, labels)]);
    const choice = labelsChoice(view.label_sets, found.labels, (other) => highlightsPlace(id, kind, other));
    const parts = () => [
      crumbs(trail),
      h("div", { class: "title-line" }, h("h1", null, name), choice),
      h("p", { class: "muted" }, meaning, found.labels && [" Judged by the labels ", said(found.labels), "."]),
      highlightLinks(id, labels),
      heldNote(id, "steps of the others are not listed"),
      h("p", { class: "muted", role: "status" }, told(found)),
      h(
        "ol",
        { class: "found" },
        found.rows.map((/** @type {any} */ row) => h("li", null, findLine(row, along))),
      ),
    ];
    keeping(element, () => fill(element, parts()));
  };
  await draw();
  return { element, title: name, runs: [id], keys: {}, refresh: () => drawWhenFree(element, draw) };
}

/** @param {any} found a `Finds` */
function told(found) {
  if (found.judged === 0) return "No critic has judged a step of this run, so nothing can be found.";
  return found.rows.length ? plural(found.rows.length, "step") : "No such step.";
}

/** @param {any} row a `Find` @param {import("./place.js").Along} along */
function findLine(row, along) {
  return [
    link(
      stepPlace(row.run, row.episode, row.step, { agent: row.agent, round: row.round, ...along }),
      null,
      said(row.episode, 100),
      ` step ${row.step}`,
    ),
    h("p", { class: "muted" }, said(row.note, 300)),
  ];
}
