// Who is alike: dendrogram above, heat map below, one threshold through both.
//
// Leaves stand in the order of the dendrogram, so every cluster is a stretch of neighbours, and `walls[i]` is the height
// of the merge that joins places i and i + 1. A cut at beta parts them where the wall is higher: no tree is walked.

const COLOURS = ["#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#6b8e23", "#c0679a", "#3c9dd0"];
const HEAT = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"];
const MOST_LISTED = 60;
const MOST_MEMBERS = 30;

// Places at which clusters begin.
function cut(walls, beta) {
  const starts = [0];
  walls.forEach((wall, i) => wall > beta && starts.push(i + 1));
  return starts;
}

// A cluster is coloured by its first place, and places by the height of the wall before them: when a cluster is split
// one part keeps its colour, and nobody else changes.
function colourOfPlace(walls) {
  const rank = new Array(walls.length + 1).fill(0);
  walls.map((wall, i) => [wall, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).forEach(([, i], n) => (rank[i + 1] = n + 1));
  return rank.map((n) => COLOURS[n % COLOURS.length]);
}

function clustersAt(group, beta) {
  const n = group.walls.length + 1;
  group.colours ??= colourOfPlace(group.walls);
  const starts = cut(group.walls, beta);
  const clusters = starts.map((start, k) => ({ start, end: starts[k + 1] ?? n, colour: group.colours[start] }));
  const at = new Int32Array(n);
  clusters.forEach((cluster, k) => at.fill(k, cluster.start, cluster.end));
  return { clusters, at };
}

const clientAt = (group, place) => unpack(group.clients)[unpack(group.order)[place]];

function placeOf(group, client) {
  group.places ??= new Map(Array.from({ length: group.walls.length + 1 }, (_, place) => [clientAt(group, place), place]));
  return group.places.get(client);
}

// Degrees between two places; the mean of a block where there are more clients than cells.
function angle(group, a, b) {
  const side = group.heat.shape[0];
  const n = group.walls.length + 1;
  const cell = (place) => Math.min(side - 1, Math.floor(((place + 0.5) * side) / n));
  return unpack(group.heat)[cell(a) * side + cell(b)] * group.degrees_per_step;
}

function heatColours() {
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (HEAT.length - 1);
    const low = Math.min(Math.floor(at), HEAT.length - 2);
    const [a, b] = [rgb(HEAT[low]), rgb(HEAT[low + 1])];
    return a.map((value, c) => value + (at - low) * (b[c] - value));
  });
}

function heatPicture(group) {
  if (group.picture) return group.picture;
  const side = group.heat.shape[0];
  const canvas = element("canvas", { width: side, height: side });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(side, side);
  const colours = heatColours();
  unpack(group.heat).forEach((step, i) => image.data.set([...colours[step >> 8], 255], 4 * i));
  pen.putImageData(image, 0, 0);
  group.picture = canvas.toDataURL("image/png");
  return group.picture;
}

const STRIP = 9;
const HALO = { stroke: "Canvas", "stroke-width": 3, "paint-order": "stroke" }; // text over lines; Canvas is paper, dark or light

function layout(group, width) {
  const left = 46, right = 8, tree = 190, top = 14;
  const size = Math.max(120, Math.min(width - left - right, 760));
  const n = group.walls.length + 1;
  const highest = 1.04 * Math.max(group.threshold, ...group.tops);
  const strips = top + tree + 4;
  const heat = strips + 3 * (STRIP + 3) + 4;
  const x = (place) => left + ((place + 0.5) * size) / n;
  const y = (height) => top + tree * (1 - height / highest);
  return { left, top, tree, size, n, highest, strips, heat, x, y, width: left + size + right, height: heat + size + 50 };
}

// Many shapes of one colour are one path: 2,000 clients are 12 paths, not 2,000 elements.
function paths(parent, byColour, attributes) {
  parent.replaceChildren(
    ...[...byColour].map(([colour, parts]) => drawn("path", { ...attributes(colour), d: parts.join("") }))
  );
}
const gather = (map, key, part) => (map.get(key) ?? map.set(key, []).get(key)).push(part);

function drawClusters(box) {
  const group = grouping();
  const at = layout(group, box.clientWidth);
  const root = drawn("svg", { xmlns: "http://www.w3.org/2000/svg", width: at.width, height: at.height, role: "img", "font-family": "system-ui, sans-serif", "font-size": 11, fill: "currentColor", "aria-label": "Dendrogram and heat map of the angles between clients" });
  const live = { tree: drawn("g", { fill: "none", "stroke-width": 1.2 }), strip: drawn("g"), boxes: drawn("path", { fill: "none", stroke: "#fff", "stroke-width": 1.2 }) };
  live.line = drawn("line", { x1: at.left, x2: at.left + at.size, stroke: "currentColor", "stroke-width": 1.5 });
  live.ring = drawn("path", { fill: "none", stroke: "#ff2d55", "stroke-width": 1.2 });
  root.append(
    drawn("image", { href: heatPicture(group), x: at.left, y: at.heat, width: at.size, height: at.size, preserveAspectRatio: "none", style: "image-rendering: pixelated" }),
    ...axis(at), ...fixedStrips(group, at), ...scaleBar(group, at),
    live.tree, ...marks(group, at), live.strip, live.boxes, live.ring, live.line
  );
  box.replaceChildren(root);
  listen(root, group, at);
  box.live = { at, ...live };
  recut();
}

function axis(at) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200].find((s) => at.highest / s <= 6) ?? 500;
  const ticks = Array.from({ length: Math.floor(at.highest / step) + 1 }, (_, i) => i * step);
  return ticks.map((tick) =>
    drawn("g", {},
      drawn("line", { x1: at.left - 4, x2: at.left + at.size, y1: at.y(tick), y2: at.y(tick), stroke: "currentColor", "stroke-opacity": 0.12 }),
      drawn("text", { x: at.left - 7, y: at.y(tick) + 4, "text-anchor": "end" }, `${+tick.toFixed(2)}°`))
  );
}

// What the choice rests on: the noise of a typical client, what chance can do, and the threshold itself.
function marks(group, at) {
  const floor = group.evidence.floor, limits = group.evidence.null_limits ?? [];
  const lines = [[group.threshold, "β chosen", "6 3"]];
  if (group.unit != null && floor != null) lines.push([floor, "noise floor", "1 3"]);
  if (group.unit != null && limits.length) lines.push([floor * limits[0], "chance", "2 3"]);
  return lines.filter(([height]) => height <= at.highest).map(([height, text, dash], i) =>
    drawn("g", { "data-mark": text },
      drawn("line", { x1: at.left, x2: at.left + at.size, y1: at.y(height), y2: at.y(height), stroke: "currentColor", "stroke-dasharray": dash }),
      drawn("text", { x: at.left + at.size - 2 - 74 * i, y: at.y(height) - 3, "text-anchor": "end", ...HALO }, text))
  );
}

const unused = (wanted, used) => (used.includes(wanted) ? COLOURS.find((c) => !used.includes(c)) ?? wanted : wanted);

// Under the strip of the cut, in its colours where they agree: the clusters of the run, and the true groups where they are known. Newcomers have a mark.
function fixedStrips(group, at) {
  const clients = Array.from({ length: at.n }, (_, place) => clientAt(group, place));
  const labels = unpack(group.labels), order = unpack(group.order), truth = unpack(people().group);
  const { clusters, at: chosen } = clustersAt(group, group.threshold);
  const strip = (row, value) => {
    const parts = new Map(), colours = new Map();
    clients.forEach((client, place) => {
      const k = value(client, place);
      if (!colours.has(k)) colours.set(k, unused(clusters[chosen[place]].colour, [...colours.values()]));
      if (k >= 0) gather(parts, colours.get(k), `M${at.x(place - 0.5)} ${at.strips + row * (STRIP + 3)}h${at.size / at.n}v${STRIP}h${-at.size / at.n}z`);
    });
    const g = drawn("g");
    paths(g, parts, (colour) => ({ fill: colour }));
    return g;
  };
  const title = (row, text) => drawn("text", { x: at.left - 7, y: at.strips + row * (STRIP + 3) + 8, "text-anchor": "end", "font-size": 9 }, text);
  const late = new Set(group.newcomers);
  const flags = clients.map((c, place) => (late.has(c) ? `M${at.x(place)} ${at.heat - 1}l-3 -5h6z` : "")).join("");
  const known = people().groups.length > 0;
  return [
    title(0, "cut"), strip(1, (_, place) => labels[order[place]]), title(1, "run"),
    ...(known ? [strip(2, (client) => truth[client]), title(2, "truth")] : []),
    drawn("path", { d: flags, fill: "currentColor", "data-newcomers": late.size }),
  ];
}

function scaleBar(group, at) {
  const y = at.heat + at.size + 10, width = Math.min(200, at.size / 2);
  const cells = heatColours().filter((_, i) => i % 8 === 0);
  return [
    ...cells.map((c, i) => drawn("rect", { x: at.left + (i * width) / cells.length, y, width: width / cells.length + 0.5, height: 10, fill: `rgb(${c.map(Math.round)})` })),
    drawn("text", { x: at.left, y: y + 22 }, "0°"),
    drawn("text", { x: at.left + width, y: y + 22, "text-anchor": "middle" }, `${(65535 * group.degrees_per_step).toFixed(1)}°`),
    drawn("text", { x: at.left, y: y + 36 }, `angle between two clients (${group.measure}, as measured)`),
  ];
}

// What moves with beta.
function recut() {
  const box = document.querySelector('[data-figure="clusters"] .drawing');
  const group = grouping();
  if (!group) return;
  const { clusters, at: cluster } = clustersAt(group, state.beta);
  byId("beta").value = state.beta;
  byId("beta-number").value = +state.beta.toPrecision(8);
  byId("count").textContent = clusters.length === 1 ? "1 cluster" : `${clusters.length} clusters`;
  byId("count").dataset.clusters = clusters.length;
  listClusters(group, clusters);
  if (!box.live) return;
  const { at, tree, strip, boxes, line } = box.live;
  const feet = unpack(group.feet), starts = unpack(group.starts);
  const brackets = new Map([["currentColor", []]]), stretch = new Map();
  group.tops.forEach((top, i) => {
    const [a, b] = [feet[2 * i], feet[2 * i + 1]];
    const colour = top <= state.beta ? clusters[cluster[Math.round(a)]].colour : "currentColor";
    gather(brackets, colour, `M${at.x(a).toFixed(1)} ${at.y(starts[2 * i]).toFixed(1)}V${at.y(top).toFixed(1)}H${at.x(b).toFixed(1)}V${at.y(starts[2 * i + 1]).toFixed(1)}`);
  });
  paths(tree, brackets, (colour) => ({ stroke: colour, "stroke-opacity": colour === "currentColor" ? 0.45 : 1 }));
  for (const { start, end, colour } of clusters) gather(stretch, colour, `M${at.x(start - 0.5)} ${at.strips}H${at.x(end - 0.5)}v${STRIP}H${at.x(start - 0.5)}z`);
  paths(strip, stretch, (colour) => ({ fill: colour }));
  const y = (place) => at.heat + (place * at.size) / at.n;
  boxes.setAttribute("d", clusters.length > 200 ? "" : clusters.map(({ start, end }) => `M${at.x(start - 0.5)} ${y(start)}H${at.x(end - 0.5)}V${y(end)}H${at.x(start - 0.5)}z`).join(""));
  const height = at.y(Math.min(state.beta, at.highest));
  line.setAttribute("y1", height);
  line.setAttribute("y2", height);
  ring();
}

// Where the client of the panel stands.
function ring() {
  const live = document.querySelector('[data-figure="clusters"] .drawing').live;
  const place = grouping() && placeOf(grouping(), state.client);
  if (!live || place === undefined) return live?.ring.setAttribute("d", "");
  const { at } = live;
  const w = Math.max(at.size / at.n, 1.5), x = at.x(place) - w / 2, y = at.heat + (at.x(place) - at.left) - w / 2;
  live.ring.setAttribute("d", `M${x} ${at.strips - 3}h${w}V${at.heat + at.size}h${-w}zM${at.left} ${y}h${at.size}v${w}h${-at.size}z`);
}

function meanAngle(group, { start, end }) {
  if (end - start < 2) return null;
  // A wide cluster is sampled: its mean is shown with one decimal
  const step = Math.max(1, Math.floor((end - start) / 60));
  let sum = 0, count = 0;
  for (let a = start; a < end; a += step) for (let b = start; b < end; b += step) if (a !== b) (sum += angle(group, a, b)), count++;
  return count ? sum / count : null;
}

function listClusters(group, clusters) {
  const rows = clusters.slice(0, MOST_LISTED).map((cluster, k) => {
    const members = Array.from({ length: Math.min(cluster.end - cluster.start, MOST_MEMBERS) }, (_, i) => shortOf(clientAt(group, cluster.start + i)));
    const more = cluster.end - cluster.start - members.length;
    const inside = meanAngle(group, cluster);
    return element("tr", {},
      element("td", {}, element("span", { class: "chip", style: `background:${cluster.colour}` }), String(k + 1)),
      element("td", {}, String(cluster.end - cluster.start)),
      element("td", {}, inside === null ? "–" : `${inside.toFixed(1)}°`),
      element("td", { class: "members" }, members.join(", ") + (more > 0 ? ` and ${more} more` : "")));
  });
  const rest = clusters.length - rows.length;
  if (rest > 0) rows.push(element("tr", {}, element("td", { colspan: 4 }, `and ${rest} more clusters`)));
  byId("cluster-list").tBodies[0].replaceChildren(...rows);
}

function describe(group, place) {
  const client = clientAt(group, place);
  const { clusters, at } = clustersAt(group, state.beta);
  const { start, end } = clusters[at[place]];
  const facts = [`cluster ${at[place] + 1} of ${end - start} clients`, `${unpack(people().train)[client]} samples`];
  if (groupOf(client)) facts.push(groupOf(client));
  if (group.newcomers.includes(client)) facts.push("newcomer");
  return `${nameOf(client)}: ${facts.join(", ")}`;
}

function listen(root, group, at) {
  const where = (event) => {
    const box = root.getBoundingClientRect();
    const scale = at.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    const place = (from) => Math.floor((from * at.n) / at.size);
    const [column, row] = [place(x - at.left), place(y - at.heat)];
    const inside = (k) => k >= 0 && k < at.n;
    return { y, column: inside(column) ? column : null, row: inside(row) ? row : null };
  };
  root.addEventListener("pointermove", (event) => {
    const { y, column, row } = where(event);
    if (event.buttons && column !== null && y < at.top + at.tree) return setBeta(at.highest * (1 - (y - at.top) / at.tree));
    if (column === null) return tip(event, "");
    if (row === null) return tip(event, y < at.heat ? describe(group, column) : "");
    const block = group.heat.shape[0] < at.n ? " (mean of neighbours here)" : "";
    tip(event, row === column ? describe(group, column) : `${describe(group, row)}\n${describe(group, column)}\n${angle(group, row, column).toFixed(2)}° apart${block}`);
  });
  root.addEventListener("pointerleave", (event) => tip(event, ""));
  root.addEventListener("click", (event) => {
    const { y, column } = where(event);
    if (column === null) return;
    if (y < at.top + at.tree) setBeta(at.highest * (1 - (y - at.top) / at.tree));
    else chooseClient(clientAt(group, column));
  });
}

function setBeta(beta) {
  state.beta = Math.max(0, beta);
  recut();
  showClient();
}

// The nearest threshold with another number of clusters: half way between two walls of different height.
function step(direction) {
  const heights = [...new Set(grouping().walls)].sort((a, b) => a - b);
  const below = heights.filter((height) => height <= state.beta).length; // heights[below] is the first wall that parts
  const next = Math.max(0, Math.min(heights.length, below + direction));
  if (next === 0) return setBeta(heights[0] > 0 ? heights[0] / 2 : 0);
  setBeta(next === heights.length ? heights.at(-1) * 1.02 : (heights[next - 1] + heights[next]) / 2);
}

function showEvidence() {
  const group = grouping(), evidence = group.evidence, run = state.run.hash;
  byId("reasons").textContent = evidence.reasons ?? "";
  const facts = [["β chosen", `${group.threshold.toFixed(3)}°`], ["linkage", group.linkage]];
  if (evidence.floor != null) facts.push(["noise floor: what two samples of one client show", `${evidence.floor.toFixed(3)}°`]);
  if (evidence.null_limits) facts.push(["chance: clients that are all alike merge below", `${(evidence.floor * evidence.null_limits[0]).toFixed(3)}°`]);
  if (evidence.separation != null) facts.push(["lowest merge undone over highest done", evidence.separation.toFixed(2)]);
  if (evidence.reproducibility != null) facts.push(["stability of the least stable cluster", evidence.reproducibility.toFixed(3)]);
  facts.push(["run", run]);
  byId("evidence").tBodies[0].replaceChildren(...facts.map(([what, value]) => element("tr", {}, element("td", {}, what), element("td", {}, value))));
  const spans = group.bridges.map((b) => element("li", {}, `${nameOf(b.client)} is ${b.distances[0].toFixed(2)}° from cluster ${b.clusters[0]} and ${b.distances[1].toFixed(2)}° from cluster ${b.clusters[1]} of the run`));
  const late = group.newcomers.length;
  byId("bridges").replaceChildren(
    ...(late ? [element("h3", {}, "Newcomers"), element("p", {}, `${late} came later and are marked ▾ above. They were placed among the clusters of the run; nobody else moved, so a new cut of everybody may differ.`)] : []),
    ...(spans.length ? [element("p", {}, "Bridges, within β of two clusters, which suggest a merge:"), element("ul", {}, ...spans)] : late ? [element("p", {}, "None of them stands within β of two clusters.")] : [])
  );
  const unit = group.unit == null ? "degrees as measured" : "degrees, adjusted to the noise of a typical client";
  document.querySelector('[data-figure="clusters"] figcaption').textContent = `Above: ${group.linkage} linkage in ${unit}. Drag the line, or click a client below it. Run ${run}.`;
}

function clusterTable() {
  const group = grouping();
  const { at } = clustersAt(group, state.beta);
  return Array.from(at, (k, place) => {
    const client = clientAt(group, place);
    return { place, client, name: nameOf(client), cluster: k + 1, beta: state.beta, cluster_in_run: unpack(group.labels)[unpack(group.order)[place]], samples: unpack(people().train)[client], group: groupOf(client), newcomer: group.newcomers.includes(client), run: state.run.hash };
  });
}

// As drawn: one cell of the heat map a row.
function angleTable() {
  const group = grouping(), n = group.walls.length + 1, side = group.heat.shape[0], rows = [];
  for (let a = 0; a < side; a++)
    for (let b = 0; b < a; b++) {
      const pair = side === n ? { client: clientAt(group, a), other: clientAt(group, b) } : { block: a, other_block: b };
      rows.push({ ...pair, degrees: +(unpack(group.heat)[a * side + b] * group.degrees_per_step).toFixed(3), run: state.run.hash });
    }
  return rows;
}
