/** Two runs on equal instances, and one instance step by step, with the first step at which they part. */

import { crumbs } from "./crumbs.js";
import { getComparison, getEpisodePair, getRun, getStep, pictureSource } from "./data.js";
import { fill, h, link } from "./dom.js";
import { decimal, percent } from "./figures.js";
import { outcomeOf } from "./filter.js";
import { drawWhenFree, keeping } from "./keep.js";
import { outcomeBadge, rateView, REHEARSAL, rehearsalMark } from "./outcome.js";
import { comparePlace, episodePlace, overviewPlace, stepPlace } from "./place.js";
import { drawnScreen, marksOf } from "./proposals.js";
import { legend, stage } from "./stage.js";
import { team } from "./agents.js";
import { nextOrder, redraw, sortableTable, sortedRows } from "./table.js";
import { plural, said, saidPath } from "./words.js";

const MOST_LONELY = 500;

/** @param {import("./place.js").Place} place */
export function comparePage(place) {
  const [a, b, episodeA, episodeB] = place.parts;
  return episodeA === undefined ? runsCompared(a, b) : episodesCompared(a, b, episodeA, episodeB);
}

/** @param {string} a @param {string} b */
async function runsCompared(a, b) {
  const element = h("div");
  const choice = { order: { key: null, descending: false }, differing: false };
  let title = "";
  const draw = async () => {
    const found = await getComparison(a, b);
    const { only_a: onlyA, only_b: onlyB } = found;
    title = `${found.a.path} and ${found.b.path}, compared`;
    const parts = () => [
      crumbs([]),
      h("h1", null, saidPath(found.a.path, 200), " and ", saidPath(found.b.path, 200)),
      rehearsalNote(found),
      h("div", { class: "two sides" }, runCard("A", found.a, found.success_a), runCard("B", found.b, found.success_b)),
      h(
        "p",
        { class: "muted", role: "status" },
        `${plural(found.both.length, "instance")} played by both`,
        onlyA.length + onlyB.length > 0 && `; ${onlyA.length} only by A, ${onlyB.length} only by B`,
        ". Success is over equal instances that are over in both.",
      ),
      !found.sampled_alike &&
        h(
          "p",
          { class: "note", role: "alert" },
          `A and B were sampled differently: ${found.a.sampling || "temperature not known"} against ${found.b.sampling || "temperature not known"}. What differs may come from that alone.`,
        ),
      found.difference && differenceLine(found.difference),
      found.both.length > 0 && instances(found, choice),
      lonely("A", onlyA),
      lonely("B", onlyB),
    ];
    keeping(element, () => fill(element, parts()));
  };
  await draw();
  return { element, title, runs: [a, b], keys: {}, refresh: () => drawWhenFree(element, draw) };
}

/** Which of the two agents that read solutions played: the command line does not compare them at all. @param {any} found a `Comparison` */
function rehearsalNote({ a, b }) {
  const which = [a.privileged && "A", b.privileged && "B"].filter(Boolean).join(" and ");
  return (
    which &&
    h("p", { class: "note", role: "alert" }, `${which}: ${REHEARSAL}. Agents read the solutions, so this comparison is no result.`)
  );
}

/** B minus A with its interval, and how many instances each of them alone solved. @param {any} difference a `Difference` */
function differenceLine({ instances: count, won, lost, value, low, high }) {
  const interval =
    low === null
      ? "no interval: fewer than 10 instances"
      : `95% interval ${points(low)} to ${points(high)}${low <= 0 && high >= 0 ? ", not separable" : ""}`;
  return h(
    "p",
    { class: "lead", id: "difference" },
    `B minus A: ${points(value)} percentage points over ${plural(count, "equal instance")} (${interval}). `,
    `B alone solved ${won}, A alone ${lost}.`,
  );
}

/** A share as signed percentage points. @param {number} share */
function points(share) {
  const rounded = (100 * share).toFixed(1);
  return share > 0 ? `+${rounded}` : rounded.replace("-", "−");
}

/** Which of two outcomes of an instance is better, in words; empty where neither is. @param {any} one an `Instance` */
function betterSide(one) {
  if (outcomeOf(one.a) === outcomeOf(one.b)) return "";
  if (outcomeOf(one.b) === "solved") return "solved by B alone";
  return outcomeOf(one.a) === "solved" ? "solved by A alone" : "other outcome";
}

/** Instances that one of them alone played. @param {string} letter @param {any[]} rows `EpisodeRow`s */
function lonely(letter, rows) {
  if (!rows.length) return null;
  const line = (/** @type {any} */ row) =>
    h(
      "li",
      null,
      link(episodePlace(row.run, row.id), null, said(row.task)),
      h("span", { class: "muted" }, ` seed ${row.seed} `),
      outcomeBadge(row),
    );
  const more = rows.length - MOST_LONELY;
  return h(
    "details",
    null,
    h("summary", null, `${plural(rows.length, "instance")} that only ${letter} played`),
    h("ul", null, rows.slice(0, MOST_LONELY).map(line)),
    more > 0 && h("p", { class: "muted" }, `and ${plural(more, "more instance")}, left out here`),
  );
}

/** @param {string} letter @param {any} run @param {any} success */
function runCard(letter, run, success) {
  return h(
    "section",
    { class: "panel" },
    h("h2", null, h("span", { class: "tag" }, letter), " ", link(overviewPlace(run.id), null, saidPath(run.path))),
    h(
      "p",
      { class: "muted" },
      said(run.environment),
      " · ",
      said(run.agents, 60),
      " on ",
      said(run.graph),
      ` · seed ${run.seed}`,
      run.sampling && ` · sampled at ${run.sampling}`,
    ),
    rateView(success),
    rehearsalMark(run),
  );
}

/** @param {any} found a `Comparison` @param {{order: import("./table.js").Order, differing: boolean}} choice */
function instances(found, choice) {
  const holder = h("div");
  const columns = [
    {
      name: "Instance",
      key: "task",
      heads: true,
      show: (/** @type {any} */ one) => [
        link(comparePlace(one.a.run, one.b.run, one.a.id, one.b.id), { class: "run-link" }, said(one.task)),
        h("small", { class: "muted under" }, `seed ${one.seed}`),
      ],
    },
    {
      name: "A",
      key: "a",
      value: (/** @type {any} */ one) => outcomeOf(one.a),
      show: (/** @type {any} */ one) => [outcomeBadge(one.a), stepsOf(one.a)],
    },
    {
      name: "B",
      key: "b",
      value: (/** @type {any} */ one) => outcomeOf(one.b),
      show: (/** @type {any} */ one) => [outcomeBadge(one.b), stepsOf(one.b)],
    },
    { name: "Difference", key: "difference", value: betterSide, show: betterSide },
    {
      name: "They part at step",
      key: "diverged",
      kind: "number",
      show: (/** @type {any} */ one) => one.diverged ?? "never",
    },
  ];
  const sorted = (/** @type {string} */ key) => {
    choice.order = nextOrder(choice.order, key);
    draw();
  };
  const shown = () =>
    found.both.filter((/** @type {any} */ one) => !choice.differing || outcomeOf(one.a) !== outcomeOf(one.b));
  const draw = () =>
    redraw(holder, () =>
      sortableTable(
        "Instances that both played",
        columns,
        sortedRows(shown(), columns, choice.order),
        choice.order,
        sorted,
        (one) => (betterSide(one) ? "differs" : null),
      ),
    );
  const toggled = (/** @type {Event} */ event) => {
    choice.differing = /** @type {HTMLInputElement} */ (event.target).checked;
    draw();
  };
  draw();
  return [
    h(
      "label",
      { class: "inline" },
      h("input", { type: "checkbox", id: "differing", checked: choice.differing, events: { change: toggled } }),
      "only where the outcomes differ",
    ),
    holder,
  ];
}

/** @param {any} row an `EpisodeRow` */
function stepsOf(row) {
  return h("small", { class: "muted under" }, ` ${plural(row.steps, "step")}`);
}

/** @param {string} a @param {string} b @param {string} episodeA @param {string} episodeB */
async function episodesCompared(a, b, episodeA, episodeB) {
  const [element, screens] = [h("div"), h("div", { class: "two sides" })];
  const [{ run: runA }, { run: runB }] = await Promise.all([getRun(a), getRun(b)]);
  let pair = await getEpisodePair(a, b, episodeA, episodeB);
  let chosen = pair.diverged ?? pair.steps[0]?.step;
  const show = async (/** @type {number} */ step) => {
    chosen = step;
    const row = pair.steps.find((/** @type {any} */ one) => one.step === step);
    const sides = await Promise.all([oneSide("A", runA, pair.a, row?.a), oneSide("B", runB, pair.b, row?.b)]);
    if (step !== chosen) return;
    keeping(screens, () => fill(screens, sides));
    for (const control of element.querySelectorAll("[data-step]"))
      control.setAttribute("aria-pressed", String(control.getAttribute("data-step") === String(step)));
  };
  const draw = async () => {
    const parts = () => [
      crumbs([[`${runA.path} and ${runB.path}`, comparePlace(a, b)]]),
      h("h1", null, said(pair.a.task, 80), h("span", { class: "muted" }, ` seed ${pair.a.seed}`)),
      h("p", { class: "lead" }, said(pair.a.goal, 300)),
      h("p", { class: "note", role: "status" }, parting(pair)),
      h("div", { class: "compared" }, stepsTable(pair, show), screens),
    ];
    keeping(element, () => fill(element, parts()));
    if (chosen !== undefined) await show(chosen);
  };
  const refresh = async () => {
    pair = await getEpisodePair(a, b, episodeA, episodeB);
    chosen ??= pair.diverged ?? pair.steps[0]?.step;
    await draw();
  };
  await draw();
  return { element, title: `${pair.a.task}, compared`, runs: [a, b], keys: {}, refresh };
}

/** @param {any} pair an `EpisodePair` */
function parting(pair) {
  /** @type {Record<string, string>} */
  const why = { screen: "the screens differ", action: "they do different things", length: "one of them ends" };
  return pair.diverged === null
    ? "Both took the same steps."
    : `They part at step ${pair.diverged}: ${why[pair.why] ?? "they differ"}.`;
}

/** @param {any} pair @param {(step: number) => void} show */
function stepsTable(pair, show) {
  const row = (/** @type {any} */ one) => {
    const parts = one.step === pair.diverged;
    return h(
      "tr",
      { class: parts ? "parting" : null },
      h(
        "th",
        { scope: "row" },
        h(
          "button",
          {
            type: "button",
            class: "segment",
            "data-step": one.step,
            "aria-pressed": "false",
            "aria-label": `Show step ${one.step}`,
            events: { click: () => show(one.step) },
          },
          one.step,
        ),
      ),
      h("td", null, sideCell(one.a)),
      h("td", { class: "relation" }, parts ? "parts" : relation(one)),
      h("td", null, sideCell(one.b)),
    );
  };
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": "Steps of both" },
    h(
      "table",
      { class: "rows compare" },
      h("caption", { class: "unseen" }, "Steps side by side"),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          ["step", "A", "", "B"].map((name) =>
            h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "relation")),
          ),
        ),
      ),
      h("tbody", null, pair.steps.map(row)),
    ),
  );
}

/** @param {any} one a `StepPair` */
function relation(one) {
  if (one.same_action === null) return "";
  return one.same_action && one.same_screen ? "=" : "≠";
}

/** @param {any} step a `StepRow`, or null */
function sideCell(step) {
  if (!step) return h("span", { class: "muted" }, "–");
  const told = [
    step.agreement !== null && `agreement ${percent(step.agreement)}`,
    step.score !== null && `critic ${decimal(step.score)}`,
  ]
    .filter(Boolean)
    .join(" · ");
  return [
    said(step.action || "nothing executed", 120),
    h("small", { class: "muted under" }, said(step.title, 80), told && ` · ${told}`),
  ];
}

/** One step of one of them. @param {string} letter @param {any} run a `RunRow` @param {any} row an `EpisodeRow` @param {any} found a `StepRow`, or null */
async function oneSide(letter, run, row, found) {
  const name = link(overviewPlace(run.id), null, saidPath(run.path));
  const heading = [h("h2", null, h("span", { class: "tag" }, letter), " ", name), h("p", null, outcomeBadge(row), rehearsalMark(row))];
  if (!found) return h("section", { class: "panel" }, heading, h("p", { class: "muted" }, "It has no such step."));
  const step = await getStep(row.run, row.id, found.step, null);
  const agents = team(step.agents);
  return h(
    "section",
    { class: "panel" },
    heading,
    stage(drawnScreen(step.screen, pictureSource(step.screen.picture)), marksOf(step, agents, new Set())),
    legend(agents),
    h("p", null, h("strong", null, "executed "), said(step.executed?.words ?? "nothing", 160)),
    h("p", null, link(stepPlace(row.run, row.id, found.step), null, `Look at step ${found.step} closely`)),
  );
}
