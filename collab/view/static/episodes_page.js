/** The episodes of a run: filtered, sorted, page by page. */

import { shareBar } from "./bars.js";
import { crumbs } from "./crumbs.js";
import { getEpisodes } from "./data.js";
import { fill, h, link } from "./dom.js";
import { decimal, duration, percent } from "./figures.js";
import { highlightLinks } from "./highlights_page.js";
import { heldNote } from "./held.js";
import { drawWhenFree, keeping } from "./keep.js";
import { outcomeBadge, rehearsalMark } from "./outcome.js";
import { episodePlace, episodesPlace } from "./place.js";
import { sortableTable } from "./table.js";
import { trailTo } from "./trail.js";
import { isNarrowed } from "./walk.js";
import { isolated, plural, said } from "./words.js";

const PAGE_SIZE = 200;
const OUTCOMES_BY_NAME = [
  ["solved", "solved"],
  ["failed", "not solved"],
  ["broken", "broken"],
  ["unfinished", "unfinished"],
];

/** @param {import("./place.js").Place} place */
export async function episodesPage(place) {
  const [id] = place.parts;
  const filters = Object.fromEntries(place.query);
  const { labels = null, ...wanted } = filters;
  const body = h("div");
  const way = trailTo(id, labels);
  const draw = async () => {
    const found = await getEpisodes(id, { ...wanted, limit: PAGE_SIZE });
    const parts = () => [filterForm(id, filters, found), under(id, filters, found), episodeTable(id, filters, found)];
    keeping(body, () => fill(body, parts()));
  };
  const [{ view, trail }] = await Promise.all([way, draw()]);
  const element = h(
    "div",
    null,
    crumbs(trail),
    h("h1", null, "Episodes"),
    rehearsalMark(view.run),
    highlightLinks(id, labels),
    heldNote(id, "the others are in the run"),
    body,
  );
  return {
    element,
    title: `Episodes of ${view.run.path}`,
    runs: [id],
    keys: {},
    refresh: () => drawWhenFree(body, draw),
  };
}

/** @param {string} id @param {Record<string, string>} filters @param {any} found an `Episodes` */
function filterForm(id, filters, found) {
  const form = h(
    "form",
    {
      class: "filters",
      role: "search",
      "aria-label": "Filter episodes",
      events: { submit: (/** @type {Event} */ event) => event.preventDefault() },
    },
    field("Words", "q", h("input", { type: "search", value: filters.q ?? "" })),
    facet("Task", "task", found.tasks, filters.task),
    field("Outcome", "outcome", options([["", "any"], ...OUTCOMES_BY_NAME], filters.outcome)),
    facet("App", "app", found.apps, filters.app),
    facet("Difficulty", "difficulty", found.difficulties, filters.difficulty),
    facet("Error", "error", found.errors, filters.error),
    found.epochs.length > 1 && facet("Epoch", "epoch", found.epochs, filters.epoch),
    field("Steps from", "min_steps", h("input", { type: "number", min: 0, value: filters.min_steps ?? "" })),
    field("Steps to", "max_steps", h("input", { type: "number", min: 0, value: filters.max_steps ?? "" })),
    field(
      "Agreement at most",
      "max_agreement",
      options(
        [
          ["", "any"],
          ["0.75", "75%"],
          ["0.5", "50%"],
          ["0.35", "35%"],
          ["0.25", "25%"],
        ],
        filters.max_agreement,
      ),
    ),
  );
  form.addEventListener("change", () => {
    const values = Object.fromEntries([...form.elements].filter((one) => one.name).map((one) => [one.name, one.value]));
    const { labels, sort, descending } = filters;
    location.hash = episodesPlace(id, { ...values, labels, sort, descending });
  });
  return form;
}

/** @param {string} name @param {string} key @param {any} control */
function field(name, key, control) {
  control.setAttribute("name", key);
  control.id = `filter-${key}`;
  return h("label", null, name, control);
}

/** @param {string[][]} entries value and name @param {string | undefined} chosen */
function options(entries, chosen) {
  return h(
    "select",
    null,
    entries.map(([value, name]) => h("option", { value, selected: value === (chosen ?? "") }, name)),
  );
}

/** A choice of values that there are; nothing where there is no choice. @param {string} name @param {string} key @param {any[]} values `Facet`s @param {string | undefined} chosen */
function facet(name, key, values, chosen) {
  if (!values.length) return null;
  return field(
    name,
    key,
    options([["", "any"], ...values.map((one) => [one.value, `${isolated(one.value)} (${one.episodes})`])], chosen),
  );
}

/** How many there are, and the way to the others. @param {string} id @param {Record<string, any>} filters @param {any} found */
function under(id, filters, found) {
  const { offset, rows, total } = found;
  const { labels, sort, descending, offset: _, ...narrowing } = filters;
  const at = (/** @type {number} */ from) => episodesPlace(id, { ...filters, offset: from || "" });
  const before = Math.min(offset, PAGE_SIZE * Math.ceil(total / PAGE_SIZE)) - PAGE_SIZE;
  return h(
    "div",
    { class: "under-filters" },
    h(
      "p",
      { class: "muted", role: "status" },
      total === 0 ? "No episode fits." : `${plural(total, "episode")}${range(offset, rows.length, total)}`,
    ),
    Object.values(narrowing).some(Boolean) &&
      link(episodesPlace(id, { labels, sort, descending }), null, "Clear filters"),
    h(
      "nav",
      { "aria-label": "Pages" },
      offset > 0 && link(at(Math.max(0, before)), null, "← before"),
      " ",
      offset + rows.length < total && link(at(offset + PAGE_SIZE), null, "after →"),
    ),
  );
}

/** Which of them are shown. @param {number} offset @param {number} shown @param {number} total */
function range(offset, shown, total) {
  if (shown === total) return "";
  return shown === 0 ? `, none behind the first ${offset}` : `, ${offset + 1} to ${offset + shown} shown`;
}

/** @param {string} id @param {Record<string, string>} filters @param {any} found */
function episodeTable(id, filters, found) {
  const order = { key: filters.sort ?? null, descending: filters.descending === "true" };
  const sorted = (/** @type {string} */ key) => {
    const descending = order.key === key ? !order.descending : false;
    location.hash = episodesPlace(id, { ...filters, offset: "", sort: key, descending });
  };
  const epoch = found.rows.some((/** @type {any} */ row) => row.epoch > 0) ? [EPOCH_COLUMN] : [];
  const columns = [nameColumn(id, filters), ...epoch, ...EPISODE_COLUMNS];
  return sortableTable("Episodes", columns, found.rows, order, sorted);
}

/** @param {string} id @param {Record<string, string>} filters @returns {import("./table.js").Column} */
function nameColumn(id, { offset, ...filters }) {
  const list = isNarrowed(filters) ? episodesPlace(id, filters) : null;
  const from = (/** @type {any} */ row) => list ?? (row.run === id ? null : episodesPlace(id, filters));
  return {
    name: "Episode",
    key: "task",
    heads: true,
    show: (row) => [
      link(episodePlace(row.run, row.id, { labels: filters.labels, from: from(row) }), { class: "run-link" }, said(row.id, 80)),
      h("small", { class: "muted under" }, said(row.goal, 140)),
    ],
  };
}

/** Of a training; its epochs count from 1. @type {import("./table.js").Column} */
const EPOCH_COLUMN = { name: "Epoch", key: "epoch", kind: "number", show: (row) => row.epoch };

/** @type {import("./table.js").Column[]} */
const EPISODE_COLUMNS = [
  {
    name: "Outcome",
    show: (row) => [outcomeBadge(row), row.error && h("small", { class: "under" }, said(row.error, 60))],
  },
  { name: "Score", key: "score", kind: "number", show: (row) => decimal(row.score) },
  { name: "Steps", key: "steps", kind: "number", show: (row) => row.steps },
  { name: "Agreement", key: "agreement", kind: "number", show: (row) => [shareBar(row.agreement), percent(row.agreement)] },
  { name: "Entropy", key: "entropy", kind: "number", show: (row) => decimal(row.entropy) },
  { name: "Ties", kind: "number", show: (row) => row.ties },
  { name: "No action", kind: "number", show: (row) => row.failures },
  { name: "Apps", show: (row) => said(row.apps.join(", "), 60) },
  { name: "Difficulty", show: (row) => said(row.difficulty ?? "–") },
  { name: "Time", key: "seconds", kind: "number", show: (row) => duration(row.seconds) },
];
