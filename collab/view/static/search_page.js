/** What was searched for in a run. */

import { crumbs } from "./crumbs.js";
import { getHits, isReport } from "./data.js";
import { fill, h, link } from "./dom.js";
import { keeping } from "./keep.js";
import { episodePlace, searchPlace, stepPlace } from "./place.js";
import { trailTo } from "./trail.js";
import { plural, said } from "./words.js";

/** @param {import("./place.js").Place} place */
export async function searchPage(place) {
  const [id] = place.parts;
  const q = place.query.get("q") ?? "";
  const labels = place.query.get("labels");
  const along = { labels, from: searchPlace(id, q, labels) };
  const element = h("div");
  const draw = async () => {
    const none = { rows: [], more: false };
    const [{ trail }, found] = await Promise.all([trailTo(id, labels), q ? getHits(id, q) : none]);
    const parts = () => [
      crumbs(trail),
      h("h1", null, "Search"),
      isReport() && h("p", { class: "note" }, "A report is searched by the names and goals of the episodes it holds alone."),
      h(
        "p",
        { class: "muted", role: "status" },
        `${found.more ? "More than " : ""}${plural(found.rows.length, "place")} with `,
        said(q),
      ),
      h(
        "ol",
        { class: "found" },
        found.rows.map((/** @type {any} */ hit) => h("li", null, hitLine(hit, along))),
      ),
    ];
    keeping(element, () => fill(element, parts()));
  };
  await draw();
  return { element, title: `Search: ${q}`, runs: [id], keys: {}, refresh: draw };
}

/** @param {any} hit a `Hit` @param {import("./place.js").Along} along */
function hitLine(hit, along) {
  const { run, episode, step } = hit;
  const place = step === null ? episodePlace(run, episode, along) : stepPlace(run, episode, step, { ...hit, ...along });
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
