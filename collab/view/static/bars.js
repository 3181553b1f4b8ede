/** Small drawings that stand in lines and tables: shares, intervals, heat maps and bars of counts. */

import { nameplate } from "./agents.js";
import { h, property, s } from "./dom.js";
import { amount, isKnown, percent } from "./figures.js";
import { figureHead } from "./save.js";
import { said } from "./words.js";

/** A share with its interval on a line from 0 to 1. @param {number | null} share @param {number | null} [low] @param {number | null} [high] */
export function intervalBar(share, low, high) {
  if (!isKnown(share)) return null;
  const x = (/** @type {any} */ value) => 4 + 92 * Number(value);
  return s(
    "svg",
    { class: "interval", viewBox: "0 0 100 12", width: 100, height: 12, "aria-hidden": "true" },
    s("line", { x1: 4, x2: 96, y1: 6, y2: 6, class: "rail" }),
    isKnown(low) && isKnown(high) && s("line", { x1: x(low), x2: x(high), y1: 6, y2: 6, class: "spread" }),
    s("circle", { cx: x(share), cy: 6, r: 3.5, class: "mean" }),
  );
}

/** A bar as long as a share. @param {number | null} share @param {string} [tint] */
export function shareBar(share, tint = "") {
  const bar = h("span", { class: `share ${tint}`, "aria-hidden": "true" }, h("span", { class: "level" }));
  return property(bar, "--share", isKnown(share) ? Number(share) : 0);
}

/** Shares of a heat map that are closer than this are not drawn as far apart as its colours go. */
const LEAST_SPAN = 0.1;

/**
 * Agents × rounds, darker where the share is higher: from the lowest to the highest share of this map, so that close
 * shares can be told apart. The number stands in every cell.
 * @param {import("./agents.js").Agent[]} agents @param {number} rounds
 * @param {(agent: string, round: number) => number | null} share in [0, 1]; null where not known
 * @param {string} caption
 */
export function heatMap(agents, rounds, share, caption) {
  const columns = Array.from({ length: rounds }, (_, round) => round);
  const known = agents.flatMap(({ name }) => columns.map((round) => share(name, round))).filter(isKnown).map(Number);
  const span = Math.max(LEAST_SPAN, Math.max(...known) - Math.min(...known));
  const low = Math.min(...known) - (span - (Math.max(...known) - Math.min(...known))) / 2;
  const cell = (/** @type {string} */ agent, /** @type {number} */ round) => {
    const value = share(agent, round);
    const shown = h("td", { class: "heat" }, percent(value));
    return property(shown, "--share", isKnown(value) ? (Number(value) - low) / span : 0);
  };
  const region = { class: "scroll", role: "region", tabindex: 0, "aria-label": caption };
  const row = (/** @type {import("./agents.js").Agent} */ agent) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, nameplate(agent)),
      columns.map((round) => cell(agent.name, round)),
    );
  const head = columns.map((round) => h("th", { scope: "col" }, `round ${round + 1}`));
  const table = h(
    "table",
    { class: "heatmap", "aria-label": caption },
    h("thead", null, h("tr", null, h("td", null), head)),
    h("tbody", null, agents.map(row)),
  );
  return h("figure", null, figureHead(caption), h("div", region, table));
}

/**
 * Counts by name as a table with bars, most first.
 * @param {Record<string, number>} counts @param {string} caption @param {string} noun heading of the names
 */
export function countTable(counts, caption, noun) {
  return barTable(Object.entries(counts).sort(([, one], [, other]) => other - one), caption, noun);
}

/** Counts of bins, in their order. @param {[string, number][]} rows @param {string} caption @param {string} noun */
export function barTable(rows, caption, noun) {
  if (!rows.length) return null;
  const most = Math.max(...rows.map(([, count]) => count), 1);
  const row = (/** @type {[string, number]} */ [name, count]) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, said(name.replaceAll("_", " "))),
      h("td", { class: "number" }, amount(count)),
      h("td", { class: "bar" }, shareBar(count / most)),
    );
  const heads = [h("th", { scope: "col" }, noun), h("th", { scope: "col" }, "count"), h("td", null)];
  const table = h(
    "table",
    { class: "counts", "aria-label": caption },
    h("thead", { class: "unseen" }, h("tr", null, heads)),
    h("tbody", null, rows.map(row)),
  );
  return h("figure", null, figureHead(caption), table);
}

/** Headline numbers. @param {[string, any, any?][]} entries name, value and what stands under it */
export function tiles(entries) {
  return h(
    "dl",
    { class: "tiles" },
    entries.map(([name, value, under]) =>
      h("div", null, h("dt", null, name), h("dd", null, value, under && h("small", null, under))),
    ),
  );
}
