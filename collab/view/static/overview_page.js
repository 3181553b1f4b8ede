/** A run or a training in numbers: headlines, over epochs, one epoch closely, tasks, problems. */

import { tiles } from "./bars.js";
import { crumbs } from "./crumbs.js";
import { getOverview, getProblems, getRun } from "./data.js";
import { fill, h, link } from "./dom.js";
import { epochSection } from "./epoch.js";
import { amount, decimal, duration, isKnown, moment, money, percent } from "./figures.js";
import { highlightLinks } from "./highlights_page.js";
import { graphsOverEpochs } from "./graphs_panel.js";
import { heldNote } from "./held.js";
import { drawWhenFree, keeping } from "./keep.js";
import { labelsChoice } from "./labels.js";
import { learnedPanel } from "./learned.js";
import { REHEARSAL, rateView, statusBadge, successView } from "./outcome.js";
import { episodesPlace, overviewPlace } from "./place.js";
import { nextOrder, redraw, sortableTable, sortedRows } from "./table.js";
import { partName, trailTo } from "./trail.js";
import { trends } from "./trends.js";
import { passage, plural, said, saidPath } from "./words.js";

/**
 * What a reader has chosen, which a run that grows leaves as it is.
 * @typedef {object} Choice
 * @property {string | null} labels as the address names them
 * @property {number | null} epoch null for the newest
 * @property {string | null} calibration epoch and policy of the values that are shown; null for the newest
 * @property {import("./table.js").Order} order of the tasks
 */

/** @param {import("./place.js").Place} place */
export async function overviewPage(place) {
  const [id] = place.parts;
  const labels = place.query.get("labels");
  const first = await getRun(id);
  if (first.run.unreadable) return unreadablePage(first);
  const body = h("div");
  /** @type {Choice} */
  const choice = { labels, epoch: null, calibration: null, order: { key: null, descending: false } };
  const draw = async () => {
    const asked = [trailTo(id, labels), getOverview(id, labels), getProblems(id)];
    const [{ view, trail }, found, { problems }] = await Promise.all(asked);
    keeping(body, () => fill(body, ...sections({ id, view, trail, found, problems, choice })));
  };
  await draw();
  return {
    element: h("div", { class: "overview" }, body),
    title: first.run.path,
    runs: [id],
    keys: {},
    refresh: () => drawWhenFree(body, draw),
  };
}

/** @param {any} view a `RunView` of which nothing can be read */
function unreadablePage(view) {
  const element = h(
    "div",
    null,
    crumbs([]),
    h("h1", null, saidPath(view.run.path, 200)),
    h("p", { class: "note" }, said(view.run.unreadable, 600)),
  );
  return { element, title: view.run.path, runs: [], keys: {} };
}

/** @param {{id: string, view: any, trail: [string, string][], found: any, problems: any[], choice: Choice}} told a `RunView`, an `Overview`, `Problem`s */
function sections({ id, view, trail, found, problems, choice }) {
  const { run } = found;
  const epochs = found.epochs;
  return [
    head(id, view, trail, found, choice.labels),
    headlines(run, epochs),
    highlightLinks(id, choice.labels),
    epochs.length > 1 && trends(epochs, run.kind === "training"),
    learnedPanel(found, choice),
    epochs.length > 0 && epochSection(epochs, found.best, run.kind === "training", choice),
    graphsOverEpochs(epochs),
    tasksSection(id, found.tasks, found.tasks_epoch, choice),
    found.failures.length > 0 && failuresSection(found.failures, found.tasks_epoch),
    problems.length > 0 && problemsSection(problems),
    about(view),
  ];
}

/** @param {string} id @param {any} view @param {[string, string][]} trail @param {any} found @param {string | null} labels */
function head(id, view, trail, found, labels) {
  const { run } = found;
  return h(
    "header",
    null,
    crumbs(trail.slice(0, -1)),
    h(
      "div",
      { class: "title-line" },
      h("h1", null, saidPath(run.path, 120)),
      statusBadge(run.status),
      labelsChoice(view.label_sets, found.labels, (other) => overviewPlace(id, other)),
      link(episodesPlace(id, { labels }), { class: "action" }, "Episodes"),
    ),
    h(
      "p",
      { class: "muted" },
      run.kind === "training" ? ["training by ", said(run.algorithm)] : said(run.command),
      " · ",
      said(run.environment),
      " · ",
      said(run.agents, 80),
      " on ",
      said(run.graph),
      ` · seed ${run.seed} · begun ${moment(run.created)} UTC`,
    ),
    heldNote(id, "the numbers here are of all of them"),
    run.privileged &&
      h("p", { class: "note" }, `${REHEARSAL}. Its agents read the solutions, so these numbers are no result.`),
  );
}

/** @param {any} run @param {any[]} epochs */
function headlines(run, epochs) {
  const last = epochs[epochs.length - 1];
  const tokens = isKnown(run.prompt_tokens) ? run.prompt_tokens + (run.completion_tokens ?? 0) : null;
  const planned = run.planned === null ? "" : ` of ${amount(run.planned)}`;
  return tiles([
    ["success", successView(run), run.kind === "run" && countedOver(run)],
    run.kind === "training" && ["epochs", `${amount(run.done)}${planned}`, null],
    [
      "episodes",
      run.kind === "training" ? amount(run.episodes) : `${amount(run.done)}${planned}`,
      [run.kind === "training" && "of all its runs", run.broken > 0 && `${run.broken} broken`].filter(Boolean).join(", "),
    ],
    ["steps", amount(run.steps), null],
    [
      "replies without an action",
      `${amount(run.without_action)} of ${amount(run.replies)}`,
      run.sampling && `sampled at ${run.sampling}`,
    ],
    [
      "agreement",
      percent(last?.agreement),
      isKnown(last?.entropy) &&
        `entropy ${decimal(last.entropy)} nats${last.ties ? `, ${plural(last.ties, "tie")}` : ""}`,
    ],
    ["model calls", amount(run.calls), isKnown(tokens) && `${amount(tokens)} tokens`],
    ["cost", money(run.cost_usd), null],
    ["time", duration(run.seconds), "by the clock"],
  ].filter(Boolean));
}

/** Over which episodes the success of a run is, where that is not all that it planned. @param {any} run */
function countedOver(run) {
  const { episodes } = run.success;
  if (!episodes) return null;
  if (episodes < run.done) return `of the ${amount(episodes)} that are learned from`;
  return run.done < episodes && `${amount(run.done)} of ${amount(episodes)} are over; the others count as not solved`;
}

/** @param {string} id @param {any[]} tasks @param {number | null} epoch of the rollout that they are of; null for a run @param {Choice} choice */
function tasksSection(id, tasks, epoch, choice) {
  if (!tasks.length) return null;
  const holder = h("div");
  const sorted = (/** @type {string} */ key) => {
    choice.order = nextOrder(choice.order, key);
    draw();
  };
  const columns = [
    {
      name: "Task",
      key: "name",
      heads: true,
      show: (/** @type {any} */ task) => link(episodesPlace(id, { task: task.name, labels: choice.labels }), null, said(task.name)),
    },
    tasks.some((task) => task.difficulty !== null) && {
      name: "Difficulty",
      key: "difficulty",
      show: (/** @type {any} */ task) => said(task.difficulty ?? "–"),
    },
    {
      name: "Success",
      key: "success",
      value: (/** @type {any} */ task) => task.success.value,
      show: (/** @type {any} */ task) => rateView(task.success),
    },
  ].filter(Boolean);
  const draw = () => {
    const rows = sortedRows(tasks, columns, choice.order);
    redraw(holder, () => sortableTable("Success by task", columns, rows, choice.order, sorted));
  };
  draw();
  return h(
    "section",
    { class: "panel", "aria-labelledby": "tasks-title" },
    h("h2", { id: "tasks-title" }, epoch === null ? "Tasks" : `Tasks of the rollout of epoch ${epoch}`),
    holder,
  );
}

/** Why episodes failed. @param {any[]} failures `FailureModeView`s @param {number | null} epoch as of `tasksSection` */
function failuresSection(failures, epoch) {
  const columns = [
    { name: "Failure", heads: true, show: (/** @type {any} */ one) => said(one.mode) },
    { name: "Kind", show: (/** @type {any} */ one) => said(one.coarse ?? "–") },
    { name: "Episodes", kind: "number", show: (/** @type {any} */ one) => amount(one.episodes) },
    { name: "What it is", show: (/** @type {any} */ one) => said(one.words) },
  ];
  const unsorted = { key: null, descending: false };
  return h(
    "section",
    { class: "panel", "aria-labelledby": "failures-title" },
    h("h2", { id: "failures-title" }, epoch === null ? "Failures" : `Failures of the rollout of epoch ${epoch}`),
    sortableTable("Why episodes failed", columns, failures, unsorted, () => {}),
  );
}

/** @param {any[]} problems */
function problemsSection(problems) {
  const where = (/** @type {any} */ one) => (one.line === null ? one.file : `${one.file}, line ${one.line}`);
  return h(
    "section",
    { class: "panel", "aria-labelledby": "problems-title" },
    h("h2", { id: "problems-title" }, "What cannot be read"),
    h("p", { class: "muted" }, `${plural(problems.length, "thing")}; all else is shown.`),
    h(
      "ul",
      { class: "problems" },
      problems
        .slice(0, 100)
        .map((/** @type {any} */ one) => h("li", null, h("code", null, said(where(one))), " ", said(one.reason, 300))),
    ),
  );
}

/** @param {any} view */
function about(view) {
  const versions = Object.entries(view.versions).map(([name, version]) =>
    h("div", null, h("dt", null, said(name)), h("dd", null, said(String(version)))),
  );
  return h(
    "section",
    { class: "panel", "aria-labelledby": "about-title" },
    h("h2", { id: "about-title" }, "How it was made"),
    view.parts.length > 0 &&
      h(
        "details",
        null,
        h("summary", null, `${plural(view.parts.length, "run")} of this training`),
        h(
          "ul",
          null,
          view.parts.map((/** @type {any} */ part) =>
            h("li", null, link(overviewPlace(part.id), null, partName(part))),
          ),
        ),
      ),
    versions.length > 0 && h("details", null, h("summary", null, "Versions"), h("dl", { class: "facts" }, versions)),
    view.config &&
      h(
        "details",
        null,
        h("summary", null, "Configuration"),
        passage(view.config, { limit: 20000, label: "Configuration" }),
      ),
  );
}
