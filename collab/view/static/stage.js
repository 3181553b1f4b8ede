/** A screen with what was proposed on it: the picture where there is one, else the elements' boxes. */

import { nameplate, badge } from "./agents.js";
import { h, property, s } from "./dom.js";
import { drawMark, drawVoices, spotOf } from "./marks.js";
import { drawBoxes, elementList, hasBoxes } from "./wireframe.js";
import { plural, said } from "./words.js";

/** @typedef {import("./marks.js").Mark} Mark */

/**
 * @typedef {object} Screen
 * @property {string} title
 * @property {number} width in pixels
 * @property {number} height in pixels
 * @property {string | null} picture where it can be got; null where there is none
 * @property {import("./wireframe.js").ScreenElement[]} elements
 * @property {number} more elements that were left out
 * @property {string} text as a policy reads it
 */

const SHOWN_WIDTH = { tall: 300, wide: 560 };

/** A length of a screen that looks like 12 pixels when it is shown. @param {Screen} screen */
export function unitOf(screen) {
  return (12 * screen.width) / (screen.height > screen.width ? SHOWN_WIDTH.tall : SHOWN_WIDTH.wide);
}

/**
 * @param {Screen} screen
 * @param {Mark[]} marks
 * @param {(ballot: number) => void} [picked] called when an action is clicked
 */
export function stage(screen, marks, picked) {
  const placed = marks.filter((mark) => mark.spot || mark.way);
  const elsewhere = marks.filter((mark) => !mark.spot && !mark.way);
  return h(
    "figure",
    { class: `stage ${screen.height > screen.width ? "tall" : "wide"}` },
    canvas(screen, placed, picked),
    h("figcaption", null, said(screen.title)),
    !screen.picture && screen.more > 0 && leftOut(screen.more),
    elsewhere.length > 0 && offScreen(elsewhere, picked),
  );
}

/** @param {Screen} screen @param {Mark[]} marks @param {((ballot: number) => void) | undefined} picked */
function canvas(screen, marks, picked) {
  if (!screen.picture && !hasBoxes(screen.elements)) return elementList(screen.elements);
  const unit = unitOf(screen);
  const drawing = s(
    "svg",
    {
      viewBox: `0 0 ${screen.width} ${screen.height}`,
      role: "img",
      "aria-label": described(screen, marks),
      class: "overlay",
    },
    !screen.picture && drawBoxes(screen.elements, unit),
    inDrawingOrder(marks).map((mark) => drawMark(mark, unit, screen)),
    marks.map((mark) => drawVoices(mark, unit, screen, tierOf(mark, marks, unit, screen))),
  );
  if (picked) drawing.addEventListener("click", (/** @type {MouseEvent} */ event) => pick(event, picked));
  const frame = h("div", { class: "frame" }, screen.picture && picture(screen), drawing);
  return property(frame, "--aspect", (screen.width / screen.height).toFixed(4));
}

/** @param {number} count elements that a drawing of boxes or a list of them lacks */
function leftOut(count) {
  return h("p", { class: "muted" }, `and ${plural(count, "more element")}, left out here`);
}

/**
 * How many of the actions before it aim at the same place: their agents' signs stand in lines below each other.
 * @param {Mark} mark @param {Mark[]} marks @param {number} unit @param {Screen} screen
 */
function tierOf(mark, marks, unit, screen) {
  const here = spotOf(mark, screen);
  const distance = (/** @type {Mark} */ other) =>
    Math.hypot(here.x - spotOf(other, screen).x, here.y - spotOf(other, screen).y);
  return marks.slice(0, marks.indexOf(mark)).filter((other) => distance(other) < 2.5 * unit).length;
}

/** What was executed lies on top. @param {Mark[]} marks */
function inDrawingOrder(marks) {
  return [...marks].sort((one, other) => Number(one.executed) - Number(other.executed));
}

/** The picture; when it cannot be shown, the boxes take its place. @param {Screen} screen */
function picture(screen) {
  const failed = (/** @type {Event} */ event) => {
    const image = /** @type {HTMLImageElement} */ (event.target);
    image.nextElementSibling?.prepend(drawBoxes(screen.elements, unitOf(screen)));
    image.remove();
  };
  return h("img", {
    src: screen.picture,
    alt: "",
    width: screen.width,
    height: screen.height,
    events: { error: failed },
  });
}

/** @param {Screen} screen @param {Mark[]} marks */
function described(screen, marks) {
  const told = marks.map((mark) => `${mark.words}${mark.executed ? " (executed)" : ""}`).join("; ");
  return `Screen ${screen.title} with ${plural(marks.length, "proposed action")}${told && `: ${told}`}`;
}

/** @param {MouseEvent} event @param {(ballot: number) => void} picked */
function pick(event, picked) {
  const mark = /** @type {Element} */ (event.target).closest("[data-ballot]");
  if (mark) picked(Number(mark.getAttribute("data-ballot")));
}

/** Actions that touch nothing on the screen. @param {Mark[]} marks @param {((ballot: number) => void) | undefined} picked */
function offScreen(marks, picked) {
  const chip = (/** @type {Mark} */ mark) => {
    const content = [
      mark.voices.map((agent) => badge(agent)),
      mark.executed && h("strong", null, "executed "),
      said(mark.words, 80),
    ];
    const label = `${mark.words}, by ${mark.voices.map((agent) => agent.name).join(", ")}${mark.executed ? ", executed" : ""}`;
    return h(
      "li",
      null,
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-label": label,
          "data-ballot": mark.ballot,
          events: { click: () => picked?.(mark.ballot) },
        },
        content,
      ),
    );
  };
  return h("ul", { class: "chips", "aria-label": "Proposed actions without a place on the screen" }, marks.map(chip));
}

/** Who is who. @param {import("./agents.js").Agent[]} agents */
export function legend(agents) {
  return h(
    "p",
    { class: "legend" },
    agents.map((agent) => nameplate(agent)),
    executedSign(),
  );
}

/** What a filled disc means. */
export function executedSign() {
  const disc = s("circle", { cx: 0, cy: 0, r: 6, class: "done", "stroke-width": 2 });
  return h(
    "span",
    { class: "nameplate" },
    s("svg", { class: "badge", viewBox: "-13 -13 26 26", width: 22, height: 22, "aria-hidden": "true" }, disc),
    "executed",
  );
}
