/** What a training estimated of an episode's steps: whose estimates are shown, and those of one step. */

import { fill, h } from "./dom.js";
import { decimal, isKnown, precise } from "./figures.js";
import { stepPlace } from "./place.js";
import { sortableTable } from "./table.js";
import { isolated, said } from "./words.js";

/** @typedef {import("./place.js").Along} Along */

/** Names of an estimate's numbers, in the order in which they are shown. */
const NUMBERS = [
  ["reward", "reward"],
  ["step_reward", "reward of the step"],
  ["target", "return"],
  ["value", "V"],
  ["value_next", "V next"],
  ["advantage", "A"],
  ["penalty", "penalty"],
  ["ratio", "ratio"],
  ["entropy", "entropy"],
  ["staleness", "versions behind"],
  ["priority", "priority of its episode"],
  ["threshold", "threshold"],
  ["weight", "weight"],
  ["instruct_value", "V of its task"],
  ["instruct_advantage", "A over its task"],
];

/** The estimates that the address names, else the newest epoch's; undefined without any. @param {any} episode an `EpisodeView` @param {Along} along */
export function shownEstimates(episode, { estimates }) {
  return episode.estimates.find((/** @type {any} */ one) => keyOf(one) === estimates) ?? episode.estimates[0];
}

/** Names the estimates in an address. @param {any} one `EpisodeEstimates` */
function keyOf({ epoch, policy }) {
  return `${epoch}/${policy}`;
}

/** The estimate of a step; undefined without one. @param {any} shown `EpisodeEstimates`, or undefined @param {number} step */
export function estimateOf(shown, step) {
  return shown?.steps.find((/** @type {any} */ one) => one.step === step);
}

/** @param {any} one an `EstimateView` */
export function isLearned(one) {
  return one.weight !== 0;
}

/** An estimate in a line. @param {any} one an `EstimateView` */
export function estimateWords(one) {
  const numbers = [
    isKnown(one.value) && `${valueName(one)} ${precise(one.value)}`,
    isKnown(one.advantage) && `A ${precise(one.advantage)}`,
  ].filter(Boolean);
  return [...numbers, one.why].join(", ");
}

/** A value without one of the next state is of the step's reply. @param {any} one an `EstimateView` */
function valueName(one) {
  return isKnown(one.target) && !isKnown(one.value_next) ? "Q" : "V";
}

/** V below a step, filled where the step is learned. @param {any} one an `EstimateView`, or undefined */
export function valueMark(one) {
  if (!one) return null;
  const value = isKnown(one.value) ? decimal(one.value) : "\u00a0";
  return h("span", { class: `value-mark${isLearned(one) ? " kept" : ""}`, "aria-hidden": "true" }, value);
}

/**
 * The estimates of the current step; of another one, while `look` is called with it.
 * @param {any} episode an `EpisodeView` @param {number} current @param {Along} along
 * @returns {{element: Element | null, look: (step: number | null) => void}}
 */
export function estimatesPanel(episode, current, along) {
  const shown = shownEstimates(episode, along);
  const lacking = episode.unestimated && h("p", { class: "note" }, "Estimates: ", said(episode.unestimated, 900));
  if (!shown) return { element: lacking, look: () => undefined };
  const one = h("div", { class: "estimate" });
  const look = (/** @type {number | null} */ step) => fill(one, estimateFacts(estimateOf(shown, step ?? current), step ?? current));
  look(null);
  const valued = shown.steps.find((/** @type {any} */ step) => isKnown(step.value));
  const below = valued && (valueName(valued) === "Q" ? "Q of its reply after the fit" : "V of its state");
  const element = h(
    "section",
    { class: "panel", "aria-labelledby": "estimates-title" },
    h("div", { class: "panel-head" }, h("h2", { id: "estimates-title" }, "Estimates"), whichEpoch(episode, shown, current, along)),
    one,
    h(
      "p",
      { class: "muted" },
      `Below each step above: ${below ?? "a sign"}, filled where it is learned. Point at a step, or move to it by Tab, to read its estimates here.`,
    ),
    lacking,
  );
  return { element, look };
}

/** @param {any} one an `EstimateView`, or undefined @param {number} step */
function estimateFacts(one, step) {
  if (!one) return h("p", null, `Step ${step} was not estimated.`);
  const known = NUMBERS.filter(([key]) => isKnown(one[key]));
  return [
    h("p", null, `Step ${step}: `, h("strong", null, isLearned(one) ? "learned" : "not learned"), one.why !== "kept" && [", ", said(one.why)]),
    h(
      "dl",
      { class: "facts" },
      known.map(([key, name]) =>
        h("div", null, h("dt", null, key !== "value" ? name : valueName(one) === "Q" ? "Q after the fit" : "V"), h("dd", null, precise(one[key]))),
      ),
    ),
    one.candidates.length > 0 && candidatesTable(one.candidates, step),
  ];
}

/** Worth of an action by the environment's own solution. @param {number | null} truth */
function truthWords(truth) {
  if (!isKnown(truth)) return "–";
  return Number(truth) > 0.5 ? "leads on" : truth === 0.5 ? "changes nothing" : "leads astray";
}

/** Replies that were sampled and not executed. @param {any[]} candidates `CandidateView`s @param {number} step */
function candidatesTable(candidates, step) {
  const caption = `Other replies to the state of step ${step}, not executed`;
  return [
    h("h3", null, caption),
    sortableTable(
      caption,
      [
        { name: "action", heads: true, show: (one) => (one.action === null ? "no action" : said(one.action)) },
        { name: "given", kind: "number", show: (one) => `${one.count}×` },
        { name: "Q after the fit", kind: "number", show: (one) => precise(one.value) },
        { name: "A", kind: "number", show: (one) => precise(one.advantage) },
        { name: "in truth", show: (one) => truthWords(one.truth) },
        { name: "reply", show: (one) => said(one.text, 300) },
      ],
      candidates,
      { key: "", descending: false },
      () => undefined,
    ),
  ];
}

/** Which epoch's estimates these are, and the way to others. @param {any} episode @param {any} shown @param {number} current @param {Along} along */
function whichEpoch(episode, shown, current, along) {
  const all = episode.estimates;
  if (all.length === 1) return h("span", { class: "muted" }, "of ", said(nameOf(shown, episode)));
  const changed = (/** @type {Event} */ event) => {
    const estimates = /** @type {HTMLSelectElement} */ (event.target).value;
    location.hash = stepPlace(episode.row.run, episode.row.id, current, { ...along, estimates });
  };
  return h(
    "select",
    { id: "estimates", "aria-label": "Which epoch's estimates", events: { change: changed } },
    all.map((/** @type {any} */ one) =>
      h("option", { value: keyOf(one), selected: one === shown }, isolated(nameOf(one, episode))),
    ),
  );
}

/** @param {any} one `EpisodeEstimates` @param {any} episode */
function nameOf(one, { estimates, row }) {
  const policies = new Set(estimates.map((/** @type {any} */ other) => other.policy));
  return [
    `epoch ${one.epoch}`,
    one.epoch === row.epoch && "in which it was played",
    one.epoch === estimates[0].epoch && estimates.length > 1 && "the newest",
    policies.size > 1 && `policy ${one.policy}`,
  ]
    .filter(Boolean)
    .join(", ");
}
