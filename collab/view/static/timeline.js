/** When each worker played which episode, and with which policy: a lane per worker. */

import { h, link, s } from "./dom.js";
import { isReport } from "./data.js";
import { duration, isKnown } from "./figures.js";
import { episodePlace } from "./place.js";
import { figureHead } from "./save.js";
import { axisMarks, linear } from "./scale.js";
import { sortableTable } from "./table.js";
import { plural, said } from "./words.js";

const SIZE = { width: 1000, lane: 20, bar: 14, right: 24, bottom: 22 };
/** Width of a letter beside an axis, about. */
const LETTER = 6;
/** Letters of a worker's name that are shown beside its lane. */
const MOST_LETTERS = 36;
/** Least width of a bar in which its version can be read. */
const ROOM = 12;

/**
 * The plays of an epoch, with those of other epochs at the same time; null where no worker is recorded.
 * @param {any} epoch an `EpochView` @param {any[]} epochs all of them
 */
export function timeline(epoch, epochs) {
  if (!epoch.plays.length) return null;
  const from = Math.min(...epoch.plays.map((/** @type {any} */ play) => play.begun));
  const until = Math.max(...epoch.plays.map(endOf));
  const plays = epochs
    .flatMap((one) => one.plays.map((/** @type {any} */ play) => ({ ...play, epoch: one.epoch })))
    .filter((play) => endOf(play) >= from && play.begun <= until)
    .sort((one, other) => one.begun - other.begun);
  const workers = [...new Set(plays.map((play) => play.worker))].sort((one, other) =>
    one.localeCompare(other, "en", { numeric: true }),
  );
  const versions = [...new Set(plays.map((play) => play.version))].filter(isKnown).sort((one, other) => one - other);
  const tint = (/** @type {any} */ play) => (isKnown(play.version) ? `tint-${versions.indexOf(play.version) % 8}` : "");
  const title = `Workers' timeline, epoch ${epoch.epoch}`;
  return h(
    "figure",
    { class: "timeline" },
    figureHead(title),
    h(
      "div",
      { class: "scroll", role: "region", tabindex: 0, "aria-label": title },
      drawing(plays, workers, from, until, tint, title, epoch.epoch),
    ),
    versionKey(versions),
    h(
      "p",
      { class: "muted under" },
      `Each bar is an episode, with the version of its policy; ↻ continues one or begins it again, and a dashed end was cut off.${
        plays.length > epoch.plays.length ? " Episodes of other epochs that were played at the same time are paler." : ""
      }${epoch.more_plays ? ` Without ${epoch.more_plays} later ones.` : ""}`,
    ),
    h("details", null, h("summary", null, "Episodes"), playsTable(title, plays, from)),
  );
}

/** @param {any} play a `PlayView` */
function endOf({ begun, seconds }) {
  return begun + seconds;
}

/** @param {any[]} plays @param {string[]} workers @param {number} from @param {number} until @param {(play: any) => string} tint @param {string} title @param {number} epoch whose plays stand out */
function drawing(plays, workers, from, until, tint, title, epoch) {
  const names = workers.map((name) => (name.length > MOST_LETTERS ? `${name.slice(0, MOST_LETTERS - 1)}…` : name));
  const left = 12 + LETTER * Math.max(...names.map((name) => name.length));
  const span = Math.max(until - from, 1e-3);
  const marks = axisMarks("time", 0, span).filter(({ at }) => at <= span);
  const x = linear(0, span, left, SIZE.width - SIZE.right);
  const height = SIZE.lane * workers.length + SIZE.bottom;
  const top = (/** @type {string} */ worker) => SIZE.lane * workers.indexOf(worker) + (SIZE.lane - SIZE.bar) / 2;
  const told = `${plural(plays.length, "play")} by ${plural(workers.length, "worker")} in ${duration(until - from)}`;
  return s(
    "svg",
    { viewBox: `0 0 ${SIZE.width} ${height}`, role: "img", "aria-label": `${title}: ${told}`, class: "plot" },
    marks.map(({ at, words }) => [
      s("line", { x1: x(at), x2: x(at), y1: 0, y2: height - SIZE.bottom, class: "grid" }),
      s("text", { x: x(at), y: height - 6, "text-anchor": "middle", class: "tick" }, words),
    ]),
    names.map((name, place) =>
      s("text", { x: left - 6, y: SIZE.lane * (place + 0.5), dy: "0.33em", "text-anchor": "end", class: "tick" }, name),
    ),
    plays.map((play) => {
      const start = Math.max(x(Math.max(0, play.begun - from)), left);
      const width = Math.max(2, x(Math.min(until, endOf(play)) - from) - start - 1);
      const isCut = play.end === "cut off";
      const words = `${play.again ? "↻" : ""}${isKnown(play.version) ? play.version : ""}`;
      return s(
        "g",
        { class: `play ${tint(play)}${play.epoch === epoch ? "" : " other"}` },
        s("title", null, playWords(play, from)),
        s("rect", { x: start, y: top(play.worker), width, height: SIZE.bar, rx: 2 }),
        isCut &&
          s("line", {
            x1: start + width,
            x2: start + width,
            y1: top(play.worker) - 2,
            y2: top(play.worker) + SIZE.bar + 2,
            "stroke-dasharray": "3 2",
            class: "cut",
          }),
        width >= ROOM * Math.max(1, words.length / 2) &&
          s("text", { x: start + 3, y: top(play.worker) + SIZE.bar / 2, dy: "0.33em" }, words),
      );
    }),
  );
}

/** @param {number[]} versions */
function versionKey(versions) {
  const entry = (/** @type {number} */ version, /** @type {number} */ place) =>
    h(
      "li",
      null,
      s(
        "svg",
        { viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" },
        s("g", { class: `play tint-${place % 8}` }, s("rect", { x: 0, y: 0, width: 26, height: 12, rx: 2 })),
      ),
      `version ${version}`,
    );
  return h("ul", { class: "key" }, versions.map(entry));
}

/** @param {any} play a `PlayView` */
function endWords({ again, first, end }) {
  const begun = again && (first ? `continued after ${plural(first, "step")}` : "begun again");
  return [begun, end].filter(Boolean).join(", ");
}

/** @param {any} play a `PlayView` @param {number} from */
function playWords(play, from) {
  const version = isKnown(play.version) ? `version ${play.version}` : "no reply";
  const times = `${duration(Math.max(0, play.begun - from))}, for ${duration(play.seconds)}`;
  return `${play.episode}: ${play.worker}, ${version}, from ${times}, ${plural(play.steps, "step")}, ${endWords(play)}`;
}

/** @param {string} title @param {any[]} plays `PlayView`s with their epoch @param {number} from */
function playsTable(title, plays, from) {
  const name = (/** @type {any} */ play) =>
    isReport() ? said(play.episode) : link(episodePlace(play.run, play.episode), null, said(play.episode));
  return sortableTable(
    `${title}, episodes`,
    [
      { name: "Episode", heads: true, show: name },
      { name: "Worker", show: (play) => said(play.worker) },
      { name: "Version", kind: "number", show: (play) => (isKnown(play.version) ? play.version : "–") },
      { name: "Epoch", kind: "number", show: (play) => play.epoch },
      { name: "Begun", kind: "number", show: (play) => (play.begun < from ? "before" : duration(play.begun - from)) },
      { name: "Took", kind: "number", show: (play) => duration(play.seconds) },
      { name: "Steps", kind: "number", show: (play) => play.steps },
      { name: "End", show: (play) => endWords(play) },
    ],
    plays,
    { key: null, descending: false },
    () => undefined,
  );
}
