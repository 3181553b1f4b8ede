/** Light or dark: as the system says until a person says otherwise. */

import { button } from "./dom.js";

const THEME_KEY = "collab-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

/** Take up what was chosen before. */
export function restoreTheme() {
  const chosen = stored();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}

/** The button that changes it; it says what the system's choice, or a person's, leaves to be chosen. */
export function themeButton() {
  const change = () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    store(next);
    name();
  };
  const control = button("", change, { class: "quiet", id: "theme" });
  const name = () => {
    control.textContent = isDark() ? "Light" : "Dark";
    control.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
  };
  name();
  system.addEventListener("change", name);
  return control;
}

/** Whether dark colours are shown now. */
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

// A page opened from a file, or a browser that keeps nothing, may refuse its storage: then nothing is remembered.
function stored() {
  try {
    return localStorage.getItem(THEME_KEY);
  } catch {
    return null;
  }
}

/** @param {string} value */
function store(value) {
  try {
    localStorage.setItem(THEME_KEY, value);
  } catch {
    return;
  }
}
