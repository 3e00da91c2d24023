// Dendrogram above, heat map below, one threshold through both: the parts that do not depend on beta.

const HEAT = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"];

function heatColours() {
  const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (HEAT.length - 1);
    const low = Math.min(Math.floor(at), HEAT.length - 2);
    const [a, b] = [rgb(HEAT[low]), rgb(HEAT[low + 1])];
    return a.map((value, c) => value + (at - low) * (b[c] - value));
  });
}

function heatPicture(clustered) {
  if (clustered.picture) return clustered.picture;
  const side = clustered.heat.shape[0];
  const canvas = element("canvas", { width: side, height: side });
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(side, side);
  const colours = heatColours();
  unpack(clustered.heat).forEach((step, i) =>
    image.data.set([...colours[step >> 8], step === UNKNOWN ? 0 : 255], 4 * i),
  );
  pen.putImageData(image, 0, 0);
  clustered.picture = canvas.toDataURL("image/png");
  return clustered.picture;
}

const STRIP = 9;
const LABEL = [8, 10]; // least and largest font size of the clients' names on the axes
const MANY = 50; // clients from which the picture takes the whole width, so that each has a name
const LONGEST_LABEL = 22; // characters
// Of text over lines. Canvas is the page's background, dark or light, and white in a saved picture.
const HALO = { stroke: "Canvas", "stroke-width": 3, "paint-order": "stroke" };

function layout(clustered, width) {
  const n = clustered.walls.length + 1;
  const names = Array.from({ length: n }, (_, place) => shortened(shortOf(clientAt(clustered, place))));
  const label = 0.6 * LABEL[1] * names.reduce((most, name) => Math.max(most, name.length), 0) + 8;
  const left = Math.max(46, label),
    right = 8,
    tree = 190,
    top = 14;
  const size = Math.max(120, Math.min(width - left - right, n > MANY ? 1060 : 760));
  const font = Math.max(LABEL[0], Math.min(LABEL[1], Math.floor(size / n) - 1));
  const highest = 1.04 * Math.max(clustered.threshold, ...clustered.tops);
  const strips = top + tree + 10; // below the zero of the axis
  const flags = strips + 3 * (STRIP + 3) + 6;
  const heat = flags + label;
  const x = (place) => left + ((place + 0.5) * size) / n;
  const y = (height) => top + tree * (1 - height / highest);
  return {
    left,
    top,
    tree,
    size,
    n,
    highest,
    strips,
    flags,
    heat,
    names,
    font,
    below: heat + size,
    x,
    y,
    width: left + size + right,
    height: heat + size + 50,
  };
}

// Names often differ at their end only, so the middle is left out.
const shortened = (name) =>
  name.length > LONGEST_LABEL ? `${name.slice(0, LONGEST_LABEL / 2)}…${name.slice(1 - LONGEST_LABEL / 2)}` : name;

// Which client a row of the heat map is, and a column of it and of the dendrogram above; with very many clients, every
// k-th has a label.
function clientLabels(at) {
  const step = Math.ceil(((at.font + 1) * at.n) / at.size);
  const places = at.names.map((_, place) => place).filter((place) => place % step === 0);
  const row = (place) => {
    const y = at.heat + ((place + 0.5) * at.size) / at.n + 0.35 * at.font;
    return drawn("text", { x: at.left - 5, y, "text-anchor": "end" }, at.names[place]);
  };
  const column = (place) => {
    const [x, y] = [at.x(place) + 0.35 * at.font, at.heat - 4];
    return drawn("text", { x, y, transform: `rotate(-90 ${x} ${y})` }, at.names[place]);
  };
  const group = (axis, label) => drawn("g", { "data-axis": axis, "font-size": at.font }, ...places.map(label));
  return [group("rows", row), group("columns", column)];
}

// Many shapes of one colour are one path: 2,000 clients are 12 paths, not 2,000 elements.
function paths(parent, byColour, attributes) {
  parent.replaceChildren(
    ...[...byColour].map(([colour, parts]) => drawn("path", { ...attributes(colour), d: parts.join("") })),
  );
}
const gather = (map, key, part) => (map.get(key) ?? map.set(key, []).get(key)).push(part);

function drawClusters(box) {
  const clustered = clustering();
  const at = layout(clustered, box.clientWidth);
  const root = drawn("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    width: at.width,
    height: at.height,
    viewBox: `0 0 ${at.width} ${at.height}`,
    role: "img",
    "font-family": "system-ui, sans-serif",
    "font-size": 11,
    fill: "currentColor",
    "aria-label": "Dendrogram and heat map of the angles between clients",
  });
  const live = {
    tree: drawn("g", { fill: "none", "stroke-width": 1.2 }),
    strip: drawn("g"),
    boxes: drawn("path", { fill: "none", stroke: "#fff", "stroke-width": 1.2 }),
  };
  live.line = drawn("line", { x1: at.left, x2: at.left + at.size, stroke: "currentColor", "stroke-width": 1.5 });
  live.ring = drawn("path", { fill: "none", stroke: "#ff2d55", "stroke-width": 1.2 });
  root.append(
    drawn("image", {
      href: heatPicture(clustered),
      x: at.left,
      y: at.heat,
      width: at.size,
      height: at.size,
      preserveAspectRatio: "none",
      style: "image-rendering: pixelated",
    }),
    ...axis(clustered, at),
    ...fixedStrips(clustered, at),
    ...clientLabels(at),
    ...scaleBar(clustered, at),
    live.tree,
    ...marks(clustered, at),
    live.strip,
    live.boxes,
    live.ring,
    live.line,
  );
  box.replaceChildren(root);
  listen(root, clustered, at);
  box.live = { at, ...live };
  recut();
}

function axis({ inNoise }, at) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200].find((s) => at.highest / s <= 6) ?? 500;
  const ticks = Array.from({ length: Math.floor(at.highest / step) + 1 }, (_, i) => i * step);
  return ticks.map((tick) =>
    drawn(
      "g",
      {},
      drawn("line", {
        x1: at.left - 4,
        x2: at.left + at.size,
        y1: at.y(tick),
        y2: at.y(tick),
        stroke: "currentColor",
        "stroke-opacity": 0.12,
      }),
      drawn("text", { x: at.left - 7, y: at.y(tick) + 4, "text-anchor": "end" }, `${+tick.toFixed(2)}${inNoise ? " ×" : "°"}`),
    ),
  );
}

// The threshold, the noise scale of a typical client, and the highest merge that chance alone explains.
function marks(clustered, at) {
  const lines = [[clustered.threshold, "β chosen", "6 3"]];
  if (clustered.noise != null) lines.push([clustered.noise, "noise scale", "1 3"]);
  if (clustered.chance != null && clustered.chance !== clustered.threshold) lines.push([clustered.chance, "chance", "2 3"]);
  return lines
    .filter(([height]) => height <= at.highest)
    .map(([height, text, dash], i) =>
      drawn(
        "g",
        { "data-mark": text },
        drawn("line", {
          x1: at.left,
          x2: at.left + at.size,
          y1: at.y(height),
          y2: at.y(height),
          stroke: "currentColor",
          "stroke-dasharray": dash,
        }),
        drawn("text", { x: at.left + at.size - 2 - 74 * i, y: at.y(height) - 3, "text-anchor": "end", ...HALO }, text),
      ),
    );
}

const unused = (wanted, used) => (used.includes(wanted) ? (COLOURS.find((c) => !used.includes(c)) ?? wanted) : wanted);

// The colour of each value is that of the cut which most of its places have; the largest come first.
function coloursOf(values, colourAt) {
  const counts = new Map();
  values.forEach((k, place) => {
    const key = `${k} ${colourAt(place)}`;
    counts.set(key, { k, colour: colourAt(place), count: (counts.get(key)?.count ?? 0) + 1 });
  });
  const colours = new Map();
  for (const { k, colour } of [...counts.values()].sort((a, b) => b.count - a.count))
    if (!colours.has(k)) colours.set(k, unused(colour, [...colours.values()]));
  return colours;
}

// Under the strip of the cut, in its colours where they agree: the clusters of the run, and the true clusters where
// they are known. Newcomers have a mark, and clients in no cluster a cross.
function fixedStrips(clustered, at) {
  const clients = Array.from({ length: at.n }, (_, place) => clientAt(clustered, place));
  const labels = unpack(clustered.labels),
    order = unpack(clustered.order),
    trueCluster = unpack(clientData().trueCluster);
  const { clusters, at: chosen } = clustersAt(clustered, clustered.threshold);
  const strip = (row, value) => {
    const parts = new Map();
    const colours = coloursOf(clients.map(value), (place) => clusters[chosen[place]].colour);
    clients.forEach((client, place) => {
      const k = value(client, place);
      if (k < 0) return; // not known
      const y = at.strips + row * (STRIP + 3);
      gather(parts, colours.get(k), `M${at.x(place - 0.5)} ${y}h${at.size / at.n}v${STRIP}h${-at.size / at.n}z`);
    });
    const g = drawn("g");
    paths(g, parts, (colour) => ({ fill: colour }));
    return g;
  };
  const title = (row, text) =>
    drawn("text", { x: at.left - 7, y: at.strips + row * (STRIP + 3) + 8, "text-anchor": "end", "font-size": 9 }, text);
  const late = new Set(clustered.newcomers);
  const flags = clients.map((c, place) => (late.has(c) ? `M${at.x(place)} ${at.flags}l-3 -5h6z` : "")).join("");
  const known = clientData().trueClusters.length > 0;
  const cross = (place) => `M${at.x(place) - 3} ${at.strips + STRIP + 4.5}l6 6m0 -6l-6 6`;
  const crosses = clients.flatMap((_, place) => (notPlaced(clustered, place) ? [cross(place)] : []));
  return [
    title(0, "cut"),
    strip(1, (_, place) => labels[order[place]]),
    title(1, trained() ? "run" : "stored"),
    ...(known ? [strip(2, (client) => trueCluster[client]), title(2, "true")] : []),
    drawn("path", { d: flags, fill: "currentColor", "data-newcomers": late.size }),
    drawn("path", { d: crosses.join(""), stroke: "currentColor", fill: "none", "data-in-no-cluster": crosses.length }),
  ];
}

function scaleBar(clustered, at) {
  const y = at.below + 10,
    width = Math.min(200, at.size / 2);
  const cells = heatColours().filter((_, i) => i % 8 === 0);
  return [
    ...cells.map((c, i) =>
      drawn("rect", {
        x: at.left + (i * width) / cells.length,
        y,
        width: width / cells.length + 0.5,
        height: 10,
        fill: `rgb(${c.map(Math.round)})`,
      }),
    ),
    drawn("text", { x: at.left, y: y + 22 }, "0"),
    drawn(
      "text",
      { x: at.left + width, y: y + 22, "text-anchor": "middle" },
      withUnit(clustered, (UNKNOWN - 1) * clustered.perStep, 1),
    ),
    drawn(
      "text",
      { x: at.left, y: y + 36 },
      `${clustered.what}, ${kindOfRun()} ${state.run.hash}`,
    ),
  ];
}
