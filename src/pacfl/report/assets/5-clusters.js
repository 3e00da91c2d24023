// Clusters: the parts that depend on beta, and their description.

const MOST_LISTED = 60;
const MOST_MEMBERS = 30;
const MOST_OUTLINED = 200;

function recut() {
  const clustered = clustering();
  const cutNow = clustersAt(clustered, state.beta);
  const k = cutNow.clusters.filter(({ number }) => number !== NONE).length;
  byId("beta").value = state.beta;
  byId("beta-number").value = +state.beta.toPrecision(8);
  byId("count").textContent = k === 1 ? "1 cluster" : `${k} clusters`;
  byId("count").dataset.clusters = k;
  listClusters(clustered, cutNow.clusters);
  byId("differs").textContent = differing(clustered, cutNow);
  const { live } = boxOf("clusters");
  if (!live) return; // not drawn yet
  colourTree(live, clustered, cutNow);
  outline(live, cutNow.clusters);
  const height = live.at.y(Math.min(state.beta, live.at.highest));
  live.line.setAttribute("y1", height);
  live.line.setAttribute("y2", height);
  ring();
}

// Clusters by classes or columns, newcomers and clients that stayed are not always where a cut puts them.
function differing(clustered, { clusters, at }) {
  if (state.beta !== clustered.threshold) return "";
  const labels = unpack(clustered.labels),
    order = unpack(clustered.order);
  const others = Array.from(at).filter((k, place) => labels[order[place]] >= 0 && clusters[k].number !== labels[order[place]]);
  if (!others.length) return "";
  const one = others.length === 1,
    kind = kindOfRun();
  return (
    `${one ? "1 client is" : `${others.length} clients are`} in another cluster of the ${kind} than this cut puts ` +
    `${one ? "it" : "them"} in: the strip ${trained() ? "run" : "stored"} has those of the ${kind}.`
  );
}

// Merges within a cluster have its colour; merges above the cut have none.
function colourTree({ at, tree }, clustered, { clusters, at: cluster }) {
  const feet = unpack(clustered.feet);
  const starts = unpack(clustered.starts);
  const brackets = new Map([["currentColor", []]]);
  const x = (place) => at.x(place).toFixed(1);
  const y = (height) => at.y(height).toFixed(1);
  clustered.tops.forEach((top, i) => {
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

// Marks the client of the panel.
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

function meanAngle(clustered, { start, end }) {
  if (end - start < 2) return "-";
  const step = Math.ceil((end - start) / 60); // of a large cluster, a sample
  let sum = 0,
    count = 0;
  for (let a = start; a < end; a += step)
    for (let b = start; b < end; b += step) {
      const apart = distance(clustered, a, b);
      if (a !== b && !Number.isNaN(apart)) ((sum += apart), count++);
    }
  if (!count) return "-";
  const exact = step === 1 && clustered.heat.shape[0] === clustered.walls.length + 1;
  return `${exact ? "" : "≈ "}${withUnit(clustered, sum / count, 1)}`;
}

function listClusters(clustered, clusters) {
  const byNumber = [...clusters].sort((a, b) => (a.number === NONE) - (b.number === NONE) || a.number - b.number || a.start - b.start);
  const rows = byNumber.slice(0, MOST_LISTED).map((cluster) => {
    const members = Array.from({ length: Math.min(cluster.end - cluster.start, MOST_MEMBERS) }, (_, i) =>
      shortOf(clientAt(clustered, cluster.start + i)) + (notPlaced(clustered, cluster.start + i) ? " ✕" : ""),
    );
    const more = cluster.end - cluster.start - members.length;
    return element(
      "tr",
      {},
      element("td", {}, element("span", { class: "chip", style: `background:${cluster.colour}` }), String(cluster.number)),
      element("td", {}, String(cluster.end - cluster.start)),
      element("td", {}, meanAngle(clustered, cluster)),
      element("td", { class: "members" }, members.join(", ") + (more > 0 ? ` and ${more} more` : "")),
    );
  });
  const rest = clusters.length - rows.length;
  if (rest > 0) rows.push(element("tr", {}, element("td", { colspan: 4 }, `and ${rest} more clusters`)));
  byId("cluster-list").tBodies[0].replaceChildren(...rows);
}

function describe(clustered, place) {
  const client = clientAt(clustered, place);
  const { clusters, at } = clustersAt(clustered, state.beta);
  const { start, end, number } = clusters[at[place]];
  const samples = unpack(clientData().train)[client];
  const facts = [number === NONE ? "no cluster" : `cluster ${number} of ${end - start} clients`];
  if (notPlaced(clustered, place)) facts.push("cannot be judged");
  if (samples) facts.push(`${samples} samples`);
  if (trueClusterOf(client)) facts.push(trueClusterOf(client));
  if (clustered.newcomers.includes(client)) facts.push("newcomer");
  return `${nameOf(client)}: ${facts.join(", ")}`;
}

function listen(root, clustered, at) {
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
    if (row === null) return tip(event, y < at.heat ? describe(clustered, column) : "");
    const block = clustered.heat.shape[0] < at.n ? " (mean of neighbours here)" : "",
      value = distance(clustered, row, column),
      apart = Number.isNaN(value) ? "no class in common" : `${withUnit(clustered, value, 2)} apart${block}`;
    tip(
      event,
      row === column
        ? describe(clustered, column)
        : `${describe(clustered, row)}\n${describe(clustered, column)}\n${apart}`,
    );
  });
  root.addEventListener("pointerleave", (event) => tip(event, ""));
  root.addEventListener("click", (event) => {
    const { y, column } = where(event);
    if (column === null) return;
    if (y < at.top + at.tree) setBeta(at.highest * (1 - (y - at.top) / at.tree));
    else chooseClient(clientAt(clustered, column));
  });
}

function setBeta(beta) {
  state.beta = Math.max(0, beta);
  recut();
  showClient();
}

// The nearest threshold with another number of clusters: halfway between two walls of different height.
function step(direction) {
  const heights = [...new Set(clustering().walls)].sort((a, b) => a - b);
  const below = heights.filter((height) => height <= state.beta).length; // heights[below] is the lowest wall that separates
  const next = Math.max(0, Math.min(heights.length, below + direction));
  if (next === 0) return setBeta(heights[0] > 0 ? heights[0] / 2 : 0);
  setBeta(next === heights.length ? heights.at(-1) * 1.02 : (heights[next - 1] + heights[next]) / 2);
}

function showEvidence() {
  document.querySelector("#clustering .split").classList.toggle("stacked", clustering().walls.length >= MANY);
  const clustered = clustering(),
    evidence = clustered.evidence,
    run = state.run.hash;
  byId("reasons").textContent = experiment().reasons ?? evidence.reasons ?? "";
  byId("beta-unit").textContent = clustered.inNoise ? "× noise" : "degrees";
  byId("near-unit").textContent = clustered.inNoise ? "× noise" : "degrees";
  const facts = [
    ["β chosen", withUnit(clustered, clustered.threshold, 3)],
    ["linkage", clustered.linkage],
  ];
  if (evidence.floor != null)
    facts.push(["noise scale: angle between two samples of one client", `${evidence.floor.toFixed(3)}°`]);
  if (clustered.chance != null)
    facts.push(["chance: homogeneous clients merge below", withUnit(clustered, clustered.chance, 3)]);
  if (evidence.separation != null)
    facts.push(["lowest merge above the cut / highest below it", evidence.separation.toFixed(2)]);
  if (evidence.reproducibility != null)
    facts.push(["stability of the least stable cluster", evidence.reproducibility.toFixed(3)]);
  if (evidence.finding !== "given")
    facts.push(["guaranteed", { true: "yes", false: "no" }[evidence.guaranteed] ?? "unknown"]);
  facts.push([kindOfRun(), run]);
  const why = [evidence.not_guaranteed_because ?? "no reason is stored"].flat().join("; ");
  byId("not-guaranteed").hidden = evidence.guaranteed !== false;
  byId("not-guaranteed").textContent =
    evidence.guaranteed === false ? `The stated rate of false splits is not guaranteed here: ${why}` : "";
  byId("evidence").tBodies[0].replaceChildren(
    ...facts.map(([what, value]) => element("tr", {}, element("td", {}, what), element("td", {}, value))),
  );
  const left = unpack(clustered.labels).filter((label) => label < 0).length;
  const crossed = left ? ` ✕: ${left} cannot be judged and ${left === 1 ? "is" : "are"} in no cluster of the ${kindOfRun()}.` : "";
  const blank = unpack(clustered.heat).includes(UNKNOWN) ? " Blank cells: no class in common." : "";
  document.querySelector('[data-figure="clusters"] figcaption').textContent =
    `Above: ${clustered.linkage} linkage in ${clustered.scale}.${crossed}${blank} Drag the line, or click a client below it. Hash of the ${kindOfRun()}: ${run}.`;
  byId("merge-suggestions").replaceChildren(...aboutNewcomers(clustered));
}

function aboutNewcomers({ newcomers, mergeSuggestions, mergeUnit }) {
  if (!newcomers.length) return [];
  const kind = kindOfRun(),
    are = newcomers.length === 1 ? "is" : "are",
    placed =
      `${newcomers.length} joined later and ${are} marked ▾ above. They were assigned to the clusters of the ${kind}, and no ` +
      "other client moved, so cutting the dendrogram of all clients may give other clusters.";
  const about = [element("h3", {}, "Newcomers"), element("p", {}, placed)];
  const { placements = [] } = experiment(),
    shown = placements.slice(-MOST_LISTED);
  if (shown.length < placements.length) about.push(element("p", {}, `The last ${shown.length}:`));
  if (shown.length) about.push(element("ul", { id: "placements" }, ...shown.map((words) => element("li", {}, words))));
  if (!mergeSuggestions.length) return [...about, element("p", {}, "None of them is within β of two clusters.")];
  const spans = mergeSuggestions.map(({ client, clusters, distances }) => {
    const away = (distance, i) => `${distance.toFixed(2)}${mergeUnit} from cluster ${clusters[i]}`;
    const [near, next] = distances.map(away);
    return element("li", {}, `${nameOf(client)} is ${near} and ${next} of the ${kind}`);
  });
  const title = element("p", {}, "Within β of two clusters, which suggests merging them:");
  return [...about, title, element("ul", { id: "merges" }, ...spans)];
}

function clusterTable() {
  const clustered = clustering();
  const { clusters, at } = clustersAt(clustered, state.beta);
  return Array.from(at, (k, place) => {
    const client = clientAt(clustered, place);
    return {
      place,
      client,
      name: nameOf(client),
      cluster: clusters[k].number,
      beta: state.beta,
      cluster_in_run: unpack(clustered.labels)[unpack(clustered.order)[place]],
      samples: unpack(clientData().train)[client],
      true_cluster: trueClusterOf(client),
      newcomer: clustered.newcomers.includes(client),
      run: state.run.hash,
    };
  });
}

const valueOf = (clustered, cell) => {
  const step = unpack(clustered.heat)[cell];
  return step === UNKNOWN ? null : +(step * clustered.perStep).toFixed(3);
};

// As drawn: one cell of the heat map a row.
function angleTable() {
  const clustered = clustering(),
    n = clustered.walls.length + 1,
    side = clustered.heat.shape[0],
    rows = [];
  for (let a = 0; a < side; a++)
    for (let b = 0; b < a; b++) {
      const pair =
        side === n ? { client: clientAt(clustered, a), other: clientAt(clustered, b) } : { block: a, other_block: b };
      rows.push({
        ...pair,
        [clustered.inNoise ? "times_noise" : "degrees"]: valueOf(clustered, a * side + b),
        run: state.run.hash,
      });
    }
  return rows;
}
