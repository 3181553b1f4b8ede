/** The steps of an episode in one row: how far the team agreed in each, and what is worth stopping at. */

import { h, link, property } from "./dom.js";
import { decimal, isKnown, percent } from "./figures.js";
import { stepPlace } from "./place.js";

/**
 * @param {any} episode an `EpisodeView`
 * @param {number} current
 * @param {import("./place.js").Along} along
 */
export function stepRail(episode, current, along) {
  const wrong = firstWrong(episode);
  return h(
    "nav",
    { class: "rail scroll", "aria-label": "Steps" },
    h(
      "ol",
      null,
      episode.steps.map((/** @type {any} */ step) =>
        h("li", null, tick(episode.row, step, current, along, step.step === wrong)),
      ),
    ),
    episode.missing.length > 0 && h("p", { class: "note" }, `Steps ${episode.missing.join(", ")} cannot be read.`),
  );
}

/** Bring the step that is shown into the middle of a rail that is wider than the page. @param {Element} holder */
export function scrollToCurrent(holder) {
  const [rail, here] = [holder.querySelector(".rail"), holder.querySelector(".tick[aria-current]")];
  if (rail && here) rail.scrollLeft = here.offsetLeft + here.offsetWidth / 2 - rail.clientWidth / 2;
}

/** Of an episode that was not solved, the first step that is not rewarded. @param {any} episode */
function firstWrong(episode) {
  if (episode.row.success !== false) return null;
  return episode.steps.find((/** @type {any} */ step) => isKnown(step.score) && step.score <= 0.5)?.step ?? null;
}

/** @param {any} row @param {any} step a `StepRow` @param {number} current @param {import("./place.js").Along} along @param {boolean} wrong */
function tick(row, step, current, along, wrong) {
  const signs = [
    wrong && ["✗", "first wrong step"],
    step.overruled && ["!", "the vote overruled the best proposal"],
    step.tie && ["=", "tie"],
    step.no_action && ["∅", "no action"],
  ].filter(Boolean);
  const told = [
    `Step ${step.step}: ${step.action || "nothing executed"}`,
    step.agreement !== null && `agreement ${percent(step.agreement)}`,
    isKnown(step.score) && `critic ${decimal(step.score)}`,
    ...signs.map(([, words]) => words),
  ].filter(Boolean);
  const here = link(
    stepPlace(row.run, row.id, step.step, along),
    {
      class: "tick",
      "aria-current": step.step === current ? "step" : null,
      "aria-label": told.join(", "),
      title: told.join("\n"),
      id: `step-${step.step}`,
    },
    h("span", { class: "level", "aria-hidden": "true" }),
    h("span", { class: "count", "aria-hidden": "true" }, step.step),
    h("span", { class: "signs", "aria-hidden": "true" }, signs.map(([sign]) => sign).join("")),
  );
  return property(here, "--share", step.agreement ?? 0);
}
