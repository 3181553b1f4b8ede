/** The steps of an episode in one row: how far the team agreed in each, what is worth stopping at, what was estimated. */

import { h, link, property } from "./dom.js";
import { estimateOf, estimatesPanel, estimateWords, shownEstimates, valueMark } from "./estimates.js";
import { decimal, isKnown, percent } from "./figures.js";
import { stepPlace } from "./place.js";

/**
 * @param {any} episode an `EpisodeView`
 * @param {number} current
 * @param {import("./place.js").Along} along
 */
export function stepRail(episode, current, along) {
  const wrong = firstWrong(episode);
  const shown = shownEstimates(episode, along);
  const { element, look } = estimatesPanel(episode, current, along);
  const lookAt = (/** @type {Event} */ event) => {
    const tick = /** @type {Element} */ (event.target).closest(".tick");
    if (tick) look(Number(tick.getAttribute("data-step")));
  };
  const rail = h(
    "nav",
    {
      class: "rail scroll",
      "aria-label": "Steps",
      events: { pointerover: lookAt, focusin: lookAt, pointerleave: () => look(null), focusout: () => look(null) },
    },
    h(
      "ol",
      null,
      episode.steps.map((/** @type {any} */ step) =>
        h("li", null, tick(episode.row, step, current, along, step.step === wrong, estimateOf(shown, step.step))),
      ),
    ),
    episode.missing.length > 0 && h("p", { class: "note" }, `Steps ${episode.missing.join(", ")} cannot be read.`),
  );
  return [rail, element];
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

/** @param {any} row @param {any} step a `StepRow` @param {number} current @param {import("./place.js").Along} along @param {boolean} wrong @param {any} estimate an `EstimateView`, or undefined */
function tick(row, step, current, along, wrong, estimate) {
  const signs = [
    wrong && ["✗", "first wrong step"],
    step.overruled && ["!", "the vote overruled the best proposal"],
    step.tie && ["=", "tie"],
    step.no_action && ["∅", "no action"],
    step.copied && ["↪", "taken over from another episode"],
  ].filter(Boolean);
  const told = [
    `Step ${step.step}: ${step.action || "nothing executed"}`,
    step.agreement !== null && `agreement ${percent(step.agreement)}`,
    isKnown(step.score) && `critic ${decimal(step.score)}`,
    ...signs.map(([, words]) => words),
    estimate && estimateWords(estimate),
  ].filter(Boolean);
  const here = link(
    stepPlace(row.run, row.id, step.step, along),
    {
      class: "tick",
      "aria-current": step.step === current ? "step" : null,
      "aria-label": told.join(", "),
      title: told.join("\n"),
      id: `step-${step.step}`,
      "data-step": step.step,
    },
    h("span", { class: "level", "aria-hidden": "true" }),
    h("span", { class: "count", "aria-hidden": "true" }, step.step),
    h("span", { class: "signs", "aria-hidden": "true" }, signs.map(([sign]) => sign).join("")),
    valueMark(estimate),
  );
  return property(here, "--share", step.agreement ?? 0);
}
