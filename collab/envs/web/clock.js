// A clock that only moves when it is told to, for pages that must behave the same however fast they are driven.
//
// Runs before the page's own scripts and replaces timers, animation frames, Date, performance.now and Math.random
// (until the page seeds it). Between two actions time stands still: nothing moves under the mouse, and an episode
// replayed from its actions ends in the same state. After an action the clock runs on in one go, so that an
// animation of 400 ms costs no waiting. CSS transitions, layout and the network stay real.
//
//   pageClock.advance(ms)   run what falls due in the next ms milliseconds
//   pageClock.rewind()      back to the first moment; false, and nothing done, while timers are pending (a library
//                           that waits for its timer would wait for ever)
(() => {
  if (window.pageClock) return;
  const RealDate = Date, EPOCH = RealDate.UTC(2023, 9, 15, 15, 34), FRAME_MS = 16, MOST_CALLS = 20000;
  const timers = new Map();
  let elapsed = 0, serial = 0, draw = 1;

  const add = (run, delay, every, args) => {
    const id = ++serial;
    timers.set(id, { id, run, args, every, due: elapsed + Math.max(1, Number(delay) || 0) });
    return id;
  };
  const remove = (id) => { timers.delete(id); };
  window.setTimeout = (run, delay, ...args) => add(run, delay, null, args);
  window.setInterval = (run, delay, ...args) => add(run, delay, Math.max(1, Number(delay) || 0), args);
  window.requestAnimationFrame = (run) => add(() => run(elapsed), FRAME_MS, null, []);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = remove;
  performance.now = () => elapsed;
  Math.random = () => (draw = (draw * 16807) % 2147483647) / 2147483647;
  window.Date = new Proxy(RealDate, {
    construct: (date, args, target) => Reflect.construct(date, args.length ? args : [EPOCH + elapsed], target),
    apply: () => new RealDate(EPOCH + elapsed).toString(),
    get: (date, name) => (name === "now" ? () => EPOCH + elapsed : Reflect.get(date, name)),
  });

  const firstDue = (end) => {
    let first = null;
    for (const timer of timers.values()) if (timer.due <= end && (first === null || timer.due < first.due)) first = timer;
    return first;
  };
  const run = (timer) => {
    try {
      if (typeof timer.run === "function") timer.run(...timer.args); else (0, eval)(timer.run);
    } catch (error) { console.error(error); }
  };
  const advance = (ms) => {
    const end = elapsed + ms;
    for (let calls = 0, timer; calls < MOST_CALLS && (timer = firstDue(end)); calls++) {
      elapsed = Math.max(elapsed, timer.due);
      if (timer.every === null) timers.delete(timer.id); else timer.due += timer.every;
      run(timer);
    }
    elapsed = end;
  };
  const rewind = () => {
    if (timers.size) return false;
    elapsed = serial = 0;
    return true;
  };
  window.pageClock = { advance, rewind };
})();
