// A dendrogram cut at beta.
//
// Leaves stand in the order of the dendrogram, so every cluster is a stretch of neighbours, and `walls[i]` is the height
// of the merge that joins places i and i + 1. A cut at beta parts them where the wall is higher: no tree is walked.

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

// A cluster is coloured by its first place, and places by the height of the wall before them: when a cluster is split
// one part keeps its colour, and nobody else changes.
function colourOfPlace(walls) {
  const rank = new Array(walls.length + 1).fill(0);
  walls
    .map((wall, i) => [wall, i])
    .sort((a, b) => b[0] - a[0] || a[1] - b[1])
    .forEach(([, i], n) => (rank[i + 1] = n + 1));
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
  group.places ??= new Map(
    Array.from({ length: group.walls.length + 1 }, (_, place) => [clientAt(group, place), place]),
  );
  return group.places.get(client);
}

// Degrees between two places; the mean of a block where there are more clients than cells.
function angle(group, a, b) {
  const side = group.heat.shape[0];
  const n = group.walls.length + 1;
  const cell = (place) => Math.min(side - 1, Math.floor(((place + 0.5) * side) / n));
  return unpack(group.heat)[cell(a) * side + cell(b)] * group.degrees_per_step;
}
