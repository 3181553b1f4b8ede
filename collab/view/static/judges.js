/** All critics on one step, side by side, and where they differ. */

import { nameplate } from "./agents.js";
import { fill, h } from "./dom.js";
import { getCritics } from "./data.js";
import { scoreTag } from "./matrix.js";
import { cellKey } from "./proposals.js";
import { plural, said } from "./words.js";

/** @param {any} step a `StepView` with more than one label set @param {import("./agents.js").Agent[]} agents */
export function judgesPanel(step, agents) {
  const body = h("div", { "aria-live": "polite" });
  const opened = async (/** @type {Event} */ event) => {
    if (!(/** @type {HTMLDetailsElement} */ (event.target).open) || body.hasChildNodes()) return;
    try {
      fill(body, judgesTable(await getCritics(step.run, step.episode, step.step), step, agents));
    } catch (error) {
      fill(body, h("p", { class: "note" }, said(String(/** @type {Error} */ (error).message), 400)));
    }
  };
  return h(
    "details",
    { class: "panel", events: { toggle: opened } },
    h("summary", null, `Compare ${plural(step.label_sets.length, "critic")} on this step`),
    body,
  );
}

/** @param {any} found a `Critics` @param {any} step @param {import("./agents.js").Agent[]} agents */
function judgesTable(found, step, agents) {
  const disputed = new Set(found.disputed.map((/** @type {any} */ cell) => cellKey(cell.agent, cell.round)));
  const scores = found.critics.map(
    (/** @type {any} */ critic) =>
      new Map(critic.scores.map((/** @type {any} */ score) => [cellKey(score.agent, score.round), score])),
  );
  const row = (/** @type {any} */ cell) => {
    const key = cellKey(cell.agent, cell.round);
    const agent = agents.find((one) => one.name === cell.agent);
    return h(
      "tr",
      { class: disputed.has(key) ? "disputed" : null },
      h(
        "th",
        { scope: "row" },
        agent && nameplate(agent),
        ` ${cell.round + 1}`,
        disputed.has(key) && h("small", { class: "done-word" }, " they differ"),
      ),
      h("td", null, said(cell.action?.words ?? "no action", 100)),
      scores.map((/** @type {Map<string, any>} */ one) => h("td", null, verdict(one.get(key)))),
    );
  };
  return [
    found.disputed.length === 0 && h("p", { class: "muted" }, "They reward the same cells."),
    h(
      "div",
      { class: "scroll", role: "region", tabindex: 0, "aria-label": "Critics side by side" },
      h(
        "table",
        { class: "rows" },
        h("caption", { class: "unseen" }, "Every critic's score of every cell"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            h("th", { scope: "col" }, "cell"),
            h("th", { scope: "col" }, "action"),
            found.critics.map((/** @type {any} */ critic) =>
              h(
                "th",
                { scope: "col" },
                said(critic.labels),
                critic.unjudged && h("small", null, " ", said(critic.unjudged, 100)),
              ),
            ),
          ),
        ),
        h("tbody", null, step.cells.map(row)),
      ),
    ),
  ];
}

/** @param {any} score a `Score`; undefined where it was not judged */
function verdict(score) {
  if (!score) return "–";
  return [scoreTag(score), score.because.text && h("p", { class: "reason" }, said(score.because.text, 160))];
}
