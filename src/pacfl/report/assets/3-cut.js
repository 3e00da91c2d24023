// A dendrogram cut at beta.
//
// Leaves are in the order of the dendrogram, so every cluster is a range of places, and `walls[i]` is the height of the
// merge that joins places i and i + 1. A cut at beta separates them where the wall is higher: no tree is traversed.

const COLOURS = [
  "#4e79a7",
  "#f28e2b",
  "#59a14f",
  "#e15759",
  "#b07aa1",
  "#76b7b2",
  "#edc948",
  "#9c755f",
  "#ff9da7",
  "#6b8e23",
  "#c0679a",
  "#3c9dd0",
];

// Places at which clusters begin.
function cut(walls, beta) {
  const starts = [0];
  walls.forEach((wall, i) => wall > beta && starts.push(i + 1));
  return starts;
}

// A cluster has the colour of its first place, and places are ranked by the height of the wall before them: when a
// cluster is split, one part has its colour and no other cluster changes.
function colourOfPlace(walls) {
  const rank = new Array(walls.length + 1).fill(0);
  walls
    .map((wall, i) => [wall, i])
    .sort((a, b) => b[0] - a[0] || a[1] - b[1])
    .forEach(([, i], n) => (rank[i + 1] = n + 1));
  return rank.map((n) => COLOURS[n % COLOURS.length]);
}

const NONE = "none"; // instead of a number: its clients cannot be judged

// A cluster of the cut has the number of the stored cluster with which it shares most clients, so that at the threshold
// of the run the numbers are those of the run. The others are numbered on from there.
function numberClusters(clustered, clusters) {
  const labels = unpack(clustered.labels),
    order = unpack(clustered.order),
    shared = [];
  for (const cluster of clusters) {
    const counts = new Map();
    for (let place = cluster.start; place < cluster.end; place++) {
      const label = labels[order[place]];
      if (label < 0) continue; // in no cluster
      counts.set(label, (counts.get(label) ?? 0) + 1);
    }
    for (const [label, count] of counts) shared.push({ cluster, label, count });
  }
  shared.sort((a, b) => b.count - a.count || a.label - b.label || a.cluster.start - b.cluster.start);
  const used = new Set();
  for (const { cluster, label } of shared)
    if (cluster.number === undefined && !used.has(label)) {
      cluster.number = label;
      used.add(label);
    }
  let next = labels.reduce((most, label) => Math.max(most, label), -1) + 1;
  const placed = new Set(shared.map(({ cluster }) => cluster)); // others have only clients that are in no cluster
  for (const cluster of clusters) cluster.number ??= placed.has(cluster) ? next++ : NONE;
}

function clustersAt(clustered, beta) {
  if (clustered.cut?.beta === beta) return clustered.cut;
  const n = clustered.walls.length + 1;
  clustered.colours ??= colourOfPlace(clustered.walls);
  const starts = cut(clustered.walls, beta);
  const clusters = starts.map((start, k) => ({ start, end: starts[k + 1] ?? n, colour: clustered.colours[start] }));
  numberClusters(clustered, clusters);
  const at = new Int32Array(n);
  clusters.forEach((cluster, k) => at.fill(k, cluster.start, cluster.end));
  clustered.cut = { beta, clusters, at };
  return clustered.cut;
}

const clientAt = (clustered, place) => unpack(clustered.clients)[unpack(clustered.order)[place]];

function placeOf(clustered, client) {
  clustered.places ??= new Map(
    Array.from({ length: clustered.walls.length + 1 }, (_, place) => [clientAt(clustered, place), place]),
  );
  return clustered.places.get(client);
}

const UNKNOWN = 65535; // in place of a distance: the two share no class

// Angles in degrees, or differences in units of noise.
const withUnit = ({ inNoise }, value, digits) => value.toFixed(digits) + (inNoise ? " × noise" : "°");
const notPlaced = (clustered, place) => unpack(clustered.labels)[unpack(clustered.order)[place]] < 0;

// How far two places are apart, NaN if unknown; the mean of a block where there are more clients than cells.
function distance(clustered, a, b) {
  const side = clustered.heat.shape[0];
  const n = clustered.walls.length + 1;
  const cell = (place) => Math.min(side - 1, Math.floor(((place + 0.5) * side) / n));
  const step = unpack(clustered.heat)[cell(a) * side + cell(b)];
  return step === UNKNOWN ? NaN : step * clustered.perStep;
}
