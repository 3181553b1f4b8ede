// What the environment asks of a MiniWoB++ page, one call each. Runs before the page's own scripts, after clock.js
// and with dom.js as __collabLook.
//
//   miniwob.start({seed, timeLimit, mode, settle, fresh})  begin an episode; null when the page must be loaded again
//   miniwob.look(ms)                                       let time pass, then tell the state and the screen
//   miniwob.edit(text, clear)                              make the focused field ready for typing
//   miniwob.scroll(point, direction)                       show what lies in that direction
//   miniwob.blur()                                         take the focus away; false when nothing had it
(() => {
  if (window.miniwob) return;
  const IGNORED = "#query, #reward-display, #click-canvas, #sync-task-cover";
  const LONGEST_MS = 2 ** 31 - 1, DRAIN_MS = 3000;

  // The reward display is not part of the task, and the start button would begin an episode behind our back.
  // A blinking cursor would make two pictures of one state.
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("#reward-display, #click-canvas, #sync-task-cover { display: none !important; }" +
                    "* { caret-color: transparent !important; }");
  document.adoptedStyleSheets = [sheet];

  console.log = () => {};  // pages report their rewards there, and every line would be sent to nobody

  // A page cannot be left: its handlers run, the browser's own answer to a form or a link does not.
  window.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("click", (event) => {
    const link = event.target.closest && event.target.closest("a[href]");
    if (link && !/^(#|javascript:)/.test(link.getAttribute("href"))) event.preventDefault();
  });

  // dom.js shows what reacts to a click; a handler added by script leaves no other trace.
  const listen = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    const isPart = this instanceof HTMLElement && !["area", "wrap"].includes(this.id) && this !== document.body;
    if (isPart && type === "click" && !this.onclick) this.onclick = () => {};
    return listen.call(this, type, ...rest);
  };

  // A coloured box without words is told by its colour, as a person would tell it.
  const COLOURS = ["black", "white", "grey", "red", "blue", "olive", "lime", "green", "purple", "orange", "yellow", "cyan",
                   "pink", "magenta", "brown", "teal", "navy", "maroon", "silver", "violet", "indigo", "gold"];
  const names = new Map();
  const colourName = (css) => {
    if (names.size === 0) {
      const probe = document.createElement("i");
      document.body.append(probe);
      for (const name of COLOURS) { probe.style.color = name; names.set(getComputedStyle(probe).color, name); }
      probe.remove();
    }
    const parts = (css.match(/[\d.]+/g) || []).map(Number);
    if (parts.length < 3 || parts[3] === 0) return null;
    return names.get(css) || `rgb ${parts.slice(0, 3).join(" ")}`;
  };
  // A dialog can be dragged, but is no single thing: what stands in it is to be told.
  const DRAGGED = ["ui-draggable", "ui-draggable-handle"];
  const annotate = () => {
    for (const part of document.querySelectorAll(".ui-dialog, .ui-dialog-titlebar")) part.classList.remove(...DRAGGED);
    for (const handle of document.querySelectorAll(".ui-slider-handle")) {
      const slider = jQuery(handle).parent();
      handle.setAttribute("role", "slider");
      handle.setAttribute("aria-label", "slider");
      handle.setAttribute("aria-valuenow", slider.slider("value"));
    }
    for (const el of document.querySelectorAll("#area div, #area span")) {
      if (!el.onclick || el.childElementCount || el.textContent.trim()) continue;
      const name = colourName(getComputedStyle(el).backgroundColor);
      if (name) el.setAttribute("aria-label", name);
    }
  };

  let goal = "";
  const state = () => {
    annotate();
    const episode = { goal, done: WOB_DONE_GLOBAL, raw: Number(WOB_RAW_REWARD_GLOBAL) || 0,
                      reward: Number(WOB_REWARD_GLOBAL) || 0, reason: String(WOB_REWARD_REASON ?? "") };
    return `[${JSON.stringify(episode)}, ${__collabLook({ ignore: IGNORED, spots: true, scale: devicePixelRatio })}]`;
  };
  // An icon takes no room before it has arrived: all that the page may ever show are fetched first, and kept.
  const kept = [];
  const fetchPictures = () => {
    const named = new Set(document.documentElement.outerHTML.match(/\.\.\/common\/[\w.\/-]+\.(png|gif|svg|jpg)/g));
    for (const address of named) { const picture = new Image(); picture.src = address; kept.push(picture); }
    return arrived(kept);
  };
  const arrived = (pictures) => Promise.allSettled(pictures.filter((one) => !one.complete).map((one) => one.decode()));

  // What was typed into a field hides what its page writes there later, until its form is reset.
  const emptyFields = () => {
    const form = document.createElement("form");
    form.id = "all-fields";
    document.body.append(form);
    const fields = [...document.querySelectorAll("input, textarea, select")].filter((field) => !field.form);
    for (const field of fields) field.setAttribute("form", form.id);
    form.reset();
    for (const field of fields) field.removeAttribute("form");
    form.remove();
  };

  let ownLimit = null;
  const start = async ({ seed, timeLimit, mode, settle, fresh }) => {
    if (fresh) await fetchPictures();
    core.endEpisode(0);
    document.body.dispatchEvent(new MouseEvent("mousedown", { bubbles: true }));  // closes what is open
    if (!fresh) {
      pageClock.advance(DRAIN_MS);
      if (!pageClock.rewind()) return null;
      emptyFields();
    }
    if (document.activeElement) document.activeElement.blur();
    for (const el of document.querySelectorAll("#wrap, #wrap *")) if (el.scrollTop || el.scrollLeft) el.scrollTo(0, 0);
    if (location.hash) history.replaceState(null, "", location.pathname);
    ownLimit ??= core.EPISODE_MAX_TIME;
    core.EPISODE_MAX_TIME = timeLimit ? ownLimit : LONGEST_MS;
    core.setDataMode(mode);
    Math.seedrandom(seed);
    core.startEpisodeReal();
    await arrived([...document.images]);
    pageClock.advance(settle);
    const told = core.getUtterance();
    goal = typeof told === "string" ? told : told.utterance;
    return state();
  };
  const look = (ms) => { pageClock.advance(ms); return state(); };

  // ------------------------------------------------------------------------------------------------------ hands
  const tell = (el, ...types) => { for (const type of types) el.dispatchEvent(new Event(type, { bubbles: true })); };
  const SET = /^(date|time|month|week|color|range|datetime-local)$/, UNTYPED = /^(button|submit|reset|checkbox|radio|file|image)$/;
  // Makes the focused field ready for typing: "keys" when keys should follow, "set" when the value is in, null when
  // nothing that can be typed into has the focus.
  const edit = (text, clear) => {
    const el = document.activeElement;
    if (el && el.isContentEditable) {
      const range = document.createRange();
      range.selectNodeContents(el);
      if (!clear) range.collapse(false);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      return "keys";
    }
    if (!el || !/^(INPUT|TEXTAREA)$/.test(el.tagName) || el.readOnly || el.disabled) return null;
    if (SET.test(el.type)) {
      el.value = text;
      tell(el, "input", "change");
      return "set";
    }
    if (UNTYPED.test(el.type)) return null;
    if (clear) el.select();
    else if (el.setSelectionRange && /^(text|search|url|tel|password|textarea|input)$/.test(el.type)) el.setSelectionRange(el.value.length, el.value.length);
    return "keys";
  };

  const STEPS = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0] };
  const canScroll = (el, [x, y]) => {
    const isPage = el === document.scrollingElement, style = getComputedStyle(el);
    if (!isPage && (y ? !/auto|scroll/.test(style.overflowY) : !/auto|scroll/.test(style.overflowX))) return false;
    const [at, most] = y ? [el.scrollTop, el.scrollHeight - el.clientHeight] : [el.scrollLeft, el.scrollWidth - el.clientWidth];
    return most > 1 && ((x || y) > 0 ? at < most - 1 : at > 0);
  };
  // Scrolls what lies at the point, else the page, else the largest part that can; false when nothing moves.
  const scroll = (point, direction) => {
    const step = STEPS[direction], page = document.scrollingElement, tries = [];
    for (let el = point && document.elementFromPoint(...point); el; el = el.parentElement) tries.push(el);
    const size = (el) => el.clientWidth * el.clientHeight;
    tries.push(page, ...[...document.querySelectorAll("#area, #area *")].sort((a, b) => size(b) - size(a)));
    const el = tries.find((one) => canScroll(one, step));
    if (!el) return false;
    el.scrollBy({ left: step[0] * el.clientWidth * 0.8, top: step[1] * el.clientHeight * 0.8, behavior: "instant" });
    tell(el === page ? document : el, "scroll");
    return true;
  };
  const blur = () => {
    const el = document.activeElement;
    if (!el || el === document.body) return false;
    el.blur();
    return true;
  };
  window.miniwob = { start, look, edit, scroll, blur };
})();
