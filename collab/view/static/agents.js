/**
 * How an agent is told from others: a colour that colour-blind readers can tell apart (Okabe and Ito), a shape and a
 * letter. Nothing is ever said by the colour alone.
 */

import { h, s } from "./dom.js";
import { said } from "./words.js";

/**
 * @typedef {object} Agent
 * @property {string} name of the slot
 * @property {number} place in the graph file, from 0
 * @property {string} letter that stands for it; its number where letters are not enough
 * @property {string} tint class that sets its colour
 * @property {number} shape
 */

const TINTS = 8;
const LONGEST_NAME = 24;

/** Corners of the shapes as unit vectors; an empty list is a circle. @type {Array<Array<[number, number]>>} */
const SHAPES = [
  [],
  [
    [-0.86, -0.86],
    [0.86, -0.86],
    [0.86, 0.86],
    [-0.86, 0.86],
  ],
  [
    [0, -1.18],
    [1.18, 0],
    [0, 1.18],
    [-1.18, 0],
  ],
  [
    [-0.55, -1],
    [0.55, -1],
    [1.1, 0],
    [0.55, 1],
    [-0.55, 1],
    [-1.1, 0],
  ],
  [
    [0, -1.2],
    [1.2, 0.9],
    [-1.2, 0.9],
  ],
  [
    [-1.2, -0.9],
    [1.2, -0.9],
    [0, 1.2],
  ],
  [
    [0, -1.1],
    [1.1, -0.26],
    [0.7, 1],
    [-0.7, 1],
    [-1.1, -0.26],
  ],
];

/**
 * The agents of a team, in the order of the graph file.
 * @param {string[]} names
 * @returns {Agent[]}
 */
export function team(names) {
  const letters = names.map((name) => ([...name][0] ?? "?").toUpperCase());
  const distinct = new Set(letters).size === letters.length;
  return names.map((name, place) => ({
    name,
    place,
    letter: distinct ? letters[place] : String(place + 1),
    tint: `tint-${place % TINTS}`,
    shape: place % SHAPES.length,
  }));
}

/**
 * Agents with rewards, each as it is drawn in the graphs; those that no graph knows come last.
 * @param {any[]} epochs `EpochView`s
 * @returns {Agent[]}
 */
export function judgedTeam(epochs) {
  const judged = new Set(epochs.flatMap((epoch) => epoch.rewards?.agents ?? []));
  const known = epochs.flatMap((epoch) => epoch.graph?.agents ?? []);
  return team([...new Set([...known, ...judged])]).filter((agent) => judged.has(agent.name));
}

/**
 * The shape of an agent in an SVG drawing.
 * @param {Agent} agent @param {number} x @param {number} y @param {number} radius
 * @param {string} [note] what else stands in it instead of the letter
 */
export function sign(agent, x, y, radius, note) {
  const corners = SHAPES[agent.shape];
  const outline = corners.length
    ? s("polygon", {
        points: corners.map(([dx, dy]) => `${round2(x + dx * radius)},${round2(y + dy * radius)}`).join(" "),
      })
    : s("circle", { cx: round2(x), cy: round2(y), r: round2(radius) });
  const low = agent.shape === 4 ? 0.28 : agent.shape === 5 ? -0.2 : 0;
  const letter = s(
    "text",
    {
      x: round2(x),
      y: round2(y + radius * low),
      dy: "0.36em",
      "text-anchor": "middle",
      "font-size": round2(radius * 1.1),
    },
    note ?? agent.letter,
  );
  return s("g", { class: `sign ${agent.tint}` }, outline, letter);
}

/** The shape of an agent on a line of text; its name is to stand beside it or in a label. @param {Agent} agent @param {string} [note] */
export function badge(agent, note) {
  return s(
    "svg",
    { class: "badge", viewBox: "-13 -13 26 26", width: 22, height: 22, "aria-hidden": "true", focusable: "false" },
    sign(agent, 0, 0, 10, note),
  );
}

/** Shape and name. @param {Agent} agent */
export function nameplate(agent) {
  return h("span", { class: "nameplate" }, badge(agent), said(agent.name, LONGEST_NAME));
}

/** @param {number} value */
function round2(value) {
  return Math.round(value * 100) / 100;
}
