/** The talk of one round: the graph with the message on each edge, and the same as a list of who read what. */

import { nameplate } from "./agents.js";
import { h, link } from "./dom.js";
import { graphDrawing } from "./graph.js";
import { cellKey, cellsOf } from "./proposals.js";
import { stepPlace } from "./place.js";
import { saveButtons } from "./save.js";
import { passage, said } from "./words.js";

/** @typedef {import("./agents.js").Agent} Agent */

/**
 * @param {any} step a `StepView`
 * @param {Agent[]} agents
 * @param {{round: number, chosen: string | null, along: import("./place.js").Along}} at round and agent that are looked at
 * @param {(agent: string, round: number) => void} picked
 * @param {(round: number) => void} turned to another round
 */
export function talkPanel(step, agents, { round, chosen, along }, picked, turned) {
  const cells = cellsOf(step);
  const words = Object.fromEntries(
    agents.map((agent) => [agent.name, cellWords(cells.get(cellKey(agent.name, round)))]),
  );
  const drawing = graphDrawing(agents, withoutGaps(step), step.edges, {
    actions: words,
    messages: words,
    chosen,
    picked: (agent) => picked(agent, round),
  });
  const name = `Graph with the messages of round ${round + 1}`;
  return h(
    "section",
    { class: "panel talk", "aria-labelledby": "talk-title" },
    h(
      "figure",
      null,
      h(
        "div",
        { class: "panel-head" },
        h("h2", { id: "talk-title" }, "Who heard whom"),
        saveButtons(name),
        rounds(step.rounds, round, turned),
      ),
      h("div", { class: "scroll drawing", role: "region", tabindex: 0, "aria-label": name }, drawing),
    ),
    h(
      "details",
      { class: "heard" },
      h("summary", null, `Messages read in round ${round + 1}`),
      heardList(step, cells, agents, { round, along }),
    ),
  );
}

/** Agents on a cycle are in no layer: they stand behind the others. @param {any} step @returns {string[][]} */
function withoutGaps(step) {
  const placed = new Set(step.layers.flat());
  const others = step.agents.filter((/** @type {string} */ agent) => !placed.has(agent));
  return others.length ? [...step.layers, others] : step.layers;
}

/** @param {any} cell a `CellView` */
function cellWords(cell) {
  if (!cell) return "not said";
  return cell.action ? cell.action.words : `no action: ${cell.failure?.kind.replaceAll("_", " ") ?? ""}`;
}

/** Which round is looked at. @param {number} count @param {number} chosen @param {(round: number) => void} turned */
function rounds(count, chosen, turned) {
  const one = (/** @type {number} */ round) =>
    h(
      "button",
      {
        type: "button",
        id: `round-${round}`,
        "aria-pressed": String(round === chosen),
        "aria-label": `Round ${round + 1}`,
        events: { click: () => turned(round) },
      },
      round + 1,
    );
  return h(
    "div",
    { class: "segments", role: "group", "aria-label": "Round" },
    h("span", { class: "muted" }, "round"),
    Array.from({ length: count }, (_, round) => one(round)),
  );
}

/** @param {any} step @param {Map<string, any>} cells @param {Agent[]} agents @param {{round: number, along: import("./place.js").Along}} at */
function heardList(step, cells, agents, { round, along }) {
  const readers = agents.map((agent) => ({
    agent,
    messages: step.messages.filter((/** @type {any} */ one) => one.round === round && one.hearer === agent.name),
  }));
  return h(
    "dl",
    { class: "messages" },
    readers.map(({ agent, messages }) =>
      h(
        "div",
        null,
        h("dt", null, nameplate(agent), " read"),
        messages.length === 0
          ? h("dd", { class: "muted" }, "nothing")
          : messages.map((/** @type {any} */ one) => heardEntry(one, step, cells, along)),
      ),
    ),
  );
}

/** @param {any} message @param {any} step @param {Map<string, any>} cells @param {import("./place.js").Along} along */
function heardEntry(message, step, cells, along) {
  const cell = cells.get(cellKey(message.speaker, message.said));
  const own = message.speaker === message.hearer;
  const place = stepPlace(step.run, step.episode, step.step, {
    agent: message.speaker,
    round: message.said,
    ...along,
  });
  return h(
    "dd",
    null,
    link(place, null, own ? "its own words" : h("bdi", null, message.speaker), ` of round ${message.said + 1}`),
    cell ? passage(cell.text.text, { limit: 600, label: `What ${message.speaker} said` }) : said("not recorded"),
  );
}
