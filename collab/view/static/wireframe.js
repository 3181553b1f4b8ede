/** A screen without a picture: its elements as boxes with their words, or as lines where no box is known. */

import { h, s } from "./dom.js";
import { clipped, isolated, said } from "./words.js";

/**
 * @typedef {object} ScreenElement
 * @property {number} index
 * @property {string} role
 * @property {string} label
 * @property {[number, number, number, number] | null} box left, top, right, bottom, in the screen's pixels
 * @property {string | null} value
 * @property {string[]} flags
 */

/**
 * The boxes of the elements, for the SVG that lies on a screen.
 * @param {ScreenElement[]} elements @param {number} unit a length that looks like 12 pixels
 */
export function drawBoxes(elements, unit) {
  return s(
    "g",
    { class: "wireframe" },
    elements.filter((one) => one.box).map((one) => drawBox(one, unit)),
  );
}

/** @param {ScreenElement} element @param {number} unit */
function drawBox(element, unit) {
  const [left, top, right, bottom] = /** @type {[number, number, number, number]} */ (element.box);
  const [width, height] = [Math.max(1, right - left), Math.max(1, bottom - top)];
  const room = Math.floor((width - unit / 2) / (unit * 0.55));
  const words = element.label || element.value || element.role;
  const size = Math.min(unit, height * 0.8);
  return s(
    "g",
    { class: element.role === "text" ? "plain" : "acts" },
    s("title", null, `${isolated(clipped(element.role, 40))} "${isolated(clipped(element.label, 200))}"`),
    s("rect", { x: left, y: top, width, height, rx: unit / 4, "stroke-width": unit / 12 }),
    room > 1 &&
      s(
        "text",
        { x: left + unit / 3, y: top + height / 2, dy: "0.35em", "font-size": size },
        clipped(words, Math.max(2, room)),
      ),
  );
}

/** Whether there is anything to draw. @param {ScreenElement[]} elements */
export function hasBoxes(elements) {
  return elements.some((one) => one.box);
}

/** What the agents read of a screen, as a list. @param {ScreenElement[]} elements */
export function elementList(elements) {
  const line = (/** @type {ScreenElement} */ one) =>
    h(
      "li",
      null,
      h("span", { class: "muted" }, `${one.index} `, said(one.role, 40), " "),
      said(one.label),
      one.value !== null && [" = ", said(one.value)],
    );
  return h("ol", { class: "elements" }, elements.map(line));
}
