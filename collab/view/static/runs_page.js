/** All runs: sorted, filtered, two of them picked to be compared. */

import { getRuns, isReport } from "./data.js";
import { button, h, link } from "./dom.js";
import { amount, duration, isKnown, moment, money } from "./figures.js";
import { statusBadge, successView } from "./outcome.js";
import { comparePlace, overviewPlace } from "./place.js";
import { nextOrder, redraw, sortableTable, sortedRows } from "./table.js";
import { plural, said, saidPath } from "./words.js";

/** What was chosen, kept while one looks at other pages. */
const choice = {
  order: /** @type {import("./table.js").Order} */ ({ key: "updated", descending: true }),
  words: "",
  status: "",
  picked: /** @type {string[]} */ ([]),
  opened: /** @type {Set<string>} */ (new Set()),
};

export async function runsPage() {
  let found = await getRuns();
  const holder = h("div");
  const draw = () => redraw(holder, () => table(found, draw));
  const element = h("div", { class: "runs-page" }, h("h1", null, "Runs"), controls(draw), holder);
  draw();
  const refresh = async () => {
    found = await getRuns();
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

/** @param {any} found a `RunsView` @param {() => void} draw */
function table({ runs, parts }, draw) {
  const partsOf = (/** @type {any} */ run) => parts[run.id] ?? [];
  const shown = runs.filter((/** @type {any} */ run) => isWanted(run) || partsOf(run).some(isWanted));
  const sorted = (/** @type {string} */ key) => {
    choice.order = nextOrder(choice.order, key);
    draw();
  };
  const every = runs.flatMap((/** @type {any} */ run) => [run, ...partsOf(run)]);
  const trained = runs.some((/** @type {any} */ run) => run.kind === "training");
  const columns = [
    ...(canCompare(every) ? [pickColumn(draw)] : []),
    nameColumn(partsOf, draw),
    ...COLUMNS.filter((column) => trained || column.key !== "epochs"),
  ];
  const rows = sortedRows(shown, columns, choice.order).flatMap((run) => [run, ...shownParts(run, partsOf(run))]);
  return [
    h(
      "div",
      { class: "under-filters" },
      h(
        "p",
        { class: "muted", role: "status" },
        `${plural(shown.length, "run")}${shown.length < runs.length ? ` of ${runs.length}` : ""}, ${orderName(columns)}`,
      ),
      canCompare(every) && compareLink(every),
    ),
    runs.length === 0
      ? h("p", { class: "note" }, "No run was named, and none was found.")
      : sortableTable("Runs", columns, rows, choice.order, sorted, (row) => (row.of ? "part" : null)),
    trained &&
      h(
        "p",
        { class: "muted" },
        "Episodes, steps, tokens and cost of a training are those of all its runs; its time includes labelling and training.",
      ),
  ];
}

/** The order of the rows in words. @param {import("./table.js").Column[]} columns */
function orderName(columns) {
  const { key, descending } = choice.order;
  if (key === "updated") return descending ? "last written first" : "last written last";
  return `by ${columns.find((column) => column.key === key)?.name.toLowerCase()}, ${descending ? "descending" : "ascending"}`;
}

/** The runs of a training that stand below it: all where it is opened, else those that a filter is after. @param {any} run @param {any[]} parts */
function shownParts(run, parts) {
  const filtered = choice.words || choice.status;
  if (!choice.opened.has(run.id) && !filtered) return [];
  return parts.filter(isWanted).map((part) => ({ ...part, of: run }));
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

/** How many are over, of how many. @param {any} run */
function progress(run) {
  return run.planned === null ? amount(run.done) : `${run.done}/${run.planned}`;
}

/** Episodes that are over, of how many where that is fixed, and the broken ones below. @param {any} run */
function episodes(run) {
  const shown = run.kind === "training" ? amount(run.episodes) : progress(run);
  return [shown, run.broken > 0 && h("small", { class: "muted under" }, `${run.broken} broken`)];
}

/** @param {(run: any) => any[]} partsOf @param {() => void} draw @returns {import("./table.js").Column} */
function nameColumn(partsOf, draw) {
  const show = (/** @type {any} */ run) => [name(run), partsOf(run).length > 0 && unfold(run, partsOf(run).length, draw)];
  return { name: "Run", key: "path", heads: true, show };
}

/** Shows or hides the runs of a training. @param {any} run @param {number} count @param {() => void} draw */
function unfold(run, count, draw) {
  const open = choice.opened.has(run.id);
  const toggled = () => {
    if (!choice.opened.delete(run.id)) choice.opened.add(run.id);
    draw();
  };
  const words = `${open ? "▾" : "▸"} ${plural(count, "run")} of it`;
  return button(words, toggled, { class: "quiet", id: `unfold-${run.id}`, "aria-expanded": String(open) });
}

/** The name of a run; of one in a training, its place there. @param {any} run */
function name(run) {
  const path = run.of ? run.path.slice(run.of.path.length + 1) : run.path;
  if (run.unreadable) return [saidPath(path, 200), h("p", { class: "note" }, said(run.unreadable, 300))];
  return [
    link(overviewPlace(run.id), { class: "run-link" }, saidPath(path)),
    h(
      "small",
      { class: "muted under" },
      run.kind === "training" ? ["training by ", said(run.algorithm)] : said(run.command),
      run.problems > 0 && ` · ${plural(run.problems, "problem")}`,
    ),
  ];
}

/** Epochs that are over; null for a run that is no training. @param {any} run */
function epochs(run) {
  return run.kind === "training" ? run.done : null;
}

/** @param {any} run */
function tokens(run) {
  return isKnown(run.prompt_tokens) ? run.prompt_tokens + (run.completion_tokens ?? 0) : null;
}

/** The day, with its year where that is not this one, and the time below it. @param {any} run */
function updated(run) {
  const [day, time] = moment(run.updated).split(" ");
  const short = day.startsWith(`${new Date().getUTCFullYear()}-`) ? day.slice(5) : day;
  return [h("span", { title: day }, short), time && h("small", { class: "muted under" }, `${time} UTC`)];
}

/** What is looked for first stands first: a narrow window cuts the table at its right. @type {import("./table.js").Column[]} */
const COLUMNS = [
  { name: "Success", key: "success", value: (run) => run.success.value, show: successView },
  { name: "Status", key: "status", show: (run) => statusBadge(run.status) },
  {
    name: "Last written",
    key: "updated",
    value: (run) => (run.unreadable ? null : run.updated),
    kind: "number",
    show: updated,
  },
  { name: "Environment", key: "environment", show: (run) => said(run.environment) },
  { name: "Graph", key: "graph", show: (run) => said(run.graph) },
  { name: "Agents", key: "agents", show: (run) => said(run.agents, 60) },
  { name: "Epochs", key: "epochs", value: epochs, kind: "number", show: (run) => (epochs(run) === null ? "" : progress(run)) },
  { name: "Episodes", key: "episodes", kind: "number", show: episodes },
  { name: "Steps", key: "steps", kind: "number", show: (run) => amount(run.steps) },
  { name: "Tokens", key: "tokens", value: tokens, kind: "number", show: (run) => amount(tokens(run)) },
  { name: "Cost", key: "cost_usd", kind: "number", show: (run) => money(run.cost_usd) },
  { name: "Time", key: "seconds", kind: "number", show: (run) => duration(run.seconds) },
];
