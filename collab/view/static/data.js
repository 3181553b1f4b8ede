/**
 * All that is known comes through here: from the server's routes (`collab/view/shapes/` says every answer), or, in a
 * report that is one file, from the answers that were put into it:
 *
 *     {"answers": {"run/RUN/overview": {…}}, "parts": {…}, "pictures": {"picture/…": "data:image/webp;base64,…"}}
 *
 * as JSON in an element of type application/json with the id "collab-data"; `packed.js` says what parts are.
 *
 * Answers are named by the address below /api/ as this module writes it. A report holds its rows of episodes whole, so
 * filters and searches work on what is there.
 */

import { filteredEpisodes, foundEpisodes } from "./filter.js";
import { heldAnswer } from "./packed.js";
import { encoded } from "./place.js";

/** @typedef {{answers: Record<string, any>, parts: Record<string, number>, pictures: Record<string, string>, held: Record<string, {episodes: number, of: number}>}} Embedded */

const MOST_KEPT = 60;

/** @type {Map<string, Promise<any>>} */
const kept = new Map();

/** @type {Embedded | null | undefined} */
let embedded;

/** What a report holds; null when a server is behind this page. @returns {Embedded | null} */
function report() {
  if (embedded === undefined) {
    const holder = document.getElementById("collab-data");
    embedded = holder ? JSON.parse(holder.textContent ?? "") : null;
  }
  return embedded ?? null;
}

/** Whether this page is a report of its own, without a server. */
export function isReport() {
  return report() !== null;
}

/** How many episodes of a run or training this report holds, and of how many; null for all, and with a server. @param {string} run */
export function heldOf(run) {
  const held = report()?.held[run];
  return held && held.episodes < held.of ? held : null;
}

/** An address with its parameters, in the order given; null and undefined are left out. @param {string} path @param {Record<string, any>} [values] */
function address(path, values = {}) {
  const given = Object.entries(values).filter(([, value]) => value !== null && value !== undefined);
  return given.length ? `${path}?${given.map(([name, value]) => `${name}=${encoded(value)}`).join("&")}` : path;
}

/** @param {string} where below /api/ @returns {Promise<any>} */
function ask(where) {
  const held = report();
  if (held) return heldAnswer(held, where);
  const known = kept.get(where);
  if (known) return known;
  const answer = fetched(where);
  kept.set(where, answer);
  answer.catch(() => kept.delete(where));
  if (kept.size > MOST_KEPT) kept.delete(/** @type {string} */ (kept.keys().next().value));
  return answer;
}

/** @param {string} where */
async function fetched(where) {
  const response = await fetch(`/api/${where}`, { headers: { Accept: "application/json" } });
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Error(answer.error ?? `the server answered ${response.status}`);
  return answer;
}

/** Forget what may have changed, because a run grew. */
export function forget() {
  kept.clear();
}

/** @param {string} run */
const within = (run) => `run/${encoded(run)}`;

export const getRuns = () => ask("runs");

/** @param {string} run */
export const getRun = (run) => ask(within(run));

/** @param {string} run @param {string | null} [labels] */
export const getOverview = (run, labels) => ask(address(`${within(run)}/overview`, { labels }));

/** @param {string} run */
export const getProblems = (run) => ask(`${within(run)}/problems`);

/** @param {string} run @param {Record<string, any>} filters names as in `EpisodeFilter` */
export function getEpisodes(run, filters) {
  const whole = report();
  return whole
    ? ask(`${within(run)}/episodes`).then((all) => filteredEpisodes(all, filters))
    : ask(address(`${within(run)}/episodes`, filters));
}

/** @param {string} run @param {string} kind @param {string | null} [labels] */
export const getHighlights = (run, kind, labels) => ask(address(`${within(run)}/highlights`, { kind, labels }));

/** @param {string} run @param {string} q */
export function getHits(run, q) {
  const whole = report();
  return whole
    ? ask(`${within(run)}/episodes`).then((all) => foundEpisodes(all, q))
    : ask(address(`${within(run)}/search`, { q }));
}

/** @param {string} run @param {string} episode @param {string | null} [labels] */
export const getEpisode = (run, episode, labels) => ask(address(`${within(run)}/episode`, { episode, labels }));

/** @param {string} run @param {string} episode @param {number} step @param {string | null} [labels] */
export const getStep = (run, episode, step, labels) => ask(address(`${within(run)}/step`, { episode, step, labels }));

/** @param {string} run @param {string} episode */
export const getFinal = (run, episode) => ask(address(`${within(run)}/final`, { episode }));

/** @param {string} run @param {string} episode @param {number} step @param {string} agent @param {number} round @param {string | null} [labels] */
export const getCell = (run, episode, step, agent, round, labels) =>
  ask(address(`${within(run)}/cell`, { episode, step, agent, round, labels }));

/** @param {string} run @param {string} episode @param {number | "final"} step */
export const getScreen = (run, episode, step) => ask(address(`${within(run)}/screen`, { episode, step }));

/** @param {string} run @param {string} episode @param {number} step */
export const getCritics = (run, episode, step) => ask(address(`${within(run)}/critics`, { episode, step }));

/** @param {string} a @param {string} b */
export const getComparison = (a, b) => ask(address("compare", { a, b }));

/** @param {string} a @param {string} b @param {string} episodeA @param {string} episodeB */
export const getEpisodePair = (a, b, episodeA, episodeB) =>
  ask(address("compare/episode", { a, b, episode_a: episodeA, episode_b: episodeB }));

/** Where a picture can be got; null where there is none. @param {string | null} picture as a screen names it */
export function pictureSource(picture) {
  if (!picture) return null;
  const where = picture.replace(/^\/?api\//, "");
  const whole = report();
  return whole ? (whole.pictures[where] ?? null) : `/api/${where}`;
}

/**
 * Be told when runs grow. A report never does.
 * @param {string[]} runs ids; empty for all
 * @param {(growth: any) => void} told
 * @param {(connected: boolean) => void} heard whether the server is there
 * @returns {() => void} stops it
 */
export function follow(runs, told, heard) {
  if (isReport()) return () => undefined;
  const source = new EventSource(
    `/api/live${runs.length ? `?${runs.map((run) => `run=${encoded(run)}`).join("&")}` : ""}`,
  );
  source.addEventListener("run", (event) => told(JSON.parse(event.data)));
  source.addEventListener("open", () => heard(true));
  source.addEventListener("error", () => heard(false));
  return () => source.close();
}
