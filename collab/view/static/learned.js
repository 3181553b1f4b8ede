/** What a training learned from, over its epochs: shares that were kept, why steps were left out, how well values predict. */

import { lineChart } from "./chart.js";
import { fill, h } from "./dom.js";
import { amount, decimal, isKnown, percent } from "./figures.js";
import { named, plain } from "./trends.js";
import { isolated, said } from "./words.js";

/** @typedef {import("./chart.js").Series} Series */

/** Null where there is nothing to show. @param {any} found a `RunOverview` @param {{calibration: string | null}} choice */
export function learnedPanel({ epochs, calibrations, unestimated }, choice) {
  const told = epochs.some(
    (/** @type {any} */ epoch) => Object.keys({ ...epoch.kept, ...epoch.predictions, ...epoch.curves }).length,
  );
  const predicted = epochs.some((/** @type {any} */ epoch) => Object.keys(epoch.predictions).length);
  const lacking = unestimated && h("p", { class: "note" }, "Not all estimates are shown: ", said(unestimated, 900));
  if (!told && !calibrations.length && !lacking) return null;
  /** @type {{kind: "share", show: (value: number) => string}} */
  const share = { kind: "share", show: (value) => percent(value) };
  /** @type {{kind: "amount", show: (value: number) => string}} */
  const measure = { kind: "amount", show: (value) => decimal(value) };
  const predictions = (/** @type {string} */ key) => predictionSeries(epochs, key);
  return h(
    "section",
    { class: "panel", "aria-labelledby": "learned-title" },
    h("h2", { id: "learned-title" }, "What was learned from"),
    lacking,
    h(
      "div",
      { class: "charts" },
      told && [
        lineChart(keptSeries(epochs), { title: "Kept, of what was remembered", ...share }),
        lineChart(
          named(epochs, (epoch) => epoch.left_out),
          { title: "Steps left out, by cause", kind: "amount", show: amount },
        ),
        predicted && [
          lineChart(predictions("accuracy"), { title: "Accuracy on episodes held out", ...share }),
          lineChart(predictions("auc"), { title: "AUC on episodes held out", most: 1, ...measure }),
          lineChart(predictions("ece"), { title: "Calibration error (ECE) on episodes held out", most: 1, ...measure }),
        ],
        curveTitles(epochs).map((title) =>
          lineChart(
            lines(epochs, "curves", "", (one) => one, title),
            { title, kind: "number", show: (value) => decimal(value) },
          ),
        ),
      ],
      calibrations.length > 0 && calibrationFigure(calibrations, choice),
    ),
  );
}

/** A line per thing that was considered. @param {any[]} epochs @returns {Series[]} */
function keptSeries(epochs) {
  return lines(epochs, "kept", "", ([part, whole]) => (whole ? part / whole : null));
}

/** A line per value model. @param {any[]} epochs @param {string} key @returns {Series[]} */
function predictionSeries(epochs, key) {
  return lines(epochs, "predictions", "V of ", (one) => one[key]);
}

/** Titles of an algorithm's own charts. @param {any[]} epochs @returns {string[]} */
function curveTitles(epochs) {
  return [...new Set(epochs.flatMap((epoch) => Object.keys(epoch.curves)))];
}

/** A line per name. @param {any[]} epochs @param {string} key @param {string} before its name @param {(one: any) => number | null} value @param {string} [title] of the chart, where `key` has several @returns {Series[]} */
function lines(epochs, key, before, value, title) {
  const told = (/** @type {any} */ epoch) => (title === undefined ? epoch[key] : (epoch[key][title] ?? {}));
  const names = [...new Set(epochs.flatMap((epoch) => Object.keys(told(epoch))))];
  const of = (/** @type {any} */ epoch, /** @type {string} */ name) =>
    told(epoch)[name] === undefined ? null : value(told(epoch)[name]);
  return names.map((name, place) => plain(before + name, epochs, (epoch) => of(epoch, name), `tint-${place % 8}`));
}

/** Values in bins beside how often the episodes were solved, of one epoch. @param {any[]} calibrations `CalibrationView`s @param {{calibration: string | null}} choice */
function calibrationFigure(calibrations, choice) {
  const several = new Set(calibrations.map((one) => one.policy)).size > 1;
  const key = (/** @type {any} */ one) => `${one.epoch}/${one.policy}`;
  const name = (/** @type {any} */ one) => `epoch ${one.epoch}${several ? `, policy ${one.policy}` : ""}`;
  const choices = [...new Map(calibrations.map((one) => [key(one), one])).values()];
  const holder = h("div");
  const draw = () => {
    const chosen = choices.find((one) => key(one) === choice.calibration) ?? choices[choices.length - 1];
    const curves = calibrations.filter((one) => key(one) === key(chosen));
    fill(holder, calibrationChart(curves, name(chosen)));
  };
  const changed = (/** @type {Event} */ event) => {
    choice.calibration = /** @type {HTMLSelectElement} */ (event.target).value;
    draw();
  };
  draw();
  const shown = choice.calibration ?? key(choices[choices.length - 1]);
  const control = h(
    "select",
    { id: "calibration", "aria-label": "Which epoch's calibration", events: { change: changed } },
    choices.map((one) => h("option", { value: key(one), selected: key(one) === shown }, isolated(name(one)))),
  );
  return h("div", null, holder, choices.length > 1 && control);
}

/** @param {any[]} curves `CalibrationView`s @param {string} epoch */
function calibrationChart(curves, epoch) {
  const bin = (/** @type {number} */ x) => `${percent(x - 0.05)}–${percent(x + 0.05)}`;
  const series = curves.map(({ rated, bins }, place) => ({
    name: `V of ${rated}`,
    tint: `tint-${place % 8}`,
    points: bins
      .filter((/** @type {any} */ one) => isKnown(one.solved))
      .map((/** @type {any} */ one) => ({ x: (one.low + one.high) / 2, y: one.solved, of: one.count })),
  }));
  return [
    lineChart(series, {
      title: `How often V came true, ${epoch}`,
      kind: "share",
      show: (value) => percent(value),
      xName: "V",
      showX: bin,
    }),
    h(
      "p",
      { class: "muted under" },
      "Across: V in ten bins. Upwards: the share whose episode was solved, on the dashed line where V is right. Of all that was remembered, also what V was fitted on.",
    ),
  ];
}
