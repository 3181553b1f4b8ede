/**
 * The answers that a report of one file holds. Those about an episode are packed together, one part per episode, and
 * are unpacked when one of them is asked for:
 *
 *     collab-part-0   "H4sI…"        an element of type application/json: gzip, in base64, of {address: answer}
 *
 * A report holds the scores of one critic, so `labels` is no part of an address in it.
 */

const MOST_OPEN = 4;

/** @type {Map<number, Promise<Record<string, any>>>} */
const open = new Map();

/**
 * @param {{answers: Record<string, any>, parts: Record<string, number>}} held
 * @param {string} where below /api/
 */
export async function heldAnswer(held, where) {
  const plain = withoutLabels(where);
  const place = held.parts[partOf(plain)];
  const answers = held.answers[plain] === undefined && place !== undefined ? await part(place) : held.answers;
  if (answers[plain] === undefined) throw new Error("This report does not hold it.");
  return answers[plain];
}

/** @param {string} where */
function withoutLabels(where) {
  const [path, query] = where.split("?");
  const kept = (query ?? "").split("&").filter((value) => value && !value.startsWith("labels="));
  return kept.length ? `${path}?${kept.join("&")}` : path;
}

/** Run and episode that an address is about, as it writes them. @param {string} where */
function partOf(where) {
  const [path, query = ""] = where.split("?");
  const episode = query.split("&").find((value) => value.startsWith("episode="));
  return `${path.split("/")[1]}?${episode ?? ""}`;
}

/** @param {number} place */
function part(place) {
  const known = open.get(place) ?? unpacked(place);
  open.delete(place);
  open.set(place, known);
  if (open.size > MOST_OPEN) open.delete(/** @type {number} */ (open.keys().next().value));
  return known;
}

/** @param {number} place @returns {Promise<Record<string, any>>} */
async function unpacked(place) {
  const text = JSON.parse(document.getElementById(`collab-part-${place}`)?.textContent ?? '""');
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
