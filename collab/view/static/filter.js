/** What the server does with filters and searches, for a report that has no server. */

/** @param {any} row @param {Record<string, any>} filters */
function passes(row, filters) {
  const {
    task,
    app,
    difficulty,
    epoch,
    outcome,
    error,
    min_steps: least,
    max_steps: most,
    max_agreement: agreed,
    q,
  } = filters;
  const words = String(q ?? "").toLowerCase();
  return (
    (!task || row.task === task) &&
    (!app || row.apps.includes(app)) &&
    (!difficulty || row.difficulty === difficulty) &&
    (isUnset(epoch) || row.epoch === Number(epoch)) &&
    (!outcome || outcomeOf(row) === outcome) &&
    (!error || row.error === error) &&
    (isUnset(least) || row.steps >= Number(least)) &&
    (isUnset(most) || row.steps <= Number(most)) &&
    (isUnset(agreed) || (row.agreement !== null && row.agreement <= Number(agreed))) &&
    `${row.id}\n${row.goal}`.toLowerCase().includes(words)
  );
}

/** @param {any} value */
function isUnset(value) {
  return value === undefined || value === null || value === "";
}

/** How an episode ended, in a word. @param {any} row @returns {"solved" | "failed" | "broken" | "unfinished"} */
export function outcomeOf(row) {
  if (row.state === "unfinished") return "unfinished";
  if (row.state === "failed") return "broken";
  return row.success ? "solved" : "failed";
}

/** @param {any} all an `Episodes` with every row @param {Record<string, any>} filters */
export function filteredEpisodes(all, filters) {
  const rows = all.rows.filter((/** @type {any} */ row) => passes(row, filters));
  const { sort, descending } = filters;
  const played = () => (descending ? [...rows].reverse() : rows);
  const shown = sort && sort !== "order" ? sortedBy(rows, (row) => row[sort], descending) : played();
  const offset = Number(filters.offset ?? 0);
  return { ...all, total: shown.length, offset, rows: shown.slice(offset, offset + Number(filters.limit ?? 200)) };
}

/**
 * Rows by a value; what is not known comes last, whichever way round.
 * @param {any[]} rows @param {(row: any) => any} value @param {any} descending
 */
export function sortedBy(rows, value, descending) {
  const known = rows.filter((row) => !isUnset(value(row)));
  const sorted = known.sort((one, other) => byValue(value(one), value(other)));
  return [...(descending ? sorted.reverse() : sorted), ...rows.filter((row) => isUnset(value(row)))];
}

/** Order of two known values. @param {any} one @param {any} other */
function byValue(one, other) {
  return typeof one === "string"
    ? one.localeCompare(String(other), "en", { numeric: true })
    : Number(one) - Number(other);
}

/** Episodes whose id or goal holds the words, as `Hits`. @param {any} all @param {string} q */
export function foundEpisodes(all, q) {
  const rows = all.rows.filter((/** @type {any} */ row) => passes(row, { q }));
  const hits = rows.map((/** @type {any} */ row) => ({
    run: row.run,
    episode: row.id,
    step: null,
    agent: null,
    round: null,
    where: "goal",
    text: row.goal,
  }));
  return { q, rows: hits.slice(0, 100), more: hits.length > 100 };
}
