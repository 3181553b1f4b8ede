/** What the keys of the step view do. */

import { team } from "./agents.js";
import { isKnown } from "./figures.js";
import { cellId } from "./matrix.js";
import { episodePlace, stepPlace } from "./place.js";
import { besideInList } from "./walk.js";

/** @typedef {import("./place.js").Along} Along */
/** @typedef {import("./step_page.js").Shown} Shown */

/** Keys read what is shown when they are pressed: a run that grows changes it. @param {Shown} shown @param {Along} along */
export function stepKeys(shown, along) {
  const go = (/** @type {string | null} */ hash) => {
    if (hash !== null) location.hash = hash;
  };
  const toStep = (/** @type {number | null} */ number) =>
    number === null
      ? null
      : stepPlace(shown.step.run, shown.step.episode, number, { ...shown.view.named(), ...along });
  /** @type {import("./keys.js").Keys} */
  const keys = {
    ArrowLeft: () => go(toStep(shown.step.previous)),
    ArrowRight: () => go(toStep(shown.step.next)),
    ArrowUp: () => besideOf(shown, along).then(({ previous }) => go(stopPlace(previous, along))),
    ArrowDown: () => besideOf(shown, along).then(({ next }) => go(stopPlace(next, along))),
    0: () => shown.view.pick(null, 0),
  };
  for (const agent of team(shown.step.agents).slice(0, 9))
    keys[String(agent.place + 1)] = () => lookAt(agent.name, shown);
  return keys;
}

/** What is before and after an episode: in the list that one came from, else in the order of the run. @param {Shown} shown @param {Along} along */
async function besideOf({ step, episode }, { from }) {
  const found = from ? await besideInList(from, step.run, step.episode).catch(() => null) : null;
  return found ?? episode;
}

/** @param {import("./walk.js").Stop | null} stop @param {Along} along */
function stopPlace(stop, along) {
  if (stop === null) return null;
  const { run, episode, step } = stop;
  return isKnown(step) ? stepPlace(run, episode, Number(step), { ...stop, ...along }) : episodePlace(run, episode, along);
}

/** An agent's last round first; then the others, round by round. @param {string} name @param {Shown} shown */
function lookAt(name, { step, view }) {
  const now = view.now().chosen;
  const round = now?.agent === name ? (now.round + 1) % step.rounds : (now?.round ?? step.rounds - 1);
  view.pick(name, round);
  document.getElementById(cellId(name, round))?.focus({ preventScroll: true });
}
