// Who is alike: dendrogram above, heat map below, one threshold through both. What does not move with it.

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
// Of text over lines. Canvas is the colour of the page, dark or light, and white in a saved picture.
const HALO = { stroke: "Canvas", "stroke-width": 3, "paint-order": "stroke" };

function layout(group, width) {
  const left = 46,
    right = 8,
    tree = 190,
    top = 14;
  const size = Math.max(120, Math.min(width - left - right, 760));
  const n = group.walls.length + 1;
  const highest = 1.04 * Math.max(group.threshold, ...group.tops);
  const strips = top + tree + 4;
  const heat = strips + 3 * (STRIP + 3) + 4;
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
    heat,
    x,
    y,
    width: left + size + right,
    height: heat + size + 50,
  };
}

// Many shapes of one colour are one path: 2,000 clients are 12 paths, not 2,000 elements.
function paths(parent, byColour, attributes) {
  parent.replaceChildren(
    ...[...byColour].map(([colour, parts]) => drawn("path", { ...attributes(colour), d: parts.join("") })),
  );
}
const gather = (map, key, part) => (map.get(key) ?? map.set(key, []).get(key)).push(part);

function drawClusters(box) {
  const group = clustering();
  const at = layout(group, box.clientWidth);
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
      href: heatPicture(group),
      x: at.left,
      y: at.heat,
      width: at.size,
      height: at.size,
      preserveAspectRatio: "none",
      style: "image-rendering: pixelated",
    }),
    ...axis(at),
    ...fixedStrips(group, at),
    ...scaleBar(group, at),
    live.tree,
    ...marks(group, at),
    live.strip,
    live.boxes,
    live.ring,
    live.line,
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
      drawn("text", { x: at.left - 7, y: at.y(tick) + 4, "text-anchor": "end" }, `${+tick.toFixed(2)}°`),
    ),
  );
}

// What the choice rests on: the noise of a typical client, what chance can do, and the threshold itself.
function marks(group, at) {
  const floor = group.evidence.floor,
    limits = group.evidence.null_limits ?? [];
  const lines = [[group.threshold, "β chosen", "6 3"]];
  if (group.unit != null && floor != null) lines.push([floor, "noise floor", "1 3"]);
  if (group.unit != null && limits.length) lines.push([floor * limits[0], "chance", "2 3"]);
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

// Under the strip of the cut, in its colours where they agree: the clusters of the run, and the true groups where they
// are known. Newcomers have a mark.
function fixedStrips(group, at) {
  const clients = Array.from({ length: at.n }, (_, place) => clientAt(group, place));
  const labels = unpack(group.labels),
    order = unpack(group.order),
    truth = unpack(people().group);
  const { clusters, at: chosen } = clustersAt(group, group.threshold);
  const strip = (row, value) => {
    const parts = new Map();
    const colours = new Map();
    clients.forEach((client, place) => {
      const k = value(client, place);
      if (k < 0) return; // not known
      if (!colours.has(k)) colours.set(k, unused(clusters[chosen[place]].colour, [...colours.values()]));
      const y = at.strips + row * (STRIP + 3);
      gather(parts, colours.get(k), `M${at.x(place - 0.5)} ${y}h${at.size / at.n}v${STRIP}h${-at.size / at.n}z`);
    });
    const g = drawn("g");
    paths(g, parts, (colour) => ({ fill: colour }));
    return g;
  };
  const title = (row, text) =>
    drawn("text", { x: at.left - 7, y: at.strips + row * (STRIP + 3) + 8, "text-anchor": "end", "font-size": 9 }, text);
  const late = new Set(group.newcomers);
  const flags = clients.map((c, place) => (late.has(c) ? `M${at.x(place)} ${at.heat - 1}l-3 -5h6z` : "")).join("");
  const known = people().groups.length > 0;
  return [
    title(0, "cut"),
    strip(1, (_, place) => labels[order[place]]),
    title(1, learnt() ? "run" : "kept"),
    ...(known ? [strip(2, (client) => truth[client]), title(2, "truth")] : []),
    drawn("path", { d: flags, fill: "currentColor", "data-newcomers": late.size }),
  ];
}

function scaleBar(group, at) {
  const y = at.heat + at.size + 10,
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
    drawn("text", { x: at.left, y: y + 22 }, "0°"),
    drawn(
      "text",
      { x: at.left + width, y: y + 22, "text-anchor": "middle" },
      `${(65535 * group.degrees_per_step).toFixed(1)}°`,
    ),
    drawn(
      "text",
      { x: at.left, y: y + 36 },
      `angle between two clients (${group.measure}, as measured), ${kindOfRun()} ${state.run.hash}`,
    ),
  ];
}
