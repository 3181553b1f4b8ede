// One look at a page: what a person could see and use, in document order.
//
//   (request) => JSON text      {ignore, spots}        the whole screen, with the spots to click at where asked for
//                               {key}                  where that element is now, and what it is
//                               {key, choose: text}    choose an option of a list
//                               {key, fill: text}      set a field that takes no typing (dates, sliders, colours)
//                               {key, focus: true}     put the focus on it
//                               {scroll: 1 or -1}      scroll by one screen
//
// Runs inside the page in one call; looking changes nothing there. Keys are paths of tag names and positions; a step
// "#shadow" enters an open shadow root, "#frame" a frame of the same origin, and "#text3" is the third run of text.
(request) => {
  const MAX_ELEMENTS = 600, MAX_LABEL = 200, MAX_OPTIONS = 12, MAX_OPEN_OPTIONS = 300, MAX_SHAPES = 150;
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

  const flat = (text) => (text || "").replace(/\s+/g, " ").trim();
  const short = (text) => { const t = flat(text); return t.length > MAX_LABEL ? t.slice(0, MAX_LABEL - 1) + "…" : t; };
  const words = (name) => [...new Set(String(name || "").split(/[^\p{L}\p{N}]+/u))].filter(Boolean).slice(0, 5).join(" ");
  const styles = new Map();
  const styleOf = (el) => {
    if (!styles.has(el)) styles.set(el, el.ownerDocument.defaultView.getComputedStyle(el));
    return styles.get(el);
  };
  const isRendered = (style) => style.display !== "none";

  // ---------------------------------------------------------------------------------------------------- keys
  const positions = new Map();
  const positionOf = (el) => {
    if (!positions.has(el)) {
      const counts = {};
      for (const sibling of el.parentNode ? el.parentNode.children : [el]) {
        counts[sibling.localName] = (counts[sibling.localName] || 0) + 1;
        positions.set(sibling, counts[sibling.localName]);
      }
    }
    return positions.get(el);
  };
  const keys = new Map();
  const keyOf = (el) => {
    if (keys.has(el)) return keys.get(el);
    const parent = el.parentNode;
    let before = "";
    if (parent instanceof el.ownerDocument.defaultView.ShadowRoot) before = keyOf(parent.host) + "/#shadow/";
    else if (parent && parent.nodeType === 1) before = keyOf(parent) + "/";
    else if (el.ownerDocument !== document) before = keyOf(el.ownerDocument.defaultView.frameElement) + "/#frame/";
    const key = `${before}${el.localName}[${positionOf(el)}]`;
    keys.set(el, key);
    return key;
  };
  const find = (key) => {
    let scope = document;
    for (const step of key.split("/")) {
      if (step.startsWith("#text")) break;
      if (step === "#shadow") scope = scope.shadowRoot;
      else if (step === "#frame") scope = scope.contentDocument;
      else {
        const [, name, position] = /^(.*)\[(\d+)\]$/.exec(step) || [];
        scope = [...scope.children].filter((child) => child.localName === name)[position - 1];
      }
      if (!scope) return null;
    }
    return scope;
  };

  // ---------------------------------------------------------------------------------------------------- places
  const clip = (a, b) => {
    const c = [Math.max(a[0], b[0]), Math.max(a[1], b[1]), Math.min(a[2], b[2]), Math.min(a[3], b[3])];
    return c[2] - c[0] >= 1 && c[3] - c[1] >= 1 ? c : null;
  };
  const rectOf = (thing, origin) => {
    const r = thing.getBoundingClientRect();
    return [r.left + origin[0], r.top + origin[1], r.right + origin[0], r.bottom + origin[1]];
  };
  const insetOf = (frame, origin) => {
    const r = rectOf(frame, origin), s = styleOf(frame);
    return [r[0] + frame.clientLeft + parseFloat(s.paddingLeft), r[1] + frame.clientTop + parseFloat(s.paddingTop)];
  };
  const isOver = (hit, el) => {
    for (let node = hit; node; node = node.parentNode || node.host) if (node === el) return true;
    return hit.control === el || (hit.closest && hit.closest("label") && hit.closest("label").control === el);
  };
  // A point of the box where a click would reach the element; null when something else covers it.
  const reach = (el, box, origin) => {
    const root = el.getRootNode(), [l, t, r, b] = box, w = r - l, h = b - t;
    for (const [fx, fy] of [[0.5, 0.5], [0.25, 0.5], [0.75, 0.5], [0.5, 0.2], [0.5, 0.8]]) {
      const x = l + w * fx, y = t + h * fy;
      const hit = root.elementFromPoint ? root.elementFromPoint(x - origin[0], y - origin[1]) : null;
      if (hit && (isOver(hit, el) || (hit.shadowRoot && el.getRootNode().host === hit))) return [x, y];
    }
    return null;
  };

  // Where one plain click on an element does all that clicking it means; null when more is to be done first (scroll it
  // into view, open a list), when it is asked for no such thing, or when nothing can be clicked.
  const spotOf = (el, box, origin) => {
    if (!request.spots || !box || el.tagName === "SELECT" || el.type === "file" || el.matches(":disabled")) return null;
    return rectOf(el, origin).every((side, i) => side === box[i]) ? reach(el, box, origin) : null;
  };

  // ---------------------------------------------------------------------------------------------------- names
  const byIds = (el, attribute) => (el.getAttribute(attribute) || "").split(/\s+/).filter(Boolean)
    .map((id) => { const other = el.getRootNode().getElementById?.(id); return other ? other.textContent : ""; }).join(" ");
  const hint = (el) => words(el.getAttribute("name") || el.id || (typeof el.className === "string" ? el.className : ""));
  const inner = (el) => {  // text of a subtree as a reader meets it, pictures by their names
    let text = "";
    for (const node of (el.shadowRoot || el).childNodes) {
      if (node.nodeType === 3) text += node.data;
      else if (node.nodeType === 1 && !SKIPPED.has(node.tagName)) {
        const style = styleOf(node);
        if (!isRendered(style) || style.visibility !== "visible") continue;
        const gap = style.display.startsWith("inline") ? "" : " ";
        if (node.localName === "svg") text += " " + flat(node.getAttribute("aria-label") || node.querySelector("title")?.textContent) + " ";
        else if (node.tagName === "IMG") text += " " + (node.alt || node.title || "") + " ";
        else if (!FIELDS.has(node.tagName)) text += gap + inner(node) + gap;
      } else if (node.nodeType === 1 && node.tagName === "BR") text += " ";
      if (text.length > 4 * MAX_LABEL) break;
    }
    return text;
  };
  const nameOf = (el, role) => {
    const isField = FIELDS.has(el.tagName) || role === "input";
    const isPushed = el.tagName === "INPUT" && role === "button";
    const tries = [
      () => byIds(el, "aria-labelledby"),
      () => el.getAttribute("aria-label"),
      () => isPushed && (el.value || el.alt || ({ submit: "Submit", reset: "Reset" })[el.type]),
      () => isField && el.labels && [...el.labels].map((label) => inner(label)).join(" "),
      () => !isField && inner(el),
      () => el.getAttribute("alt"),
      () => el.getAttribute("title"),
      () => el.getAttribute("placeholder"),
      () => el.querySelector("svg title, [aria-label]")?.getAttribute("aria-label") || el.querySelector("svg title")?.textContent,
      () => hint(el) || (el.firstElementChild && hint(el.firstElementChild)),
    ];
    for (const attempt of tries) { const text = short(attempt() || ""); if (text) return text; }
    return "";
  };

  // ---------------------------------------------------------------------------------------------------- roles
  const active = () => {
    let el = document.activeElement;
    for (;;) {
      const next = el?.shadowRoot?.activeElement || (el?.tagName === "IFRAME" && frameOf(el)?.activeElement);
      if (!next) return el;
      el = next;
    }
  };
  const frameOf = (frame) => { try { return frame.contentDocument; } catch { return null; } };
  const roleOf = (el) => {
    const tag = el.tagName, given = ROLES[el.getAttribute("role")];
    if (tag === "INPUT") return given === "switch" ? given : TYPES[el.type] || "input";
    if (tag === "TEXTAREA") return "input";
    if (tag === "SELECT") return el.multiple || el.size > 1 ? "list box" : "drop-down";
    if (given) return given;
    if (/\bui-slider-handle\b/.test(el.className)) return "slider";
    if (tag === "BUTTON" || tag === "SUMMARY") return "button";
    if ((tag === "A" || tag === "AREA") && el.hasAttribute("href")) return "link";
    const editable = el.getAttribute("contenteditable");
    return editable !== null && editable !== "false" ? "input" : null;
  };
  // Things that react to a click without saying so in their markup.
  const isClickable = (el, style) => el.hasAttribute("onclick") || typeof el.onclick === "function" ||
    (el.hasAttribute("tabindex") && el.tabIndex >= 0) ||
    (style.cursor === "pointer" && (!el.parentElement || styleOf(el.parentElement).cursor !== "pointer"));
  const isInline = (style) => style.display.startsWith("inline") || style.display === "contents";
  const hasOnlyText = (el) => [...el.children].every((child) => {
    if (child.shadowRoot || roleOf(child) || child.localName === "svg" || child.tagName === "IMG") return false;
    const style = styleOf(child);
    return !isRendered(style) || (isInline(style) && !pictured(child, style) && hasOnlyText(child));
  });
  const pictured = (el, style) => style.content.startsWith("url(") ||
    (style.backgroundImage.startsWith("url(") && !el.childElementCount && !flat(el.textContent));
  const scrolls = (el, style) => /auto|scroll/.test(style.overflowY + style.overflowX) &&
    (el.scrollHeight > el.clientHeight + 1 || el.scrollWidth > el.clientWidth + 1);
  const isDragged = (el) => el.draggable && el.hasAttribute("draggable") || /\bui-draggable\b/.test(el.className);
  const flagsOf = (el, role) => {
    const said = (name) => el.getAttribute("aria-" + name) === "true";
    const isText = role === "input" && !el.readOnly && !el.disabled;
    return [
      [el.checked === true && (role === "checkbox" || role === "radio" || role === "switch") || said("checked"), "checked"],
      [said("selected"), "selected"],
      [el === focus, "focused"],
      [el.disabled === true || said("disabled") || el.matches(":disabled"), "disabled"],
      [el.tagName === "TEXTAREA" && el.scrollHeight > el.clientHeight + 1, "scrollable"],
      [isText, "editable"],
      [said("expanded") || (el.tagName === "SUMMARY" && el.parentElement?.open), "expanded"],
      [el.type === "password", "password"],
      [role === "slider" || isDragged(el), "surface"],
    ].filter(([holds]) => holds).map(([, flag]) => flag);
  };
  const valueOf = (el, role) => {
    if (el.tagName === "SELECT") return [...el.selectedOptions].map((option) => short(option.label)).join(", ");
    if (el.type === "password") return "•".repeat(el.value.length);
    if (el.type === "file") return [...el.files].map((file) => file.name).join(", ");
    if (role === "input") {
      const held = flat("value" in el ? el.value : el.textContent);  // of a long text, both ends
      return held.length > 300 ? `${held.slice(0, 200)} … ${held.slice(-97)}` : held;
    }
    if (role === "slider") return "value" in el ? String(el.value) : el.getAttribute("aria-valuetext") || el.getAttribute("aria-valuenow");
    if (role === "drop-down") return "value" in el ? short(el.value) : null;
    return null;
  };

  // ---------------------------------------------------------------------------------------------------- single acts
  const focus = active();
  const tell = (el) => { for (const name of ["input", "change"]) el.dispatchEvent(new Event(name, { bubbles: true })); };
  const placeOf = (el, isText) => {
    let origin = [0, 0];
    const frames = [];
    for (let view = el.ownerDocument.defaultView; view !== window; view = view.parent) frames.unshift(view.frameElement);
    for (const frame of frames) origin = insetOf(frame, origin);
    if (!isText) el.scrollIntoViewIfNeeded();
    const box = clip(rectOf(el, origin), [0, 0, innerWidth, innerHeight]);
    const point = box && reach(el, box, origin), role = roleOf(el);
    return { tag: el.localName, type: el.type || null, point, disabled: el.matches(":disabled"), covered: Boolean(box && !point),
             editable: role === "input" && !el.readOnly && !el.disabled };
  };
  const choose = (el, wanted) => {
    const list = el.localName === "option" ? el.closest("select") : el;
    if (!(list?.options)) return { error: "it is no list" };
    const same = (text) => flat(text).toLowerCase() === flat(wanted).toLowerCase();
    const all = [...list.options];
    const option = all.find((each) => flat(each.label) === flat(wanted)) || all.find((each) => same(each.label) || same(each.value));
    if (!option) return { error: `it has no option ${JSON.stringify(short(wanted))}` };
    if (list.disabled || option.disabled) return { error: "it is disabled" };
    list.focus();
    if (list.multiple) option.selected = !option.selected; else list.selectedIndex = option.index;
    tell(list);
    return { chosen: short(option.label) };
  };
  const fill = (el, text) => {
    const set = Object.getOwnPropertyDescriptor(el.ownerDocument.defaultView.HTMLInputElement.prototype, "value").set;
    el.focus();
    set.call(el, text);  // the native setter: frameworks replace the property to watch it
    tell(el);
    return { value: el.value };
  };
  // The page itself moves; when it cannot, the largest scroll area in the window that can.
  const scrollBy = (direction) => {
    const room = (el) => (direction > 0 ? el.scrollHeight - el.clientHeight - el.scrollTop : el.scrollTop) >= 1;
    const screen = [0, 0, innerWidth, innerHeight], page = document.scrollingElement || document.documentElement;
    if (!page || !document.body) return { moved: 0 };
    const size = (el) => { const box = clip(rectOf(el, [0, 0]), screen); return box ? (box[2] - box[0]) * (box[3] - box[1]) : 0; };
    const isHeld = [page, document.body].some((el) => /hidden|clip/.test(styleOf(el).overflowY));
    const areas = () => [...document.querySelectorAll("body *")].filter((el) => room(el) && scrolls(el, styleOf(el)) && size(el))
      .sort((a, b) => size(b) - size(a));
    const el = !isHeld && room(page) ? page : areas()[0];
    if (!el) return { moved: 0 };
    const before = el.scrollTop;
    el.scrollBy({ top: direction * 0.9 * Math.min(el.clientHeight, innerHeight), behavior: "instant" });
    return { moved: Math.round(el.scrollTop - before) };
  };
  if (request.scroll !== undefined) return JSON.stringify(scrollBy(request.scroll));
  if (request.key !== undefined) {
    const el = find(request.key);
    if (!el || !el.isConnected) return "null";
    if (request.choose !== undefined) return JSON.stringify(choose(el, request.choose));
    if (request.fill !== undefined) return JSON.stringify(fill(el, request.fill));
    if (request.focus) { el.focus(); return "{}"; }
    return JSON.stringify(placeOf(el, request.key.includes("#text")));
  }

  // ---------------------------------------------------------------------------------------------------- the walk
  const found = [];
  const add = (role, label, box, key, value = null, flags = [], spot = null) => {
    if (found.length < MAX_ELEMENTS) {
      const whole = box && [Math.floor(box[0]), Math.floor(box[1]), Math.ceil(box[2]), Math.ceil(box[3])];
      found.push({ role, label, box: whole, key, value, flags, spot });
    }
  };

  // Runs of inline text become one element each; whatever interrupts them is told in its place.
  class Run {
    constructor(owner) { this.owner = owner; this.count = 0; this.clear(); }
    clear() { this.text = ""; this.nodes = []; this.space = null; }
    take(node, space) { this.text += node.data; if (flat(node.data)) { this.nodes.push(node); this.space = space; } }
    flush() {
      const label = short(this.text);
      if (label && this.nodes.length) {
        const range = this.owner.ownerDocument.createRange(), whole = [Infinity, Infinity, -Infinity, -Infinity];
        for (const node of this.nodes) {  // one by one: a run may begin in a shadow root and go on in a slot
          range.selectNodeContents(node);
          const r = rectOf(range, this.space.origin);
          if (r[2] > r[0]) for (const i of [0, 1]) { whole[i] = Math.min(whole[i], r[i]); whole[i + 2] = Math.max(whole[i + 2], r[i + 2]); }
        }
        const box = clip(whole, this.space.clip);
        this.count += 1;
        if (box) add(BLOCKS[this.owner.tagName] || "text", label, box, `${keyOf(this.owner)}/#text${this.count}`);
      }
      this.clear();
    }
  }

  const addOptions = (el, box, isOpen) => {
    const limit = isOpen || el === focus ? MAX_OPEN_OPTIONS : MAX_OPTIONS;
    if (el.options.length > limit) return;
    for (const option of el.options) {
      const style = styleOf(option);
      if (option.hidden || !isRendered(style)) continue;
      const place = isOpen ? clip(rectOf(option, box.origin), box.clip) : null;
      if (isOpen && !place) continue;
      add("option", short(option.label), place, keyOf(option), null,
          [option.selected && "selected", option.disabled && "disabled"].filter(Boolean));
    }
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
  const addShape = (el, space, area) => {
    const box = clip(rectOf(el, space.origin), space.clip), style = styleOf(el);
    if (!box || style.visibility !== "visible") return;
    const [x, y] = [(box[0] + box[2]) / 2 - area[0], (box[1] + box[3]) / 2 - area[1]].map(Math.round);
    const [w, h] = [box[2] - box[0], box[3] - box[1]].map(Math.round);
    const words = flat(el.getAttribute("aria-label") || (el.localName === "text" ? el.textContent : el.querySelector("title")?.textContent));
    const colour = colourName(style.fill) || colourName(style.stroke);
    if (w < 3 && h < 3) return;
    const isText = el.localName === "text", tint = isText && colour === "black" ? "" : colour;
    const label = [isText ? words : el.localName, tint, !isText && words].filter(Boolean).join(" ");
    const isLoose = ["line", "polyline", "path"].includes(el.localName) || w * h > 0.5 * (area[2] - area[0]) * (area[3] - area[1]);
    add(isText ? "text" : "shape", short(`${label}, ${w}×${h} at ${x},${y}`), box, keyOf(el), null,
        isLoose || isDragged(el) ? ["surface"] : [], spotOf(el, box, space.origin));
  };
  const addDrawing = (el, space, style) => {
    const box = clip(rectOf(el, space.origin), space.clip);
    if (!box || style.visibility !== "visible") return;
    const shapes = [...el.querySelectorAll("*")].filter((child) => SHAPES.has(child.localName) && !child.closest("defs, clipPath, mask, symbol, pattern"));
    const label = short(el.getAttribute("aria-label") || el.querySelector(":scope > title")?.textContent || "");
    const isIcon = shapes.every((shape) => shape.localName === "path") || shapes.length > MAX_SHAPES || (box[2] - box[0]) * (box[3] - box[1]) < 600;
    if (isIcon && !label && !isClickable(el, style)) return;
    add(isIcon ? "image" : "drawing", label || (isIcon ? hint(el) : ""), box, keyOf(el), null, ["surface"], spotOf(el, box, space.origin));
    if (!isIcon) for (const shape of shapes) addShape(shape, space, rectOf(el, space.origin));
  };

  // space: {origin, clip, fixed, placed}: where (0, 0) of the document is, and what cuts static, fixed and placed boxes.
  const visit = (el, space, run, silent) => {
    const tag = el.tagName;
    if (SKIPPED.has(tag)) { if (tag === "BR") run.text += " "; return; }
    if (request.ignore && el.matches(request.ignore)) return;
    const style = styleOf(el);
    if (!isRendered(style) || style.contentVisibility === "hidden") return;
    const cut = style.position === "fixed" ? space.fixed : style.position === "absolute" ? space.placed : space.clip;
    const here = { ...space, clip: cut };
    const isInlined = isInline(style) && style.float === "none" && !["absolute", "fixed"].includes(style.position);
    if (tag === "LABEL" && el.control && !silent) {
      const control = el.control, box = clip(rectOf(control, here.origin), here.clip);
      const isSeen = box && isRendered(styleOf(control)) && styleOf(control).visibility === "visible" && styleOf(control).opacity !== "0";
      if (isSeen) silent = el;  // the control tells this text as its name
      else if (roleOf(control) !== "input") {
        run.flush();
        const own = clip(rectOf(el, here.origin), here.clip);
        if (own && control.type !== "hidden") {
          add(roleOf(control), nameOf(control, roleOf(control)) || short(inner(el)), own, keyOf(el), null,
              flagsOf(control, roleOf(control)), spotOf(el, own, here.origin));
        }
        return;
      }
    }
    const role = el.localName === "svg" ? null : roleOf(el);
    const shown = style.visibility === "visible" && style.opacity !== "0";
    const box = () => clip(rectOf(el, here.origin), here.clip);
    if (el.localName === "svg") { run.flush(); if (!silent || silent.tagName === "LABEL") addDrawing(el, here, style); return; }
    if (role) {
      run.flush();
      const place = shown ? box() : null;
      const name = place && el.type !== "hidden" ? nameOf(el, role) : "";
      const isTold = role === "link" && silent && name === nameOf(silent, roleOf(silent));  // a link inside its own tab
      if (place && el.type !== "hidden" && !isTold && reach(el, place, here.origin)) {
        add(role, name, place, keyOf(el), valueOf(el, role), flagsOf(el, role), spotOf(el, place, here.origin));
        if (tag === "SELECT") addOptions(el, here, role === "list box");
      }
      if (!FIELDS.has(tag) && role !== "input") for (const child of (el.shadowRoot || el).children) visit(child, here, new Run(el), el);
      return;
    }
    if (tag === "IFRAME" || tag === "FRAME") { run.flush(); visitFrame(el, here, shown && box()); return; }
    if (tag === "IMG" || tag === "CANVAS" || tag === "VIDEO" || tag === "AUDIO" || pictured(el, style)) {
      const place = shown || (style.visibility === "visible" && isClickable(el, style)) ? box() : null;
      const label = short(el.getAttribute("aria-label") || el.getAttribute("alt") || el.getAttribute("title") || "");
      const isTold = silent && silent.tagName !== "LABEL" && !isClickable(el, style);
      if (place && !isTold && (label || (place[2] - place[0]) * (place[3] - place[1]) >= 64)) {
        run.flush();
        add(tag === "CANVAS" ? "canvas" : tag === "VIDEO" || tag === "AUDIO" ? tag.toLowerCase() : "image", label || pictureName(el, style), place,
            keyOf(el), null, tag === "CANVAS" || isDragged(el) ? ["surface"] : [], spotOf(el, place, here.origin));
      }
      return;
    }
    if (!silent && shown && (isDragged(el) || (isClickable(el, style) && hasOnlyText(el)))) {
      const place = box(), label = place && nameOf(el, null);
      if (label && reach(el, place, here.origin)) {
        run.flush();
        const kind = el.closest("li") === el ? "list item" : BLOCKS[tag] || (isInlined ? "link" : "item");
        add(kind, label, place, keyOf(el), null, flagsOf(el, kind), spotOf(el, place, here.origin));
        return;
      }
    }
    if (!silent && shown && !el.childElementCount && !el.shadowRoot && !flat(el.textContent) && tag !== "SLOT") {
      run.flush();
      addBox(el, here, style);
      return;
    }
    visitChildren(el, here, style, isInlined ? run : null, run, silent, shown);
  };

  const fileName = (url) => (/^data:/.test(url) ? "" : words(url.split(/[?#]/)[0].split("/").pop().replace(/\.\w+$/, "")));
  const pictureName = (el, style) => {
    const drawn = /^url\("(.*)"\)/.exec(style.content);
    return (drawn && fileName(drawn[1])) || hint(el) || fileName(el.currentSrc || "");
  };
  // A box that is only colour or frame: a brick, a field of a board, a bar of a chart.
  const addBox = (el, space, style) => {
    const [x, y, r, b] = rectOf(el, space.origin), [w, h] = [r - x, b - y].map(Math.round);
    const place = clip([x, y, r, b], space.clip);
    const isDrawn = colourName(style.backgroundColor) && style.backgroundColor !== styleOf(el.parentElement).backgroundColor;
    const isFramed = parseFloat(style.borderTopWidth) >= 1 && parseFloat(style.borderLeftWidth) >= 1;
    if (!place || (!isDrawn && !isFramed) || Math.min(w, h) < 5) return;
    const isWide = w > innerWidth / 2 || h > innerHeight / 2;  // coloured, it is a background; framed, a field to point at
    if (isWide && !isFramed) return;
    const colour = isDrawn ? colourName(style.backgroundColor) : "";
    add("shape", `${["box", colour].filter(Boolean).join(" ")}, ${w}×${h} at ${Math.round((x + r) / 2)},${Math.round((y + b) / 2)}`,
        place, keyOf(el), null, isWide || isDragged(el) ? ["surface"] : [], spotOf(el, place, space.origin));
  };

  const visitChildren = (el, space, style, shared, outer, silent, shown) => {
    const run = shared || new Run(el);
    if (!shared) outer.flush();
    const own = style.overflow !== "visible" && !isInline(style) && el !== el.ownerDocument.body ? clip(rectOf(el, space.origin), space.clip) : space.clip;
    if (!own) return;
    if (el !== el.ownerDocument.body && el !== el.ownerDocument.documentElement && scrolls(el, style)) {
      add("scroll area", short(el.getAttribute("aria-label") || hint(el)), own, keyOf(el), null, ["scrollable"]);
    }
    const isPlaced = style.position !== "static" || style.transform !== "none";
    const inside = { ...space, clip: own, placed: isPlaced ? own : space.placed };
    const nodes = el.shadowRoot ? el.shadowRoot.childNodes : el.tagName === "SLOT" ? el.assignedNodes({ flatten: true }) : el.childNodes;
    const isClosed = el.tagName === "DETAILS" && !el.open;
    for (const node of nodes.length || el.tagName !== "SLOT" ? nodes : el.childNodes) {
      if (node.nodeType === 3) { if (!silent && shown) run.take(node, inside); }
      else if (node.nodeType === 1 && !(isClosed && node.tagName !== "SUMMARY")) visit(node, inside, run, silent);
    }
    if (!shared) run.flush();
  };

  const visitFrame = (el, space, place) => {
    if (!place) return;
    const inner = frameOf(el);
    if (!inner || !inner.body) {
      add("frame", short(el.title || el.getAttribute("aria-label") || (el.src || "").split("/")[2] || ""), place, keyOf(el), null, ["surface"]);
      return;
    }
    const origin = insetOf(el, space.origin);
    visit(inner.body, { origin, clip: place, fixed: place, placed: place }, new Run(inner.body), null);
  };

  const screen = [0, 0, innerWidth, innerHeight];
  if (document.body) visit(document.body, { origin: [0, 0], clip: screen, fixed: screen, placed: screen }, new Run(document.body), null);
  const page = document.scrollingElement || document.documentElement || { scrollTop: 0, scrollHeight: 0, clientHeight: 0 };
  return JSON.stringify({
    title: short(document.title), url: location.href, width: innerWidth, height: innerHeight, elements: found,
    above: Math.round(page.scrollTop), below: Math.max(0, Math.round(page.scrollHeight - page.clientHeight - page.scrollTop)),
    more: found.length >= MAX_ELEMENTS,
  });
}
