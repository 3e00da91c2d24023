// What is selected, and what has to be drawn again because of it. A figure is drawn when it is scrolled into view.

const ALL = ["clusters", ...Object.keys(FIGURES)];
const OF_ANGLES = ["clusters", "stability", "labels", "difference"]; // the others are about training
const waiting = new Set(),
  inView = new Set();

function draw(id) {
  waiting.delete(id);
  if (id !== "clusters") return drawFigure(id, boxOf(id));
  if (clustering()) drawClusters(boxOf(id));
}

function stale(...ids) {
  for (const id of ids.filter((id) => trained() || OF_ANGLES.includes(id))) {
    waiting.add(id);
    boxOf(id).closest("figure").hidden = false; // it may have something to show now
    if (inView.has(id)) draw(id);
  }
}

const observer = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      const id = target.dataset.figure;
      isIntersecting ? inView.add(id) : inView.delete(id);
      if (isIntersecting && waiting.has(id)) draw(id);
    }
  },
  { rootMargin: "200px" },
);

function chooseExperiment(index) {
  state.experiment = index;
  const { protocols, clients: bySeed, curves = [] } = experiment();
  document.querySelectorAll("[data-trained]").forEach((part) => (part.hidden = !trained()));
  waiting.clear(); // what waited was of another experiment
  state.protocol = protocols.includes(state.protocol) ? state.protocol : protocols[0];
  options(
    byId("protocol"),
    protocols.map((p) => [p, protocolName(p)]),
    state.protocol,
  );
  options(
    byId("what"),
    curves.map((name) => [name, name]),
    curves.includes(byId("what").value) ? byId("what").value : curves[0],
  );
  byId("worse-side").textContent = experiment().higherIsBetter ? "below" : "above";
  const seeds = Object.keys(bySeed);
  state.seed = seeds.includes(state.seed) ? state.seed : seeds[0];
  options(
    byId("seed"),
    seeds.map((seed) => [seed, seed]),
    state.seed,
  );
  chooseSeed(state.seed);
  stale("curves", "spread", "cost");
}

function chooseSeed(seed) {
  state.seed = seed;
  state.client = Math.min(state.client, clientData().n - 1);
  options(
    byId("client"),
    Array.from({ length: clientData().n }, (_, c) => [String(c), nameOf(c)]),
    String(state.client),
  );
  const withClustering = runsOfSeed().filter((run) => run.clustering);
  byId("clustering").hidden = !withClustering.length;
  byId("no-clustering").hidden = withClustering.length > 0;
  options(
    byId("clustering-run"),
    withClustering.map((run) => [run.hash, `${experiment().rows[run.row]}, ${kindOfRun()} ${run.hash.slice(0, 8)}`]),
    withClustering[0]?.hash,
  );
  chooseRun(withClustering[0] ?? null);
  stale("personal", "labels");
}

function chooseRun(run) {
  state.run = run;
  boxOf("clusters").live = null;
  const clustered = clustering();
  if (clustered) {
    state.beta = clustered.threshold;
    byId("beta").max = 1.04 * Math.max(clustered.threshold, ...clustered.tops);
    showEvidence();
    recut();
  }
  showClient();
  showDiagnosis();
  stale("clusters", "stability", "difference");
}

function savable(id) {
  const box = document.querySelector(`[data-figure="${id}"] .save`);
  const name = `pacfl-${id}`;
  if (id !== "clusters") return saveButtons(box, name, () => boxOf(id).view.toSVG(), { CSV: FIGURES[id].rows });
  const text = () => new XMLSerializer().serializeToString(boxOf(id).querySelector("svg"));
  saveButtons(box, name, text, { "CSV of clusters": clusterTable, "CSV of angles": angleTable });
}

// Both tables of an experiment, run by run.
function resultTable({ title, rows, runs, metric }) {
  return runs.flatMap((run) =>
    Object.keys(run.scores).map((protocol) => ({
      experiment: title,
      method: rows[run.row],
      seed: run.seed,
      protocol,
      [metric]: finalMean(run, protocol),
      worst_tenth: run.worstTenth[protocol],
      clusters: run.clusters,
      ari: run.ari,
      megabits_per_client: run.sent[2],
      bytes_down: run.sent[0],
      bytes_up: run.sent[1],
      run: run.hash,
    })),
  );
}

function listenToResults() {
  for (const button of document.querySelectorAll("[data-results]"))
    button.onclick = () =>
      download("pacfl-results.csv", "text/csv", csv(resultTable(DATA.experiments[button.dataset.results])));
}

function listenToControls() {
  byId("experiment").onchange = (event) => chooseExperiment(Number(event.target.value));
  byId("protocol").onchange = (event) => ((state.protocol = event.target.value), stale("curves", "spread", "cost"));
  byId("seed").onchange = (event) => chooseSeed(event.target.value);
  byId("clustering-run").onchange = (event) => chooseRun(runsOfSeed().find((run) => run.hash === event.target.value));
  byId("pair-a").onchange = (event) => choosePair(Number(event.target.value), state.pair[1]);
  byId("pair-b").onchange = (event) => choosePair(Number(byId("pair-a").value), Number(event.target.value));
  byId("client").onchange = (event) => chooseClient(Number(event.target.value));
  for (const id of ["what", "against"]) byId(id).onchange = () => stale("curves");
  byId("beta").oninput = (event) => setBeta(event.target.valueAsNumber);
  byId("beta-number").onchange = (event) => setBeta(event.target.valueAsNumber || 0);
  byId("fewer").onclick = () => step(1);
  byId("more").onclick = () => step(-1);
  byId("chosen").onclick = () => setBeta(clustering().threshold);
  listenToResults();
  addEventListener("beforeprint", () => [...waiting].forEach(draw)); // print shows everything
  let width = innerWidth,
    timer;
  addEventListener("resize", () => {
    if (innerWidth === width) return; // a phone's address bar that comes and goes
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(() => stale(...ALL), 200);
  });
}

function listExperiments() {
  options(
    byId("experiment"),
    DATA.experiments.map((e, i) => [String(i), e.title]),
    String(state.experiment),
  );
  byId("experiment").parentElement.hidden = DATA.experiments.length === 1;
}

if (DATA.experiments.length) {
  listExperiments();
  listenToControls();
  ALL.forEach(savable);
  saveTables();
  chooseExperiment(0);
  document.querySelectorAll("[data-figure]").forEach((figure) => observer.observe(figure));
}
document.documentElement.dataset.ready = Math.round(performance.now());
