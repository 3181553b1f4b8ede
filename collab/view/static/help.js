/** What the keys do, in a dialog. */

import { button, h } from "./dom.js";
import { KEY_NAMES } from "./keys.js";

/** The dialog; `showModal` opens it. @returns {HTMLDialogElement} */
export function helpDialog() {
  const dialog = h(
    "dialog",
    { class: "help", "aria-labelledby": "help-title" },
    h("h2", { id: "help-title" }, "Keys"),
    h(
      "dl",
      { class: "keys" },
      KEY_NAMES.map(([keys, meaning]) =>
        h(
          "div",
          null,
          h(
            "dt",
            null,
            keys.split(" ").map((key) => [h("kbd", null, key), " "]),
          ),
          h("dd", null, meaning),
        ),
      ),
    ),
    h(
      "p",
      { class: "muted" },
      "On the screen: a ring is a tap, two rings a long press or a double tap, an arrow the finger's way, a caret typing. A filled disc was executed. Rings are divided among those who propose the action.",
    ),
    button("Close", () => dialog.close(), { class: "action" }),
  );
  dialog.addEventListener("click", (/** @type {Event} */ event) => {
    if (event.target === dialog) dialog.close();
  });
  return dialog;
}
