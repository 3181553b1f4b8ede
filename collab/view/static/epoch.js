/** One epoch closely: rewards by agent and round, pairs, training, and what its parts took. */

import { judgedTeam } from "./agents.js";
import { barTable, countTable, heatMap } from "./bars.js";
import { lineChart } from "./chart.js";
import { fill, h, link } from "./dom.js";
import { amount, decimal, duration, money, percent } from "./figures.js";
import { rateView } from "./outcome.js";
import { overviewPlace } from "./place.js";
import { timeline } from "./timeline.js";
import { plural, said } from "./words.js";

/** @param {any[]} epochs `EpochView`s @param {number | null} best @param {boolean} trained whether it is a training @param {{epoch: number | null}} choice */
export function epochSection(epochs, best, trained, choice) {
  const body = h("div", { class: "epoch-body" });
  const withPlay = epochs.filter((epoch) => epoch.played || epoch.rewards);
  const newest = withPlay[withPlay.length - 1] ?? epochs[epochs.length - 1];
  let chosen = epochs.find((epoch) => epoch.epoch === choice.epoch) ?? newest;
  const alone = epochs.length === 1 && !trained;
  const draw = () => fill(body, ...epochParts(chosen, epochs, alone));
  const changed = (/** @type {Event} */ event) => {
    chosen = epochs.find((epoch) => String(epoch.epoch) === /** @type {HTMLSelectElement} */ (event.target).value);
    choice.epoch = chosen.epoch;
    draw();
  };
  draw();
  const name = (/** @type {any} */ epoch) =>
    `epoch ${epoch.epoch}${epoch.epoch === best ? ", best" : ""}${epoch.over ? "" : ", not over"}`;
  const control = h(
    "select",
    { id: "epoch", "aria-label": "Which epoch", events: { change: changed } },
    epochs.map((epoch) => h("option", { value: epoch.epoch, selected: epoch === chosen }, name(epoch))),
  );
  return h(
    "section",
    { class: "panel", "aria-labelledby": "epoch-title" },
    h(
      "div",
      { class: "panel-head" },
      h("h2", { id: "epoch-title" }, trained || epochs.length > 1 ? "One epoch" : "What happened"),
      epochs.length > 1 && control,
    ),
    body,
  );
}

/** @param {any} epoch an `EpochView` @param {any[]} epochs all @param {boolean} alone whether the headlines say the most of it already */
function epochParts(epoch, epochs, alone) {
  return [
    !alone && h("dl", { class: "facts" }, epochFacts(epoch)),
    h(
      "div",
      { class: "charts" },
      rewards(epoch),
      countTable(epoch.pairs, "Pairs by source", "source"),
      countTable(epoch.unpaired, "Without a pair, by cause", "cause"),
      countTable(epoch.left_out, "Steps left out, by cause", "cause"),
      countTable(epoch.missing, "Cells without a score", "cause"),
      countTable(epoch.failures, "Replies without an action", "kind"),
      histograms(epoch).map(([title, bins]) => barTable(Object.entries(bins), title, "bin")),
    ),
    timeline(epoch, epochs),
    spending(epoch.spent),
    epoch.trained.map(trainedPolicy),
    epoch.runs.length > 0 &&
      h(
        "p",
        null,
        "Runs: ",
        epoch.runs.map((/** @type {any} */ part, /** @type {number} */ place) => [
          place > 0 && ", ",
          link(overviewPlace(part.id), null, `${part.role}, seed ${part.seed}`),
        ]),
      ),
  ];
}

/** @param {any} epoch @returns {[string, Record<string, number>][]} by title */
function histograms(epoch) {
  return Object.entries(epoch.histograms);
}

/** @param {any} epoch */
function epochFacts(epoch) {
  const told = [
    ["rollout", epoch.played && rateView(epoch.played)],
    ["held-out seeds", epoch.measured && rateView(epoch.measured)],
    ["steps", amount(epoch.steps)],
    ["agreement", percent(epoch.agreement)],
    ["labels flipped on purpose", epoch.inverted_labels && `${amount(epoch.inverted_labels[0])} of ${amount(epoch.inverted_labels[1])}`],
    ["entropy", `${decimal(epoch.entropy)} nats`],
    ["ties", epoch.ties !== null && amount(epoch.ties)],
    ["examples of older epochs", epoch.older !== null && amount(epoch.older)],
    ...Object.entries(epoch.kept).map(([name, [part, whole]]) => [`${name} kept`, `${amount(part)} of ${amount(whole)}`]),
    ...Object.entries(epoch.predictions).map(([name, one]) => [`V of ${name}, on episodes held out`, predictionWords(one)]),
    ...Object.entries(epoch.metrics),
  ].filter(([, value]) => value);
  return told.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value)));
}

/** @param {any} one a `PredictionView` */
function predictionWords(one) {
  const told = `accuracy ${decimal(one.accuracy)}, AUC ${decimal(one.auc)}, ECE ${decimal(one.ece)}`;
  const numbers = one.accuracy === null && one.note ? [] : [`${told}, n = ${amount(one.held_out)}`];
  return [...numbers, ...(one.note ? [one.note] : [])].join("; ");
}

/** @param {any} epoch */
function rewards(epoch) {
  const heat = epoch.rewards;
  if (!heat) return h("p", { class: "muted" }, "No critic has judged it.");
  const caption = heat.critic ? `Rewarded cells, by ${heat.critic}` : "Rewarded cells";
  const map = heatMap(
    judgedTeam([epoch]),
    heat.rounds,
    (agent, round) => heat.rates[heat.agents.indexOf(agent)]?.[round] ?? null,
    caption,
  );
  const part = labelledPart(heat);
  return part === null ? map : h("div", null, map, h("p", { class: "note", role: "status" }, `Not final: ${part}.`));
}

/** How many cells the critic has labelled, where these are not all. @param {any} heat a `HeatView` */
export function labelledPart(heat) {
  if (heat.labelled === null || heat.labelled >= heat.cells) return null;
  return `${heat.labelled.toLocaleString("en")} of ${plural(heat.cells, "cell")} labelled`;
}

/** @param {any[]} parts `Spending`s */
function spending(parts) {
  if (!parts.length) return null;
  const parallel = parts.some((part) => part.part === "deliberation");
  const head = ["part", parallel ? "time, over episodes" : "time", "calls", "prompt tokens", "reply tokens", "cost"];
  const row = (/** @type {any} */ part) =>
    h(
      "tr",
      null,
      h(
        "th",
        { scope: "row" },
        said(part.part),
        part.seconds_note && h("small", { class: "muted under" }, `time ${part.seconds_note}`),
      ),
      [
        duration(part.seconds),
        amount(part.calls),
        amount(part.prompt_tokens),
        amount(part.completion_tokens),
        money(part.cost_usd),
      ].map((value) => h("td", { class: "number" }, value)),
    );
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": "What the parts took" },
    h(
      "table",
      { class: "rows" },
      h("caption", null, "What the parts took"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          head.map((name, place) => h("th", { scope: "col", class: place ? "number" : null }, name)),
        ),
      ),
      h("tbody", null, parts.map(row)),
    ),
  );
}

/** @param {any} one a `TrainedView` */
function trainedPolicy(one) {
  /** @type {[string, any][]} */
  const metrics = Object.entries(one.metrics);
  const values = metrics.map(([name, metric]) => `${name} ${decimal(metric.value, 3)}`);
  const told = one.untrained
    ? `not trained: ${one.untrained}`
    : [plural(one.steps, "step"), `${amount(one.tokens)} tokens`, ...values].join(", ");
  const curves = metrics.filter(([, metric]) => metric.points.length > 1);
  return h(
    "div",
    { class: "trained" },
    h("h3", null, "Policy ", said(one.policy)),
    h("p", { class: "muted" }, said(told, 300)),
    one.alarm && h("p", { class: "note" }, said(one.alarm, 300)),
    curves.length > 0 &&
      h(
        "div",
        { class: "charts" },
        curves.map(([name, { title, points }]) =>
          lineChart([{ name, points: points.map((/** @type {[number, number]} */ [x, y]) => ({ x, y })) }], {
            title: `${title}, by step`,
            xName: "step",
            kind: "number",
            show: (value) => decimal(value, 3),
          }),
        ),
      ),
  );
}
