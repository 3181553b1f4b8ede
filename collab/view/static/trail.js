/** The way to a page of a run: its training, where it is a part of one, and the run itself. */

import { getRun } from "./data.js";
import { overviewPlace } from "./place.js";

/**
 * @param {string} id of a run or training
 * @param {string | null} [labels] whose scores are shown
 * @returns {Promise<{view: any, trail: [string, string][]}>} its `RunView`; names and addresses, outermost first
 */
export async function trailTo(id, labels = null) {
  const view = await getRun(id);
  if (view.training === null) return { view, trail: [[view.run.path, overviewPlace(id, labels)]] };
  const whole = await getRun(view.training);
  const part = whole.parts.find((/** @type {any} */ one) => one.id === id);
  const kept = part?.role === "rollout" ? labels : null;
  return {
    view,
    trail: [
      [whole.run.path, overviewPlace(view.training, kept)],
      [part ? partName(part) : view.run.path, overviewPlace(id, labels)],
    ],
  };
}

/** A run within its training. @param {any} part a `PartRow` */
export function partName(part) {
  return `epoch ${part.epoch}, ${part.role}, seed ${part.seed}`;
}
