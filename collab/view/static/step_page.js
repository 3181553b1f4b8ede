/** The step view: the screen with every proposal on it, the matrix beside it, the talk, the vote, what came of it. */

import { team } from "./agents.js";
import { cellPanel } from "./cell.js";
import { changesPanel } from "./changes.js";
import { crumbs } from "./crumbs.js";
import { getEpisode, getStep, isReport } from "./data.js";
import { fill, h, link } from "./dom.js";
import { duration } from "./figures.js";
import { judgesPanel } from "./judges.js";
import { drawWhenFree, keeping } from "./keep.js";
import { labelsChoice } from "./labels.js";
import { cellId, matrixTable } from "./matrix.js";
import { outcomeBadge, rehearsalMark } from "./outcome.js";
import { episodesPlace, readPlace, stepPlace } from "./place.js";
import { pairsPanel } from "./pairs.js";
import { cellKey, cellsOf } from "./proposals.js";
import { scrollToCurrent, stepRail } from "./rail.js";
import { screenPanel } from "./screen_panel.js";
import { stepKeys } from "./step_keys.js";
import { talkPanel } from "./talk.js";
import { trailTo } from "./trail.js";
import { votesPanel } from "./votes.js";
import { listName } from "./walk.js";
import { cutPassage, said } from "./words.js";

/** @typedef {{agent: string, round: number}} Chosen */
/** @typedef {{chosen: Chosen | null, named: boolean, round: number, absent: Chosen | null}} Start absent: a cell that was asked for */
/** @typedef {import("./place.js").Along} Along */

/**
 * @typedef {object} Shown
 * @property {any} step
 * @property {any} episode
 * @property {any} view
 * @property {{after: boolean}} side
 * @property {Element} way to this page, named as soon as that is known
 */

/** @param {import("./place.js").Place} place */
export async function stepPage(place) {
  const [run, id, number] = place.parts;
  const labels = place.query.get("labels");
  const along = { labels, from: place.query.get("from"), estimates: place.query.get("estimates") };
  const way = wayTo(run, along);
  const episode = await getEpisode(run, id, labels);
  const first = episode.steps[0]?.step;
  const wanted = number === undefined ? first : Number(number);
  if (wanted === undefined) return emptyPage(episode, way, labels);
  const step = await getStep(run, id, wanted, labels);
  const side = { after: false };
  const view = lowerView(step, team(step.agents), startAt(place, step), along);
  const shown = { step, episode, side, way, view };
  warm(step, labels);
  const [top, grid] = [h("div"), h("div", { class: "step-grid" })];
  drawTop(top, shown, along);
  drawGrid(grid, shown);
  return {
    element: h("div", { class: "step-page" }, top, grid),
    title: `Step ${step.step} of ${id}`,
    runs: [run],
    keys: stepKeys(shown, along),
    refresh: () => refreshed(shown, top, grid, along),
    placed: () => scrollToCurrent(top),
  };
}

/** The cell that the address names, or that it is not there; null where it names none. @param {import("./place.js").Place} place @param {any} step @returns {Start | null} */
function startAt(place, step) {
  const [agent, round] = [place.parts[3], Number(place.parts[4]) - 1];
  if (agent === undefined) return null;
  if (cellsOf(step).has(cellKey(agent, round))) return { chosen: { agent, round }, named: true, round, absent: null };
  return { ...startOf(step), absent: { agent, round } };
}

/** Where no cell is named, the one whose reason was kept is shown. @param {any} step @returns {Start} */
function startOf(step) {
  const chosen = step.vote.representative;
  return { chosen, named: false, round: chosen?.round ?? step.rounds - 1, absent: null };
}

/** The way to this page; a step does not wait for the names on it. @param {string} run @param {Along} along */
function wayTo(run, { labels, from }) {
  const way = h("div", null, crumbs([]));
  const list = /** @type {[string, string]} */ (
    from ? [listName(from), from] : ["Episodes", episodesPlace(run, { labels })]
  );
  trailTo(run, labels).then(
    ({ trail }) => fill(way, crumbs([...trail, list])),
    () => fill(way, crumbs([list])),
  );
  return way;
}

/** @param {Element} top @param {Shown} shown @param {Along} along */
function drawTop(top, { step, episode, way }, along) {
  fill(top, head(step, episode, way, along), stepRail(episode, step.step, along));
}

/** @param {Element} grid @param {Shown} shown */
function drawGrid(grid, { step, episode, view, side }) {
  fill(grid, screenPanel(step, episode, team(step.agents), view.pick, side), view.element);
}

/**
 * What a growing run added: steps of the episode, and to this one the next screen, its effect, scores, pairs.
 * @param {Shown} shown is brought up to date @param {Element} top @param {Element} grid @param {Along} along
 */
async function refreshed(shown, top, grid, along) {
  const { run, episode: id, step: number } = shown.step;
  const labels = along.labels ?? null;
  const [episode, step] = await Promise.all([getEpisode(run, id, labels), getStep(run, id, number, labels)]);
  const isNew = toldBy(step) !== toldBy(shown.step) || episode.final !== shown.episode.final;
  Object.assign(shown, { episode, step });
  warm(step, labels);
  keeping(top, () => drawTop(top, shown, along));
  if (!isNew) return;
  await drawWhenFree(grid, () => {
    shown.view = lowerView(shown.step, team(shown.step.agents), shown.view.now(), along);
    keeping(grid, () => drawGrid(grid, shown));
  });
}

/** All that is shown of a step; how long its episode is stands above. @param {any} step */
function toldBy(step) {
  return JSON.stringify({ ...step, steps: null });
}

/** Load the next step ahead of its request. @param {any} step @param {string | null} labels */
function warm(step, labels) {
  if (step.next !== null) getStep(step.run, step.episode, step.next, labels).catch(() => undefined);
}

/** @param {any} episode an `EpisodeView` without a step that can be read @param {Element} way @param {string | null} labels */
function emptyPage(episode, way, labels) {
  const element = h(
    "div",
    null,
    way,
    h("h1", null, said(episode.row.id)),
    h("div", null, cutPassage(episode.goal)),
    h("p", { class: "note" }, "No step of this episode can be read yet."),
  );
  const { run, id } = episode.row;
  const refresh = async () => {
    const { steps } = await getEpisode(run, id, labels);
    if (steps.length && element.isConnected) dispatchEvent(new Event("hashchange"));
  };
  return { element, title: id, runs: [run], keys: {}, refresh };
}

/** @param {any} step @param {any} episode @param {Element} way @param {Along} along */
function head(step, episode, way, along) {
  const { row } = episode;
  return h(
    "header",
    { class: "step-head" },
    way,
    h(
      "div",
      { class: "title-line" },
      h("h1", null, said(row.id, 80), h("span", { class: "muted" }, ` step ${step.step}`)),
      outcomeBadge(row),
      rehearsalMark(row),
      neighbours(episode, step, along),
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

/** Links to the step before and after. @param {any} episode @param {any} step @param {Along} along */
function neighbours(episode, step, along) {
  const to = (/** @type {number | null} */ number, /** @type {string} */ name, /** @type {string} */ sign) =>
    number === null
      ? h("span", { class: "step-link off", "aria-hidden": "true" }, sign)
      : link(stepPlace(step.run, episode.row.id, number, along), { class: "step-link", "aria-label": name }, sign);
  return h(
    "nav",
    { class: "neighbours", "aria-label": "Neighbouring steps" },
    to(step.previous, "Step before", "←"),
    to(step.next, "Next step", "→"),
  );
}

/**
 * All that depends on the chosen cell and round; where the address names none, it is the one whose reason was kept.
 * @param {any} step @param {import("./agents.js").Agent[]} agents @param {Start | null} start @param {Along} along
 */
function lowerView(step, agents, start, along) {
  const cells = cellsOf(step);
  const [talk, one, pairs] = [h("div"), h("div"), h("div")];
  let { chosen, named, round, absent } = start ?? startOf(step);
  const draw = () => {
    fill(talk, talkPanel(step, agents, { round, chosen: chosen?.agent ?? null, along }, pick, turn));
    fill(one, absentNote(absent), cellPanel(step, chosen && cells.get(cellKey(chosen.agent, chosen.round)), agents));
    fill(pairs, pairsPanel(step, agents, chosen, along));
    press(element, chosen);
  };
  const pick = (/** @type {string | null} */ agent, /** @type {number} */ next) => {
    chosen = agent !== null && cells.has(cellKey(agent, next)) ? { agent, round: next } : null;
    named = chosen !== null;
    absent = null;
    round = chosen?.round ?? round;
    nameCell(step, chosen, along);
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
      h("div", { class: "panel-head" }, h("h2", { id: "matrix-title" }, "Agents × rounds"), critic(step, along)),
      matrixTable(step, agents, pick),
    ),
    h(
      "div",
      { class: "two" },
      h("div", null, one, changesPanel(step)),
      h("div", null, votesPanel(step, agents, pick), pairs),
    ),
    talk,
    step.label_sets.length > 1 && judgesPanel(step, agents),
  );
  draw();
  return { element, pick, now: () => ({ chosen, named, round, absent }), named: () => (named ? chosen : null) };
}

/** @param {Chosen | null} absent */
function absentNote(absent) {
  if (absent === null) return null;
  const round = absent.round >= 0 ? `round ${absent.round + 1}` : "such a round";
  return h("p", { class: "note", role: "status" }, "There is no cell of ", said(absent.agent, 40), ` in ${round}.`);
}

/**
 * Put the chosen cell into the address, unless that leads elsewhere already and the next page is on its way.
 * @param {any} step @param {Chosen | null} chosen @param {Along} along
 */
function nameCell(step, chosen, along) {
  const { page, parts } = readPlace(location.hash);
  const here = page === "step" && parts[0] === step.run && parts[1] === step.episode;
  if (!here || (parts[2] ?? String(step.step)) !== String(step.step)) return;
  const cell = { agent: chosen?.agent, round: chosen?.round, ...along };
  history.replaceState(null, "", stepPlace(step.run, step.episode, step.step, cell));
}

/** Mark the chosen cell in the matrix. @param {Element} element @param {Chosen | null} chosen */
function press(element, chosen) {
  const id = chosen && cellId(chosen.agent, chosen.round);
  for (const cell of element.querySelectorAll("button.cell")) cell.setAttribute("aria-pressed", String(cell.id === id));
}

/** Whose scores are shown, and the way to another label set. @param {any} step @param {Along} along */
function critic(step, { from }) {
  if (!step.label_sets.length) return h("span", { class: "muted" }, "no critic has judged this run");
  if (isReport() || step.label_sets.length === 1)
    return h(
      "span",
      { class: "muted" },
      step.critic ? ["critic ", said(step.critic)] : said(step.unjudged ?? "not judged", 200),
    );
  const place = (/** @type {string} */ labels) => stepPlace(step.run, step.episode, step.step, { labels, from });
  return labelsChoice(step.label_sets, step.labels, place);
}
