// What runs now: its server is asked every one or two seconds. When a round ends, tables and figures follow in place, and
// what the reader has chosen stays chosen.

const EVERY = 1500, // milliseconds
  SHARE = 10, // times longer than it took: until figures are brought up to date again
  LATER = 5000; // milliseconds, where there was nothing to report yet
const shown = { version: byId("live").dataset.version, next: 0, failures: 0 };

const inWords = (seconds) => {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
};
const clock = (seconds) => (seconds == null ? "-" : new Date(1000 * seconds).toLocaleTimeString());
const percent = (now, value) => {
  if (value == null) return "-";
  return now.shares.includes(now.metric) ? `${(100 * value).toFixed(1)} %` : String(Number(value.toPrecision(3)));
};

function tableOf(caption, headings, rows) {
  const head = headings.map((text) => element("th", { scope: "col", class: "text" }, text));
  const body = rows.map((cells) =>
    element("tr", {}, ...cells.map((cell, i) => element(i ? "td" : "th", i ? { class: "text" } : { scope: "row" }, cell))),
  );
  return element(
    "table",
    {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...body),
  );
}

function liveTables(now) {
  const tables = [];
  if (now.sites.length)
    tables.push(
      tableOf(
        "Sites",
        ["site", "cluster", "connected", "last reply", "missed rounds"],
        now.sites.map((site) => [
          site.name,
          site.cluster == null ? "-" : String(site.cluster),
          site.alive ? "yes" : "no",
          clock(site.last_seen),
          site.missed ? `${site.missed}${site.failure ? `: ${site.failure}` : ""}` : "-",
        ]),
      ),
    );
  if (now.clusters.length)
    tables.push(
      tableOf(
        "Clusters",
        ["cluster", "clients", "names"],
        now.clusters.map(({ cluster, clients }) => [
          String(cluster),
          String(clients.length),
          clients.slice(0, 20).join(", ") + (clients.length > 20 ? ` and ${clients.length - 20} more` : ""),
        ]),
      ),
    );
  if (now.runs.length)
    tables.push(
      tableOf(
        "Runs",
        ["run", "algorithm", "seed", "phase", "rounds", "clusters", "score"],
        now.runs.map((run) => [
          run.hash.slice(0, 8),
          run.algorithm,
          String(run.seed),
          run.phase,
          `${run.done} of ${run.planned}`,
          run.clusters == null ? "-" : String(run.clusters),
          percent({ ...now, metric: run.metric }, run.score),
        ]),
      ),
    );
  return tables;
}

function listed(id, lines) {
  byId(id).replaceChildren(...lines.map((line) => element("li", {}, line)));
}

// Text that is read aloud when it changes is touched only when it does.
function say(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function showLive(now) {
  const words = [now.phase];
  if (now.rounds.planned) words.push(`round ${now.rounds.done} of ${now.rounds.planned}`);
  if (now.score != null) words.push(`${now.metric} of the models as received ${percent(now, now.score)}`);
  if (now.eta) words.push(`about ${inWords(now.eta)} left`);
  say("live-words", words.join(", "));
  byId("live-progress").hidden = !now.rounds.planned;
  byId("live-progress").max = now.rounds.planned || 1;
  byId("live-progress").value = now.rounds.done;
  const silent = now.seconds_since_update;
  byId("live-when").textContent = silent == null ? "Nothing has changed yet." : `Last change ${inWords(silent)} ago.`;
  byId("live-problems").hidden = !now.problems.length;
  listed("live-problems", now.problems);
  byId("live-failed").hidden = !now.errors.length;
  listed("live-errors", now.errors);
  const text = JSON.stringify([now.sites, now.clusters, now.runs]);
  if (shown.tables !== text) byId("live-tables").replaceChildren(...liveTables(now));
  shown.tables = text;
}

// A part of the page that was made by the server, with what is open and focused in it as before.
function replacePart(name, fresh) {
  const old = document.querySelector(`[data-part="${name}"]`),
    made = document.adoptNode(fresh.querySelector(`[data-part="${name}"]`));
  const at = [...old.querySelectorAll("a, button, summary")].indexOf(document.activeElement);
  for (const open of old.querySelectorAll("details[open]"))
    made.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
  old.replaceWith(made);
  listenToResults();
  saveTables();
  if (at >= 0) made.querySelectorAll("a, button, summary")[at]?.focus();
}

// The new data, with the experiment, run, β and client that were chosen.
function redraw(data) {
  const before = { ...state, title: experiment().title, chosen: clustering() && state.beta === clustering().threshold };
  DATA.experiments = data.experiments;
  state.experiment = Math.max(0, DATA.experiments.findIndex((one) => one.title === before.title));
  listExperiments();
  chooseExperiment(state.experiment);
  const run = runsOfSeed().find((one) => one.clustering && one.hash === before.run?.hash);
  if (run && run !== state.run) {
    byId("clustering-run").value = run.hash;
    chooseRun(run);
  }
  if (clustering() && before.chosen === false) setBeta(before.beta);
}

async function followReport(version) {
  const start = performance.now();
  const reply = await fetch("/", { cache: "no-store" });
  if (!reply.ok) return;
  const fresh = new DOMParser().parseFromString(await reply.text(), "text/html");
  const data = JSON.parse(fresh.getElementById("data").textContent);
  shown.version = fresh.getElementById("live").dataset.version;
  shown.next = performance.now() + Math.max(SHARE * (performance.now() - start), shown.version === version ? 0 : LATER);
  if (!data.experiments.length) return;
  if (!DATA.experiments.length) return location.reload(); // the first that there is to report
  replacePart("overview", fresh);
  replacePart("runs", fresh);
  redraw(data);
  document.documentElement.dataset.followed = version;
}

async function ask() {
  try {
    const reply = await fetch("/state.json", { cache: "no-store" });
    if (!reply.ok) throw new Error(await reply.text());
    const now = await reply.json();
    shown.failures = 0;
    showLive(now);
    if (now.version !== shown.version && performance.now() >= shown.next) await followReport(now.version);
    document.documentElement.dataset.live = now.version;
  } catch (error) {
    if (++shown.failures > 1) say("live-words", "The dashboard does not answer: it has ended. What is below is as it was then.");
  }
  setTimeout(ask, EVERY);
}

ask();
