/**
 * Builds the page. Whatever is shown comes from models and web pages, so it only ever becomes text: there is no way to
 * hand markup, an event attribute, a style attribute or a foreign link to these functions.
 */

/** @typedef {Node | string | number | null | undefined | false | any[]} Child */
/** @typedef {Record<string, (event: any) => void>} Events */
/** @typedef {Record<string, string | number | boolean | null | undefined | Events>} Attributes */

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";

const HTML_TAGS = new Set(
  (
    "a article aside bdi button caption code dd details dialog div dl dt em fieldset figcaption figure footer form h1 h2 h3 h4 " +
    "header hr img input kbd label legend li main mark nav ol option p pre section select small span strong summary " +
    "table tbody td tfoot th thead time tr ul wbr"
  ).split(" "),
);

const HTML_ATTRIBUTES = new Set(
  (
    "alt autocomplete checked class colspan datetime dir disabled download for height hidden href id lang list loading max " +
    "min name open placeholder role rowspan scope selected src step tabindex title type value width"
  ).split(" "),
);

const SVG_TAGS = new Set(
  "svg g path rect circle ellipse line polyline polygon text tspan title desc defs clipPath".split(" "),
);

const SVG_ATTRIBUTES = new Set(
  (
    "class clip-path cx cy d dominant-baseline dx dy fill fill-opacity focusable font-size height id opacity " +
    "pathLength points preserveAspectRatio r role rx ry stroke stroke-dasharray stroke-linecap stroke-opacity " +
    "stroke-width tabindex text-anchor transform viewBox width x x1 x2 y y1 y2"
  ).split(" "),
);

/**
 * An HTML element.
 * @param {string} tag
 * @param {Attributes | null} [attributes] false, null and undefined leave one out, true sets it bare
 * @param {...Child} children strings become text
 * @returns {any}
 */
export function h(tag, attributes, ...children) {
  if (!HTML_TAGS.has(tag)) throw new TypeError(`h: no element ${tag}`);
  return filled(document.createElement(tag), attributes, children, HTML_ATTRIBUTES);
}

/**
 * An SVG element; as `h`.
 * @param {string} tag
 * @param {Attributes | null} [attributes]
 * @param {...Child} children
 * @returns {any}
 */
export function s(tag, attributes, ...children) {
  if (!SVG_TAGS.has(tag)) throw new TypeError(`s: no element ${tag}`);
  return filled(document.createElementNS(SVG_NAMESPACE, tag), attributes, children, SVG_ATTRIBUTES);
}

/** @param {Element} element @param {any} attributes @param {Child[]} children @param {Set<string>} allowed */
function filled(element, attributes, children, allowed) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name === "events") listen(element, /** @type {any} */ (value));
    else if (value !== false && value !== null && value !== undefined) setAttribute(element, name, value, allowed);
  }
  element.append(...shownNodes(children));
  return element;
}

/** @param {Element} element @param {Events} events */
function listen(element, events) {
  for (const [name, listener] of Object.entries(events)) element.addEventListener(name, listener);
}

/** @param {Element} element @param {string} name @param {any} value @param {Set<string>} allowed */
function setAttribute(element, name, value, allowed) {
  if (!allowed.has(name) && !/^(aria|data)-[a-z-]+$/.test(name)) throw new TypeError(`no attribute ${name}`);
  const text = value === true ? "" : String(value);
  if (name === "href" && !/^(#|blob:)/.test(text)) throw new TypeError("links lead to places of this page, or to a file it made");
  if (name === "src" && !/^(\/api\/|api\/|data:image\/(webp|png|jpeg);base64,)/.test(text)) {
    throw new TypeError("pictures come from the run");
  }
  element.setAttribute(name, text);
}

/** @param {Child[]} children @returns {Node[]} */
function shownNodes(children) {
  const all = /** @type {any[]} */ (children).flat(Infinity);
  const shown = all.filter((child) => child !== null && child !== undefined && child !== false);
  return shown.map((child) => (child instanceof Node ? child : document.createTextNode(String(child))));
}

/**
 * Put something else into an element.
 * @param {Element} element @param {...Child} children
 */
export function fill(element, ...children) {
  element.replaceChildren(...shownNodes(children));
}

/**
 * Set a custom property through the object model, which a strict style policy allows.
 * @template {HTMLElement | SVGElement} T
 * @param {T} element @param {string} name e.g. "--share" @param {string | number} value
 * @returns {T}
 */
export function property(element, name, value) {
  element.style.setProperty(name, String(value));
  return element;
}

/** A link to a place of this page. @param {string} hash @param {Attributes | null} attributes @param {...Child} children */
export function link(hash, attributes, ...children) {
  return h("a", { ...attributes, href: hash }, ...children);
}

/** A push button. @param {string} name @param {() => void} pressed @param {Attributes} [attributes] */
export function button(name, pressed, attributes) {
  return h("button", { type: "button", ...attributes, events: { click: pressed } }, name);
}
