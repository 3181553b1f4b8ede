/**
 * Saves a figure as it is shown, title, drawing and key in one picture: SVG for print, PNG for slides. The picture is
 * made of what stands on the page, so it needs no server, and nothing in it refers to the page's style sheets.
 */

import { button, fill, h, s } from "./dom.js";
import { said } from "./words.js";

const EDGE = 12;
/** Pixels of a PNG per pixel of the page. */
const SHARPNESS = 3;
/** Share of a line's height above the line that letters stand on. */
const RISE = 0.79;
const KEPT_MS = 60_000;

const COLOURS = ["fill", "stroke"];
const LOOKS = ["fill-opacity", "opacity", "stroke-dasharray", "stroke-opacity", "stroke-width"];
const LETTERS = ["font-family", "font-size", "font-weight", "text-anchor"];

/** Characters that no XML document can hold. */
const UNTOLD = /[^\t\n\r\x20-\uD7FF\uE000-\uFFFD\u{10000}-\u{10FFFF}]/gu;

/** @typedef {{nodes: Element[], left: number, top: number, right: number, bottom: number}} Drawn in the window's pixels */

/** Buttons that save the figure in which they stand. @param {string} title */
export function saveButtons(title) {
  const told = h("span", { role: "status" });
  const one = (/** @type {string} */ kind, /** @type {(picture: Element) => Blob | Promise<Blob>} */ packed) => {
    const save = async () => {
      try {
        download(await packed(pictureOf(control.closest("figure"))), `${fileName(title)}.${kind.toLowerCase()}`);
      } catch (error) {
        fill(told, `Not saved: ${error instanceof Error ? error.message : error}`);
      }
    };
    const control = button(kind, save, { class: "quiet", "aria-label": `Save ${title} as ${kind}` });
    return control;
  };
  return h("span", { class: "saving" }, one("SVG", svgFile), one("PNG", pngFile), told);
}

/** The heading of a figure, with what saves it. @param {string} title */
export function figureHead(title) {
  return h("div", { class: "figure-head" }, h("h3", null, said(title)), saveButtons(title));
}

/** @param {Element} figure @returns {Element} an SVG document */
function pictureOf(figure) {
  const box = figure.getBoundingClientRect();
  /** @type {Drawn} */
  const drawn = { nodes: [], left: box.left, top: box.top, right: box.left, bottom: box.top };
  draw(figure, drawn);
  const [x, y] = [drawn.left - EDGE, drawn.top - EDGE];
  const [width, height] = [Math.ceil(drawn.right + EDGE - x), Math.ceil(drawn.bottom + EDGE - y)];
  const ground = getComputedStyle(figure.closest(".panel") ?? document.documentElement).backgroundColor;
  const paper = s("rect", { x, y, width, height, fill: plainColour(ground) });
  return s("svg", { viewBox: `${x} ${y} ${width} ${height}`, width, height }, paper, drawn.nodes);
}

/** @param {Element} element @param {Drawn} drawn */
function draw(element, drawn) {
  const style = getComputedStyle(element);
  if (style.display === "none" || element.matches(".saving, .segments, .unseen, details")) return;
  if (element instanceof SVGSVGElement) {
    add(drawn, placed(element), element.getBoundingClientRect());
    return;
  }
  const ground = plainColour(style.backgroundColor);
  if (ground !== "none") add(drawn, ...block(element, ground, style.borderRadius));
  for (const child of element.childNodes) {
    if (child instanceof Element) draw(child, drawn);
    else if (child instanceof Text) for (const line of linesOf(child)) add(drawn, words(line, style), line.box);
  }
}

/** @param {Drawn} drawn @param {Element} node @param {DOMRect} box */
function add(drawn, node, box) {
  drawn.nodes.push(node);
  drawn.left = Math.min(drawn.left, box.left);
  drawn.top = Math.min(drawn.top, box.top);
  drawn.right = Math.max(drawn.right, box.right);
  drawn.bottom = Math.max(drawn.bottom, box.bottom);
}

/** @param {Element} element @param {string} ground @param {string} radius @returns {[Element, DOMRect]} */
function block(element, ground, radius) {
  const box = element.getBoundingClientRect();
  const inside = { x: box.x + element.clientLeft, y: box.y + element.clientTop };
  const [width, height] = [element.clientWidth || box.width, element.clientHeight || box.height];
  const rx = Math.min(Number.parseFloat(radius) || 0, height / 2);
  return [s("rect", { ...inside, width, height, rx, fill: ground }), box];
}

/** A text as it is broken into lines. @param {Text} text @returns {{told: string, box: DOMRect}[]} */
function linesOf(text) {
  const [found, range] = [/** @type {{told: string, box: DOMRect}[]} */ ([]), document.createRange()];
  for (const word of text.data.matchAll(/\S+/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const [box, last] = [range.getBoundingClientRect(), found[found.length - 1]];
    if (last && Math.abs(last.box.top - box.top) < 2) {
      last.told += ` ${word[0]}`;
      last.box.width = box.right - last.box.left;
    } else found.push({ told: word[0], box: DOMRect.fromRect(box) });
  }
  return found;
}

/** @param {{told: string, box: DOMRect}} line @param {CSSStyleDeclaration} style */
function words({ told, box }, style) {
  const line = s("text", { x: box.left, y: box.top + RISE * box.height, fill: plainColour(style.color) }, told);
  for (const name of LETTERS) if (name !== "text-anchor") line.setAttribute(name, style.getPropertyValue(name));
  return line;
}

/** A drawing of the page at its place, its looks written into it. @param {SVGSVGElement} drawing */
function placed(drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const copies = copy.querySelectorAll("*");
  for (const [place, source] of drawing.querySelectorAll("*").entries()) writeLooks(source, copies[place]);
  const { x, y, width, height } = drawing.getBoundingClientRect();
  for (const [name, value] of Object.entries({ x, y, width, height })) copy.setAttribute(name, String(value));
  for (const name of ["class", "style"]) copy.removeAttribute(name);
  return copy;
}

/** @param {Element} source @param {Element} copy */
function writeLooks(source, copy) {
  const style = getComputedStyle(source);
  for (const name of COLOURS) copy.setAttribute(name, plainColour(style.getPropertyValue(name)));
  for (const name of source.localName === "text" ? [...LOOKS, ...LETTERS] : LOOKS)
    copy.setAttribute(name, style.getPropertyValue(name));
  copy.removeAttribute("class");
}

/** A colour as every program reads it; "none" where nothing is to be seen. @param {string} colour as the browser tells it */
function plainColour(colour) {
  if (colour === "none") return colour;
  const pen = /** @type {CanvasRenderingContext2D} */ (sheet(1, 1).getContext("2d"));
  pen.fillStyle = colour;
  pen.fillRect(0, 0, 1, 1);
  const [red, green, blue, seen] = pen.getImageData(0, 0, 1, 1).data;
  return seen === 0 ? "none" : `rgb(${red}, ${green}, ${blue})`;
}

/** @param {Element} picture */
function svgText(picture) {
  return new XMLSerializer().serializeToString(picture).replace(UNTOLD, "\uFFFD");
}

/** @param {Element} picture */
function svgFile(picture) {
  return new Blob([svgText(picture)], { type: "image/svg+xml" });
}

/** @param {Element} picture @returns {Promise<Blob>} */
async function pngFile(picture) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(picture))}`;
  await image.decode();
  const canvas = sheet(SHARPNESS * image.width, SHARPNESS * image.height);
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done, failed) =>
    canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is too large")))),
  );
}

/** @param {number} width @param {number} height */
function sheet(width, height) {
  return Object.assign(document.createElement("canvas"), { width, height });
}

/** What is shown and of which run, in letters that every file system takes. @param {string} title */
function fileName(title) {
  const page = document.querySelector("main h1")?.textContent ?? "";
  const name = `${page} ${title}`.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  return name.replace(/^-|-$/g, "").slice(-100);
}

/** @param {Blob} file @param {string} name */
function download(file, name) {
  const address = URL.createObjectURL(file);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
