/** Up and down: from episode to episode, in the order of the list that a reader came from. */

import { getEpisodes, getHighlights, getHits } from "./data.js";
import { KINDS_OF_HIGHLIGHTS } from "./highlights_page.js";
import { readPlace } from "./place.js";

/** @typedef {{run: string, episode: string, step?: number | null, agent?: string | null, round?: number | null}} Stop */

/** As many episodes as are answered at once. */
const MOST = 1000;

/**
 * What the list has before and after an episode; null where it does not hold it.
 * @param {string} from address of a page of episodes, of highlights or of a search
 * @param {string} run @param {string} episode
 * @returns {Promise<{previous: Stop | null, next: Stop | null} | null>}
 */
export async function besideInList(from, run, episode) {
  const rows = await listed(readPlace(from));
  const first = (/** @type {Stop} */ one) => rows.find((row) => row.run === one.run && row.episode === one.episode);
  const episodes = rows.filter((row) => first(row) === row);
  const here = episodes.findIndex((row) => row.run === run && row.episode === episode);
  return here < 0 ? null : { previous: episodes[here - 1] ?? null, next: episodes[here + 1] ?? null };
}

/** What a list is called. @param {string} from */
export function listName(from) {
  const { page, parts, query } = readPlace(from);
  if (page === "highlights") return KINDS_OF_HIGHLIGHTS[parts[1]]?.[0] ?? "Found steps";
  if (page === "search") return `Search: ${query.get("q")}`;
  return isNarrowed(Object.fromEntries(query)) ? "Episodes, filtered" : "Episodes";
}

/** Whether a list of episodes is another than that of the run in its own order. @param {Record<string, string>} filters */
export function isNarrowed(filters) {
  return Object.entries(filters).some(([key, value]) => value !== "" && key !== "labels" && key !== "offset");
}

/** @param {import("./place.js").Place} place @returns {Promise<Stop[]>} */
async function listed({ page, parts: [run, kind], query }) {
  if (page === "highlights") return (await getHighlights(run, kind, query.get("labels"))).rows;
  if (page === "search") return (await getHits(run, query.get("q") ?? "")).rows;
  const { labels, offset, ...filters } = Object.fromEntries(query);
  return page === "episodes" ? allEpisodes(run, filters) : [];
}

/** @param {string} run @param {Record<string, string>} filters @returns {Promise<Stop[]>} */
async function allEpisodes(run, filters) {
  /** @type {Stop[]} */
  const stops = [];
  for (;;) {
    const { rows, total } = await getEpisodes(run, { ...filters, offset: stops.length, limit: MOST });
    stops.push(...rows.map((/** @type {any} */ row) => ({ run: row.run, episode: row.id })));
    if (!rows.length || stops.length >= total) return stops;
  }
}
