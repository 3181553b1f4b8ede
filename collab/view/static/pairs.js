/** Preference pairs that were made from a step: which reply was preferred to which. */

import { nameplate } from "./agents.js";
import { h, link } from "./dom.js";
import { stepPlace } from "./place.js";
import { cutPassage, plural, said } from "./words.js";

/** @typedef {import("./agents.js").Agent} Agent */
/** @typedef {import("./place.js").Along} Along */

const MOST_PAIRS = 12;

/**
 * @param {any} step a `StepView` @param {Agent[]} agents
 * @param {{agent: string, round: number} | null} cell only its pairs; null: of the whole step
 * @param {Along} along
 */
export function pairsPanel(step, agents, cell, along) {
  const ofCell = (/** @type {any} */ pair) =>
    cell === null ||
    [...pair.chosen, ...pair.rejected].some(
      (reply) => reply.agent === cell.agent && reply.round === cell.round && reply.step === step.step,
    );
  const pairs = step.pairs.filter(ofCell);
  const set = step.pairs[0]?.set;
  return h(
    "section",
    { class: "panel", "aria-labelledby": "pairs-title" },
    h("h2", { id: "pairs-title" }, "Pairs made from it"),
    pairs.length === 0 &&
      h(
        "p",
        { class: "muted" },
        cell === null || !step.pairs.length
          ? "None."
          : `None of this cell; ${plural(step.pairs.length, "pair")} of the step.`,
      ),
    pairs.length > 0 && h("p", { class: "muted" }, `${plural(pairs.length, "pair")} in the set `, said(set)),
    pairs.slice(0, MOST_PAIRS).map((/** @type {any} */ pair) => pairCard(pair, step, agents, along)),
    pairs.length > MOST_PAIRS &&
      h(
        "details",
        null,
        h("summary", null, `${plural(pairs.length - MOST_PAIRS, "more pair")}`),
        pairs.slice(MOST_PAIRS).map((/** @type {any} */ pair) => pairCard(pair, step, agents, along)),
      ),
  );
}

/** @param {any} pair a `PairView` @param {any} step @param {Agent[]} agents @param {Along} along */
function pairCard(pair, step, agents, along) {
  const replies = (/** @type {any[]} */ all) => all.map((reply) => replyWords(reply, step, agents, along));
  const made = [pair.source, pair.adversary && `by ${pair.adversary}`, pair.critic && `judged by ${pair.critic}`]
    .filter(Boolean)
    .join(" · ");
  return h(
    "article",
    { class: "pair" },
    h("p", { class: "muted" }, h("code", null, pair.id.slice(0, 8)), " ", said(made)),
    h(
      "dl",
      null,
      side("better", "▲", replies(pair.chosen)),
      pair.synthetic ? madeUp(pair) : side("worse", "▽", replies(pair.rejected)),
    ),
  );
}

/** @param {string} name @param {string} sign @param {Element[]} replies */
function side(name, sign, replies) {
  return h(
    "div",
    null,
    h("dt", null, `${sign} ${name}`),
    h("dd", null, replies.slice(0, 3), replies.length > 3 && ` and ${replies.length - 3} more`),
  );
}

/** @param {any} reply a `ReplyKey` @param {any} step @param {Agent[]} agents @param {Along} along */
function replyWords(reply, step, agents, along) {
  const agent = agents.find((one) => one.name === reply.agent);
  const here = reply.episode === step.episode && reply.step === step.step;
  const cell = here
    ? step.cells.find((/** @type {any} */ one) => one.agent === reply.agent && one.round === reply.round)
    : null;
  const where = here ? `round ${reply.round + 1}` : `step ${reply.step}, round ${reply.round + 1}`;
  return h(
    "span",
    { class: "reply" },
    agent ? nameplate(agent) : said(reply.agent),
    " ",
    link(stepPlace(step.run, reply.episode, reply.step, { ...reply, ...along }), null, where),
    cell?.action && [" ", said(cell.action.words)],
  );
}

/** @param {any} pair whose rejected reply was synthesised */
function madeUp(pair) {
  const words = pair.synthetic_action?.words;
  return h(
    "div",
    null,
    h("dt", null, "▽ worse"),
    h(
      "dd",
      null,
      "synthesised: ",
      words ? said(words) : null,
      h("details", null, h("summary", null, "the reply"), cutPassage(pair.synthetic, { label: "Synthesised reply" })),
    ),
  );
}
