/** The vote: every distinct action with who proposed it, how many votes it got and what the critic gave it. */

import { badge } from "./agents.js";
import { shareBar } from "./bars.js";
import { h } from "./dom.js";
import { decimal, percent } from "./figures.js";
import { plural, said } from "./words.js";

/** @typedef {import("./agents.js").Agent} Agent */

/**
 * @param {any} step a `StepView`
 * @param {Agent[]} agents
 * @param {(agent: string, round: number) => void} picked
 */
export function votesPanel(step, agents, picked) {
  const { vote } = step;
  const votes = vote.ballots.reduce(
    (/** @type {number} */ sum, /** @type {any} */ ballot) => sum + ballot.cells.length,
    0,
  );
  const scored = vote.ballots.some((/** @type {any} */ ballot) => ballot.score !== null);
  return h(
    "section",
    { class: "panel", "aria-labelledby": "votes-title" },
    h("h2", { id: "votes-title" }, "Vote"),
    h("p", { class: "muted" }, summary(vote, votes)),
    notes(step),
    h(
      "div",
      { class: "scroll", role: "region", tabindex: 0, "aria-label": "Votes" },
      h(
        "table",
        { class: "votes" },
        h("caption", { class: "unseen" }, "Distinct actions, most votes first"),
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["", "action", "votes", "by", scored && "critic"]
              .filter((name) => name !== false)
              .map((name) => h("th", { scope: "col" }, name || h("span", { class: "unseen" }, "number"))),
          ),
        ),
        h(
          "tbody",
          null,
          vote.ballots.map((/** @type {any} */ ballot, /** @type {number} */ place) =>
            ballotRow(ballot, place, { step, agents, votes, scored, picked }),
          ),
        ),
      ),
    ),
  );
}

/** @param {any} vote @param {number} votes */
function summary(vote, votes) {
  const told = [
    `${plural(votes, "vote")} for ${plural(vote.ballots.length, "action")}`,
    vote.agreement !== null && `agreement ${percent(vote.agreement)}`,
    `entropy ${decimal(vote.entropy)} nats`,
    vote.abstained.length > 0 && `${vote.abstained.length} without a vote`,
  ];
  return told.filter(Boolean).join(" · ");
}

/** What is special about it. @param {any} step */
function notes(step) {
  const { vote } = step;
  const told = [
    vote.tie && "A tie: another action had as many votes as the winner.",
    vote.overruled && [
      "The vote overruled the best proposal: ",
      h("bdi", null, vote.overruled.agent),
      `, round ${vote.overruled.round + 1}.`,
    ],
    step.copied && "Taken over from another episode, in whose state this one begins.",
    step.no_action && "No reply gave an action, so nothing was executed.",
  ].filter(Boolean);
  return told.map((one) => h("p", { class: "note" }, one));
}

/** @param {any} ballot @param {number} place @param {any} shared */
function ballotRow(ballot, place, { step, agents, votes, scored, picked }) {
  const executed = place === 0 && step.executed !== null;
  const voices = ballot.cells.map((/** @type {any} */ cell) => voice(cell, agents, picked));
  return h(
    "tr",
    { class: executed ? "winner" : null, "data-ballot": place },
    h("td", null, h("span", { class: `tag ballot${executed ? " winning" : ""}` }, `#${place + 1}`)),
    h(
      "th",
      { scope: "row" },
      said(ballot.action.words, 160),
      executed && h("small", { class: "done-word" }, " executed"),
    ),
    h("td", { class: "number" }, ballot.cells.length, shareBar(votes ? ballot.cells.length / votes : 0)),
    h("td", { class: "voices" }, voices),
    scored && h("td", { class: "number" }, decimal(ballot.score)),
  );
}

/** A cell that voted for it. @param {any} cell @param {Agent[]} agents @param {(agent: string, round: number) => void} picked */
function voice(cell, agents, picked) {
  const agent = agents.find((one) => one.name === cell.agent);
  return h(
    "button",
    {
      type: "button",
      class: "voice",
      "aria-label": `${cell.agent}, round ${cell.round + 1}`,
      title: `${cell.agent}, round ${cell.round + 1}`,
      events: { click: () => picked(cell.agent, cell.round) },
    },
    agent && badge(agent),
    h("small", null, cell.round + 1),
  );
}
