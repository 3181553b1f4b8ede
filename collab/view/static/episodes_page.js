/** The episodes of a run: filtered, sorted, page by page. */

import { crumbs } from "./crumbs.js";
import { getEpisodes } from "./data.js";
import { fill, h, link, property } from "./dom.js";
import { decimal, duration, percent } from "./figures.js";
import { findLinks } from "./finds_page.js";
import { drawWhenFree, keeping } from "./keep.js";
import { outcomeBadge } from "./outcome.js";
import { episodePlace, episodesPlace, overviewPlace } from "./place.js";
import { sortableTable } from "./table.js";
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
  const body = h("div");
  const draw = async () => {
    const found = await getEpisodes(id, { ...filters, limit: PAGE_SIZE });
    const parts = () => [filterForm(id, filters, found), under(id, filters, found), episodeTable(id, filters, found)];
    keeping(body, () => fill(body, parts()));
  };
  await draw();
  const element = h(
    "div",
    null,
    crumbs([[id, overviewPlace(id)]]),
    h("h1", null, "Episodes"),
    findLinks(id),
    body,
  );
  return {
    element,
    title: `Episodes of ${id}`,
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
    location.hash = episodesPlace(id, { ...values, sort: filters.sort, descending: filters.descending });
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

/** How many there are, and the way to the others. @param {string} id @param {Record<string, string>} filters @param {any} found */
function under(id, filters, found) {
  const { offset, rows, total } = found;
  const at = (/** @type {number} */ from) => episodesPlace(id, { ...filters, offset: from || "" });
  return h(
    "div",
    { class: "under-filters" },
    h(
      "p",
      { class: "muted", role: "status" },
      total === 0
        ? "No episode fits."
        : `${plural(total, "episode")}${rows.length < total ? `, ${offset + 1} to ${offset + rows.length} shown` : ""}`,
    ),
    Object.keys(filters).some((key) => key !== "sort" && key !== "descending") &&
      link(episodesPlace(id), null, "Clear filters"),
    h(
      "nav",
      { "aria-label": "Pages" },
      offset > 0 && link(at(Math.max(0, offset - PAGE_SIZE)), null, "← before"),
      " ",
      offset + rows.length < total && link(at(offset + PAGE_SIZE), null, "after →"),
    ),
  );
}

/** @param {string} id @param {Record<string, string>} filters @param {any} found */
function episodeTable(id, filters, found) {
  const order = { key: filters.sort ?? null, descending: filters.descending === "true" };
  const sorted = (/** @type {string} */ key) => {
    const descending = order.key === key ? !order.descending : false;
    location.hash = episodesPlace(id, { ...filters, offset: "", sort: key, descending });
  };
  return sortableTable("Episodes", EPISODE_COLUMNS, found.rows, order, sorted);
}

/** A share as a small bar and a number. @param {number | null} share */
function shareView(share) {
  return [property(h("span", { class: "share", "aria-hidden": "true" }), "--share", share ?? 0), percent(share)];
}

/** @type {import("./table.js").Column[]} */
const EPISODE_COLUMNS = [
  {
    name: "Episode",
    key: "task",
    heads: true,
    show: (row) => [
      link(episodePlace(row.run, row.id), { class: "run-link" }, said(row.id, 80)),
      h("small", { class: "muted under" }, said(row.goal, 140)),
    ],
  },
  {
    name: "Outcome",
    show: (row) => [outcomeBadge(row), row.error && h("small", { class: "under" }, said(row.error, 60))],
  },
  { name: "Score", key: "score", kind: "number", show: (row) => decimal(row.score) },
  { name: "Steps", key: "steps", kind: "number", show: (row) => row.steps },
  { name: "Agreement", key: "agreement", kind: "number", show: (row) => shareView(row.agreement) },
  { name: "Entropy", key: "entropy", kind: "number", show: (row) => decimal(row.entropy) },
  { name: "Ties", kind: "number", show: (row) => row.ties },
  { name: "No action", kind: "number", show: (row) => row.failures },
  { name: "Apps", show: (row) => said(row.apps.join(", "), 60) },
  { name: "Difficulty", show: (row) => said(row.difficulty ?? "–") },
  { name: "Time", key: "seconds", kind: "number", show: (row) => duration(row.seconds) },
];
