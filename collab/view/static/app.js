/** The page: reads where one is from the address, shows it, and follows runs that grow. */

import { comparePage } from "./compare_page.js";
import { crumbs, failureNote } from "./crumbs.js";
import { follow, forget } from "./data.js";
import { button, fill, h, link } from "./dom.js";
import { episodesPage } from "./episodes_page.js";
import { highlightsPage } from "./highlights_page.js";
import { helpDialog } from "./help.js";
import { focused } from "./keep.js";
import { listenToKeys, setKeys } from "./keys.js";
import { overviewPage } from "./overview_page.js";
import { readPlace, runsPlace, searchPlace } from "./place.js";
import { runsPage } from "./runs_page.js";
import { searchPage } from "./search_page.js";
import { stepPage } from "./step_page.js";
import { restoreTheme, themeButton } from "./theme.js";

/**
 * @typedef {object} Page
 * @property {Element} element
 * @property {string} title
 * @property {string[]} runs that it shows; empty for all
 * @property {import("./keys.js").Keys} keys
 * @property {() => any} [refresh] draw anew what a growing run changed
 * @property {() => void} [placed] called once it stands in the document
 */

/** @type {Record<string, (place: import("./place.js").Place) => Promise<Page>>} */
const PAGES = {
  runs: runsPage,
  overview: overviewPage,
  episodes: episodesPage,
  highlights: highlightsPage,
  search: searchPage,
  step: stepPage,
  compare: comparePage,
};

/** Milliseconds between two refreshes of a run that grows, at least; and how many times as long as one takes. */
const CALM = 1000;
const REST = 5;

const main = h("main", { id: "main", tabindex: -1 });
const live = h("span", { class: "live", role: "status" });
const words = h("input", {
  type: "search",
  id: "search",
  placeholder: "Search",
  "aria-label": "Search in this run",
  autocomplete: "off",
});
const searching = h(
  "form",
  { role: "search", "aria-label": "Search", events: { submit: searched } },
  words,
  h("kbd", { "aria-hidden": "true" }, "/"),
);

const spoken = h("p", { class: "unseen", role: "status" });

/**
 * @type {{page: Page | null, turn: number, followed: string | null, stop: () => void, due: number | null,
 *   missed: boolean, calm: number}}
 * due: the refresh that is to come or at work; missed: whether something grew since it began
 */
const now = { page: null, turn: 0, followed: null, stop: () => undefined, due: null, missed: false, calm: CALM };

function start() {
  restoreTheme();
  const help = helpDialog();
  document.body.replaceChildren(
    link("#main", { class: "skip", id: "skip" }, "Skip to content"),
    topBar(help),
    main,
    spoken,
    help,
  );
  document.getElementById("skip")?.addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  listenToKeys({
    "/": () => (searching.hidden ? document.getElementById("runs-words") : words)?.focus(),
    "?": () => help.showModal(),
  });
  addEventListener("hashchange", show);
  document.addEventListener("visibilitychange", () => now.page && followPage(now.page));
  show();
}

/** @param {HTMLDialogElement} help */
function topBar(help) {
  return h(
    "header",
    { class: "top" },
    link(runsPlace(), { class: "brand" }, "Collab"),
    searching,
    live,
    button("Keys", () => help.showModal(), { class: "quiet" }),
    themeButton(),
  );
}

/** @param {Event} event */
function searched(event) {
  event.preventDefault();
  const run = runOfPlace();
  if (run !== null) location.hash = searchPlace(run, words.value, readPlace(location.hash).query.get("labels"));
}

/** The run that is looked at; null where none is. */
function runOfPlace() {
  const { page, parts } = readPlace(location.hash);
  return page === "runs" || page === "compare" || page === "unknown" ? null : parts[0];
}

/** Show what the address names. A page that was asked for earlier and comes later is not shown. */
async function show() {
  const turn = ++now.turn;
  const place = readPlace(location.hash);
  searching.hidden = runOfPlace() === null;
  main.setAttribute("aria-busy", "true");
  const page = await made(place);
  if (turn !== now.turn) return;
  turnTo(page, place);
  main.removeAttribute("aria-busy");
}

/** The page of a place; what failed is told in its stead. @param {import("./place.js").Place} place @returns {Promise<Page>} */
async function made(place) {
  try {
    const make = PAGES[place.page];
    if (!make) throw new Error("There is no such page.");
    return await make(place);
  } catch (error) {
    const element = h("div", null, crumbs([]), h("h1", null, "Not shown"), failureNote(error));
    return { element, title: "Not shown", runs: [], keys: {} };
  }
}

/** What one looks at in another way, or at the next of its kind, stays where it was on the screen, the focus on what had it. @param {Page} page @param {import("./place.js").Place} place */
function turnTo(page, { page: name, parts }) {
  const kind = JSON.stringify([name, parts[0]]);
  const same = main.dataset.page === kind;
  const scroll = same ? scrollY : 0;
  const [within, again] = [main.contains(document.activeElement), focused(main)];
  now.page = page;
  main.dataset.page = kind;
  document.title = `${page.title} · Collab`;
  fill(main, page.element);
  page.placed?.();
  scrollTo(0, scroll);
  fill(spoken, same && name === "step" ? page.title : null);
  if (same) again()?.focus({ preventScroll: true });
  if (document.activeElement === document.body && (within || !same)) main.focus({ preventScroll: true });
  setKeys(page.keys);
  followPage(page);
}

/** Hear of the runs that are shown, where they can grow, and only while the page is visible. @param {Page} page */
function followPage(page) {
  const wanted = page.refresh && !document.hidden ? JSON.stringify(page.runs) : null;
  if (wanted === now.followed) return;
  now.stop();
  now.followed = wanted;
  now.stop = () => undefined;
  fill(live);
  if (wanted === null) return;
  now.stop = follow(page.runs, grown, (connected) => fill(live, connected ? "live" : "not connected"));
}

/** @type {Map<string, string>} */
const states = new Map();

/** A run grew: draw anew, but not more often than is calm. The first word on a run says only how it is. @param {any} growth */
function grown(growth) {
  const known = states.get(growth.id);
  states.set(growth.id, growth.state);
  if (known === undefined || known === growth.state) return;
  if (now.due === null) now.due = setTimeout(refresh, now.calm);
  else now.missed = true;
}

/** One at a time, so that no older answer comes after a newer one. */
async function refresh() {
  const [{ page }, begun] = [now, performance.now()];
  now.missed = false;
  forget();
  const good = await refreshed(page);
  if (page === now.page && now.followed !== null) fill(live, good ? "live" : "not connected");
  now.calm = Math.max(CALM, REST * (performance.now() - begun));
  now.due = now.missed ? setTimeout(refresh, now.calm) : null;
}

/** @param {Page | null} page */
async function refreshed(page) {
  try {
    await page?.refresh?.();
    return true;
  } catch {
    return false;
  }
}

start();
