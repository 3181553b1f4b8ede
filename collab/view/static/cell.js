/** One cell: what the agent proposed and why, what the critic said, and on demand the exact prompt and raw reply. */

import { nameplate } from "./agents.js";
import { fill, h } from "./dom.js";
import { getCell } from "./data.js";
import { amount, decimal, duration, isKnown, money, precise } from "./figures.js";
import { scoreTag } from "./matrix.js";
import { cutPassage, passage, plural, said } from "./words.js";

/**
 * @param {any} step a `StepView`
 * @param {any} cell a `CellView`; null when none is chosen
 * @param {import("./agents.js").Agent[]} agents
 */
export function cellPanel(step, cell, agents) {
  const heading = h("h2", { id: "cell-title" }, "One cell");
  if (!cell)
    return h(
      "section",
      { class: "panel", "aria-labelledby": "cell-title" },
      heading,
      h("p", { class: "muted" }, "Choose a cell of the matrix."),
    );
  const agent = agents.find((one) => one.name === cell.agent);
  return h(
    "section",
    { class: `panel one-cell ${agent?.tint ?? ""}`, "aria-labelledby": "cell-title" },
    h("h2", { id: "cell-title" }, agent && nameplate(agent), ` in round ${cell.round + 1}`),
    h(
      "p",
      { class: "lead" },
      cell.action
        ? said(cell.action.words, 300)
        : ["No action: ", said(cell.failure?.detail ?? cell.failure?.kind, 500)],
    ),
    flags(cell),
    cell.remarks.length > 0 && h("p", { class: "note" }, said(cell.remarks.join("; "), 500)),
    long("Reason", cell.reason),
    criticWords(step, cell),
    facts(cell),
    onDemand("Raw reply", step, cell, (whole) => passage(whole.reply, { label: "Raw reply" })),
    onDemand("Exact prompt", step, cell, prompt),
  );
}

/** @param {any} cell */
function flags(cell) {
  const told = [
    cell.representative && "its reason entered the history",
    cell.ballot === 0 && "voted for what was executed",
    cell.ballot === null && "abstained",
    cell.privileged && "knew the solution: not a language model's word",
    cell.trimmed.length > 0 && ["its prompt was shortened: ", said(cell.trimmed.join(", "))],
  ].filter(Boolean);
  const joined = told.map((one, place) => [place > 0 && " · ", one]);
  return told.length ? h("p", { class: "muted" }, joined) : null;
}

/** @param {string} name @param {{text: string, cut: number}} text */
function long(name, text) {
  if (!text.text) return null;
  return h("div", { class: "field" }, h("h3", null, name), cutPassage(text, { label: name }));
}

/** @param {any} step @param {any} cell */
function criticWords(step, cell) {
  const words = cell.missing ?? step.unjudged;
  if (!isKnown(cell.score) && !cell.because.text && !words) return null;
  return h(
    "div",
    { class: "field" },
    h("h3", null, "Critic ", step.critic && h("span", { class: "muted" }, said(step.critic))),
    h("p", null, scoreTag(cell), " ", !isKnown(cell.score) && words && h("span", { class: "muted" }, said(words, 300))),
    isKnown(cell.original) &&
      h("p", { class: "muted" }, `flipped on purpose: the critic itself gave ${decimal(cell.original)}`),
    cell.because.text && cutPassage(cell.because, { label: "The critic's reason" }),
    cell.because.cut > 0 && onDemand("All that the critic said", step, cell, (whole) => passage(whole.because)),
  );
}

/** Numbers of the call; what is not told is left out. @param {any} cell */
function facts(cell) {
  const { policy } = cell;
  const told = [
    [
      "log-probability",
      isKnown(cell.logprob) &&
        `${precise(cell.logprob)} nats${isKnown(cell.end_logprob) ? `, its end ${precise(cell.end_logprob)}` : ""}`,
    ],
    [
      "reply",
      isKnown(cell.completion_tokens) &&
        `${plural(cell.completion_tokens, "token")}${cell.finish === "length" ? ", cut by max_tokens" : ""}`,
    ],
    [
      "prompt",
      isKnown(cell.prompt_tokens) &&
        `${amount(cell.prompt_tokens)} tokens${isKnown(cell.computed_tokens) ? `, ${amount(cell.computed_tokens)} computed` : ""}`,
    ],
    ["answered in", `${duration(cell.latency_s)}${isKnown(cell.queue_s) ? `, ${duration(cell.queue_s)} in line` : ""}`],
    ["cost", isKnown(cell.cost_usd) && money(cell.cost_usd)],
    ["sampling", `temperature ${cell.temperature}, top-p ${cell.top_p}`],
    [
      "policy",
      said(`${policy.base}${policy.adapter ? ` with ${policy.adapter}` : ""}, version ${policy.version}`, 120),
    ],
    ["seed", String(cell.seed)],
  ].filter(([, value]) => value);
  return h(
    "dl",
    { class: "facts" },
    told.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

/** Long parts come only when they are asked for. @param {string} name @param {any} step @param {any} cell @param {(whole: any) => any} shown */
function onDemand(name, step, cell, shown) {
  const body = h("div", { "aria-live": "polite" });
  const opened = async (/** @type {Event} */ event) => {
    if (!(/** @type {HTMLDetailsElement} */ (event.target).open) || body.hasChildNodes()) return;
    fill(body, h("p", { class: "muted" }, "…"));
    try {
      fill(body, shown(await getCell(step.run, step.episode, step.step, cell.agent, cell.round, step.labels)));
    } catch (error) {
      fill(body, h("p", { class: "note" }, said(String(/** @type {Error} */ (error).message), 400)));
    }
  };
  return h("details", { events: { toggle: opened } }, h("summary", null, name), body);
}

/** @param {any} whole a `CellWhole` */
function prompt(whole) {
  const part = (/** @type {string} */ name, /** @type {string | null} */ text) =>
    text !== null && [h("h4", null, name), passage(text, { label: name })];
  return [
    whole.unread && h("p", { class: "note" }, said(whole.unread, 400)),
    part("System", whole.system),
    part("Task, history and screen", whole.shared),
    part("What it heard, and its turn", whole.suffix),
    h("p", { class: "muted" }, "SHA-256 ", h("code", null, whole.prompt)),
    whole.call && criticCall(whole.call),
  ];
}

/** @param {any} call a `CallView` */
function criticCall(call) {
  const shown = Object.entries(call.shown)
    .map(([agent, name]) => `${agent} as ${name}`)
    .join(", ");
  return [
    h("h4", null, "What the critic replied"),
    h("p", { class: "muted" }, said(call.model), shown && [" read ", said(shown)]),
    passage(call.reply, { label: "The critic's reply" }),
  ];
}
