/** A run over its epochs, as lines. */

import { judgedTeam } from "./agents.js";
import { labelledPart } from "./epoch.js";
import { lineChart } from "./chart.js";
import { h } from "./dom.js";
import { amount, decimal, duration, percent } from "./figures.js";

/** @typedef {import("./chart.js").Series} Series */

/** @param {any[]} epochs `EpochView`s @param {boolean} trained whether it is a training */
export function trends(epochs, trained) {
  /** @type {{kind: "share", show: (value: number) => string}} */
  const share = { kind: "share", show: (value) => percent(value) };
  /** @type {{kind: "amount", show: (value: number) => string}} */
  const counts = { kind: "amount", show: amount };
  const charts = [
    lineChart(
      [rateSeries("held-out seeds", epochs, "measured", "tint-0"), rateSeries("rollout", epochs, "played", "tint-1")],
      { title: "Success", ...share },
    ),
    lineChart(rewardSeries(epochs), { title: "Reward rate by agent", ...share }),
    lineChart([plain("agreement", epochs, (epoch) => epoch.agreement)], { title: "Agreement", ...share }),
    lineChart([plain("entropy", epochs, (epoch) => epoch.entropy)], {
      title: "Entropy of the votes (nats)",
      kind: "number",
      show: (value) => decimal(value),
    }),
    lineChart(
      named(epochs, (epoch) => epoch.pairs),
      { title: "Pairs by source", ...counts },
    ),
    lineChart(
      named(epochs, (epoch) => epoch.unpaired),
      { title: "Without a pair, by cause", ...counts },
    ),
    ...loggedTitles(epochs).map(([name, title]) =>
      lineChart(trainedSeries(epochs, name), { title, kind: "number", show: exact }),
    ),
    trained &&
      lineChart([plain("rows of older epochs", epochs, (epoch) => epoch.older)], {
        title: "Staleness: rows of older epochs",
        ...counts,
      }),
    lineChart(
      spentSeries(epochs, (part) => sum(part.prompt_tokens, part.completion_tokens)),
      { title: "Tokens by part", ...counts },
    ),
    lineChart(
      spentSeries(epochs, (part) => part.seconds),
      { title: trained ? "Time by part" : "Time by part, added up over episodes", kind: "time", show: duration },
    ),
  ].filter(Boolean);
  const isDrawn = (/** @type {any} */ chart) => chart.querySelector(".plot") !== null;
  const [drawn, numbers] = [charts.filter(isDrawn), charts.filter((chart) => !isDrawn(chart))];
  return h(
    "section",
    { class: "panel", "aria-labelledby": "trends-title" },
    h("h2", { id: "trends-title" }, "Over epochs"),
    epochs.map(partlyLabelled),
    h("div", { class: "charts" }, drawn, numbers),
  );
}

/** That the rewards of an epoch are not final. @param {any} epoch an `EpochView` */
function partlyLabelled({ epoch, rewards }) {
  const part = rewards && labelledPart(rewards);
  return part && h("p", { class: "note" }, `Rewards of epoch ${epoch} are not final: ${part}.`);
}

/** @param {number} value */
function exact(value) {
  return decimal(value, 3);
}

/** A line. @param {string} name @param {any[]} epochs @param {(epoch: any) => number | null | undefined} value @param {string} [tint] @returns {Series} */
export function plain(name, epochs, value, tint) {
  return { name, tint, points: epochs.map((epoch) => ({ x: epoch.epoch, y: value(epoch) ?? null })) };
}

/** @param {string} name @param {any[]} epochs @param {string} key @param {string} tint @returns {Series} */
function rateSeries(name, epochs, key, tint) {
  return {
    name,
    tint,
    points: epochs.map((epoch) => ({
      x: epoch.epoch,
      y: epoch[key]?.value ?? null,
      low: epoch[key]?.low,
      high: epoch[key]?.high,
    })),
  };
}

/** A line per agent: its mean over rounds. @param {any[]} epochs @returns {Series[]} */
function rewardSeries(epochs) {
  return judgedTeam(epochs).map(({ name, tint }) =>
    plain(name, epochs, (epoch) => mean(epoch.rewards?.rates[epoch.rewards.agents.indexOf(name)] ?? []), tint),
  );
}

/** A line per name. @param {any[]} epochs @param {(epoch: any) => Record<string, number>} counts @returns {Series[]} */
export function named(epochs, counts) {
  const names = [...new Set(epochs.flatMap((epoch) => Object.keys(counts(epoch))))];
  return names.map((name, place) =>
    plain(
      name,
      epochs,
      (epoch) => (Object.keys(counts(epoch)).length ? (counts(epoch)[name] ?? 0) : null),
      `tint-${place % 8}`,
    ),
  );
}

/** Names and titles of the metrics that trainings logged. @param {any[]} epochs @returns {[string, string][]} */
function loggedTitles(epochs) {
  const metrics = epochs.flatMap((epoch) => epoch.trained.flatMap((/** @type {any} */ one) => Object.entries(one.metrics)));
  return Object.entries(Object.fromEntries(metrics.map(([name, { title }]) => [name, title])));
}

/** A line per policy. @param {any[]} epochs @param {string} name of a metric @returns {Series[]} */
function trainedSeries(epochs, name) {
  const policies = [...new Set(epochs.flatMap((epoch) => epoch.trained.map((/** @type {any} */ one) => one.policy)))];
  return policies.map((policy, place) =>
    plain(
      policy,
      epochs,
      (epoch) => epoch.trained.find((/** @type {any} */ one) => one.policy === policy)?.metrics[name]?.value,
      `tint-${place % 8}`,
    ),
  );
}

/** A line per part. @param {any[]} epochs @param {(part: any) => number | null} value @returns {Series[]} */
function spentSeries(epochs, value) {
  const parts = [...new Set(epochs.flatMap((epoch) => epoch.spent.map((/** @type {any} */ one) => one.part)))];
  const of = (/** @type {any} */ epoch, /** @type {string} */ part) =>
    epoch.spent.find((/** @type {any} */ one) => one.part === part);
  return parts.map((part, place) =>
    plain(part, epochs, (epoch) => (of(epoch, part) ? value(of(epoch, part)) : null), `tint-${place % 8}`),
  );
}

/** @param {(number | null)[]} values */
function mean(values) {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((total, value) => Number(total) + Number(value), 0) / known.length : null;
}

/** Null where neither is known. @param {number | null} one @param {number | null} other */
function sum(one, other) {
  return one === null && other === null ? null : (one ?? 0) + (other ?? 0);
}
