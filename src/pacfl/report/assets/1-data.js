// What the page is about, unpacked only when somebody looks at it: a page of 2,000 clients must open at once.

const DATA = JSON.parse(document.getElementById("data").textContent);
const KINDS = { uint16: Uint16Array, uint32: Uint32Array, int32: Int32Array, float32: Float32Array };

// What is shown now. `row` of a clustering is the place of a client in it, `client` its number in the federation.
const state = { experiment: 0, protocol: null, seed: null, run: null, beta: 0, client: 0 };

const experiment = () => DATA.experiments[state.experiment];
const people = () => experiment().people[state.seed];
const runsOfSeed = () => experiment().runs.filter((run) => String(run.seed) === state.seed);
const clustering = () => state.run && state.run.clustering;
const learnt = () => experiment().protocols.length > 0;
const kindOfRun = () => (learnt() ? "run" : "federation"); // who learnt nothing ran nothing

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

const nameOf = (client) => (people().names ? people().names[client] : `client ${client}`);
const shortOf = (client) => (people().names ? people().names[client] : String(client));
const groupOf = (client) => people().groups[unpack(people().group)[client]] ?? "";
const percent = (value) => (value == null || Number.isNaN(value) ? "–" : (100 * value).toFixed(1));
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
const deviation = (values) => {
  const m = mean(values);
  return values.length < 2 ? 0 : Math.sqrt(values.reduce((sum, v) => sum + (v - m) ** 2, 0) / (values.length - 1));
};
const protocolName = (protocol) => protocol.replaceAll("_", "-");

// Elements are built, never written as HTML: whatever a name contains stays text.
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
