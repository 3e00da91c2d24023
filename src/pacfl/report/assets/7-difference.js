// How two clusters of a federation differ: what carries the difference, in words, as a table and as a picture.

const ADVICE = {
  together: "learn together",
  "label-prior": "together, with a corrected prior",
  apart: "learn apart",
};
const diagnosis = () => experiment().diagnosis;
const pairNow = () => diagnosis()?.pairs.find(({ clusters: [a, b] }) => a === state.pair?.[0] && b === state.pair?.[1]);
const partners = (cluster) =>
  diagnosis()
    .pairs.filter(({ clusters }) => clusters.includes(cluster))
    .map(({ clusters: [a, b] }) => (a === cluster ? b : a));

function showDiagnosis() {
  const found = diagnosis();
  byId("difference").hidden = !found;
  if (!found) return;
  byId("diagnosis").textContent = found.words;
  byId("pair").hidden = !found.pairs.length;
  const some = found.all
    ? ""
    : `Of ${found.clusters} clusters, each is explained with the one nearest to it, up to 200 pairs. Any other pair: pacfl explain FEDERATION A B --clusters.`;
  byId("pair-note").textContent = some;
  if (found.pairs.length) choosePair(...found.pairs[0].clusters);
}

function choosePair(a, b) {
  const others = partners(a);
  const other = others.includes(b) ? b : others[0];
  state.pair = [Math.min(a, other), Math.max(a, other)];
  const firsts = [...new Set(diagnosis().pairs.flatMap(({ clusters }) => clusters))].sort((x, y) => x - y);
  const named = (clusters) => clusters.map((k) => [String(k), `cluster ${k}`]);
  options(byId("pair-a"), named(firsts), String(a));
  options(byId("pair-b"), named(others), String(other));
  const pair = pairNow();
  byId("pair-words").textContent = pair.words;
  byId("pair-kind").textContent = `${pair.kind}: ${ADVICE[pair.recommendation]}`;
  listDifferences(pair);
  const what = pair.picture ? "each pixel contributes" : "the features that carry most contribute";
  const which = pair.kind === "concept" ? " between classes of the same name" : "";
  byId("pair-caption").textContent =
    `What ${what} to the difference${which}, clusters ${pair.clusters.join(" and ")}. Hash of the federation: ${state.run.hash}.`;
  stale("difference");
}

// Relabelled classes, class shares or classes that differ, whichever the kind of difference is about.
function listDifferences({ clusters: [a, b], kind, relabelled, shares, classes }) {
  const percent = (share) => `${(100 * share).toFixed(1)} %`;
  const tables = {
    concept: [
      [`label in cluster ${a}`, `in cluster ${b}`, "apart under one label", "left"],
      relabelled.map(([of, other, size, left]) => [of, other, `${size.toFixed(1)} ×`, `${left.toFixed(1)} ×`]),
    ],
    labels: [
      ["class", `share in cluster ${a}`, `in cluster ${b}`],
      shares.map(([name, of, other]) => [name, percent(of), percent(other)]),
    ],
  };
  const [head, rows] = tables[kind] ?? [
    ["class", "difference, × noise"],
    classes.map(([name, size]) => [name, size.toFixed(1)]),
  ];
  const cells = (tag, texts) => element("tr", {}, ...texts.map((text) => element(tag, {}, text)));
  byId("pair-table").hidden = !rows.length;
  byId("pair-table").tHead.replaceChildren(cells("th", head));
  byId("pair-table").tBodies[0].replaceChildren(...rows.map((row) => cells("td", row)));
}

// One row for each feature that is named, or for each pixel.
function differenceRows() {
  const pair = pairNow();
  if (!pair || pair.kind === "none" || pair.kind === "labels") return [];
  const [a, b] = pair.clusters,
    run = state.run.hash;
  if (!pair.picture)
    return pair.features.map(([feature, share, noise, factor]) => ({
      a,
      b,
      feature,
      percent: 100 * share,
      times_noise: noise,
      factor,
      run,
    }));
  const [, columns] = pair.picture.shape;
  return Array.from(unpack(pair.picture), (value, i) => ({
    a,
    b,
    row: Math.floor(i / columns),
    column: i % columns,
    of_largest: value / 255,
    run,
  }));
}

function differenceSpec(rows, width) {
  const { picture } = pairNow();
  if (!picture) {
    const bars = { field: "percent", type: "quantitative", title: "% of the squared difference", scale: { domain: [0, 100] } };
    const tooltip = [
      { field: "feature" },
      { field: "percent", format: ".1f" },
      { field: "times_noise", title: "× noise", format: ".1f" },
      { field: "factor", title: "times larger in the first", format: ".3g" },
    ];
    return {
      width: Math.min(width - 180, 420),
      height: { step: 22 },
      data: { values: rows },
      mark: { type: "bar", color: COLOURS[0] },
      encoding: { y: { field: "feature", type: "nominal", sort: null, title: null }, x: bars, tooltip },
    };
  }
  const [height, across] = picture.shape;
  const side = Math.max(2, Math.floor(Math.min(width - 110, 300) / Math.max(height, across)));
  const place = { type: "ordinal", title: null, axis: null };
  return {
    width: side * across,
    height: side * height,
    data: { values: rows },
    mark: "rect",
    encoding: {
      x: { field: "column", ...place },
      y: { field: "row", ...place },
      color: {
        field: "of_largest",
        type: "quantitative",
        title: "of the largest",
        scale: { scheme: "viridis", domain: [0, 1] },
      },
      tooltip: [{ field: "row" }, { field: "column" }, { field: "of_largest", format: ".2f" }],
    },
  };
}

FIGURES.difference = { rows: differenceRows, spec: differenceSpec };
