/** Who hears whom, drawn: a column per layer, an arrow per edge, and the message on it where a round is looked at. */

import { sign } from "./agents.js";
import { h, property, s } from "./dom.js";
import { agentKey, arrange, edgeKey } from "./layered.js";
import { clipped, plural } from "./words.js";

/** @typedef {import("./agents.js").Agent} Agent */
/** @typedef {import("./layered.js").Edge} Edge */

/**
 * @typedef {object} GraphNote what is told of a round; all of it may be left out
 * @property {Record<string, string>} [actions] agent → what it proposed, in words
 * @property {Record<string, string>} [messages] speaker → what its edges carry, in words
 * @property {string | null} [chosen] agent that is looked at
 * @property {Set<string>} [added] keys of edges that the graph before did not have
 * @property {Edge[]} [removed] edges that only the graph before had
 * @property {(agent: string) => void} [picked]
 */

const NODE = { width: 152, height: 46 };
const SMALL_NODE = { width: 34, height: 34 };

/**
 * @param {Agent[]} agents @param {string[][]} layers @param {Edge[]} edges
 * @param {GraphNote} [note]
 */
export function graphDrawing(agents, layers, edges, note = {}) {
  const large = Boolean(note.actions);
  const size = large ? { ...NODE, gap: 168, row: 66, margin: 12 } : { ...SMALL_NODE, gap: 44, row: 42, margin: 8 };
  const { places, routes, rows } = arrange(layers, edges);
  const at = (/** @type {string} */ key) => {
    const place = /** @type {import("./layered.js").Place} */ (places.get(key));
    return {
      x: size.margin + place.column * (size.width + size.gap),
      y: size.margin + place.row * size.row + size.height / 2,
    };
  };
  const width = 2 * size.margin + layers.length * size.width + (layers.length - 1) * size.gap;
  const height = 2 * size.margin + (rows - 1) * size.row + size.height;
  const drawn = edges.filter((edge) => routes.has(edgeKey(...edge)));
  const lines = drawn.map((edge) => edgePath(edge, routes, at, size, agents, note));
  const gone = (note.removed ?? []).filter(
    ([speaker, hearer]) => places.has(agentKey(speaker)) && places.has(agentKey(hearer)),
  );
  const drawing = s(
    "svg",
    {
      class: `graph ${large ? "large" : "small"}`,
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": graphText(agents, layers, edges),
    },
    gone.map(([speaker, hearer]) => removedPath(at(agentKey(speaker)), at(agentKey(hearer)), size)),
    lines.map((line) => line.path),
    note.messages && labels(drawn, lines, note.messages, note.chosen ?? null),
    agents
      .filter((agent) => places.has(agentKey(agent.name)))
      .map((agent) => node(agent, at(agentKey(agent.name)), size, note)),
  );
  return property(drawing, "--natural", `${width}px`);
}

/** An edge of before that is no more. @param {{x: number, y: number}} from @param {{x: number, y: number}} to @param {any} size */
function removedPath(from, to, size) {
  return s("path", {
    class: "edge removed",
    d: `M ${from.x + size.width} ${from.y} L ${to.x} ${to.y}`,
    fill: "none",
    "stroke-dasharray": "3 4",
  });
}

/** @param {Edge} edge @param {Map<string, string[]>} routes @param {(key: string) => {x: number, y: number}} at @param {any} size @param {Agent[]} agents @param {GraphNote} note */
function edgePath(edge, routes, at, size, agents, note) {
  const stops = /** @type {string[]} */ (routes.get(edgeKey(...edge))).map(at);
  let d = `M ${stops[0].x + size.width} ${stops[0].y}`;
  for (const [place, stop] of stops.entries()) {
    if (place === 0) continue;
    const from = stops[place - 1].x + size.width;
    const middle = (from + stop.x) / 2;
    d += ` C ${middle} ${stops[place - 1].y} ${middle} ${stop.y} ${stop.x} ${stop.y}`;
    if (place < stops.length - 1) d += ` H ${stop.x + size.width}`;
  }
  const end = stops[stops.length - 1];
  const speaker = agents.find((agent) => agent.name === edge[0]);
  const state = note.added?.has(edgeKey(...edge)) ? " added" : "";
  const related = note.chosen && (edge[0] === note.chosen || edge[1] === note.chosen) ? " related" : "";
  const path = s(
    "g",
    { class: `edge${state}${related} ${speaker?.tint ?? ""}` },
    s("path", { d, fill: "none", class: "stroke" }),
    s("path", {
      d: `M ${end.x - 7} ${end.y - 4.5} L ${end.x} ${end.y} L ${end.x - 7} ${end.y + 4.5} Z`,
      class: "head",
    }),
  );
  const first = stops[1];
  return { path, from: { x: stops[0].x + size.width, y: stops[0].y }, to: { x: first.x, y: first.y } };
}

/** A message on every edge, put where it covers no other. @param {Edge[]} edges @param {{from: any, to: any}[]} lines @param {Record<string, string>} messages @param {string | null} chosen */
function labels(edges, lines, messages, chosen) {
  /** @type {{x: number, y: number}[]} */
  const taken = [];
  return edges.map(([speaker, hearer], place) => {
    const { from, to } = lines[place];
    const spot = freeSpot(from, to, taken);
    taken.push(spot);
    const text = clipped(messages[speaker] ?? "", 22);
    const width = Math.min(156, 12 + text.length * 6.6);
    return s(
      "g",
      { class: `message${chosen === hearer || chosen === speaker ? " related" : ""}` },
      s("title", null, `${speaker} to ${hearer}: ${clipped(messages[speaker] ?? "", 400)}`),
      s("rect", { x: spot.x - width / 2, y: spot.y - 9, width, height: 18, rx: 9 }),
      s("text", { x: spot.x, y: spot.y, dy: "0.35em", "text-anchor": "middle", "font-size": 11 }, text),
    );
  });
}

/** @param {any} from @param {any} to @param {{x: number, y: number}[]} taken */
function freeSpot(from, to, taken) {
  const spots = [0.5, 0.42, 0.58, 0.34, 0.66].map((share) => {
    const eased = share * share * (3 - 2 * share);
    return { x: (from.x + to.x) / 2, y: from.y + (to.y - from.y) * eased };
  });
  const free = (/** @type {any} */ spot) =>
    taken.every((other) => Math.abs(other.x - spot.x) > 120 || Math.abs(other.y - spot.y) > 19);
  return spots.find(free) ?? spots[0];
}

/** @param {Agent} agent @param {{x: number, y: number}} spot @param {any} size @param {GraphNote} note */
function node(agent, spot, size, note) {
  const { x, y } = spot;
  if (!note.actions)
    return s("g", { class: "node" }, s("title", null, agent.name), sign(agent, x + size.width / 2, y, 13));
  const picked = note.picked;
  const box = s(
    "g",
    { class: `node card${note.chosen === agent.name ? " chosen" : ""}${picked ? " pressable" : ""}` },
    s("title", null, `${agent.name}: ${clipped(note.actions[agent.name] ?? "", 400)}`),
    s("rect", { x, y: y - size.height / 2, width: size.width, height: size.height, rx: 8 }),
    sign(agent, x + 18, y, 9),
    s("text", { x: x + 34, y: y - 7, dy: "0.3em", class: "name", "font-size": 13 }, clipped(agent.name, 13)),
    s(
      "text",
      { x: x + 34, y: y + 10, dy: "0.3em", class: "proposal", "font-size": 11 },
      clipped(note.actions[agent.name] ?? "", 17),
    ),
  );
  if (picked) box.addEventListener("click", () => picked(agent.name));
  return box;
}

/** A graph in words. @param {Agent[]} agents @param {string[][]} layers @param {Edge[]} edges */
export function graphText(agents, layers, edges) {
  const heard = (/** @type {string} */ agent) =>
    edges.filter(([, hearer]) => hearer === agent).map(([speaker]) => speaker);
  const told = layers.map((layer, place) => {
    const each = layer.map((agent) => (heard(agent).length ? `${agent} hears ${heard(agent).join(", ")}` : agent));
    return `layer ${place + 1}: ${each.join("; ")}`;
  });
  return `${plural(agents.length, "agent")}, ${plural(edges.length, "edge")}. ${told.join(". ")}`;
}

/** What changed from one graph to the next. @param {Edge[]} before @param {Edge[]} after */
export function edgeChanges(before, after) {
  const [old, now] = [new Set(before.map((edge) => edgeKey(...edge))), new Set(after.map((edge) => edgeKey(...edge)))];
  return {
    added: new Set(after.map((edge) => edgeKey(...edge)).filter((key) => !old.has(key))),
    removed: before.filter((edge) => !now.has(edgeKey(...edge))),
  };
}

/** The changes in words. @param {Edge[]} before @param {Edge[]} after */
export function changesText(before, after) {
  const { removed, added } = edgeChanges(before, after);
  const fresh = after.filter((edge) => added.has(edgeKey(...edge)));
  const told = (/** @type {Edge[]} */ edges, /** @type {string} */ mark) =>
    edges.map(([speaker, hearer]) => h("li", null, `${mark} ${speaker} → ${hearer}`));
  if (!fresh.length && !removed.length) return h("p", { class: "muted" }, "as before");
  return h("ul", { class: "edge-changes" }, told(fresh, "+"), told(removed, "−"));
}
