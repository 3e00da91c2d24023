// The data of the page, unpacked only when they are shown: a page of 2,000 clients must open at once.

const DATA = JSON.parse(document.getElementById("data").textContent);
const KINDS = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, int32: Int32Array, float32: Float32Array };

// What is shown now. `client` is a number in the federation, a place is a position among the leaves.
const state = { experiment: 0, protocol: null, seed: null, run: null, beta: 0, client: 0 };

const experiment = () => DATA.experiments[state.experiment];
const clientData = () => experiment().clients[state.seed];
const runsOfSeed = () => experiment().runs.filter((run) => String(run.seed) === state.seed);
const clustering = () => state.run && state.run.clustering;
const trained = () => experiment().protocols.length > 0;
const kindOfRun = () => (trained() ? "run" : "federation"); // of signatures, where nothing was run

function unpack(array) {
  if (!array.values) {
    const text = atob(array.bytes);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    array.values = new KINDS[array.kind](bytes.buffer);
    delete array.bytes;
  }
  return array.values;
}

const nameOf = (client) => (clientData().names ? clientData().names[client] : `client ${client}`);
const shortOf = (client) => (clientData().names ? clientData().names[client] : String(client));
const trueClusterOf = (client) => clientData().trueClusters[unpack(clientData().trueCluster)[client]] ?? "";
// Shares are shown in percent, other metrics as they are.
const scaleOf = (metric) => (experiment().shares.includes(metric) ? 100 : 1);
const unitOf = (metric) => (experiment().shares.includes(metric) ? `${metric}, %` : metric);
const score = (value) => {
  if (value == null || Number.isNaN(value)) return "-";
  return scaleOf(experiment().metric) === 100 ? (100 * value).toFixed(1) : String(Number(value.toPrecision(3)));
};
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
// Over seeds, divisor n, as in the tables.
const std = (values) => {
  const m = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - m) ** 2)));
};
const protocolName = (protocol) => protocol.replaceAll("_", "-");

// Elements are built, never parsed from HTML: a name stays text whatever it contains.
function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}
function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}
function filled(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
const byId = (id) => document.getElementById(id);
const boxOf = (figure) => document.querySelector(`[data-figure="${figure}"] .drawing`);
const options = (select, pairs, chosen) =>
  select.replaceChildren(
    ...pairs.map(([value, text]) => filled(new Option(text, value, false, value === chosen), {}, [])),
  );

// One tooltip for all figures.
function tip(event, text) {
  const box = byId("tip");
  box.style.display = text ? "block" : "none";
  if (!text) return;
  box.textContent = text;
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8))}px`;
  box.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8))}px`;
}
