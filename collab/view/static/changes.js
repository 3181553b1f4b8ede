/** What an action changed on the screen, as lines: what came, what went, what is other than before. */

import { h } from "./dom.js";
import { cutPassage, plural, said } from "./words.js";

const MOST_LINES = 16;

/** @param {any} step a `StepView` */
export function changesPanel(step) {
  return h(
    "section",
    { class: "panel", "aria-labelledby": "changes-title" },
    h("h2", { id: "changes-title" }, "What changed"),
    step.effect.text && h("div", { class: "effect" }, cutPassage(step.effect, { limit: 400, label: "Effect" })),
    body(step.changes),
  );
}

/** @param {any} changes a `Changes`, or null */
function body(changes) {
  if (!changes) return h("p", { class: "muted" }, "The next screen is not recorded.");
  if (changes.same) return h("p", { class: "muted" }, "Nothing that an agent can see.");
  const lines = [
    changes.title !== null && line("now", "~", ["the screen is ", said(changes.title)]),
    changes.url !== null && line("now", "~", ["the address is ", said(changes.url)]),
    changes.notice !== null && line("now", "!", ["the screen says ", said(changes.notice)]),
    ...changes.changed.map((/** @type {any} */ one) => line("changed", "~", changedWords(one))),
    ...changes.appeared.map((/** @type {any} */ one) => line("new", "+", elementWords(one))),
    ...changes.gone.map((/** @type {any} */ one) => line("gone", "−", elementWords(one))),
  ].filter(Boolean);
  return [
    h("ul", { class: "changes" }, lines.slice(0, MOST_LINES)),
    lines.length > MOST_LINES && rest(lines.slice(MOST_LINES)),
    changes.more > 0 && h("p", { class: "muted" }, `and ${plural(changes.more, "more change")}, left out here`),
    changes.moved > 0 && h("p", { class: "muted" }, `${plural(changes.moved, "element")} only moved.`),
  ];
}

/** @param {any[]} lines */
function rest(lines) {
  return h(
    "details",
    null,
    h("summary", null, `${plural(lines.length, "more change")}`),
    h("ul", { class: "changes" }, lines),
  );
}

/** @param {string} word for screen readers @param {string} sign @param {any} content */
function line(word, sign, content) {
  return h(
    "li",
    null,
    h("span", { class: "sign-column", "aria-hidden": "true" }, sign),
    h("span", { class: "unseen" }, `${word}: `),
    h("span", null, content),
  );
}

/** @param {any} element an `ElementView` */
function elementWords(element) {
  return [
    h("span", { class: "muted" }, said(element.role, 40), " "),
    said(element.label || "without a name"),
    element.value ? [" = ", said(element.value)] : null,
    element.flags.length > 0 && [" (", said(element.flags.join(", ")), ")"],
  ];
}

/** @param {any} change a `Changed` */
function changedWords({ before, after }) {
  const parts = [];
  if (before.label !== after.label) parts.push([said(before.label), " → ", said(after.label)]);
  if (before.value !== after.value)
    parts.push([said(before.value ?? "nothing"), " → ", said(after.value ?? "nothing")]);
  const fresh = after.flags
    .filter((/** @type {string} */ flag) => !before.flags.includes(flag))
    .map((/** @type {string} */ flag) => [" now ", said(flag, 40)]);
  const lost = before.flags
    .filter((/** @type {string} */ flag) => !after.flags.includes(flag))
    .map((/** @type {string} */ flag) => [" no longer ", said(flag, 40)]);
  return [
    h("span", { class: "muted" }, said(after.role, 40), " "),
    before.label === after.label && [said(after.label || "without a name"), " "],
    parts,
    fresh,
    lost,
  ];
}
