/** All runs: sorted, filtered, two of them picked to be compared. */

import { getRuns, isReport } from "./data.js";
import { h, link } from "./dom.js";
import { amount, duration, isKnown, moment, money } from "./figures.js";
import { rateView, statusBadge } from "./outcome.js";
import { comparePlace, overviewPlace } from "./place.js";
import { nextOrder, redraw, sortableTable, sortedRows } from "./table.js";
import { plural, said } from "./words.js";

/** What was chosen, kept while one looks at other pages. */
const choice = {
  order: /** @type {import("./table.js").Order} */ ({ key: null, descending: false }),
  words: "",
  status: "",
  picked: /** @type {string[]} */ ([]),
};

export async function runsPage() {
  let { runs } = await getRuns();
  const holder = h("div");
  const draw = () => redraw(holder, () => table(runs, draw));
  const element = h("div", { class: "runs-page" }, h("h1", null, "Runs"), controls(draw), holder);
  draw();
  const refresh = async () => {
    ({ runs } = await getRuns());
    draw();
  };
  return { element, title: "Runs", runs: [], keys: {}, refresh };
}

/** @param {() => void} draw */
function controls(draw) {
  const words = (/** @type {Event} */ event) => {
    choice.words = /** @type {HTMLInputElement} */ (event.target).value.toLowerCase();
    draw();
  };
  const status = (/** @type {Event} */ event) => {
    choice.status = /** @type {HTMLSelectElement} */ (event.target).value;
    draw();
  };
  return h(
    "form",
    {
      class: "filters",
      role: "search",
      "aria-label": "Filter runs",
      events: { submit: (/** @type {Event} */ event) => event.preventDefault() },
    },
    h(
      "label",
      null,
      "Name, environment, team",
      h("input", { type: "search", id: "runs-words", value: choice.words, events: { input: words } }),
    ),
    h(
      "label",
      null,
      "Status",
      h(
        "select",
        { events: { change: status } },
        ["", "running", "finished", "stopped", "dead"].map((one) =>
          h("option", { value: one, selected: one === choice.status }, one || "any"),
        ),
      ),
    ),
  );
}

/** @param {any[]} runs @param {() => void} draw */
function table(runs, draw) {
  const shown = runs.filter(isWanted);
  const sorted = (/** @type {string} */ key) => {
    choice.order = nextOrder(choice.order, key);
    draw();
  };
  const columns = canCompare(runs) ? [pickColumn(draw), ...COLUMNS] : COLUMNS;
  return [
    h(
      "div",
      { class: "under-filters" },
      h(
        "p",
        { class: "muted", role: "status" },
        `${plural(shown.length, "run")}${shown.length < runs.length ? ` of ${runs.length}` : ""}`,
      ),
      canCompare(runs) && compareLink(runs),
    ),
    runs.length === 0
      ? h("p", { class: "note" }, "No run was named, and none was found.")
      : sortableTable("Runs", columns, sortedRows(shown, columns, choice.order), choice.order, sorted),
  ];
}

/** @param {any} run */
function isWanted(run) {
  const words = `${run.path}\n${run.environment}\n${run.graph}\n${run.agents}\n${run.command}\n${run.algorithm}`.toLowerCase();
  return words.includes(choice.words) && (!choice.status || run.status === choice.status);
}

/** Whether there are two to be compared: a report holds one. @param {any[]} runs */
function canCompare(runs) {
  return !isReport() && runs.filter((run) => !run.unreadable).length > 1;
}

/** @param {any[]} runs */
function compareLink(runs) {
  const picked = choice.picked.filter((id) => runs.some((run) => run.id === id));
  if (picked.length !== 2)
    return h("p", { class: "muted" }, picked.length === 1 ? "Pick one more to compare." : "Pick two to compare.");
  return link(comparePlace(picked[0], picked[1]), { class: "action" }, "Compare the two");
}

/** @param {() => void} draw @returns {import("./table.js").Column} */
function pickColumn(draw) {
  const toggled = (/** @type {any} */ run) => () => {
    choice.picked = choice.picked.includes(run.id)
      ? choice.picked.filter((id) => id !== run.id)
      : [...choice.picked, run.id].slice(-2);
    draw();
  };
  return {
    name: "compare",
    unseen: true,
    show: (run) =>
      !run.unreadable &&
      h("input", {
        type: "checkbox",
        id: `pick-${run.id}`,
        checked: choice.picked.includes(run.id),
        "aria-label": `Compare ${run.path}`,
        events: { change: toggled(run) },
      }),
  };
}

/** How many are over, of how many; what they are where they are no episodes, and the broken ones, below. @param {any} run */
function progress(run) {
  const under = [run.kind === "training" && (run.planned === 1 ? "epoch" : "epochs"), run.broken > 0 && `${run.broken} broken`];
  const told = under.filter(Boolean).map((one) => h("small", { class: "muted under" }, one));
  return [run.planned === null ? amount(run.done) : `${run.done}/${run.planned}`, told];
}

/** @param {any} run */
function name(run) {
  if (run.unreadable) return [said(run.path), h("p", { class: "note" }, said(run.unreadable, 300))];
  return [
    link(overviewPlace(run.id), { class: "run-link" }, said(run.path, 80)),
    h(
      "small",
      { class: "muted under" },
      run.kind === "training" ? ["training by ", said(run.algorithm)] : said(run.command),
      run.privileged && " · rehearsal: not a language model",
      run.problems > 0 && ` · ${plural(run.problems, "problem")}`,
    ),
  ];
}

/** @param {any} run */
function tokens(run) {
  return isKnown(run.prompt_tokens) ? run.prompt_tokens + (run.completion_tokens ?? 0) : null;
}

/** The day, with its year where that is not this one, and the time below it. @param {any} run */
function updated(run) {
  const [day, time] = moment(run.updated ?? run.created).split(" ");
  const short = day.startsWith(`${new Date().getUTCFullYear()}-`) ? day.slice(5) : day;
  return [h("span", { title: day }, short), time && h("small", { class: "muted under" }, `${time} UTC`)];
}

/** What is looked for first stands first: a narrow window cuts the table at its right. @type {import("./table.js").Column[]} */
const COLUMNS = [
  { name: "Run", key: "path", heads: true, show: name },
  { name: "Success", key: "success", value: (run) => run.success.value, show: (run) => rateView(run.success) },
  { name: "Status", key: "status", show: (run) => statusBadge(run.status) },
  { name: "Updated", key: "updated", kind: "number", show: updated },
  { name: "Environment", key: "environment", show: (run) => said(run.environment) },
  { name: "Graph", key: "graph", show: (run) => said(run.graph) },
  { name: "Agents", key: "agents", show: (run) => said(run.agents, 60) },
  { name: "Episodes", key: "done", kind: "number", show: progress },
  { name: "Steps", key: "steps", kind: "number", show: (run) => amount(run.steps) },
  { name: "Tokens", key: "tokens", value: tokens, kind: "number", show: (run) => amount(tokens(run)) },
  { name: "Cost", key: "cost_usd", kind: "number", show: (run) => money(run.cost_usd) },
  { name: "Time", key: "seconds", kind: "number", show: (run) => duration(run.seconds) },
];
