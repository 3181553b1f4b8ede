/** Lines over epochs, with intervals where they are known, and the same numbers as a table. */

import { h, s } from "./dom.js";
import { amount, isKnown } from "./figures.js";
import { figureHead } from "./save.js";
import { axisMarks, linear, wholeTicks } from "./scale.js";

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {string} [tint] class of its colour; without one it has the accent's
 * @property {{x: number, y: number | null, low?: number | null, high?: number | null, of?: number}[]} points y null: not
 * known; of: how many a share is of, the more the larger its point
 */

/**
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {string} [xName] what x counts
 * @property {(x: number) => string} [showX] a place, where x is a share as well: equal ones lie on a diagonal
 * @property {import("./scale.js").Kind} kind of the values; shares are drawn between 0 and 1
 * @property {(value: number) => string} show a value
 * @property {number} [most] largest value possible
 */

const SIZE = { width: 360, height: 190, left: 46, right: 14, top: 12, bottom: 28 };
/** Width of a letter beside an axis, about, and of the gaps around a word there. */
const LETTER = 6;
const GAPS = 10;
const POINT_SHAPES = ["circle", "square", "diamond", "triangle"];

/** Null where there is no number to draw. @param {Series[]} series @param {ChartOptions} options */
export function lineChart(series, options) {
  const known = series.filter((one) => one.points.some((point) => isKnown(point.y)));
  const head = figureHead(options.title);
  if (!known.length) return null;
  if (known.every((one) => one.points.filter((point) => isKnown(point.y)).length === 1))
    return h("figure", { class: "chart" }, head, numbersRegion(known, options));
  return h(
    "figure",
    { class: "chart" },
    head,
    drawing(known, options),
    (known.length > 1 || !options.title.toLowerCase().includes(known[0].name)) && key(known),
    h("details", null, h("summary", null, "Numbers"), numbersRegion(known, options)),
  );
}

/** @param {Series[]} series @param {ChartOptions} options */
function drawing(series, options) {
  const points = series.flatMap((one) => one.points.filter((point) => isKnown(point.y)));
  const xs = points.map((point) => point.x);
  const ys = points.flatMap((point) => [point.y, point.low, point.high].filter(isKnown).map(Number));
  // Counts and times are compared by their height, so their axis begins at 0.
  const low = options.kind === "number" ? Math.min(...ys) : 0;
  const marks = axisMarks(options.kind, low, options.kind === "share" ? 1 : (options.most ?? Math.max(...ys)));
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const alone = left === right;
  if (options.showX) return scatter(series, options, marks);
  const margin = Math.max(SIZE.left, GAPS + LETTER * Math.max(...marks.map((mark) => mark.words.length)));
  const x = linear(alone ? left - 1 : left, alone ? right + 1 : right, margin + 8, SIZE.width - SIZE.right);
  const y = linear(marks[0].at, marks[marks.length - 1].at, SIZE.height - SIZE.bottom, SIZE.top);
  return s(
    "svg",
    { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": inWords(series, options), class: "plot" },
    marks.map((mark) => yTick(mark.words, y(mark.at), margin)),
    wholeTicks(left, right).map((mark) =>
      s("text", { x: x(mark), y: SIZE.height - 10, "text-anchor": "middle", class: "tick" }, mark),
    ),
    series.map((one, place) => line(one, place, x, y)),
  );
}

/** Shares over shares, both axes from 0 to 1. @param {Series[]} series @param {ChartOptions} options @param {{at: number, words: string}[]} marks */
function scatter(series, options, marks) {
  const x = linear(0, 1, SIZE.left + 8, SIZE.width - 2 * SIZE.right);
  const y = linear(0, 1, SIZE.height - SIZE.bottom, SIZE.top);
  return s(
    "svg",
    { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": inWords(series, options), class: "plot" },
    marks.map((mark) => yTick(mark.words, y(mark.at), SIZE.left)),
    marks.map((mark) =>
      s("text", { x: x(mark.at), y: SIZE.height - 10, "text-anchor": "middle", class: "tick" }, mark.words),
    ),
    s("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" }),
    series.map((one, place) => line(one, place, x, y)),
  );
}

/** @param {string} words @param {number} y @param {number} margin left of the axis */
function yTick(words, y, margin) {
  return [
    s("line", { x1: margin, x2: SIZE.width - SIZE.right, y1: y, y2: y, class: "grid" }),
    s("text", { x: margin - 6, y, dy: "0.33em", "text-anchor": "end", class: "tick" }, words),
  ];
}

/** @param {Series} one @param {number} place @param {(value: number) => number} x @param {(value: number) => number} y */
function line(one, place, x, y) {
  const points = one.points.filter((point) => isKnown(point.y));
  const path = points.map((point, at) => `${at ? "L" : "M"} ${x(point.x)} ${y(Number(point.y))}`).join(" ");
  const spread = points.filter((point) => isKnown(point.low) && isKnown(point.high));
  const band = [
    ...spread.map((point) => `${x(point.x)},${y(Number(point.high))}`),
    ...spread.reverse().map((point) => `${x(point.x)},${y(Number(point.low))}`),
  ];
  return s(
    "g",
    { class: `series ${one.tint ?? "accent"}` },
    band.length > 2 && s("polygon", { points: band.join(" "), class: "band" }),
    spread.map((point) =>
      s("line", {
        x1: x(point.x),
        x2: x(point.x),
        y1: y(Number(point.low)),
        y2: y(Number(point.high)),
        class: "whisker",
      }),
    ),
    s("path", {
      d: path,
      fill: "none",
      class: "stroke",
      "stroke-dasharray": ["", "6 3", "2 3", "8 3 2 3"][place % 4] || null,
    }),
    points.map((point) => pointShape(place, x(point.x), y(Number(point.y)), sizeOf(point, points))),
  );
}

/** How large a point is: its surface tells how many its share is of. @param {any} point @param {any[]} points of its line */
function sizeOf(point, points) {
  return isKnown(point.of) ? 0.6 + 1.6 * Math.sqrt(point.of / Math.max(...points.map((one) => one.of))) : 1;
}

/** @param {number} place @param {number} x @param {number} y @param {number} [size] */
function pointShape(place, x, y, size = 1) {
  const at = (/** @type {number[][]} */ corners) =>
    s("polygon", { class: "point", points: corners.map(([dx, dy]) => `${x + size * dx},${y + size * dy}`).join(" ") });
  switch (POINT_SHAPES[place % POINT_SHAPES.length]) {
    case "square":
      return at([
        [-3, -3],
        [3, -3],
        [3, 3],
        [-3, 3],
      ]);
    case "diamond":
      return at([
        [0, -4.5],
        [4.5, 0],
        [0, 4.5],
        [-4.5, 0],
      ]);
    case "triangle":
      return at([
        [0, -4.5],
        [4, 3],
        [-4, 3],
      ]);
    default:
      return s("circle", { class: "point", cx: x, cy: y, r: 3.4 * size });
  }
}

/** Which line is which. @param {Series[]} series */
function key(series) {
  const entry = (/** @type {Series} */ one, /** @type {number} */ place) =>
    h(
      "li",
      null,
      s(
        "svg",
        { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
        s(
          "g",
          { class: `series ${one.tint ?? "accent"}` },
          s("line", { x1: 0, x2: 26, y1: 6, y2: 6, class: "stroke" }),
          pointShape(place, 13, 6),
        ),
      ),
      h("bdi", null, one.name),
    );
  return h("ul", { class: "key" }, series.map(entry));
}

/** The table of numbers; a wide one scrolls in its place. @param {Series[]} series @param {ChartOptions} options */
function numbersRegion(series, options) {
  const region = { class: "scroll", role: "region", tabindex: 0, "aria-label": `${options.title}, numbers` };
  return h("div", region, numbers(series, options));
}

/** A row per place, or where there are more lines than places a row per line. @param {Series[]} series @param {ChartOptions} options */
function numbers(series, options) {
  const known = series.flatMap((one) => one.points.filter((point) => isKnown(point.y)));
  const xs = [...new Set(known.map((point) => point.x))].sort((one, other) => one - other);
  const value = (/** @type {Series} */ one, /** @type {number} */ x) => {
    const point = one.points.find((candidate) => candidate.x === x);
    if (!point || !isKnown(point.y)) return "–";
    const spread =
      isKnown(point.low) && isKnown(point.high)
        ? ` [${options.show(Number(point.low))}, ${options.show(Number(point.high))}]`
        : "";
    return options.show(Number(point.y)) + spread + (isKnown(point.of) ? ` of ${amount(point.of)}` : "");
  };
  const xName = options.xName ?? "epoch";
  const xWords = options.showX ?? String;
  const name = (/** @type {Series} */ one) => h("bdi", null, one.name);
  return series.length > xs.length
    ? numbersTable(
        options.title,
        ["", ...xs.map((x) => `${xName} ${xWords(x)}`)],
        series.map((one) => [name(one), ...xs.map((x) => value(one, x))]),
      )
    : numbersTable(
        options.title,
        [xName, ...series.map(name)],
        xs.map((x) => [xWords(x), ...series.map((one) => value(one, x))]),
      );
}

/** @param {string} title @param {any[]} heads @param {any[][]} rows */
function numbersTable(title, heads, rows) {
  const head = (/** @type {any} */ content, /** @type {number} */ place) =>
    content === "" ? h("td", null) : h("th", { scope: "col", class: place ? "number" : null }, content);
  const row = ([first, ...values]) =>
    h("tr", null, h("th", { scope: "row" }, first), values.map((value) => h("td", { class: "number" }, value)));
  return h(
    "table",
    null,
    h("caption", { class: "unseen" }, title),
    h("thead", null, h("tr", null, heads.map(head))),
    h("tbody", null, rows.map(row)),
  );
}

/** @param {Series[]} series @param {ChartOptions} options */
function inWords(series, options) {
  const told = series.map((one) => {
    const points = one.points.filter((point) => isKnown(point.y));
    const [first, last] = [points[0], points[points.length - 1]];
    const at = (/** @type {any} */ point) => `${options.show(Number(point.y))} at ${(options.showX ?? String)(point.x)}`;
    return `${one.name} from ${at(first)} to ${at(last)}`;
  });
  return `${options.title}: ${told.join("; ")}`;
}
