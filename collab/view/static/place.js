/**
 * Where one is, as it stands behind the # of the address. Every cell of every step has an address that can be kept.
 *
 *     #/                                                    runs
 *     #/run/RUN?labels=…                                    overview
 *     #/run/RUN/episodes?task=…                             episodes
 *     #/run/RUN/highlights/KIND?labels=…                    steps worth looking at
 *     #/run/RUN/search?q=…                                  what was searched for
 *     #/run/RUN/episode/EPISODE/STEP[/AGENT/ROUND]?labels=…  a step, and one of its cells; from=… is the list it was in,
 *                                                           estimates=EPOCH/POLICY whose estimates are shown
 *     #/compare/RUN/RUN[/EPISODE/EPISODE]                   two runs, or an instance that both played
 */

/**
 * @typedef {object} Place
 * @property {"runs" | "overview" | "episodes" | "highlights" | "search" | "step" | "compare" | "unknown"} page
 * @property {string[]} parts of the address, decoded, behind the name of the page
 * @property {URLSearchParams} query
 */

const RUN_PAGES = new Set(["episodes", "highlights", "search"]);

/** @param {string} hash @returns {Place} */
export function readPlace(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const query = new URLSearchParams(search);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const [head, ...rest] = parts;
  if (head === undefined) return { page: "runs", parts: [], query };
  if (head === "compare" && (rest.length === 2 || rest.length === 4)) return { page: "compare", parts: rest, query };
  if (head !== "run" || rest.length === 0) return { page: "unknown", parts, query };
  const [run, page, ...more] = rest;
  if (page === undefined) return { page: "overview", parts: [run], query };
  if (page === "episode" && more.length >= 1) return { page: "step", parts: [run, ...more], query };
  if (RUN_PAGES.has(page)) return { page: /** @type {any} */ (page), parts: [run, ...more], query };
  return { page: "unknown", parts, query };
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** One piece of an address. Half characters cannot stand in one; they become the sign for an unreadable one. @param {string | number} text */
export function encoded(text) {
  return encodeURIComponent(String(text).toWellFormed());
}

/** Names and values behind a ?, empty ones left out. @param {Record<string, string | number | boolean | null | undefined>} values */
export function queryText(values) {
  const kept = Object.entries(values).filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return kept.length ? `?${kept.map(([name, value]) => `${name}=${encoded(String(value))}`).join("&")}` : "";
}

/**
 * What goes along from step to step: whose scores are shown, the first label set's where none is named, the address of
 * the list that was followed there, and which epoch's estimates are shown, the newest's where none is named.
 * @typedef {{labels?: string | null, from?: string | null, estimates?: string | null}} Along
 */

/** @param {Along} along */
function alongText({ labels, from, estimates }) {
  const kept = [
    typeof labels === "string" && `labels=${encoded(labels)}`,
    from && `from=${encoded(from)}`,
    estimates && `estimates=${encoded(estimates)}`,
  ].filter(Boolean);
  return kept.length ? `?${kept.join("&")}` : "";
}

/** @param {string | null} labels */
const labelled = (labels) => alongText({ labels });

export const runsPlace = () => "#/";

/** @param {string} run @param {string | null} [labels] */
export const overviewPlace = (run, labels = null) => `#/run/${encoded(run)}${labelled(labels)}`;

/** @param {string} run @param {Record<string, any>} [filters] */
export const episodesPlace = (run, filters = {}) => `#/run/${encoded(run)}/episodes${queryText(filters)}`;

/** @param {string} run @param {string} kind @param {string | null} [labels] */
export const highlightsPlace = (run, kind, labels = null) =>
  `#/run/${encoded(run)}/highlights/${encoded(kind)}${labelled(labels)}`;

/** @param {string} run @param {string} q @param {string | null} [labels] */
export const searchPlace = (run, q, labels = null) => `#/run/${encoded(run)}/search${queryText({ q, labels })}`;

/** An episode, at its first step. @param {string} run @param {string} episode @param {Along} [along] */
export const episodePlace = (run, episode, along = {}) =>
  `#/run/${encoded(run)}/episode/${encoded(episode)}${alongText(along)}`;

/**
 * A step, or one of its cells.
 * @param {string} run @param {string} episode @param {number} step
 * @param {{agent?: string | null, round?: number | null} & Along} [cell]
 */
export function stepPlace(run, episode, step, { agent = null, round = null, ...along } = {}) {
  const cell = agent === null || round === null ? "" : `/${encoded(agent)}/${round + 1}`;
  return `#/run/${encoded(run)}/episode/${encoded(episode)}/${step}${cell}${alongText(along)}`;
}

/** @param {string} a @param {string} b @param {string} [episodeA] @param {string} [episodeB] */
export function comparePlace(a, b, episodeA, episodeB) {
  const episodes = episodeA !== undefined && episodeB !== undefined ? `/${encoded(episodeA)}/${encoded(episodeB)}` : "";
  return `#/compare/${encoded(a)}/${encoded(b)}${episodes}`;
}
