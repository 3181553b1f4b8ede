/** The step view: the screen with every proposal on it, the matrix beside it, the talk, the vote, what came of it. */

import { team } from "./agents.js";
import { cellPanel } from "./cell.js";
import { changesPanel } from "./changes.js";
import { crumbs } from "./crumbs.js";
import { getEpisode, getStep, isReport } from "./data.js";
import { fill, h, link } from "./dom.js";
import { duration } from "./figures.js";
import { judgesPanel } from "./judges.js";
import { cellId, matrixTable } from "./matrix.js";
import { outcomeBadge } from "./outcome.js";
import { episodePlace, episodesPlace, overviewPlace, readPlace, stepPlace } from "./place.js";
import { pairsPanel } from "./pairs.js";
import { cellKey, cellsOf } from "./proposals.js";
import { stepRail } from "./rail.js";
import { screenPanel } from "./screen_panel.js";
import { talkPanel } from "./talk.js";
import { votesPanel } from "./votes.js";
import { cutPassage, said } from "./words.js";

/** @typedef {{agent: string, round: number}} Chosen */

/** @param {import("./place.js").Place} place */
export async function stepPage(place) {
  const [run, id, number, agent, round] = place.parts;
  const labels = place.query.get("labels");
  const episode = await getEpisode(run, id, labels);
  const first = episode.steps[0]?.step;
  const wanted = number === undefined ? first : Number(number);
  if (wanted === undefined) return emptyPage(episode);
  const step = await getStep(run, id, wanted, labels);
  const agents = team(step.agents);
  const start =
    agent !== undefined && cellsOf(step).has(cellKey(agent, Number(round) - 1))
      ? { agent, round: Number(round) - 1 }
      : null;
  const view = lowerView(step, agents, start, labels);
  warm(step, labels);
  const rail = h("div", null, stepRail(episode, step.step, labels));
  const element = h(
    "div",
    { class: "step-page" },
    head(step, episode, labels),
    rail,
    h("div", { class: "step-grid" }, screenPanel(step, episode, agents, view.pick), view.element),
  );
  return {
    element,
    title: `Step ${step.step} of ${id}`,
    runs: [run],
    keys: keysOf(step, episode, agents, view, labels),
    refresh: async () => fill(rail, stepRail(await getEpisode(run, id, labels), step.step, labels)),
  };
}

/** Ask for the next step before anybody does. @param {any} step @param {string | null} labels */
function warm(step, labels) {
  if (step.next !== null) getStep(step.run, step.episode, step.next, labels).catch(() => undefined);
}

/** @param {any} episode an `EpisodeView` without a step that can be read */
function emptyPage(episode) {
  const element = h(
    "div",
    null,
    h("h1", null, said(episode.row.id)),
    h("div", null, cutPassage(episode.goal)),
    h("p", { class: "note" }, "No step of this episode can be read yet."),
  );
  return { element, title: episode.row.id, runs: [episode.row.run], keys: {} };
}

/** @param {any} step @param {any} episode @param {string | null} labels */
function head(step, episode, labels) {
  const { row } = episode;
  return h(
    "header",
    { class: "step-head" },
    crumbs([
      ["Runs", "#/"],
      [step.run, overviewPlace(step.run)],
      ["Episodes", episodesPlace(step.run)],
    ]),
    h(
      "div",
      { class: "title-line" },
      h("h1", null, said(row.id, 80), h("span", { class: "muted" }, ` step ${step.step}`)),
      outcomeBadge(row),
      neighbours(episode, step, labels),
    ),
    h("div", { class: "goal" }, cutPassage(episode.goal, { limit: 400, label: "Goal" })),
    h(
      "p",
      { class: "muted" },
      `seed ${row.seed} · thought for ${duration(step.deliberation_s)}, acted for ${duration(step.environment_s)}`,
      row.reason && [" · ", said(row.reason)],
      row.error && [" · ", said(`${row.error}: ${row.error_message ?? ""}`, 400)],
    ),
    step.summary.text &&
      h("details", null, h("summary", null, "Summary of earlier steps in the prompts"), cutPassage(step.summary)),
  );
}

/** Links to the step before and after. @param {any} episode @param {any} step @param {string | null} labels */
function neighbours(episode, step, labels) {
  const to = (/** @type {number | null} */ number, /** @type {string} */ name, /** @type {string} */ sign) =>
    number === null
      ? h("span", { class: "step-link off", "aria-hidden": "true" }, sign)
      : link(stepPlace(step.run, episode.row.id, number, { labels }), { class: "step-link", "aria-label": name }, sign);
  return h(
    "nav",
    { class: "neighbours", "aria-label": "Neighbouring steps" },
    to(step.previous, "Step before", "←"),
    to(step.next, "Next step", "→"),
  );
}

/**
 * All that depends on the chosen cell and round; where the address names none, it is the one whose reason was kept.
 * @param {any} step @param {import("./agents.js").Agent[]} agents @param {Chosen | null} start @param {string | null} labels
 */
function lowerView(step, agents, start, labels) {
  const cells = cellsOf(step);
  const [talk, one, pairs] = [h("div"), h("div"), h("div")];
  let named = start !== null;
  let chosen = start ?? step.vote.representative;
  let round = chosen?.round ?? step.rounds - 1;
  const draw = () => {
    fill(talk, talkPanel(step, agents, round, chosen?.agent ?? null, pick, turn));
    fill(one, cellPanel(step, chosen && cells.get(cellKey(chosen.agent, chosen.round)), agents));
    fill(pairs, pairsPanel(step, agents, chosen));
    press(element, chosen);
  };
  const pick = (/** @type {string | null} */ agent, /** @type {number} */ next) => {
    chosen = agent !== null && cells.has(cellKey(agent, next)) ? { agent, round: next } : null;
    named = chosen !== null;
    round = chosen?.round ?? round;
    nameCell(step, chosen, labels);
    draw();
  };
  const turn = (/** @type {number} */ next) => {
    round = next;
    draw();
    document.getElementById(`round-${next}`)?.focus();
  };
  const element = h(
    "div",
    { class: "step-side" },
    h(
      "section",
      { class: "panel", "aria-labelledby": "matrix-title" },
      h("div", { class: "panel-head" }, h("h2", { id: "matrix-title" }, "Agents × rounds"), critic(step)),
      matrixTable(step, agents, pick),
    ),
    h(
      "div",
      { class: "two" },
      h("div", null, one, changesPanel(step)),
      h("div", null, votesPanel(step, agents, pick), pairs),
    ),
    talk,
    step.labellings.length > 1 && judgesPanel(step, agents),
  );
  draw();
  return { element, pick, chosen: () => chosen, named: () => (named ? chosen : null) };
}

/**
 * Put the chosen cell into the address, unless that leads elsewhere already and the next page is on its way.
 * @param {any} step @param {Chosen | null} chosen @param {string | null} labels
 */
function nameCell(step, chosen, labels) {
  const { page, parts } = readPlace(location.hash);
  const here = page === "step" && parts[0] === step.run && parts[1] === step.episode;
  if (!here || (parts[2] ?? String(step.step)) !== String(step.step)) return;
  const cell = { agent: chosen?.agent, round: chosen?.round, labels };
  history.replaceState(null, "", stepPlace(step.run, step.episode, step.step, cell));
}

/** Mark the chosen cell in the matrix. @param {Element} element @param {Chosen | null} chosen */
function press(element, chosen) {
  const id = chosen && cellId(chosen.agent, chosen.round);
  for (const cell of element.querySelectorAll("button.cell")) cell.setAttribute("aria-pressed", String(cell.id === id));
}

/** Whose scores are shown, and the way to another labelling. @param {any} step */
function critic(step) {
  if (!step.labellings.length) return h("span", { class: "muted" }, "no critic has judged this run");
  if (isReport() || step.labellings.length === 1)
    return h(
      "span",
      { class: "muted" },
      step.critic ? ["critic ", said(step.critic)] : said(step.unjudged ?? "not judged", 200),
    );
  const changed = (/** @type {Event} */ event) => {
    location.hash = stepPlace(step.run, step.episode, step.step, {
      labels: /** @type {HTMLSelectElement} */ (event.target).value,
    });
  };
  return h(
    "label",
    { class: "muted" },
    "critic ",
    h(
      "select",
      { events: { change: changed } },
      step.labellings.map((/** @type {string} */ name) =>
        h("option", { value: name, selected: name === step.labels }, name),
      ),
    ),
  );
}

/** @param {any} step @param {any} episode @param {import("./agents.js").Agent[]} agents @param {any} view @param {string | null} labels */
function keysOf(step, episode, agents, view, labels) {
  const go = (/** @type {string | null} */ hash) => () => {
    if (hash !== null) location.hash = hash;
  };
  const toStep = (/** @type {number | null} */ number) =>
    number === null ? null : stepPlace(step.run, step.episode, number, { ...view.named(), labels });
  const toEpisode = (/** @type {any} */ other) => (other ? episodePlace(other.run, other.episode) : null);
  /** @type {import("./keys.js").Keys} */
  const keys = {
    ArrowLeft: () => go(toStep(step.previous))(),
    ArrowRight: () => go(toStep(step.next))(),
    ArrowUp: go(toEpisode(episode.previous)),
    ArrowDown: go(toEpisode(episode.next)),
    0: () => view.pick(null, 0),
  };
  for (const agent of agents.slice(0, 9)) keys[String(agent.place + 1)] = () => lookAt(agent.name, step, view);
  return keys;
}

/** An agent's last round first; then the others, round by round. @param {string} name @param {any} step @param {any} view */
function lookAt(name, step, view) {
  const now = view.chosen();
  const round = now?.agent === name ? (now.round + 1) % step.rounds : (now?.round ?? step.rounds - 1);
  view.pick(name, round);
  document.getElementById(cellId(name, round))?.focus({ preventScroll: true });
}
