// One look at a page: what a person could see and use, in document order.
//
//   (request) => JSON text      {ignore, spots, scale} the whole screen, with the spots to click at where asked for;
//                                                      labels of shapes tell places and sizes in screen pixels,
//                                                      `scale` of them to one of the window's (1 where not told)
//                               {key}                  where that element is now, and what it is
//                               {key, choose: text}    choose an option of a list
//                               {key, fill: text}      set a field that takes no typing (dates, sliders, colours)
//                               {key, focus: true}     put the focus on it
//                               {key, enter: true}     where the inside of that frame lies in the window
//                               {key, hit: [x, y]}     whether a click there reaches that frame
//                               {scroll: [x, y]}       scroll by one screen, -1, 0 or 1 each way; with measure: true
//                                                      only tell how large the part is that would move
//
// A request with a key and `seen: {role, label, from}` means the element that the last look told under that key: the
// same node, or a new one of the same role and name at the same key. The answer is null when there is none. `frame:
// {origin, clip}` says where in the window this document lies, when it is a frame of another origin; `handlers` names
// elements with a click handler (see worlds.py).
//
// Runs inside the page in one call; looking changes nothing there. Keys are paths of tag names and positions; a step
// "#shadow" enters a shadow root, "#frame" a frame of the same origin, and "#text3" is the third run of text.
(() => {
  const MAX_ELEMENTS = 600, MAX_LABEL = 200, MAX_VALUE = 300, MAX_PASSWORD = 100, MAX_ADDRESS = 2000;
  const MAX_OPTIONS = 12, MAX_OPEN_OPTIONS = 300, MAX_SHAPES = 150, MAX_DEPTH = 500, MAX_STEP = 60, MAX_LEVELS = 6;
  const MAX_SUSPECTS = 200, MAX_LOOKS = 5;
  const SKIPPED = new Set(["SCRIPT", "STYLE", "NOSCRIPT", "TEMPLATE", "HEAD", "BR", "WBR", "DATALIST", "OPTION", "OPTGROUP"]);
  const TYPES = { checkbox: "checkbox", radio: "radio", range: "slider", button: "button", submit: "button",
                  reset: "button", image: "button", file: "file input" };
  const ROLES = { button: "button", link: "link", checkbox: "checkbox", radio: "radio", switch: "switch", tab: "tab",
                  menuitem: "menu item", menuitemcheckbox: "checkbox", menuitemradio: "radio", option: "option",
                  textbox: "input", searchbox: "input", spinbutton: "input", combobox: "drop-down", slider: "slider",
                  treeitem: "tree item" };
  const SHAPES = new Set(["circle", "rect", "ellipse", "polygon", "polyline", "line", "path", "text", "image"]);
  const BLOCKS = { LI: "list item", TD: "cell", TH: "header cell", H1: "heading", H2: "heading", H3: "heading",
                   H4: "heading", H5: "heading", H6: "heading" };
  const FIELDS = new Set(["INPUT", "TEXTAREA", "SELECT"]);

  // A form's fields hide its own properties when they are named like them (children, parentNode, id …). Read through
  // its prototype, the properties are what they are.
  const kindOf = Object.prototype.toString, views = new WeakMap();
  const viewOf = (form) => {
    if (!views.has(form)) {
      const get = (_, name) => {
        const value = Reflect.get(Reflect.getPrototypeOf(form), name, form);
        return typeof value === "function" ? value.bind(form) : value;
      };
      views.set(form, new Proxy(Object.create(null), { get }));
    }
    return views.get(form);
  };
  const $ = (node) => (kindOf.call(node) === "[object HTMLFormElement]" ? viewOf(node) : node);

  // Texts are cut between characters as a reader counts them, and half characters are replaced: they could neither be stored nor sent.
  const sound = (text) => (text.isWellFormed() ? text : text.toWellFormed());
  const characters = new Intl.Segmenter("en");
  // Where the character at a place begins: accents and joined emoji belong to what is before them.
  const border = (text, at) => {
    const near = Math.max(0, at - 32), here = characters.segment(text.slice(near, at + 32)).containing(at - near)?.index;
    return here ? near + here : at;
  };
  const start = (text, length) => sound(text.slice(0, border(text, length)));
  const end = (text, length) => sound(text.slice(border(text, text.length - length)));
  const isSeen = (text) => /[^\s\u00AD\u200B-\u200F\u202A-\u202E\u2060-\u2069\uFEFF]/.test(text);
  const flat = (text) => String(text ?? "").replace(/\s+/g, " ").trim();
  const cut = (text, length) => (text.length > length ? start(text, length - 1) + "…" : sound(text));
  const short = (text) => cut(flat(text), MAX_LABEL);
  const bothEnds = (text) => {
    if (text.length <= MAX_VALUE) return sound(text);
    const first = start(text, MAX_VALUE - 120), last = end(text, 80);
    return `${first} … ${text.length - first.length - last.length} characters left out … ${last}`;
  };
  const words = (name) => [...new Set(String(name || "").split(/[^\p{L}\p{N}]+/u))].filter(Boolean).slice(0, 5).join(" ");

  // What one request works with. Two things outlive it: the last look (last), and what it told (memory: key → entry).
  let request, styles, positions, keys, frames, found, entries, covered, handled, hinted, focus, memory = null, last = {};
  const begin = (asked) => {
    request = asked;
    [styles, positions, keys, frames, hinted] = [new Map(), new Map(), new Map(), new Map(), new Set()];
    [found, entries, covered] = [[], [], []];
    handled = new Set(handlers(asked.handlers));
    focus = active();
    suspects = new Set();
  };
  const styleOf = (el) => {
    if (!styles.has(el)) styles.set(el, $(el).ownerDocument.defaultView.getComputedStyle(el));
    return styles.get(el);
  };
  const isRendered = (style) => style.display !== "none";
  const isFaded = (style) => style.opacity < 0.002 || /opacity\(0%?\)/.test(style.filter);
  // Clipped down to nothing: what pages write for screen readers alone.
  const isClippedAway = (style) => {
    const sides = style.position === "static" ? null : /^rect\((\S+)px, (\S+)px, (\S+)px, (\S+)px\)$/.exec(style.clip);
    if (sides && (sides[1] >= +sides[3] || sides[4] >= +sides[2])) return true;
    if (/^(circle\(0(px|%)?( |\))|ellipse\((0|\S+ 0)(px|%)?( |\)))/.test(style.clipPath)) return true;
    const [top, right = top, bottom = top, left = right] = (/^inset\(([^)]*?)( round .*)?\)$/.exec(style.clipPath)?.[1] ?? "").split(" ")
      .map((side) => (side.endsWith("%") ? parseFloat(side) : 0));
    return top + bottom >= 100 || left + right >= 100;
  };

  // ---------------------------------------------------------------------------------------------------- keys
  const stepOf = (el) => sound($(el).localName.slice(0, MAX_STEP)).replaceAll("/", "?");
  const positionOf = (el) => {
    if (!positions.has(el)) {
      const counts = new Map(), parent = $(el).parentNode;
      for (const sibling of parent ? $(parent).children : [el]) {
        const step = stepOf(sibling);
        counts.set(step, (counts.get(step) || 0) + 1);
        positions.set(sibling, counts.get(step));
      }
    }
    return positions.get(el);
  };
  const keyOf = (el) => {
    if (keys.has(el)) return keys.get(el);
    const parent = $(el).parentNode;
    let before = "";
    if (parent && $(parent).nodeType === 1) before = keyOf(parent) + "/";
    else if (parent && parent.nodeType === 11) before = keyOf(parent.host) + "/#shadow/";
    else if ($(el).ownerDocument !== document) before = keyOf($(el).ownerDocument.defaultView.frameElement) + "/#frame/";
    const key = `${before}${stepOf(el)}[${positionOf(el)}]`;
    keys.set(el, key);
    return key;
  };
  const find = (key) => {
    let scope = document;
    for (const step of key.split("/")) {
      if (step.startsWith("#text") || step === "#more") break;
      if (step === "#shadow") scope = rootOf(scope);
      else if (step === "#frame") scope = frameOf(scope);
      else {
        const [, name, position] = /^(.*)\[(\d+)\]$/.exec(step) || [];
        scope = [...$(scope).children].filter((child) => stepOf(child) === name)[position - 1];
      }
      if (!scope) return null;
    }
    return scope;
  };
  const frameOf = (frame) => { try { return frame.contentDocument ?? null; } catch { return null; } };
  // Shadow roots that a page keeps to itself; worlds.py finds and hands them over (reveal), the suspects it looks at.
  const closed = new WeakMap(), looked = new WeakMap();
  let suspects = new Set();
  const rootOf = (el) => $(el).shadowRoot ?? closed.get(el) ?? null;
  const suspect = (el, isOften = true) => {
    if (suspects.size >= MAX_SUSPECTS || rootOf(el)) return;
    if (!/-|^(article|aside|blockquote|body|div|footer|h[1-6]|header|main|nav|p|section|span)$/.test($(el).localName)) return;
    if (isOften || (looked.get(el) ?? 0) < MAX_LOOKS) suspects.add(el);
  };
  const take = () => {
    const all = [...suspects];
    for (const el of all) looked.set(el, (looked.get(el) ?? 0) + 1);
    return all;
  };
  const reveal = (root) => { closed.set(root.host, root); };
  // The document, its shadow roots and frames of the same origin, and theirs. Of open roots alone worlds.py counts in
  // the same order.
  const scopes = (isOpenOnly = false) => {
    const all = [document];
    for (const scope of all) {
      for (const el of scope.querySelectorAll("*")) {
        const root = isOpenOnly ? $(el).shadowRoot : rootOf(el);
        if (root) all.push(root);
        if (/^(I?FRAME|OBJECT)$/.test($(el).tagName) && frameOf(el)) all.push(frameOf(el));
      }
    }
    return all;
  };
  const handlers = (named) => {
    const places = (named || "").split(",").filter(Boolean).map(Number);
    if (places.length === 0) return [];
    const all = scopes(true).map((scope) => scope.querySelectorAll("*"));
    return places.map((_, i) => (i % 2 ? all[places[i - 1]]?.[places[i]] : null)).filter(Boolean);
  };

  // ---------------------------------------------------------------------------------------------------- places
  const SPREAD = [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.2], [0.5, 0.8]];
  const clip = (a, b) => {
    const c = [Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])];
    return c[2] - c[0] >= 1 && c[3] - c[1] >= 1 ? c : null;
  };
  const size = (box) => (box[2] - box[0]) * (box[3] - box[1]);
  const moved = (r, [x, y, sx, sy]) => [r.left * sx + x, r.top * sy + y, r.right * sx + x, r.bottom * sy + y];
  const rectOf = (thing, origin) => moved($(thing).localName === "area" ? areaOf(thing) : $(thing).getBoundingClientRect(), origin);
  // Where a link of an image map is: browsers tell no place of it.
  const areaOf = (area) => {
    const map = area.closest("map"), images = $(area).getRootNode().querySelectorAll("img[usemap]");
    const image = map && [...images].find((each) => each.useMap.slice(1) === map.name);
    if (!image) return area.getBoundingClientRect();
    const inside = image.getBoundingClientRect(), at = area.coords.split(",").map(parseFloat);
    const [xs, ys] = [0, 1].map((odd) => at.filter((_, i) => i % 2 === odd));
    const [left, top, right, bottom] = area.shape === "circle" ? [at[0] - at[2], at[1] - at[2], at[0] + at[2], at[1] + at[2]]
      : at.length < 4 ? [0, 0, inside.width, inside.height] : [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
    return { left: inside.left + left, top: inside.top + top, right: inside.left + right, bottom: inside.top + bottom };
  };
  const union = (boxes) => [0, 1, 2, 3].map((i) => Math[i < 2 ? "min" : "max"](...boxes.map((box) => box[i])));
  // What an element covers, line by line. One that has no room of its own shows where its contents are.
  const rectsOf = (thing, origin) => {
    const rects = [...$(thing).getClientRects()].map((r) => moved(r, origin)).filter((r) => r[2] > r[0] && r[3] > r[1]).slice(0, 200);
    if (rects.length || $(thing).nodeType !== 1 || !isOpenBox(styleOf(thing))) return rects;
    const range = $(thing).ownerDocument.createRange();
    range.selectNodeContents(thing);
    return [...range.getClientRects()].map((r) => moved(r, origin)).filter((r) => r[2] > r[0] && r[3] > r[1]).slice(0, 200);
  };
  const isOpenBox = (style) => isRendered(style) && style.overflow === "visible";
  const boxOf = (el, origin) => {
    const rect = rectOf(el, origin);
    if (rect[2] - rect[0] >= 1 && rect[3] - rect[1] >= 1) return rect;
    const rects = rectsOf(el, origin);
    return rects.length ? union(rects) : rect;
  };
  // An origin: where (0, 0) of a document is in the window, and how large its pixels are there (a frame can be scaled).
  const insetOf = (frame, origin) => {
    const r = rectOf(frame, origin), s = styleOf(frame);
    const scale = (drawn, own) => (own && Math.abs(drawn - own) >= 1 ? drawn / own : 1);
    const [x, y] = [scale(r[2] - r[0], frame.offsetWidth), scale(r[3] - r[1], frame.offsetHeight)];
    return [r[0] + x * (frame.clientLeft + parseFloat(s.paddingLeft)), r[1] + y * (frame.clientTop + parseFloat(s.paddingTop)), x, y];
  };
  const isOver = (hit, el) => {
    for (let node = hit; node; node = $(node).parentNode || $(node).host) if (node === el) return true;
    const label = $(hit).closest?.("label");
    return $(hit).control === el || Boolean(label && label.control === el);
  };
  const isReached = (el, x, y, origin) => {
    const root = $(el).getRootNode();
    const hit = root.elementFromPoint ? root.elementFromPoint((x - origin[0]) / origin[2], (y - origin[1]) / origin[3]) : null;
    if (!hit || !(isOver(hit, el) || (rootOf(hit) && root.host === hit))) return false;
    const outer = frames.get($(el).ownerDocument);  // nothing lies over the frame either
    return !outer || isReached(outer.frame, x, y, outer.origin);
  };
  // A point of the box where a click would reach the element; null when something else covers it.
  const reach = (el, box, origin, rects = rectsOf(el, origin)) => {
    const parts = rects.map((rect) => clip(rect, box)).filter(Boolean).sort((a, b) => size(b) - size(a)).slice(0, 6);
    for (const [l, t, r, b] of parts.length ? parts : [box]) {
      for (const [fx, fy] of SPREAD) {
        const x = l + (r - l) * fx, y = t + (b - t) * fy;
        if (isReached(el, x, y, origin)) return [x, y];
      }
    }
    return null;
  };
  // Where one plain click on an element does all that clicking it means; null when more is to be done first (scroll it
  // into view, open a list), when it is asked for no such thing, or when nothing can be clicked.
  const spotOf = (el, box, origin) => {
    if (!request.spots || !box || $(el).tagName === "SELECT" || $(el).type === "file" || $(el).matches(":disabled")) return null;
    return rectOf(el, origin).every((side, i) => side === box[i]) ? reach(el, box, origin) : null;
  };
  // Where (0, 0) of a document is in the window, through all frames around it.
  const originOf = (inner) => {
    if (inner === document) return request.frame?.origin ?? [0, 0, 1, 1];
    const frame = inner.defaultView.frameElement, outer = originOf($(frame).ownerDocument);
    frames.set(inner, { frame, origin: outer });
    return insetOf(frame, outer);
  };
  const screen = () => request.frame?.clip ?? [0, 0, innerWidth, innerHeight];

  // ---------------------------------------------------------------------------------------------------- names
  const byIds = (el, attribute) => ($(el).getAttribute(attribute) || "").split(/\s+/).filter(Boolean)
    .map((id) => { const other = $(el).getRootNode().getElementById?.(id); return other ? $(other).textContent : ""; }).join(" ");
  const hint = (el) => words($(el).getAttribute("name") || $(el).getAttribute("id") || (typeof $(el).className === "string" ? $(el).className : ""));
  const inner = (el, depth = 0) => {  // text of a subtree as a reader meets it, pictures by their names
    let text = "";
    if (depth > MAX_DEPTH) return text;
    for (const node of $(rootOf(el) || el).childNodes) {
      if ($(node).nodeType === 3) text += node.data.slice(0, 20 * MAX_LABEL);
      else if ($(node).nodeType === 1 && !SKIPPED.has($(node).tagName)) {
        const style = styleOf(node), tag = $(node).tagName;
        if (!isRendered(style) || style.visibility !== "visible") continue;
        const gap = style.display.startsWith("inline") ? "" : " ";
        if ($(node).localName === "svg") text += " " + flat(node.getAttribute("aria-label") || node.querySelector("title")?.textContent) + " ";
        else if (tag === "IMG") text += " " + (node.alt || node.title || "") + " ";
        else if (!FIELDS.has(tag)) text += gap + inner(node, depth + 1) + gap;
      } else if ($(node).nodeType === 1 && $(node).tagName === "BR") text += " ";
      if (text.length > 4 * MAX_LABEL) break;
    }
    return text;
  };
  const nameOf = (el, role) => {
    const isField = FIELDS.has($(el).tagName) || role === "input";
    const isPushed = $(el).tagName === "INPUT" && role === "button";
    const tries = [
      () => byIds(el, "aria-labelledby"),
      () => $(el).getAttribute("aria-label"),
      () => isPushed && (el.value || el.alt || ({ submit: "Submit", reset: "Reset" })[el.type]),
      () => isField && el.labels && [...el.labels].map((label) => inner(label)).join(" "),
      () => !isField && inner(el),
      () => $(el).getAttribute("alt"),
      () => $(el).getAttribute("title"),
      () => $(el).getAttribute("placeholder"),
      () => {
        const told = $(el).querySelector("svg title, [aria-label]");
        return (told && $(told).getAttribute("aria-label")) || $(el).querySelector("svg title")?.textContent;
      },
    ];
    for (const attempt of tries) { const text = short(attempt() || ""); if (isSeen(text)) return text; }
    hinted.add(el);
    return short(hint(el) || ($(el).firstElementChild && hint($(el).firstElementChild)));
  };

  // ---------------------------------------------------------------------------------------------------- roles
  const active = () => {
    let el = document.activeElement;
    for (;;) {
      const next = el && (rootOf(el)?.activeElement || (/^(I?FRAME|OBJECT)$/.test($(el).tagName) && frameOf(el)?.activeElement));
      if (!next) return el;
      el = next;
    }
  };
  const roleOf = (el) => {
    const tag = $(el).tagName, given = ROLES[$(el).getAttribute("role")];
    if (tag === "INPUT") return given === "switch" ? given : TYPES[el.type] || "input";
    if (tag === "TEXTAREA") return "input";
    if (tag === "SELECT") return el.multiple || el.size > 1 ? "list box" : "drop-down";
    if (given) return given;
    if (/\bui-slider-handle\b/.test($(el).className)) return "slider";
    if (tag === "BUTTON" || tag === "SUMMARY") return "button";
    if ((tag === "A" || tag === "AREA") && $(el).hasAttribute("href")) return "link";
    const editable = $(el).getAttribute("contenteditable");
    return editable !== null && editable !== "false" ? "input" : null;
  };
  // Things that react to a click without saying so in their markup.
  const isClickable = (el, style) => $(el).hasAttribute("onclick") || typeof $(el).onclick === "function" || handled.has(el) ||
    ($(el).hasAttribute("tabindex") && $(el).tabIndex >= 0) ||
    (style.cursor === "pointer" && (!$(el).parentElement || styleOf($(el).parentElement).cursor !== "pointer"));
  const isInline = (style) => style.display.startsWith("inline") || style.display === "contents";
  const hasOnlyText = (el, depth = 0) => depth < MAX_DEPTH && [...$(el).children].every((child) => {
    if (rootOf(child) || roleOf(child) || $(child).localName === "svg" || $(child).tagName === "IMG") return false;
    const style = styleOf(child);
    return !isRendered(style) || (isInline(style) && !pictured(child, style) && hasOnlyText(child, depth + 1));
  });
  const pictured = (el, style) => style.content.startsWith("url(") ||
    (style.backgroundImage.startsWith("url(") && !$(el).childElementCount && !flat($(el).textContent));
  const scrolls = (el, style) => /auto|scroll/.test(style.overflowY + style.overflowX) &&
    ($(el).scrollHeight > $(el).clientHeight + 1 || $(el).scrollWidth > $(el).clientWidth + 1);
  const isDragged = (el) => $(el).draggable && $(el).hasAttribute("draggable") || /\bui-draggable\b/.test($(el).className);
  const flagsOf = (el, role) => {
    const said = (name) => $(el).getAttribute("aria-" + name) === "true";
    const isText = role === "input" && !$(el).readOnly && !$(el).disabled;
    return [
      [$(el).checked === true && (role === "checkbox" || role === "radio" || role === "switch") || said("checked"), "checked"],
      [said("selected"), "selected"],
      [el === focus, "focused"],
      [$(el).disabled === true || said("disabled") || $(el).matches(":disabled"), "disabled"],
      [$(el).tagName === "TEXTAREA" && el.scrollHeight > el.clientHeight + 1, "scrollable"],
      [isText, "editable"],
      [said("expanded") || ($(el).tagName === "SUMMARY" && $(el).parentElement?.open), "expanded"],
      [$(el).type === "password", "password"],
      [role === "slider" || isDragged(el), "surface"],
    ].filter(([holds]) => holds).map(([, flag]) => flag);
  };
  const valueOf = (el, role) => {
    const isField = FIELDS.has($(el).tagName), type = isField ? el.type : null;
    if ($(el).tagName === "SELECT") return bothEnds([...el.selectedOptions].slice(0, 300).map((option) => short(option.label)).join(", "));
    if (type === "password") return "•".repeat(Math.min(el.value.length, MAX_PASSWORD)) + (el.value.length > MAX_PASSWORD ? "…" : "");
    if (type === "file") return bothEnds([...el.files].map((file) => file.name).join(", "));
    if (role === "input") return bothEnds(flat(isField ? el.value : $(el).innerText ?? $(el).textContent));
    if (role === "slider") return isField ? cut(String(el.value), MAX_LABEL) : told(el, "aria-valuetext") ?? told(el, "aria-valuenow");
    if (role === "drop-down") return isField || typeof $(el).value === "string" ? short($(el).value) : null;
    return null;
  };
  const told = (el, attribute) => { const text = $(el).getAttribute(attribute); return text ? short(text) : null; };

  // ---------------------------------------------------------------------------------------------------- the walk
  // node: what the entry stands for, an element or a run's first piece of text.
  const add = (node, role, label, box, key, value = null, flags = [], spot = null) => {
    if (found.length >= MAX_ELEMENTS) return;
    const whole = box && [Math.floor(box[0]), Math.floor(box[1]), Math.ceil(box[2]), Math.ceil(box[3])];
    found.push({ role, label, box: whole, key, value, flags, spot });
    entries.push({ node, role, label, key, box, isHint: hinted.has(node) });
  };
  const hide = (node, role, label, key) => covered.push({ node, role, label, key, isHint: hinted.has(node) });

  // Runs of inline text become one element each; whatever interrupts them is told in its place.
  class Run {
    constructor(owner) { this.owner = owner; this.count = 0; this.clear(); }
    clear() { this.text = ""; this.nodes = []; this.space = null; }
    take(node, space) { this.text += node.data; if (flat(node.data)) { this.nodes.push(node); this.space = space; } }
    flush() {
      const label = short(this.text);
      if (isSeen(label) && this.nodes.length) {
        const range = $(this.owner).ownerDocument.createRange(), rects = [];
        for (const node of this.nodes) {  // one by one: a run may begin in a shadow root and go on in a slot
          range.selectNodeContents(node);
          const rect = rectOf(range, this.space.origin);
          if (rect[2] > rect[0]) rects.push(rect);
          else suspect($(node).parentNode);  // its text has no place: something else is shown in its stead
        }
        const box = rects.length ? clip(union(rects), this.space.clip) : null;
        this.count += 1;
        if (box && box[2] - box[0] >= 2 && box[3] - box[1] >= 2) {
          add(this.nodes[0], BLOCKS[$(this.owner).tagName] || "text", label, box, `${keyOf(this.owner)}/#text${this.count}`);
        }
      }
      this.clear();
    }
  }

  const addOptions = (el, space, isOpen) => {
    const limit = isOpen || el === focus ? MAX_OPEN_OPTIONS : MAX_OPTIONS;
    if (el.options.length > limit && limit === MAX_OPTIONS) return;  // a closed list shows its value alone
    for (const option of [...el.options].slice(0, limit)) {
      const style = styleOf(option);
      if (option.hidden || !isRendered(style)) continue;
      const place = isOpen ? clip(rectOf(option, space.origin), space.clip) : null;
      if (isOpen && !place) continue;
      add(option, "option", short(option.label), place, keyOf(option), null,
          [option.selected && "selected", option.disabled && "disabled"].filter(Boolean));
    }
    const rest = el.options.length - limit;
    if (rest > 0) add(el, "text", `… ${rest} more options; any of them can be selected by its text`, null, `${keyOf(el)}/#more`);
  };

  const COLOURS = new Map();
  const NAMED = { black: [0, 0, 0], white: [255, 255, 255], grey: [128, 128, 128], red: [255, 0, 0], green: [0, 128, 0],
                  lime: [0, 255, 0], blue: [0, 0, 255], yellow: [255, 255, 0], cyan: [0, 255, 255], "light blue": [135, 190, 250], magenta: [255, 0, 255],
                  orange: [255, 165, 0], purple: [128, 0, 128], brown: [165, 42, 42], pink: [255, 192, 203] };
  const redGreenBlue = (css) => {
    const plain = /^rgb\((\d+), (\d+), (\d+)\)$/.exec(css);
    if (plain) return plain.slice(1).map(Number);
    const brush = document.createElement("canvas").getContext("2d");
    brush.fillStyle = css;
    const hex = brush.fillStyle.startsWith("#") ? brush.fillStyle : "#000000";
    return [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  };
  const colourName = (css) => {
    if (!css || css === "none" || /^url|^rgba.*, 0\)$/.test(css)) return "";
    if (!COLOURS.has(css)) {
      const rgb = redGreenBlue(css);
      const gap = ([, other]) => other.reduce((sum, part, i) => sum + (part - rgb[i]) ** 2, 0);
      COLOURS.set(css, Object.entries(NAMED).reduce((best, next) => (gap(next) < gap(best) ? next : best))[0]);
    }
    return COLOURS.get(css);
  };
  // How large a shape is and where its middle lies, as its label tells them.
  const extent = (...lengths) => {
    const [w, h, x, y] = lengths.map((length) => Math.round(length * (request.scale ?? 1)));
    return `${w}×${h} at ${x},${y}`;
  };
  const addShape = (el, space, area) => {
    const box = clip(rectOf(el, space.origin), space.clip), style = styleOf(el);
    if (!box || style.visibility !== "visible" || isFaded(style)) return;
    const [x, y] = [(box[0] + box[2]) / 2 - area[0], (box[1] + box[3]) / 2 - area[1]];
    const [w, h] = [box[2] - box[0], box[3] - box[1]].map(Math.round);
    const words = flat(el.getAttribute("aria-label") || (el.localName === "text" ? el.textContent : el.querySelector("title")?.textContent));
    const colour = colourName(style.fill) || colourName(style.stroke);
    if (w < 3 && h < 3) return;
    const isText = el.localName === "text", tint = isText && colour === "black" ? "" : colour;
    const label = [isText ? words : el.localName, tint, !isText && words].filter(Boolean).join(" ");
    const isLoose = ["line", "polyline", "path"].includes(el.localName) || w * h > 0.5 * size(area);
    add(el, isText ? "text" : "shape", short(`${label}, ${extent(box[2] - box[0], box[3] - box[1], x, y)}`), box, keyOf(el), null,
        isLoose || isDragged(el) ? ["surface"] : [], spotOf(el, box, space.origin));
  };
  const addDrawing = (el, space, style) => {
    const box = clip(rectOf(el, space.origin), space.clip);
    if (!box || style.visibility !== "visible" || space.faded) return;
    const shapes = [...el.querySelectorAll("*")].filter((child) => SHAPES.has($(child).localName) && !$(child).closest("defs, clipPath, mask, symbol, pattern"));
    const label = short(el.getAttribute("aria-label") || el.querySelector(":scope > title")?.textContent || "");
    const isIcon = shapes.every((shape) => shape.localName === "path") || shapes.length > MAX_SHAPES || size(box) < 600;
    if (isIcon && !label && !isClickable(el, style)) return;
    add(el, isIcon ? "image" : "drawing", label || (isIcon ? hint(el) : ""), box, keyOf(el), null, ["surface"], spotOf(el, box, space.origin));
    if (!isIcon) for (const shape of shapes) addShape(shape, space, rectOf(el, space.origin));
  };

  const addLabel = (el, control, space, style) => {
    const box = clip(boxOf(el, space.origin), space.clip);
    if (!box || space.faded || style.visibility !== "visible" || control.type === "hidden") return;
    const role = roleOf(control), name = nameOf(control, role) || short(inner(el));
    if (!reach(el, box, space.origin)) return hide(el, role, name, keyOf(el));
    add(el, role, name, box, keyOf(el), null, flagsOf(control, role), spotOf(el, box, space.origin));
  };
  // Whether a control can be seen and touched itself, and is not merely drawn by its label.
  const standsItself = (control, space) => {
    const style = styleOf(control), box = clip(rectOf(control, space.origin), space.clip);
    return Boolean(box) && size(box) >= 4 && control.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !isClippedAway(style) &&
      (roleOf(control) === "input" || Boolean(reach(control, box, space.origin)));
  };

  // space: where (0, 0) of the document is (origin), what cuts static, fixed and placed boxes (clip, fixed, placed),
  // whether an ancestor is fully transparent (faded), and how deep in the document it is (depth).
  const visit = (el, space, run, silent) => {
    const tag = $(el).tagName;
    if (SKIPPED.has(tag)) { if (tag === "BR") run.text += " "; return; }
    if (space.depth > MAX_DEPTH || (request.ignore && $(el).matches(request.ignore))) return;
    const style = styleOf(el);
    // In no tree that is drawn: in a host without a slot for it. Some browsers tell its style none the less.
    if (style.display === "" || (style.display !== "contents" && !$(el).getClientRects().length)) suspect($(el).parentNode);
    if ((!isRendered(style) && tag !== "AREA") || style.contentVisibility === "hidden" || isClippedAway(style)) return;
    if (tag.includes("-")) suspect(el, false);
    const edge = style.position === "fixed" ? space.fixed : style.position === "absolute" ? space.placed : space.clip;
    const here = { ...space, clip: edge, faded: space.faded || isFaded(style), depth: space.depth + 1 };
    const isInlined = isInline(style) && style.float === "none" && !["absolute", "fixed"].includes(style.position);
    if (tag === "LABEL" && el.control && !silent) {
      if (standsItself(el.control, here)) silent = el;  // the control tells this text as its name
      else if (roleOf(el.control) !== "input") { run.flush(); addLabel(el, el.control, here, style); return; }
    }
    const role = $(el).localName === "svg" ? null : roleOf(el);
    const shown = style.visibility === "visible" && !here.faded;
    const box = () => clip(boxOf(el, here.origin), here.clip);
    if ($(el).localName === "svg") { run.flush(); if (!silent || silent.tagName === "LABEL") addDrawing(el, here, style); return; }
    if (role) { run.flush(); visitControl(el, role, here, shown ? box() : null, silent); return; }
    const isFrame = tag === "IFRAME" || tag === "FRAME" || tag === "EMBED" || (tag === "OBJECT" && el.contentWindow);
    if (isFrame) { run.flush(); visitFrame(el, here, shown && box()); return; }
    if (tag === "IMG" || tag === "CANVAS" || tag === "VIDEO" || tag === "AUDIO" || pictured(el, style)) {
      const place = shown || (style.visibility === "visible" && !space.faded && isClickable(el, style)) ? box() : null;
      const label = short($(el).getAttribute("aria-label") || $(el).getAttribute("alt") || $(el).getAttribute("title") || "");
      const isTold = silent && silent.tagName !== "LABEL" && !isClickable(el, style);
      if (place && !isTold && (label || size(place) >= 64)) {
        run.flush();
        add(el, tag === "CANVAS" ? "canvas" : tag === "VIDEO" || tag === "AUDIO" ? tag.toLowerCase() : "image", label || pictureName(el, style), place,
            keyOf(el), null, tag === "CANVAS" || isDragged(el) ? ["surface"] : [], spotOf(el, place, here.origin));
      }
      return;
    }
    if (!silent && shown && (isDragged(el) || (isClickable(el, style) && hasOnlyText(el)))) {
      const place = box(), label = place && nameOf(el, null);
      const kind = $(el).closest("li") === el ? "list item" : BLOCKS[tag] || (isInlined ? "link" : "item");
      if (label && reach(el, place, here.origin)) {
        run.flush();
        add(el, kind, label, place, keyOf(el), null, flagsOf(el, kind), spotOf(el, place, here.origin));
        return;
      }
      if (label) hide(el, kind, label, keyOf(el));
    }
    if (!silent && shown && !$(el).childElementCount && !rootOf(el) && !flat($(el).textContent) && tag !== "SLOT") {
      suspect(el);
      run.flush();
      addBox(el, here, style);
      return;
    }
    visitChildren(el, here, style, isInlined ? run : null, run, silent, shown);
  };

  const visitControl = (el, role, here, place, silent) => {
    const tag = $(el).tagName, isHidden = tag === "INPUT" && el.type === "hidden";
    const name = place && !isHidden ? nameOf(el, role) : "";
    const isTold = role === "link" && silent && name === nameOf(silent, roleOf(silent));  // a link inside its own tab
    if (place && size(place) >= 4 && !isHidden && !isTold) {
      if (reach(el, place, here.origin)) {
        add(el, role, name, place, keyOf(el), valueOf(el, role), flagsOf(el, role), spotOf(el, place, here.origin));
        if (tag === "SELECT") addOptions(el, here, role === "list box");
      } else hide(el, role, name, keyOf(el));
    }
    if (!FIELDS.has(tag) && role !== "input") for (const child of $(rootOf(el) || el).children) visit(child, here, new Run(el), el);
  };

  const fileName = (url) => (/^data:/.test(url) ? "" : words(url.split(/[?#]/)[0].split("/").pop().replace(/\.\w+$/, "")));
  const pictureName = (el, style) => {
    const drawn = /^url\("(.*)"\)/.exec(style.content);
    return short((drawn && fileName(drawn[1])) || hint(el) || fileName($(el).currentSrc || ""));
  };
  // A box that is only colour or frame: a brick, a field of a board, a bar of a chart.
  const addBox = (el, space, style) => {
    const [x, y, r, b] = rectOf(el, space.origin), [w, h] = [r - x, b - y].map(Math.round);
    const place = clip([x, y, r, b], space.clip), outside = $(el).parentElement;
    const isDrawn = colourName(style.backgroundColor) && (!outside || style.backgroundColor !== styleOf(outside).backgroundColor);
    const isFramed = parseFloat(style.borderTopWidth) >= 1 && parseFloat(style.borderLeftWidth) >= 1;
    if (!place || (!isDrawn && !isFramed) || Math.min(w, h) < 5) return;
    const isWide = w > innerWidth / 2 || h > innerHeight / 2;  // coloured, it is a background; framed, a field to point at
    if (isWide && !isFramed) return;
    const colour = isDrawn ? colourName(style.backgroundColor) : "";
    add(el, "shape", `${["box", colour].filter(Boolean).join(" ")}, ${extent(r - x, b - y, (x + r) / 2, (y + b) / 2)}`,
        place, keyOf(el), null, isWide || isDragged(el) ? ["surface"] : [], spotOf(el, place, space.origin));
  };

  const visitChildren = (el, space, style, shared, outer, silent, shown) => {
    const run = shared || new Run(el), { body, documentElement } = $(el).ownerDocument;
    if (!shared) outer.flush();
    const own = style.overflow !== "visible" && !isInline(style) && el !== body ? clip(rectOf(el, space.origin), space.clip) : space.clip;
    if (!own || size(own) < 4) return;  // one pixel is for screen readers
    if (el !== body && el !== documentElement && scrolls(el, style)) {
      add(el, "scroll area", short($(el).getAttribute("aria-label") || hint(el)), own, keyOf(el), null, ["scrollable"]);
    }
    const isPlaced = style.position !== "static" || style.transform !== "none";
    const inside = { ...space, clip: own, placed: isPlaced ? own : space.placed };
    const isSlot = $(el).tagName === "SLOT", isClosed = $(el).tagName === "DETAILS" && !el.open;
    const nodes = rootOf(el) ? rootOf(el).childNodes : isSlot ? el.assignedNodes({ flatten: true }) : $(el).childNodes;
    for (const node of nodes.length || !isSlot ? nodes : $(el).childNodes) {
      if ($(node).nodeType === 3) { if (!silent && shown) run.take(node, inside); }
      else if ($(node).nodeType === 1 && !(isClosed && $(node).tagName !== "SUMMARY")) visit(node, inside, run, silent);
    }
    if (!shared) run.flush();
  };

  const visitFrame = (el, space, place) => {
    if (!place) return;
    const inside = frameOf(el), origin = insetOf(el, space.origin);
    if (!inside || !inside.body) {
      const isOpen = !inside && reach(el, place, space.origin);  // of another origin: its own world tells what is in it
      add(el, "frame", short(el.title || el.getAttribute("aria-label") || (el.src || el.data || "").split("/")[2] || ""), place, keyOf(el), null, ["surface"]);
      if (isOpen && found.length < MAX_ELEMENTS) found.at(-1).frame = { origin, clip: place };
      return;
    }
    frames.set(inside, { frame: el, origin: space.origin });
    visitDocument(inside, { origin, clip: place, fixed: place, placed: place, depth: space.depth });
  };
  const visitDocument = (one, space) => {
    if (!one.body) return;
    const faded = one.documentElement && isFaded(styleOf(one.documentElement));
    visit(one.body, { ...space, faded }, new Run(one.body), null);
  };
  const walk = () => {
    const whole = screen();
    visitDocument(document, { origin: originOf(document), clip: whole, fixed: whole, placed: whole, depth: 0 });
  };

  // ------------------------------------------------------------------------------------- the element that was seen
  const isAlive = (node) => $(node).isConnected && $(node).ownerDocument.defaultView !== null;
  const isText = (key) => key.includes("#text");
  const bare = (label) => label.replace(/, \d+×\d+ at -?\d+,-?\d+$/, "");  // where a shape is does not name it
  const untimed = (label) => label.replace(/\d+(:\d\d)+|\d+ ?(s|secs?|seconds?|min|minutes?)\b/g, "0");
  // A node that was kept may tick like a clock or change its class; a new one must have the very name.
  const isSame = (entry, seen, kept) => entry.role === seen.role && (bare(entry.label) === bare(seen.label) ||
    (kept && ((entry.isHint && kept.isHint) || untimed(entry.label) === untimed(seen.label))));
  const bring = (node) => ($(node).nodeType === 1 ? $(node) : $($(node).parentElement)).scrollIntoViewIfNeeded();
  const isElsewhere = (from, there) => {
    try { const [a, b] = [new URL(from), new URL(there)]; return a.origin !== b.origin || a.pathname !== b.pathname; } catch { return true; }
  };
  const addressOf = (node) => $(node).ownerDocument.location?.href ?? "";
  // The entry of the element that was seen, found by looking again; null when the page shows it no more.
  const recognise = ({ key, seen }) => {
    request.ignore ??= last.ignore;
    const kept = memory?.get(key), held = kept && isAlive(kept.node) ? kept.node : null;
    if (!memory && seen.from && isElsewhere(seen.from, location.href)) return null;  // another page came meanwhile
    const now = held ?? find(key);
    if (!now || (kept && !held && isElsewhere(kept.from, addressOf(now)))) return null;  // so did another one in its frame
    if (seen.role === "option" && $(now).localName === "option") return recogniseOption(now, key, seen);
    bring(now);
    walk();
    const all = [...entries, ...covered];
    const entry = all.find((each) => held && each.node === held && isText(each.key) === isText(key) && (request.again || isSame(each, seen, kept))) ??
      all.find((each) => each.key === key && isSame(each, seen, null));
    return entry && (isText(key) || request.again || hasSameSurroundings(entry, kept, all)) ? entry : null;
  };
  // Of several things of one name (a "Delete" in each row), the one that was seen stands among the same words.
  const hasSameSurroundings = (entry, kept, all) => {
    const twins = all.filter((each) => each !== entry && each.role === entry.role && each.label === entry.label).map((each) => each.node);
    if (last.spots) return true;
    if (twins.length === 0 && !kept?.twins) return entry.node === kept?.node || !kept || standsInSameRow(entry, kept, all);
    let level = 0, around = entry.node;
    while (level < MAX_LEVELS && (around = $(around).parentElement) && !twins.some((twin) => $(around).contains(twin))) level += 1;
    if (level === 0) {  // side by side in one parent: what stands between them tells them apart
      const now = beside(entry.node, marksOf([entry.node, ...twins]));
      const isSame = !kept?.beside || kept.beside.every((then, i) => untimed(then) === untimed(now[i]));
      return isSame && (entry.node === kept?.node || kept?.twins === twins.length);
    }
    const [then, now] = [kept?.around, surroundings(entry.node)].map((texts) => texts?.[Math.min(level, texts.length) - 1]);
    return then !== undefined && untimed(then) === untimed(now ?? "");
  };
  // A new thing of that name is the one that was seen if the words beside it, up to the next control, are the same.
  const standsInSameRow = (entry, kept, all) => {
    const others = all.filter((each) => each !== entry && $(each.node).nodeType === 1 && roleOf(each.node)).map((each) => each.node), own = wordsIn(entry.node);
    let around = $(entry.node).parentElement;
    for (let level = 0; around && level < MAX_LEVELS && !others.some((other) => $(around).contains(other)); level += 1) {
      const then = kept.around?.[level], now = wordsIn(around);
      if (then !== own || now !== own) return untimed(then ?? "") === untimed(now);
      around = $(around).parentElement;
    }
    return true;
  };
  const surroundings = (node) => {
    const texts = [];
    for (let el = $(node).parentElement; el && texts.length < MAX_LEVELS; el = $(el).parentElement) texts.push(wordsIn(el));
    return texts;
  };
  const marksOf = (nodes) => {  // the nodes and everything around them
    const marks = new Set();
    for (const node of nodes) for (let el = node; el && !marks.has(el); el = $(el).parentElement) marks.add(el);
    return marks;
  };
  // The words before and behind an element, up to the next one that is marked.
  const beside = (node, marks) => ["previousSibling", "nextSibling"].map((way) => {
    const texts = [];
    for (let el = $(node)[way]; el && !marks.has(el) && texts.length < MAX_LABEL; el = $(el)[way]) {
      if ($(el).nodeType === 3) texts.push(el.data.slice(0, MAX_LABEL));
      else if ($(el).nodeType === 1) texts.push(wordsIn(el));
    }
    return flat(texts.join(" ")).slice(0, MAX_LABEL);
  });
  // What is written within an element, names of pictures and contents of fields among it.
  const wordsIn = (el) => {
    const walker = document.createTreeWalker(el, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    let text = "";
    for (let node = el; node && text.length < MAX_LABEL; node = walker.nextNode()) {
      const tag = $(node).nodeType === 1 ? $(node).tagName : null, isWritten = /^(INPUT|TEXTAREA)$/.test(tag) && node.type !== "password";
      const said = tag === null ? node.data : tag === "IMG" ? node.alt || node.title : isWritten ? node.value : "";
      text += " " + flat(said.slice(0, MAX_LABEL));
    }
    return flat(text).slice(0, MAX_LABEL);
  };
  const recogniseOption = (option, key, seen) => {
    const list = $(option).closest("select");
    const isShown = list && list.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    return isShown && short(option.label) === seen.label ? { node: option, role: "option", key, box: null } : null;
  };

  // ---------------------------------------------------------------------------------------------------- single acts
  const tell = (el) => { for (const name of ["input", "change"]) $(el).dispatchEvent(new Event(name, { bubbles: true })); };
  const isRich = (el, role) => $(el).isContentEditable === true ||
    (role === "input" && !FIELDS.has($(el).tagName) && $(el).querySelector("textarea, [contenteditable]:not([contenteditable=false])") !== null);
  const placeOf = (el, entry) => {
    const origin = originOf($(el).ownerDocument);
    if (!entry && !isText(request.key)) $(el).scrollIntoViewIfNeeded();
    const box = clip(boxOf(el, origin), screen()), role = roleOf(el);
    let point = box && reach(el, box, origin);
    if (entry && isText(entry.key)) point = pointOfText(entry, el, origin);
    return { tag: $(el).localName, type: FIELDS.has($(el).tagName) || $(el).tagName === "BUTTON" ? el.type : null, point,
             disabled: $(el).matches(":disabled"), covered: Boolean(box && !point), rich: isRich(el, role),
             editable: role === "input" && !$(el).readOnly && !$(el).disabled };
  };
  const pointOfText = (entry, owner, origin) => {
    if (!entry.box) return null;
    if (styleOf(owner).pointerEvents === "none") return [(entry.box[0] + entry.box[2]) / 2, (entry.box[1] + entry.box[3]) / 2];
    const range = $(owner).ownerDocument.createRange();
    range.selectNodeContents(entry.node);
    return reach(owner, entry.box, origin, [...range.getClientRects()].map((r) => moved(r, origin)));
  };
  const choose = (el, wanted) => {
    const list = $(el).localName === "option" ? el.closest("select") : el;
    if ($(list)?.localName !== "select") return { error: "it is no list" };
    const same = (text) => flat(text).toLowerCase() === flat(wanted).toLowerCase();
    const all = [...list.options];
    const option = $(el).localName === "option" && flat(el.label) === flat(wanted) ? el
      : all.find((each) => flat(each.label) === flat(wanted)) || all.find((each) => same(each.label) || same(each.value)) ||
        all.find((each) => short(each.label) === flat(wanted));
    if (!option) return { error: `it has no option ${JSON.stringify(short(wanted))}` };
    if (list.disabled || option.disabled) return { error: "it is disabled" };
    list.focus();
    if (list.multiple) option.selected = !option.selected; else list.selectedIndex = option.index;
    tell(list);
    return { chosen: short(option.label) };
  };
  const fill = (el, text) => {
    el.focus();
    Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(el, text);  // frameworks replace the property to watch it
    tell(el);
    return { value: bothEnds(el.value) };
  };
  const enter = (frame) => {
    frame.scrollIntoViewIfNeeded();
    const origin = originOf($(frame).ownerDocument), place = clip(rectOf(frame, origin), screen());
    return place && { origin: insetOf(frame, origin), clip: place };
  };

  // ---------------------------------------------------------------------------------------------------- scrolling
  // Which sides something counts from its end: where text runs from right to left, or rows or columns from their end.
  const turned = (el) => {
    const { body } = $(el).ownerDocument, style = styleOf(el === pageOf($(el).ownerDocument) && body ? body : el);
    const isFlex = /flex/.test(styleOf(el).display), isReverse = (way) => isFlex && styleOf(el).flexDirection === `${way}-reverse`;
    const inline = (style.direction === "ltr") === isReverse("row"), block = isReverse("column") !== style.writingMode.endsWith("-rl");
    return style.writingMode.startsWith("horizontal") ? [inline, block] : [block, inline];
  };
  // How far something can still go up, down, left and right.
  const roomOf = (el) => {
    const wide = $(el).scrollWidth - $(el).clientWidth, high = $(el).scrollHeight - $(el).clientHeight;
    if (wide < 1 && high < 1) return { up: 0, down: 0, left: 0, right: 0 };
    const [isWideTurned, isHighTurned] = turned(el);
    const left = $(el).scrollLeft + (isWideTurned ? wide : 0), up = $(el).scrollTop + (isHighTurned ? high : 0);
    return { up, down: high - up, left, right: wide - left };
  };
  const pageOf = (one) => one.scrollingElement || one.documentElement;
  const isHeld = (one, side) => [one.documentElement, one.body].some((el) => el && /hidden|clip/.test(styleOf(el)[side]));
  const pageRoom = (one) => {
    const page = pageOf(one), room = page ? roomOf(page) : { up: 0, down: 0, left: 0, right: 0 };
    if (one.documentElement && isHeld(one, "overflowY")) room.up = room.down = 0;
    if (one.documentElement && isHeld(one, "overflowX")) room.left = room.right = 0;
    return room;
  };
  const canMove = (room, [x, y]) => (y ? (y > 0 ? room.down : room.up) : x > 0 ? room.right : room.left) >= 1;
  const sizeOf = (el) => {
    const box = clip(rectOf(el, originOf($(el).ownerDocument)), screen());
    return box ? size(box) : 0;
  };
  // What moves with the page: its root, and a body that does not scroll by itself.
  const isPagePart = (el) => {
    const { body, documentElement } = $(el).ownerDocument;
    return el === documentElement || (el === body && (pageOf($(el).ownerDocument) === body || styleOf(documentElement).overflow === "visible"));
  };
  const canScroll = (el, [x]) => /auto|scroll/.test(styleOf(el)[x ? "overflowX" : "overflowY"]);
  // The page itself moves; when it cannot, the largest part in the window that can, frames and shadow roots included.
  const movable = (way) => {
    if (!document.body) return null;
    if (canMove(pageRoom(document), way)) return { el: pageOf(document), size: request.frame ? size(screen()) : Infinity };
    const parts = [];
    for (const scope of scopes()) {
      if (scope !== document && scope.nodeType === 9 && scope.body && canMove(pageRoom(scope), way)) {
        const frame = scope.defaultView.frameElement;
        parts.push({ el: pageOf(scope), size: sizeOf(frame) });
      }
      for (const el of scope.querySelectorAll("*")) {
        if (!isPagePart(el) && canMove(roomOf(el), way) && canScroll(el, way) && isRendered(styleOf(el))) parts.push({ el, size: sizeOf(el) });
      }
    }
    return parts.filter((part) => part.size > 0).sort((a, b) => b.size - a.size)[0] ?? null;
  };
  // How high the bar is that stays at that height of the window and hides what scrolls under it; 0 where none does.
  const barAt = (y) => {
    let hit = document.elementFromPoint(innerWidth / 2, y), height = 0;
    for (; hit; hit = $(hit).parentElement) {
      const box = rectOf(hit, [0, 0, 1, 1]), stays = /fixed|sticky/.test(styleOf(hit).position);
      if (stays && box[2] - box[0] > innerWidth / 2) height = y > innerHeight / 2 ? innerHeight - box[1] : box[3];
    }
    return height < innerHeight / 2 ? height : 0;
  };
  const scrollBy = (way) => {
    const part = movable(way);
    if (!part) return { moved: 0 };
    const el = $(part.el), before = [el.scrollLeft, el.scrollTop], view = el.ownerDocument.defaultView;
    const [above, below] = el === pageOf(document) ? [[1, 12], [innerHeight - 1, innerHeight - 12]].map((ys) => Math.max(...ys.map(barAt))) : [0, 0];
    const step = [Math.min(el.clientWidth, view.innerWidth), Math.min(el.clientHeight, view.innerHeight) - above - below];
    el.scrollBy({ left: way[0] * 0.9 * step[0], top: way[1] * 0.9 * step[1], behavior: "instant" });
    return { moved: Math.round(way[1] ? el.scrollTop - before[1] : el.scrollLeft - before[0]) };
  };

  // ---------------------------------------------------------------------------------------------------- requests
  const act = () => {
    let el, entry = null;
    if (request.seen) {
      entry = recognise(request);
      if (!entry) return null;
      el = $(entry.node).nodeType === 1 ? entry.node : $(entry.node).parentElement;
    } else el = find(request.key);
    if (!el || !$(el).isConnected) return null;
    if (request.choose !== undefined) return choose(el, request.choose);
    if (request.fill !== undefined) return fill(el, request.fill);
    if (request.focus) { $(el).focus(); return {}; }
    if (request.enter) return enter(el);
    if (request.hit) return isReached(el, ...request.hit, originOf($(el).ownerDocument));
    return placeOf(el, entry);
  };
  const remember = () => {
    const named = new Map(), marks = new Map(), nameIn = ({ role, label }) => `${role} ${label}`;
    for (const entry of [...entries, ...covered]) {
      if (!named.has(nameIn(entry))) named.set(nameIn(entry), []);
      named.get(nameIn(entry)).push(entry.node);
    }
    for (const entry of entries) {
      entry.from = addressOf(entry.node);
      if (isText(entry.key) || request.spots) continue;  // where spots are asked for, nothing moves between two actions
      const name = nameIn(entry), nodes = named.get(name);
      entry.twins = nodes.length - 1;
      entry.around = surroundings(entry.node);
      if (entry.twins === 0) continue;
      if (!marks.has(name)) marks.set(name, marksOf(nodes));
      entry.beside = beside(entry.node, marks.get(name));
    }
    memory = new Map(entries.map((entry) => [entry.key, entry]));
  };
  const look = () => {
    last = request;
    walk();
    remember();
    const room = pageRoom(document);
    const [above, below, left, right] = [room.up, room.down, room.left, room.right].map((part) => Math.max(0, Math.round(part)));
    return { title: short(document.title), url: cut(location.href, MAX_ADDRESS), width: innerWidth, height: innerHeight,
             elements: found, suspects: suspects.size, above, below, left, right, more: found.length >= MAX_ELEMENTS };
  };
  const answer = (asked) => {
    begin(asked);
    if (asked.scroll && asked.measure) return String(movable(asked.scroll)?.size ?? 0);
    return JSON.stringify(asked.scroll ? scrollBy(asked.scroll) : asked.key !== undefined ? act() : look());
  };
  return Object.assign(answer, { find, take, reveal });
})()
