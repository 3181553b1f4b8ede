/**
 * Proposed actions, drawn on a screen: a tap is a ring, a long press or double tap two rings, a swipe an arrow along
 * the finger's way, typing a caret on the field. A ring is divided among the agents that propose it.
 */

import { sign } from "./agents.js";
import { s } from "./dom.js";

/** @typedef {import("./agents.js").Agent} Agent */
/** @typedef {{x: number, y: number}} Spot a point, in the screen's pixels */
/** @typedef {[number, number, number, number]} Box left, top, right, bottom, in the screen's pixels */

/**
 * @typedef {object} Mark one distinct action and who proposes it
 * @property {"tap" | "long" | "double" | "swipe" | "type" | "point"} kind
 * @property {Spot | null} spot null where it has no place on the screen
 * @property {Box | null} box of the element that it is aimed at
 * @property {"up" | "down" | "left" | "right" | null} way of the finger
 * @property {string} words
 * @property {Agent[]} voices who proposes it
 * @property {number} votes
 * @property {boolean} executed
 * @property {number} ballot its place among the distinct actions, from 0
 */

const WAYS = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0] };
const MOST_SIGNS = 6;

/**
 * Draw one action.
 * @param {Mark} mark @param {number} unit a length that looks like 12 pixels
 * @param {{width: number, height: number}} screen
 */
export function drawMark(mark, unit, screen) {
  const spot = spotOf(mark, screen);
  const told =
    `${mark.words}: ${mark.votes} ${mark.votes === 1 ? "vote" : "votes"} by ${mark.voices.map((one) => one.name).join(", ")}` +
    (mark.executed ? "; executed" : "");
  return s(
    "g",
    { class: `mark${mark.executed ? " executed" : ""}`, "data-ballot": mark.ballot },
    s("title", null, told),
    mark.box && outline(mark, unit),
    figure(mark, spot, unit),
  );
}

/**
 * Draw who proposes an action, for lying on all actions.
 * @param {Mark} mark @param {number} unit @param {{width: number, height: number}} screen
 * @param {number} tier line on which its agents stand, from 0
 */
export function drawVoices(mark, unit, screen, tier) {
  return s(
    "g",
    { class: "mark-voices", "data-ballot": mark.ballot },
    voices(mark, spotOf(mark, screen), unit, screen, tier),
  );
}

/**
 * Where an action is drawn: what moves the whole screen, in its middle.
 * @param {Mark} mark @param {{width: number, height: number}} screen @returns {Spot}
 */
export function spotOf(mark, screen) {
  return mark.spot ?? { x: screen.width / 2, y: screen.height / 2 };
}

/** The frame of the element. @param {Mark} mark @param {number} unit */
function outline(mark, unit) {
  const [left, top, right, bottom] = /** @type {Box} */ (mark.box);
  const frame = {
    x: left,
    y: top,
    width: Math.max(1, right - left),
    height: Math.max(1, bottom - top),
    rx: unit / 3,
    fill: "none",
  };
  return s(
    "g",
    { class: mark.voices[0]?.tint },
    s("rect", { ...frame, class: "casing", "stroke-width": unit / 3 }),
    s("rect", {
      ...frame,
      class: "stroke",
      "stroke-width": unit / 6,
      "stroke-dasharray": mark.executed ? null : `${unit / 2} ${unit / 3}`,
    }),
  );
}

/** @param {Mark} mark @param {Spot} spot @param {number} unit */
function figure(mark, spot, unit) {
  switch (mark.kind) {
    case "swipe":
      return mark.voices.map((agent, place) => arrow(mark, agent, shifted(mark, spot, place, unit), unit));
    case "type":
      return caret(mark, spot, unit);
    case "long":
    case "double":
      return [ring(mark, spot, unit, 0.75), ring(mark, spot, unit, 1.25)];
    default:
      return ring(mark, spot, unit, 1);
  }
}

/** A ring that is divided among the voices; a disc in it says that it was executed. @param {Mark} mark @param {Spot} spot @param {number} unit @param {number} size */
function ring(mark, spot, unit, size) {
  const radius = unit * size;
  const parts = mark.voices.map((agent, place) => {
    const slice = s("path", {
      d: arc(spot, radius, place, mark.voices.length),
      class: "stroke",
      fill: "none",
      "stroke-width": unit / 3.2,
    });
    return s("g", { class: agent.tint }, slice);
  });
  return [
    s("circle", { cx: spot.x, cy: spot.y, r: radius, class: "casing", fill: "none", "stroke-width": unit / 1.6 }),
    ...parts,
    mark.executed && s("circle", { cx: spot.x, cy: spot.y, r: unit * 0.42, class: "done", "stroke-width": unit / 7 }),
  ];
}

/** One of several equal parts of a circle. @param {Spot} centre @param {number} radius @param {number} place @param {number} count */
function arc(centre, radius, place, count) {
  const at = (/** @type {number} */ turn) => {
    const angle = 2 * Math.PI * turn - Math.PI / 2;
    return `${(centre.x + radius * Math.cos(angle)).toFixed(2)} ${(centre.y + radius * Math.sin(angle)).toFixed(2)}`;
  };
  const step = (/** @type {number} */ turn) => `A ${radius} ${radius} 0 0 1 ${at(turn)}`;
  const [from, to] = [place / count, (place + 1) / count];
  return `M ${at(from)} ${step((from + to) / 2)} ${step(to)}`;
}

/** Beside each other, so that equal arrows of several agents can be told apart. @param {Mark} mark @param {Spot} spot @param {number} place @param {number} unit */
function shifted(mark, spot, place, unit) {
  const aside = (place - (mark.voices.length - 1) / 2) * unit * 0.8;
  return mark.way === "up" || mark.way === "down" ? { x: spot.x + aside, y: spot.y } : { x: spot.x, y: spot.y + aside };
}

/** @param {Mark} mark @param {Agent} agent @param {Spot} spot @param {number} unit */
function arrow(mark, agent, spot, unit) {
  const [dx, dy] = WAYS[mark.way ?? "up"];
  const [fromX, fromY, toX, toY] = [
    spot.x - dx * unit * 2.5,
    spot.y - dy * unit * 2.5,
    spot.x + dx * unit * 2.5,
    spot.y + dy * unit * 2.5,
  ];
  const wing = (/** @type {number} */ side) => [
    toX - dx * unit - dy * side * unit * 0.6,
    toY - dy * unit + dx * side * unit * 0.6,
  ];
  const way = `M ${fromX} ${fromY} L ${toX} ${toY} M ${wing(1).join(" ")} L ${toX} ${toY} L ${wing(-1).join(" ")}`;
  return s(
    "g",
    { class: agent.tint },
    s("path", { d: way, class: "casing", fill: "none", "stroke-width": unit / 1.4, "stroke-linecap": "round" }),
    s("path", { d: way, class: "stroke", fill: "none", "stroke-width": unit / 3, "stroke-linecap": "round" }),
    mark.executed && s("circle", { cx: fromX, cy: fromY, r: unit * 0.42, class: "done", "stroke-width": unit / 7 }),
  );
}

/** A text cursor. @param {Mark} mark @param {Spot} spot @param {number} unit */
function caret(mark, spot, unit) {
  const { x, y } = spot;
  const [tall, wide] = [unit * 1.1, unit * 0.45];
  const bar = `M ${x - wide} ${y - tall} H ${x + wide} M ${x} ${y - tall} V ${y + tall} M ${x - wide} ${y + tall} H ${x + wide}`;
  return [
    s("path", { d: bar, class: "casing", fill: "none", "stroke-width": unit / 1.6, "stroke-linecap": "round" }),
    s(
      "g",
      { class: mark.voices[0]?.tint },
      s("path", { d: bar, class: "stroke", fill: "none", "stroke-width": unit / 3.2, "stroke-linecap": "round" }),
    ),
    mark.executed && s("circle", { cx: x, cy: y, r: unit * 0.42, class: "done", "stroke-width": unit / 7 }),
  ];
}

/**
 * Who proposes it: above it to the right, or to the left where there is no room. Those of other actions at the same
 * place stand below it, line by line.
 * @param {Mark} mark @param {Spot} spot @param {number} unit @param {{width: number}} screen @param {number} tier
 */
function voices(mark, spot, unit, screen, tier) {
  const shown = mark.voices.slice(0, MOST_SIGNS);
  const step = unit * 1.9;
  const fits = spot.x + (shown.length + 1) * step < screen.width;
  const from = fits ? spot.x + unit * 1.5 : Math.max(unit, spot.x - unit * 1.5 - (shown.length - 1) * step);
  const line = spot.y > 3 * unit ? [-1, 1, 2, 3][Math.min(tier, 3)] : tier + 1;
  return shown.map((agent, place) => sign(agent, from + place * step, spot.y + line * unit * 1.75, unit * 0.72));
}
