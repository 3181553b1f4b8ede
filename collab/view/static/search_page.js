/** What was searched for in a run. */

import { crumbs } from "./crumbs.js";
import { getHits } from "./data.js";
import { h, link } from "./dom.js";
import { episodePlace, overviewPlace, stepPlace } from "./place.js";
import { plural, said } from "./words.js";

/** @param {import("./place.js").Place} place */
export async function searchPage(place) {
  const [id] = place.parts;
  const q = place.query.get("q") ?? "";
  const found = q ? await getHits(id, q) : { rows: [], more: false };
  const element = h(
    "div",
    null,
    crumbs([[id, overviewPlace(id)]]),
    h("h1", null, "Search"),
    h(
      "p",
      { class: "muted", role: "status" },
      `${found.more ? "More than " : ""}${plural(found.rows.length, "place")} with `,
      said(q),
    ),
    h(
      "ol",
      { class: "found" },
      found.rows.map((/** @type {any} */ hit) => h("li", null, hitLine(hit))),
    ),
  );
  return { element, title: `Search: ${q}`, runs: [], keys: {} };
}

/** @param {any} hit a `Hit` */
function hitLine(hit) {
  const place = hit.step === null ? episodePlace(hit.run, hit.episode) : stepPlace(hit.run, hit.episode, hit.step, hit);
  const where = [
    hit.step !== null && ` step ${hit.step}`,
    hit.agent !== null && ` · ${hit.agent}, round ${hit.round + 1}`,
  ]
    .filter(Boolean)
    .join("");
  return [
    h("span", { class: "tag" }, hit.where),
    " ",
    link(place, null, said(hit.episode, 100), said(where)),
    hit.text !== hit.episode && h("p", { class: "muted" }, said(hit.text, 300)),
  ];
}
