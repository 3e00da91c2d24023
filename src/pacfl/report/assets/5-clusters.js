// Who is alike: what moves with beta, and what is told of it.

const MOST_LISTED = 60;
const MOST_MEMBERS = 30;
const MOST_OUTLINED = 200;

function recut() {
  const group = clustering();
  const cutNow = clustersAt(group, state.beta);
  const k = cutNow.clusters.length;
  byId("beta").value = state.beta;
  byId("beta-number").value = +state.beta.toPrecision(8);
  byId("count").textContent = k === 1 ? "1 cluster" : `${k} clusters`;
  byId("count").dataset.clusters = k;
  listClusters(group, cutNow.clusters);
  const { live } = boxOf("clusters");
  if (!live) return; // not in sight yet
  colourTree(live, group, cutNow);
  outline(live, cutNow.clusters);
  const height = live.at.y(Math.min(state.beta, live.at.highest));
  live.line.setAttribute("y1", height);
  live.line.setAttribute("y2", height);
  ring();
}

// Merges within a cluster have its colour; merges that are undone have none.
function colourTree({ at, tree }, group, { clusters, at: cluster }) {
  const feet = unpack(group.feet);
  const starts = unpack(group.starts);
  const brackets = new Map([["currentColor", []]]);
  const x = (place) => at.x(place).toFixed(1);
  const y = (height) => at.y(height).toFixed(1);
  group.tops.forEach((top, i) => {
    const [a, b] = [feet[2 * i], feet[2 * i + 1]];
    const colour = top <= state.beta ? clusters[cluster[Math.round(a)]].colour : "currentColor";
    gather(brackets, colour, `M${x(a)} ${y(starts[2 * i])}V${y(top)}H${x(b)}V${y(starts[2 * i + 1])}`);
  });
  paths(tree, brackets, (colour) => ({ stroke: colour, "stroke-opacity": colour === "currentColor" ? 0.45 : 1 }));
}

function outline({ at, strip, boxes }, clusters) {
  const edge = (place) => at.x(place - 0.5);
  const y = (place) => at.heat + (place * at.size) / at.n;
  const stretch = new Map();
  for (const { start, end, colour } of clusters)
    gather(stretch, colour, `M${edge(start)} ${at.strips}H${edge(end)}v${STRIP}H${edge(start)}z`);
  paths(strip, stretch, (colour) => ({ fill: colour }));
  const square = ({ start, end }) => `M${edge(start)} ${y(start)}H${edge(end)}V${y(end)}H${edge(start)}z`;
  boxes.setAttribute("d", clusters.length > MOST_OUTLINED ? "" : clusters.map(square).join(""));
}

// Where the client of the panel stands.
function ring() {
  const { live } = boxOf("clusters");
  const place = clustering() && placeOf(clustering(), state.client);
  if (!live || place === undefined) return live?.ring.setAttribute("d", "");
  const { at } = live;
  const w = Math.max(at.size / at.n, 1.5),
    x = at.x(place) - w / 2,
    y = at.heat + (at.x(place) - at.left) - w / 2;
  live.ring.setAttribute(
    "d",
    `M${x} ${at.strips - 3}h${w}V${at.heat + at.size}h${-w}zM${at.left} ${y}h${at.size}v${w}h${-at.size}z`,
  );
}

function meanAngle(group, { start, end }) {
  if (end - start < 2) return "–";
  const step = Math.ceil((end - start) / 60); // of a wide cluster, some stand for all
  let sum = 0,
    count = 0;
  for (let a = start; a < end; a += step)
    for (let b = start; b < end; b += step) if (a !== b) ((sum += angle(group, a, b)), count++);
  const exact = step === 1 && group.heat.shape[0] === group.walls.length + 1;
  return `${exact ? "" : "≈ "}${(sum / count).toFixed(1)}°`;
}

function listClusters(group, clusters) {
  const rows = clusters.slice(0, MOST_LISTED).map((cluster, k) => {
    const members = Array.from({ length: Math.min(cluster.end - cluster.start, MOST_MEMBERS) }, (_, i) =>
      shortOf(clientAt(group, cluster.start + i)),
    );
    const more = cluster.end - cluster.start - members.length;
    return element(
      "tr",
      {},
      element("td", {}, element("span", { class: "chip", style: `background:${cluster.colour}` }), String(k + 1)),
      element("td", {}, String(cluster.end - cluster.start)),
      element("td", {}, meanAngle(group, cluster)),
      element("td", { class: "members" }, members.join(", ") + (more > 0 ? ` and ${more} more` : "")),
    );
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
    if (event.buttons && column !== null && y < at.top + at.tree)
      return setBeta(at.highest * (1 - (y - at.top) / at.tree));
    if (column === null) return tip(event, "");
    if (row === null) return tip(event, y < at.heat ? describe(group, column) : "");
    const block = group.heat.shape[0] < at.n ? " (mean of neighbours here)" : "";
    tip(
      event,
      row === column
        ? describe(group, column)
        : `${describe(group, row)}\n${describe(group, column)}\n${angle(group, row, column).toFixed(2)}° apart${block}`,
    );
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
  const heights = [...new Set(clustering().walls)].sort((a, b) => a - b);
  const below = heights.filter((height) => height <= state.beta).length; // heights[below] is the first wall that parts
  const next = Math.max(0, Math.min(heights.length, below + direction));
  if (next === 0) return setBeta(heights[0] > 0 ? heights[0] / 2 : 0);
  setBeta(next === heights.length ? heights.at(-1) * 1.02 : (heights[next - 1] + heights[next]) / 2);
}

function showEvidence() {
  const group = clustering(),
    evidence = group.evidence,
    run = state.run.hash;
  byId("reasons").textContent = evidence.reasons ?? "";
  const facts = [
    ["β chosen", `${group.threshold.toFixed(3)}°`],
    ["linkage", group.linkage],
  ];
  if (evidence.floor != null)
    facts.push(["noise floor: what two samples of one client show", `${evidence.floor.toFixed(3)}°`]);
  if (evidence.null_limits)
    facts.push([
      "chance: clients that are all alike merge below",
      `${(evidence.floor * evidence.null_limits[0]).toFixed(3)}°`,
    ]);
  if (evidence.separation != null)
    facts.push(["lowest merge undone over highest done", evidence.separation.toFixed(2)]);
  if (evidence.reproducibility != null)
    facts.push(["stability of the least stable cluster", evidence.reproducibility.toFixed(3)]);
  facts.push([kindOfRun(), run]);
  byId("evidence").tBodies[0].replaceChildren(
    ...facts.map(([what, value]) => element("tr", {}, element("td", {}, what), element("td", {}, value))),
  );
  const unit = group.unit == null ? "degrees as measured" : "degrees, adjusted to the noise of a typical client";
  document.querySelector('[data-figure="clusters"] figcaption').textContent =
    `Above: ${group.linkage} linkage in ${unit}. Drag the line, or click a client below it. Hash of the ${kindOfRun()}: ${run}.`;
  byId("bridges").replaceChildren(...aboutNewcomers(group));
}

function aboutNewcomers({ newcomers, bridges }) {
  if (!newcomers.length) return [];
  const placed =
    `${newcomers.length} came later and are marked ▾ above. They were placed among the clusters of the run; ` +
    "nobody else moved, so a new cut of everybody may differ.";
  const about = [element("h3", {}, "Newcomers"), element("p", {}, placed)];
  if (!bridges.length) return [...about, element("p", {}, "None of them stands within β of two clusters.")];
  const spans = bridges.map(({ client, clusters, distances }) => {
    const [near, next] = distances.map((distance, i) => `${distance.toFixed(2)}° from cluster ${clusters[i]}`);
    return element("li", {}, `${nameOf(client)} is ${near} and ${next} of the run`);
  });
  const title = element("p", {}, "Bridges, within β of two clusters, which suggest a merge:");
  return [...about, title, element("ul", {}, ...spans)];
}

function clusterTable() {
  const group = clustering();
  const { at } = clustersAt(group, state.beta);
  return Array.from(at, (k, place) => {
    const client = clientAt(group, place);
    return {
      place,
      client,
      name: nameOf(client),
      cluster: k + 1,
      beta: state.beta,
      cluster_in_run: unpack(group.labels)[unpack(group.order)[place]],
      samples: unpack(people().train)[client],
      group: groupOf(client),
      newcomer: group.newcomers.includes(client),
      run: state.run.hash,
    };
  });
}

// As drawn: one cell of the heat map a row.
function angleTable() {
  const group = clustering(),
    n = group.walls.length + 1,
    side = group.heat.shape[0],
    rows = [];
  for (let a = 0; a < side; a++)
    for (let b = 0; b < a; b++) {
      const pair =
        side === n ? { client: clientAt(group, a), other: clientAt(group, b) } : { block: a, other_block: b };
      rows.push({
        ...pair,
        degrees: +(unpack(group.heat)[a * side + b] * group.degrees_per_step).toFixed(3),
        run: state.run.hash,
      });
    }
  return rows;
}
