/** Tables that can be sorted by a column. */

import { fill, h } from "./dom.js";
import { sortedBy } from "./filter.js";
import { keeping } from "./keep.js";

/**
 * @typedef {object} Column
 * @property {string} name heading
 * @property {string} [key] what it is sorted by; without one it is not
 * @property {(row: any) => any} show content of a cell
 * @property {(row: any) => any} [value] what is compared; the field named by `key` otherwise
 * @property {string} [kind] class of the cells, e.g. "number"
 * @property {boolean} [heads] whether it names the row
 * @property {boolean} [unseen] heading for screen readers only
 */

/** @typedef {{key: string | null, descending: boolean}} Order */

/**
 * @param {string} caption
 * @param {Column[]} columns
 * @param {any[]} rows in the order they are shown
 * @param {Order} order
 * @param {(key: string) => void} sorted called with the column that was chosen
 * @param {(row: any) => string | null} [mark] class of a row
 */
export function sortableTable(caption, columns, rows, order, sorted, mark = () => null) {
  return h(
    "div",
    { class: "scroll", role: "region", tabindex: 0, "aria-label": caption },
    h(
      "table",
      { class: "rows" },
      h("caption", { class: "unseen" }, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map((column) => heading(column, order, sorted)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { class: mark(row) },
            columns.map((column) => cell(column, row)),
          ),
        ),
      ),
    ),
  );
}

/** @param {Column} column @param {Order} order @param {(key: string) => void} sorted */
function heading(column, order, sorted) {
  const { key } = column;
  if (!key)
    return h(
      "th",
      { scope: "col", class: column.kind },
      column.unseen ? h("span", { class: "unseen" }, column.name) : column.name,
    );
  const current = order.key === key;
  const sign = current ? (order.descending ? " ↓" : " ↑") : "";
  return h(
    "th",
    { scope: "col", class: column.kind, "aria-sort": current ? (order.descending ? "descending" : "ascending") : null },
    h(
      "button",
      { type: "button", class: "sorter", id: `sort-${key}`, events: { click: () => sorted(key) } },
      column.name,
      h("span", { "aria-hidden": "true" }, sign),
    ),
  );
}

/** @param {Column} column @param {any} row */
function cell(column, row) {
  return column.heads
    ? h("th", { scope: "row", class: `heads ${column.kind ?? ""}` }, column.show(row))
    : h("td", { class: column.kind }, column.show(row));
}

/** Rows by a column; what is not known stays last. @param {any[]} rows @param {Column[]} columns @param {Order} order */
export function sortedRows(rows, columns, order) {
  const column = columns.find((one) => one.key === order.key);
  if (!column) return rows;
  const value = column.value ?? ((/** @type {any} */ row) => row[/** @type {string} */ (column.key)]);
  return sortedBy(rows, value, order.descending);
}

/** The order after a column was chosen: again turns it round. @param {Order} order @param {string} key @returns {Order} */
export function nextOrder(order, key) {
  return { key, descending: order.key === key ? !order.descending : false };
}

/** Put a table in the place of an older one, under a reader who goes on reading. @param {Element} holder @param {() => any} draw */
export function redraw(holder, draw) {
  keeping(holder, () => fill(holder, draw()));
}
