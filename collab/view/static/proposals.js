/** From a step as it is answered to what is drawn on its screen: one mark per distinct action. */

/** @typedef {import("./agents.js").Agent} Agent */
/** @typedef {import("./marks.js").Mark} Mark */

/** @type {Record<string, Mark["kind"]>} */
const KINDS = {
  double_tap: "double",
  input_text: "type",
  long_press: "long",
  scroll: "swipe",
  scroll_page: "swipe",
  swipe: "swipe",
  type_string: "type",
};

/** @type {Record<string, "up" | "down" | "left" | "right">} */
const OPPOSITE = { up: "down", down: "up", left: "right", right: "left" };

/**
 * The distinct actions of a step, the winner first.
 * @param {any} step a `StepView`
 * @param {Agent[]} agents
 * @param {Set<string>} hidden agents that are left out
 * @returns {Mark[]}
 */
export function marksOf(step, agents, hidden) {
  const ballots = step.vote.ballots.map((/** @type {any} */ ballot, /** @type {number} */ place) => {
    const names = new Set(ballot.cells.map((/** @type {any} */ cell) => cell.agent));
    return {
      ...drawnAction(ballot.action),
      voices: agents.filter((agent) => names.has(agent.name) && !hidden.has(agent.name)),
      votes: ballot.cells.length,
      executed: place === 0 && step.executed !== null && !step.no_action,
      ballot: place,
    };
  });
  return ballots.filter((/** @type {Mark} */ mark) => mark.voices.length > 0 || mark.executed);
}

/** @param {any} action an `ActionView` */
function drawnAction(action) {
  return {
    kind: KINDS[action.type] ?? "point",
    spot: action.spot ? { x: action.spot[0], y: action.spot[1] } : null,
    box: action.box,
    way: fingerWay(action),
    words: action.words,
  };
}

/** A scroll names the way of the view, the finger goes the other; only fingers and pages move. @param {any} action */
function fingerWay(action) {
  const way = action.arguments.direction;
  if (KINDS[action.type] !== "swipe" || OPPOSITE[way] === undefined) return null;
  return action.type === "swipe" ? way : OPPOSITE[way];
}

/** The screen of a step, with the address of its picture. @param {any} screen a `Screen` @param {string | null} picture */
export function drawnScreen(screen, picture) {
  return {
    title: screen.title,
    width: screen.width,
    height: screen.height,
    picture,
    elements: screen.elements,
    more: screen.more,
    text: screen.text.text,
  };
}

/** Cells by agent and round. @param {any} step @returns {Map<string, any>} */
export function cellsOf(step) {
  return new Map(step.cells.map((/** @type {any} */ cell) => [cellKey(cell.agent, cell.round), cell]));
}

/** @param {string} agent @param {number} round */
export function cellKey(agent, round) {
  return JSON.stringify([agent, round]);
}
