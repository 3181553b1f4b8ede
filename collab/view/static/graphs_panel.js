/** The graph of every epoch, with what changed against the one before. */

import { nameplate, team } from "./agents.js";
import { h } from "./dom.js";
import { edgeKey } from "./layered.js";
import { changesText, graphDrawing } from "./graph.js";
import { saveButtons } from "./save.js";
import { plural } from "./words.js";

const MOST_GRAPHS = 24;

/** @param {any[]} epochs `EpochView`s */
export function graphsOverEpochs(epochs) {
  const known = epochs.filter((epoch) => epoch.graph);
  if (!known.length) return null;
  const agents = team(known[0].graph.agents);
  const shown = known.slice(0, MOST_GRAPHS);
  return h(
    "section",
    { class: "panel", "aria-labelledby": "graphs-title" },
    h("h2", { id: "graphs-title" }, known.length > 1 ? "Graphs" : "Graph"),
    h(
      "p",
      { class: "legend" },
      agents.map((agent) => nameplate(agent)),
      known.length > 1 && h("span", { class: "muted" }, "thick: new, dashed: gone"),
    ),
    h(
      "ul",
      { class: "graphs" },
      shown.map((epoch, place) => h("li", null, oneGraph(epoch, known.length > 1, place === 0))),
    ),
    known.length > shown.length &&
      h(
        "details",
        null,
        h("summary", null, `${plural(known.length - shown.length, "more graph")}`),
        h(
          "ul",
          { class: "graphs" },
          known.slice(MOST_GRAPHS).map((epoch) => h("li", null, oneGraph(epoch, true, false))),
        ),
      ),
  );
}

/** @param {any} epoch @param {boolean} named @param {boolean} first */
function oneGraph(epoch, named, first) {
  const { agents, edges, layers, added, removed } = epoch.graph;
  const before = edges
    .filter(
      (/** @type {any} */ edge) =>
        !added.some((/** @type {any} */ one) => edgeKey(one[0], one[1]) === edgeKey(edge[0], edge[1])),
    )
    .concat(removed);
  return h(
    "figure",
    null,
    graphDrawing(team(agents), layers, edges, {
      added: first ? new Set() : new Set(added.map((/** @type {any} */ edge) => edgeKey(edge[0], edge[1]))),
      removed,
    }),
    h(
      "figcaption",
      null,
      named ? `Epoch ${epoch.epoch}` : `${plural(layers.length, "layer")}, ${plural(edges.length, "edge")}`,
      " ",
      saveButtons(named ? `Graph of epoch ${epoch.epoch}` : "Graph"),
      named && !first && changesText(before, edges),
    ),
  );
}
