// The leaderboard: ranks with their tests, methods by shifts, and costs. Every number is in DATA; here it is only shown.

const PERCENT = 100;
const MEASURES = {
  accuracy: { title: "accuracy, %", scale: PERCENT, decimals: 1, better: 1, full: 0.15 },
  worst_tenth: { title: "worst tenth of clients, %", scale: PERCENT, decimals: 1, better: 1, full: 0.15 },
  below_local: { title: "clients below local training, %", scale: PERCENT, decimals: 0, better: -1, full: 0.5 },
  ari: { title: "ARI", scale: 1, decimals: 2, better: 1, full: 1 },
  clusters: { title: "clusters found", scale: 1, decimals: 1, better: 0, full: 1 },
  megabytes: { title: "megabytes", scale: 1, decimals: 1, better: -1, full: null },
  seconds: { title: "seconds", scale: 1, decimals: 1, better: -1, full: null },
  rounds_to_target: { title: "rounds to FedAvg's final accuracy", scale: 1, decimals: 0, better: -1, full: null },
};
const OF_SCORES = ["accuracy", "worst_tenth", "below_local"];
const VIEWS = { value: "values", best: "difference from the best", tuned: "difference from FedAvg with fine-tuning" };
const CHOICES = { all: "all", free: "without those given k", given: "given k, pacfl and fedavg-ft" };

const shown = { protocol: DATA.protocols[0], kind: DATA.kinds[0], set: "", chosen: "all", measure: "accuracy" };
Object.assign(shown, { view: "value", highlight: "" });
const sortedBy = { ranks: ["rank", 1], heat: ["rank", 1] };

const leaders = () => DATA.leaders[`${shown.set}|${shown.chosen}|${shown.kind}|${shown.protocol}`];
const valuesOf = (measure, protocol = shown.protocol) =>
  DATA.values[OF_SCORES.includes(measure) ? `${measure}|${shown.kind}|${protocol}` : measure];
const number = (value, decimals, sign = false) =>
  value == null ? "-" : (sign && value > 0 ? "+" : "") + value.toFixed(decimals).replace("-", "−");
const percent = (value, decimals = 1, sign = false) => number(value == null ? null : 100 * value, decimals, sign);
const chance = (p) => (p != null && p < 0.001 ? "<0.001" : number(p, 3));
const nameOfMethod = (row) => row.method + (row.given ? " k" : "");

// A table whose columns are {key, title, hint, value(row), cell(row) -> <td>, better}; rows without a value come last.
function drawTable(id, caption, columns, rows) {
  const table = byId(id);
  const focused = table.contains(document.activeElement) ? document.activeElement.dataset.column : null;
  const [key, direction] = sortedBy[id];
  const by = columns.find((column) => column.key === key) ?? columns[0];
  const sorted = [...rows].sort((a, b) => compare(by.value(a), by.value(b), direction));
  const head = columns.map((column) => {
    const button = element("button", { type: "button", "data-column": column.key, title: column.hint ?? "" }, ...broken(column.title));
    button.onclick = () => sortBy(id, column);
    const order = column === by ? { "aria-sort": direction > 0 ? "ascending" : "descending" } : {};
    return element("th", { scope: "col", ...order }, button);
  });
  const body = sorted.map((row) => {
    const [first, ...cells] = columns.map((column) => column.cell(row));
    return element("tr", row.method === shown.highlight ? { class: "picked" } : {}, first, ...cells);
  });
  table.replaceChildren(
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...body),
  );
  if (focused) table.querySelector(`[data-column="${CSS.escape(focused)}"]`)?.focus();
}

// A name may go on in the next line after a slash.
const broken = (title) => title.split(/(?<=[/])/).flatMap((part, i) => (i ? [element("wbr"), part] : [part]));

function compare(a, b, direction) {
  if (a == null || b == null) return (a == null) - (b == null);
  return direction * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

function sortBy(id, column) {
  const [key, direction] = sortedBy[id];
  const first = (column.better ?? -1) > 0 ? -1 : 1;
  sortedBy[id] = [column.key, key === column.key ? -direction : first];
  byId("sorted").textContent = `Sorted by ${column.title}, ${sortedBy[id][1] > 0 ? "ascending" : "descending"}.`;
  id === "ranks" ? drawRanks() : drawHeat();
}

const heading = (row) => element("th", { scope: "row" }, nameOfMethod(row));
const METHOD = { key: "method", title: "method", value: (row) => row.method, cell: heading, better: -1 };
const plain = (key, title, text, better, hint) => ({
  key, title, better, hint,
  value: (row) => row[key],
  cell: (row) => element("td", {}, text(row[key], row)),
});
const RANKS = [
  METHOD,
  plain("rank", "rank", (v) => number(v, 1), -1),
  plain("accuracy", "accuracy, %", (v) => percent(v), 1),
  plain("worst_tenth", "worst tenth, %", (v) => percent(v), 1),
  plain("below_local", "below local, %", (v) => percent(v, 0), -1, "clients below local training"),
  plain("ari", "ARI", (v) => number(v, 2), 1),
  plain("megabytes", "MB", (v) => number(v, 1), -1),
  plain("seconds", "s", (v) => number(v, 1), -1),
  plain("rounds_to_target", "rounds to target", (v, row) => (v == null ? "-" : `${number(v, 0)} (${percent(row.reached, 0)} %)`), -1, "median over runs that reach FedAvg's final accuracy, and their share"),
  plain("within_noise", "near the best, %", (v) => percent(v, 0), 1),
  plain("least_beside_fine_tuned", "beside fine-tuning", (v) => percent(v, 1, true), 1),
  {
    key: "gain", title: `${DATA.reference} ahead by`, better: -1,
    value: (row) => row.beside_reference?.gain ?? null,
    cell: (row) => element("td", {}, gainText(row.beside_reference)),
  },
  {
    key: "holm", title: "p", better: -1,
    value: (row) => row.beside_reference?.holm ?? null,
    cell: (row) => element("td", {}, chance(row.beside_reference?.holm)),
  },
  plain("verdict", `${DATA.reference} is`, (v) => v ?? "", -1),
  plain("native", "native, %", (v) => percent(v, 0), 1, "processor time inside the native engine"),
];

function gainText(found) {
  if (!found) return "";
  return `${percent(found.gain, 1, true)} [${percent(found.low, 1, true)}, ${percent(found.high, 1, true)}]`;
}

function drawRanks() {
  const { rows, cells } = leaders();
  byId("cells").textContent =
    cells[0] === cells[1]
      ? `${cells[0]} cells.`
      : `${cells[0]} of ${cells[1]} cells have all methods shown; ranks and means are over these.`;
  drawTable("ranks", `${rows.length} methods, as ${shown.protocol}, ${shown.kind} test samples`, RANKS, rows);
}

// The heat map

function heatColumns(rows) {
  const measure = MEASURES[shown.measure];
  const values = valuesOf(shown.measure);
  const tuned = DATA.methods.findIndex((one) => one.name === DATA.fineTuned);
  const best = leaders().best;
  const isScored = shown.measure === "accuracy";
  return DATA.cells.flatMap((cell, c) => {
    if (shown.set && cell.set !== shown.set) return [];
    const known = rows.map((row) => values[row.index][c]).filter((v) => v != null);
    const top = measure.better ? known.reduce((a, b) => (measure.better * (b - a) > 0 ? b : a), known[0]) : null;
    const fine = tuned < 0 ? null : valuesOf(shown.measure, "personal")[tuned][c];
    const origin = { value: null, best: top, tuned: fine }[shown.view];
    const shift = DATA.cells.some((other) => other.set !== cell.set) && !shown.set ? `${cell.set} ${cell.shift}` : cell.shift;
    const value = (row) => {
      const v = values[row.index][c];
      if (v == null || shown.view === "value") return v;
      return origin == null ? null : v - origin;
    };
    const marks = (row, v) => {
      if (v == null || top == null) return "";
      if (v === top) return " ★";
      return isScored && best[`${cell.set}|${cell.shift}`]?.includes(row.method) ? " ≈" : "";
    };
    return [{
      key: `${cell.set}|${cell.shift}`, title: shift, hint: cell.title, better: measure.better, value,
      cell: (row) => {
        const v = values[row.index][c], status = DATA.status[row.index][c], differs = shown.view !== "value";
        const text = value(row) == null ? "–" : number(measure.scale * value(row), measure.decimals, differs);
        const hint = [status, DATA.runs[row.index][c] && `runs ${DATA.runs[row.index][c]}`].filter(Boolean).join("; ");
        const style = tint(measure, v, shown.view === "tuned" ? fine : top);
        const crossed = status === "diverged" ? " ✕" : "";
        return element("td", { title: hint, ...style }, text + crossed + marks(row, v));
      },
    }];
  });
}

// Green: as good as the best, or ahead of what is compared with; orange: behind it. Every cell has its number, too.
function tint(measure, value, origin) {
  if (value == null || origin == null || !measure.better) return {};
  const full = measure.full ?? Math.max(Math.abs(origin), 1e-9);
  const ahead = (measure.better * (value - origin)) / full;
  const [colour, share] =
    shown.view === "tuned" ? [ahead >= 0 ? "ahead" : "behind", Math.min(Math.abs(ahead), 1)] : ["ahead", Math.max(1 + ahead, 0)];
  return { class: "heat", style: `--tint: var(--${colour}); --share: ${Math.round(55 * share)}` };
}

function drawHeat() {
  const ranked = leaders().rows;
  const rows = ranked.map((row) => ({ ...row, index: DATA.methods.findIndex((one) => one.name === row.method) }));
  const rank = RANKS.find((column) => column.key === "rank");
  const caption = `${MEASURES[shown.measure].title}, ${VIEWS[shown.view]}; ${shown.protocol}, ${shown.kind} test samples`;
  drawTable("heat", caption, [METHOD, rank, ...heatColumns(rows)], rows);
}

// Figures

const ranked = () => leaders().rows.filter((row) => row.accuracy != null);
const svg = (width, height, label, ...parts) =>
  drawn("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...parts);
const words = (x, y, text, more = {}) => drawn("text", { x, y, "font-size": 12, "font-family": "system-ui, sans-serif", ...more }, text);

function steps(low, high, count) {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((one) => one >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

function gains() {
  const rows = ranked().filter((row) => row.beside_reference);
  if (!rows.length) return null;
  const ends = rows.flatMap(({ beside_reference: one }) => [100 * one.low, 100 * one.high, 0]);
  const low = Math.min(...ends), high = Math.max(...ends), left = 190, width = 760, line = 20;
  const x = (v) => left + ((v - low) / (high - low || 1)) * (width - left - 90);
  const height = line * rows.length + 34;
  const axis = steps(low, high, 8).flatMap((at) => [
    drawn("line", { class: "axis", x1: x(at), x2: x(at), y1: 4, y2: height - 28, stroke: "currentColor", "stroke-opacity": at ? 0.2 : 0.9 }),
    words(x(at), height - 12, number(at, at % 1 ? 1 : 0, true), { "text-anchor": "middle" }),
  ]);
  const marks = rows.flatMap((row, i) => {
    const one = row.beside_reference, y = line * i + 14, differs = ["ahead", "behind"].includes(row.verdict);
    const picked = row.method === shown.highlight ? { class: "picked" } : {};
    return [
      words(left - 10, y + 4, nameOfMethod(row), { "text-anchor": "end" }),
      drawn("line", { x1: x(100 * one.low), x2: x(100 * one.high), y1: y, y2: y, stroke: "currentColor", "stroke-width": 2, ...picked }),
      drawn("circle", { cx: x(100 * one.gain), cy: y, r: 5, stroke: "currentColor", fill: differs ? "currentColor" : "Canvas", "data-method": row.method, ...picked }, drawn("title", {}, `${nameOfMethod(row)}: ${gainText(one)}`)),
      words(width - 84, y + 4, row.verdict ?? ""),
    ];
  });
  return svg(width, height, `Points by which ${DATA.reference} is ahead of ${rows.length} methods`, ...axis, ...marks);
}

function mark(row, x, y) {
  const more = { stroke: "currentColor", "data-method": row.method, ...(row.method === shown.highlight ? { class: "picked" } : {}) };
  const hint = drawn("title", {}, nameOfMethod(row));
  if (row.method === DATA.reference) return drawn("path", { d: `M${x} ${y - 8}l8 8l-8 8l-8 -8z`, fill: "var(--accent, #0b5cad)", ...more }, hint);
  if (row.given) return drawn("rect", { x: x - 4, y: y - 4, width: 8, height: 8, fill: "currentColor", "fill-opacity": 0.35, ...more }, hint);
  return drawn("circle", { cx: x, cy: y, r: 5, fill: "currentColor", "fill-opacity": 0.35, ...more }, hint);
}

function scatter(cost) {
  const rows = ranked().filter((row) => row[cost] != null);
  if (!rows.length) return null;
  const width = 620, height = 400, left = 46, bottom = 40;
  const most = Math.max(...rows.map((row) => row[cost])) * 1.02 || 1;
  const scores = rows.map((row) => 100 * row.accuracy), low = Math.min(...scores), high = Math.max(...scores);
  const pad = 0.06 * (high - low) || 1;
  const x = (v) => left + (v / most) * (width - left - 20), y = (v) => 10 + ((high + pad - v) / (high - low + 2 * pad)) * (height - bottom - 10);
  const axes = [
    ...steps(0, most, 6).flatMap((at) => [
      drawn("line", { class: "axis", x1: x(at), x2: x(at), y1: 10, y2: height - bottom, stroke: "currentColor", "stroke-opacity": 0.15 }),
      words(x(at), height - bottom + 16, String(at), { "text-anchor": "middle" }),
    ]),
    ...steps(low - pad, high + pad, 6).flatMap((at) => [
      drawn("line", { class: "axis", x1: left, x2: width - 20, y1: y(at), y2: y(at), stroke: "currentColor", "stroke-opacity": 0.15 }),
      words(left - 6, y(at) + 4, String(at), { "text-anchor": "end" }),
    ]),
    words(width - 20, height - 6, cost, { "text-anchor": "end" }),
    words(left, height - 6, `accuracy in %, ${shown.protocol}`),
  ];
  const named = placed(rows.map((row) => ({ row, x: x(row[cost]), y: y(100 * row.accuracy) })), width);
  return svg(width, height, `Accuracy against ${cost} of ${rows.length} methods`, ...axes, ...rows.map((row) => mark(row, x(row[cost]), y(100 * row.accuracy))), ...named);
}

// Names beside their points, the first ones of the ranks first; those that would overlap are left out.
function placed(points, width) {
  const taken = points.map((p) => [p.x - 6, p.y - 6, p.x + 6, p.y + 6]);
  const first = (p) => (p.row.method === shown.highlight ? 0 : p.row.method === DATA.reference ? 1 : 2);
  return [...points].sort((a, b) => first(a) - first(b)).flatMap((p) => {
    const text = nameOfMethod(p.row), long = 6.8 * text.length;
    for (const [dx, dy] of [[9, 4], [-9 - long, 4], [-long / 2, -10], [-long / 2, 19]]) {
      const box = [p.x + dx, p.y + dy - 10, p.x + dx + long, p.y + dy + 3];
      const inside = box[0] > 46 && box[2] < width && box[1] > 0;
      if (inside && !taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) {
        taken.push(box);
        return [words(p.x + dx, p.y + dy, text)];
      }
    }
    return first(p) ? [] : [words(p.x + 9, p.y + 4, text)];
  });
}

const DRAWINGS = { gains, megabytes: () => scatter("megabytes"), seconds: () => scatter("seconds") };
const COLUMNS = {
  gains: (row) => ({ method: row.method, ...row.beside_reference, verdict: row.verdict }),
  megabytes: (row) => ({ method: row.method, accuracy: row.accuracy, megabytes: row.megabytes }),
  seconds: (row) => ({ method: row.method, accuracy: row.accuracy, seconds: row.seconds }),
};

function drawFigures() {
  for (const [id, make] of Object.entries(DRAWINGS)) {
    const made = make();
    boxOf(id).closest("figure").hidden = !made;
    boxOf(id).replaceChildren(...(made ? [made] : []));
  }
}

function drawAll() {
  drawRanks();
  drawHeat();
  drawFigures();
}

function listen(id, pairs) {
  options(byId(id), pairs, shown[id]);
  byId(id).parentElement.hidden = pairs.length < 2;
  byId(id).onchange = (event) => {
    shown[id] = event.target.value;
    drawAll();
  };
}

listen("protocol", DATA.protocols.map((name) => [name, name]));
listen("kind", DATA.kinds.map((name) => [name, name]));
const sets = [...new Set(DATA.cells.map((cell) => cell.set))];
listen("set", sets.length > 1 ? [["", "all"], ...sets.map((name) => [name, name])] : [["", sets[0]]]);
listen("chosen", DATA.methods.some((one) => one.given) ? Object.entries(CHOICES) : [["all", "all"]]);
listen("highlight", [["", "none"], ...DATA.methods.map((one) => [one.name, one.name])]);
listen("measure", Object.entries(MEASURES).map(([name, one]) => [name, one.title]));
listen("view", Object.entries(VIEWS));
drawAll();
for (const id of Object.keys(DRAWINGS)) {
  const text = () => new XMLSerializer().serializeToString(boxOf(id).querySelector("svg"));
  saveButtons(document.querySelector(`[data-figure="${id}"] .save`), `pacfl-${id}`, text, { CSV: () => ranked().map(COLUMNS[id]) });
}
saveTables();
document.documentElement.dataset.ready = Math.round(performance.now());
