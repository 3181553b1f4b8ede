/**
 * Where the agents of a graph stand when it is drawn from left to right: one column per layer, and edges that skip
 * layers led through places of their own, so that they pass no agent.
 */

/** @typedef {[string, string]} Edge speaker, hearer */
/** @typedef {{key: string, agent: string | null, column: number, row: number}} Place agent: null where an edge passes */

/**
 * @param {string[][]} layers agents by layer
 * @param {Edge[]} edges
 * @returns {{places: Map<string, Place>, routes: Map<string, string[]>, rows: number}} routes: edge → keys of places
 */
export function arrange(layers, edges) {
  const column = new Map(layers.flatMap((layer, place) => layer.map((agent) => [agent, place])));
  const columns = layers.map((layer) => layer.map((agent) => agentKey(agent)));
  /** @type {Map<string, string[]>} */
  const routes = new Map();
  for (const [speaker, hearer] of edges) {
    const [from, to] = [column.get(speaker), column.get(hearer)];
    if (from === undefined || to === undefined) continue;
    const route = [agentKey(speaker)];
    for (let between = from + 1; between < to; between++) {
      const key = `edge ${edgeKey(speaker, hearer)} ${between}`;
      columns[between].push(key);
      route.push(key);
    }
    routes.set(edgeKey(speaker, hearer), [...route, agentKey(hearer)]);
  }
  sortColumns(columns, [...routes.values()]);
  return { places: placesOf(columns), routes, rows: Math.max(1, ...columns.map((one) => one.length)) };
}

/** @param {string} speaker @param {string} hearer */
export function edgeKey(speaker, hearer) {
  return JSON.stringify([speaker, hearer]);
}

/** @param {string} agent */
export function agentKey(agent) {
  return `agent ${agent}`;
}

/** Sort each column by the mean height of its neighbours, forth and back: most crossings go away. @param {string[][]} columns @param {string[][]} routes */
function sortColumns(columns, routes) {
  const sweeps = [...columns.keys(), ...[...columns.keys()].reverse()];
  for (const [pass, at] of sweeps.entries()) {
    const side = pass < columns.length ? -1 : 1;
    const beside = columns[at + side];
    if (!beside) continue;
    const height = new Map(beside.map((key, row) => [key, row - (beside.length - 1) / 2]));
    const mean = new Map(
      columns[at].map((key, row) => [key, meanHeight(key, routes, side, height) ?? row - (columns[at].length - 1) / 2]),
    );
    columns[at].sort((one, other) => Number(mean.get(one)) - Number(mean.get(other)));
  }
}

/** @param {string} key @param {string[][]} routes @param {number} side @param {Map<string, number>} height */
function meanHeight(key, routes, side, height) {
  const heights = routes
    .flatMap((route) => route.map((one, place) => (one === key ? route[place + side] : undefined)))
    .map((neighbour) => (neighbour === undefined ? undefined : height.get(neighbour)))
    .filter((value) => value !== undefined);
  return heights.length ? heights.reduce((sum, value) => sum + Number(value), 0) / heights.length : null;
}

/** @param {string[][]} columns @returns {Map<string, Place>} */
function placesOf(columns) {
  const most = Math.max(1, ...columns.map((one) => one.length));
  const places = new Map();
  for (const [column, keys] of columns.entries()) {
    for (const [row, key] of keys.entries()) {
      const agent = key.startsWith("agent ") ? key.slice("agent ".length) : null;
      places.set(key, { key, agent, column, row: row + (most - keys.length) / 2 });
    }
  }
  return places;
}
