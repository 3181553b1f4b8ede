/** How episodes and runs ended, in a sign and a word, never by colour alone; and how often runs succeeded. */

import { h } from "./dom.js";
import { outcomeOf } from "./filter.js";
import { percent } from "./figures.js";
import { intervalBar } from "./bars.js";

/** Episodes below which an interval says little. */
const FEW = 10;
/** Of runs and episodes whose agents read the solution, in the words of the command line. */
export const REHEARSAL = "rehearsal: not a language model";
const OUTCOMES = { solved: "●", failed: "○", broken: "✕", unfinished: "…" };
const OUTCOME_WORDS = { solved: "solved", failed: "not solved", broken: "broken", unfinished: "unfinished" };
/** @type {Record<string, string>} */
const STATUS_SIGNS = { running: "▶", finished: "■", stopped: "‖", dead: "✕" };

/** @param {any} row an `EpisodeRow` */
export function outcomeBadge(row) {
  const outcome = outcomeOf(row);
  return h(
    "span",
    { class: `outcome ${outcome}` },
    h("span", { "aria-hidden": "true" }, `${OUTCOMES[outcome]} `),
    OUTCOME_WORDS[outcome],
  );
}

/** @param {string} status */
export function statusBadge(status) {
  return h(
    "span",
    { class: `status ${status}` },
    h("span", { "aria-hidden": "true" }, `${STATUS_SIGNS[status] ?? "?"} `),
    status,
  );
}

/** That a success is none of a language model, where it is so. @param {any} one a `RunRow` or an `EpisodeRow` */
export function rehearsalMark(one) {
  return one.privileged && h("small", { class: "rehearsal under" }, REHEARSAL);
}

/** A run's success: its rate, what it is of, and the mark of a rehearsal. @param {any} run a `RunRow` */
export function successView(run) {
  return [
    rateView(run.success),
    run.success_of && h("small", { class: "muted under" }, run.success_of),
    rehearsalMark(run),
  ];
}

/** A success rate with its interval, drawn and in numbers. @param {any} rate a `Rate`, or null */
export function rateView(rate) {
  if (!rate || rate.value === null) return h("span", { class: "muted" }, "–");
  return h(
    "span",
    { class: "rate" },
    h("strong", null, percent(rate.value)),
    intervalBar(rate.value, rate.low, rate.high),
    h(
      "small",
      rate.episodes < FEW ? { title: `fewer than ${FEW} episodes: the interval says little` } : null,
      `${percent(rate.low)} – ${percent(rate.high)}, ${rate.successes}/${rate.episodes}${rate.episodes < FEW ? ", few" : ""}`,
    ),
  );
}
