/** The screen of a step: before or after the action, with the proposals of all agents or of some. */

import { badge } from "./agents.js";
import { button, fill, h } from "./dom.js";
import { getFinal, getScreen, getStep, pictureSource } from "./data.js";
import { drawnScreen, marksOf } from "./proposals.js";
import { executedSign, stage } from "./stage.js";
import { passage, said } from "./words.js";

/** @typedef {import("./agents.js").Agent} Agent */

/** Agents whose proposals are not drawn, kept from step to step. @type {Set<string>} */
const hiddenAgents = new Set();

/**
 * @param {any} step a `StepView`
 * @param {any} episode an `EpisodeView`
 * @param {Agent[]} agents
 * @param {(agent: string, round: number) => void} picked
 * @param {{after: boolean}} side which screen is shown; outlives this panel
 */
export function screenPanel(step, episode, agents, picked, side) {
  const place = h("div", { class: "stage-place" });
  const pickBallot = (/** @type {number} */ ballot) => {
    const cells = step.vote.ballots[ballot]?.cells ?? [];
    const last = cells[cells.length - 1];
    if (last) picked(last.agent, last.round);
  };
  const before = () => {
    side.after = false;
    fill(
      place,
      stage(
        drawnScreen(step.screen, pictureSource(step.screen.picture)),
        marksOf(step, agents, hiddenAgents),
        pickBallot,
      ),
      screenNotes(step.screen),
    );
  };
  const after = async () => {
    side.after = true;
    const shown = await afterStage(step, episode);
    if (side.after) fill(place, shown);
  };
  if (side.after) after();
  else before();
  return h(
    "section",
    { class: "panel screen", "aria-labelledby": "screen-title" },
    h("div", { class: "panel-head" }, h("h2", { id: "screen-title" }, "Screen"), turn(before, after, side.after)),
    place,
    voicesShown(agents, before),
    readText(step),
  );
}

/** The screen that the action led to. @param {any} step @param {any} episode */
async function afterStage(step, episode) {
  try {
    const { run, next } = step;
    const screen =
      next === step.step + 1
        ? (await getStep(run, step.episode, next, step.labels)).screen
        : episode.final && step.step + 1 === step.steps
          ? await getFinal(run, step.episode)
          : null;
    if (screen === null) return h("p", { class: "muted" }, "The screen after this action is not recorded.");
    return [stage(drawnScreen(screen, pictureSource(screen.picture)), []), screenNotes(screen)];
  } catch (error) {
    return h("p", { class: "note" }, said(String(/** @type {Error} */ (error).message), 400));
  }
}

/** @param {() => void} before @param {() => void} after @param {boolean} isAfter what is shown at first */
function turn(before, after, isAfter) {
  const one = (/** @type {string} */ name, /** @type {() => void} */ show, /** @type {boolean} */ pressed) => {
    const control = h("button", { type: "button", "aria-pressed": String(pressed) }, name);
    control.addEventListener("click", () => {
      for (const other of control.parentElement.children) other.setAttribute("aria-pressed", String(other === control));
      show();
    });
    return control;
  };
  return h(
    "div",
    { class: "segments", role: "group", "aria-label": "Which screen" },
    one("Before", before, !isAfter),
    one("After", after, isAfter),
  );
}

/** Whose proposals are drawn. @param {Agent[]} agents @param {() => void} redrawn */
function voicesShown(agents, redrawn) {
  const one = (/** @type {Agent} */ agent) => {
    const changed = (/** @type {Event} */ event) => {
      if (/** @type {HTMLInputElement} */ (event.target).checked) hiddenAgents.delete(agent.name);
      else hiddenAgents.add(agent.name);
      redrawn();
    };
    return h(
      "label",
      { class: "voice-shown" },
      h("input", { type: "checkbox", checked: !hiddenAgents.has(agent.name), events: { change: changed } }),
      badge(agent),
      said(agent.name, 24),
    );
  };
  return h(
    "fieldset",
    { class: "voices-shown" },
    h("legend", { class: "unseen" }, "Whose proposals are drawn"),
    agents.map(one),
    executedSign(),
  );
}

/** @param {any} screen a `Screen` */
function screenNotes(screen) {
  return [
    screen.url && h("p", { class: "muted url" }, said(screen.url, 160)),
    screen.notice && h("p", { class: "note" }, "The screen said: ", said(screen.notice, 300)),
    screen.unpictured && h("p", { class: "note" }, said(screen.unpictured, 300)),
    screen.tabs.length > 1 &&
      h(
        "ul",
        { class: "chips", "aria-label": "Tabs" },
        screen.tabs.map((/** @type {any} */ tab) =>
          h("li", { "aria-current": tab.active ? "true" : null }, said(tab.title || tab.url, 60)),
        ),
      ),
  ];
}

/** The screen as the agents read it. @param {any} step */
function readText(step) {
  const { text } = step.screen;
  const label = "The screen as the agents read it";
  const body = h("div", null, passage(text.text, { label }));
  const whole = async () => {
    element.dataset.whole = "";
    try {
      fill(body, passage((await getScreen(step.run, step.episode, step.step)).text, { limit: Infinity, label }));
      more.remove();
    } catch (error) {
      fill(body, h("p", { class: "note" }, said(String(/** @type {Error} */ (error).message), 400)));
    }
  };
  const more = button(`Show ${text.cut.toLocaleString("en")} more characters`, whole, { class: "quiet whole" });
  const element = h("details", null, h("summary", null, "As the agents read it"), body, text.cut > 0 && more);
  return element;
}
