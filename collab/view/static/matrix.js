/** Agents × rounds: what each proposed, what the critic thought of it, and why there is no action where there is none. */

import { nameplate } from "./agents.js";
import { h, property } from "./dom.js";
import { decimal, isKnown, precise } from "./figures.js";
import { cellKey, cellsOf } from "./proposals.js";
import { plural, said } from "./words.js";

/**
 * @param {any} step a `StepView`
 * @param {import("./agents.js").Agent[]} agents
 * @param {(agent: string, round: number) => void} picked
 */
export function matrixTable(step, agents, picked) {
  const cells = cellsOf(step);
  const rounds = Array.from({ length: step.rounds }, (_, round) => round);
  const row = (/** @type {import("./agents.js").Agent} */ agent) =>
    h(
      "tr",
      { class: agent.tint },
      h(
        "th",
        { scope: "row" },
        nameplate(agent),
        h("kbd", { "aria-hidden": "true" }, agent.place < 9 ? agent.place + 1 : ""),
      ),
      rounds.map((round) =>
        h("td", null, matrixCell(cells.get(cellKey(agent.name, round)), agent.name, round, picked)),
      ),
    );
  const head = rounds.map((round) => h("th", { scope: "col" }, `Round ${round + 1}`));
  const table = h(
    "table",
    { class: "matrix" },
    h("caption", { class: "unseen" }, "What each agent proposed in each round"),
    h("thead", null, h("tr", null, h("td", null), head)),
    h("tbody", null, agents.map(row)),
  );
  const told = { class: "scroll", role: "region", tabindex: 0, "aria-label": "Action matrix" };
  return h("div", told, property(table, "--rounds", step.rounds));
}

/** The address of a cell's button in the page. @param {string} agent @param {number} round */
export function cellId(agent, round) {
  return `cell ${agent} ${round}`;
}

/** @param {any} cell a `CellView`; undefined where nothing was said @param {string} agent @param {number} round @param {(agent: string, round: number) => void} picked */
function matrixCell(cell, agent, round, picked) {
  if (!cell) return h("span", { class: "muted" }, "not said");
  const kind = cell.action ? (cell.ballot === 0 ? "winner" : "other") : "failed";
  return h(
    "button",
    {
      type: "button",
      class: `cell ${kind}`,
      id: cellId(agent, round),
      "aria-pressed": "false",
      events: { click: () => picked(agent, round) },
    },
    h("span", { class: "unseen" }, `${agent}, round ${round + 1}: `),
    h("span", { class: "cell-top" }, ballotTag(cell), scoreTag(cell)),
    h(
      "span",
      { class: "words" },
      cell.action ? said(cell.action.words, 120) : ["no action: ", said(failureWords(cell), 100)],
    ),
    cell.reason.text && h("span", { class: "reason" }, said(cell.reason.text, 120)),
    h("span", { class: "meta" }, meta(cell)),
  );
}

/** @param {any} cell */
function failureWords(cell) {
  return cell.failure ? cell.failure.kind.replaceAll("_", " ") : "none";
}

/** Which distinct action it voted for; 1 is the winner. @param {any} cell */
function ballotTag(cell) {
  if (cell.ballot === null) return h("span", { class: "tag ballot none" }, "no vote");
  const executed = cell.ballot === 0;
  return h(
    "span",
    { class: `tag ballot${executed ? " winning" : ""}` },
    h("span", { class: "unseen" }, executed ? "executed, " : "", "action "),
    `#${cell.ballot + 1}`,
  );
}

/** What the critic gave, and whether that is a reward. @param {any} cell a `CellView` or a `Score` */
export function scoreTag(cell) {
  if (isKnown(cell.score)) {
    return h(
      "span",
      { class: `tag score ${cell.rewarded ? "good" : "poor"}`, title: cell.rewarded ? "rewarded" : "not rewarded" },
      h("span", { class: "unseen" }, "critic "),
      decimal(cell.score),
      h("span", { "aria-hidden": "true" }, cell.rewarded ? " ▲" : " ▽"),
      h("span", { class: "unseen" }, cell.rewarded ? ", rewarded" : ", not rewarded"),
      isKnown(cell.original) && h("span", { "aria-hidden": "true" }, " ⇄"),
      isKnown(cell.original) && h("span", { class: "unseen" }, ", flipped on purpose"),
    );
  }
  return cell.missing ? h("span", { class: "tag score none", title: cell.missing }, "no score") : null;
}

/** @param {any} cell */
function meta(cell) {
  const told = [
    isKnown(cell.logprob) && `${precise(cell.logprob)} nats`,
    isKnown(cell.completion_tokens) && plural(cell.completion_tokens, "token"),
    cell.pairs.length > 0 && plural(cell.pairs.length, "pair"),
  ];
  return told.filter(Boolean).join(" · ");
}
