/** What a reader has opened, focused, scrolled to and asked to see whole stays so while something is drawn anew. */

/** @type {WeakSet<Element>} */
const waiting = new WeakSet();

/** Draw something anew. @param {Element} holder what is drawn into @param {() => void} draw */
export function keeping(holder, draw) {
  const focus = focused(holder);
  const open = new Set([...holder.querySelectorAll("details[open]")].map(nameOfDetails));
  const whole = new Set([...holder.querySelectorAll("[data-whole]")].map(nameOfPassage));
  const scrolled = new Map([...holder.querySelectorAll(".scroll")].map((one) => [nameOfRegion(one), one.scrollLeft]));
  draw();
  for (const one of holder.querySelectorAll("details")) if (open.has(nameOfDetails(one))) one.open = true;
  for (const one of holder.querySelectorAll("button.whole")) if (whole.has(nameOfPassage(one.parentElement))) one.click();
  for (const one of holder.querySelectorAll(".scroll")) one.scrollLeft = scrolled.get(nameOfRegion(one)) ?? 0;
  focus()?.focus({ preventScroll: true });
}

/** Draw anew, but not while an option is being chosen there: then as soon as that is done. @param {Element} holder @param {() => any} draw */
export function drawWhenFree(holder, draw) {
  if (!isChoosing(holder)) return draw();
  if (waiting.has(holder)) return undefined;
  waiting.add(holder);
  const later = () => {
    waiting.delete(holder);
    if (holder.isConnected) drawWhenFree(holder, draw)?.catch?.(() => undefined);
  };
  holder.addEventListener("focusout", () => setTimeout(later), { once: true });
  return undefined;
}

/** Whether a choice or a word that is being typed would be lost. @param {Element} holder */
function isChoosing(holder) {
  const focus = document.activeElement;
  return focus !== null && holder.contains(focus) && focus.matches("select, input:not([type=checkbox])");
}

/** How what has the focus is found again, by its id or by what it is called. @param {Element} holder @returns {() => any} */
export function focused(holder) {
  const focus = document.activeElement;
  if (focus === null || !holder.contains(focus)) return () => null;
  const { id } = focus;
  if (id) return () => document.getElementById(id);
  const like = (/** @type {Element} */ one) => one.localName === focus.localName && one.className === focus.className;
  const name = nameOf(focus);
  return () => [...holder.querySelectorAll(focus.localName)].find((one) => like(one) && nameOf(one) === name);
}

/** @param {Element} element */
function nameOf(element) {
  return (
    element.getAttribute("aria-label") ??
    element.getAttribute("href") ??
    `${nameOfRegion(element)} ${withoutNumbers(element.textContent)}`
  );
}

/** Its summary and what it is a part of: many are called "Numbers". @param {Element} details */
function nameOfDetails(details) {
  return `${nameOfRegion(details)} ${withoutNumbers(details.querySelector("summary")?.textContent)}`;
}

/** What holds a text of which only the beginning is shown at first. @param {Element | null} element */
function nameOfPassage(element) {
  const details = element?.closest("details");
  return element && `${nameOfRegion(element)} ${details ? nameOfDetails(details) : ""}`;
}

/** @param {Element} element */
function nameOfRegion(element) {
  const region = element.closest("[aria-label], figure, .trained, [aria-labelledby]");
  const words = region?.getAttribute("aria-label") ?? region?.querySelector("figcaption, h2, h3")?.textContent;
  return withoutNumbers(words);
}

/** Counts in words of ours grow with the run. @param {string | null | undefined} text */
function withoutNumbers(text) {
  return (text ?? "").replace(/[0-9.,]+/g, "");
}
