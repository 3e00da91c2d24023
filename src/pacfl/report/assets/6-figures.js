// Figures of many runs: `rows` are the data, which are also saved as CSV; `spec` is how Vega-Lite draws them.

// The page's text colour: figures follow light, dark and print without being drawn again.
const INK = "currentColor";
const LOOK = {
  background: null,
  font: "system-ui, sans-serif",
  view: { stroke: null },
  axis: {
    labelColor: INK,
    titleColor: INK,
    tickColor: INK,
    domainColor: INK,
    gridColor: INK,
    gridOpacity: 0.12,
    titleFontWeight: 500,
  },
  legend: { labelColor: INK, titleColor: INK, labelLimit: 260, symbolOpacity: 1 },
  header: { labelColor: INK, titleColor: INK, labelLimit: 190 },
  title: { color: INK },
  text: { color: INK },
};
const MOST_IN_SVG = 4000; // marks; a canvas draws more of them fast enough

const rowNames = () => experiment().rows;
const colour = () => ({
  field: "method",
  type: "nominal",
  sort: null,
  scale: { domain: rowNames(), scheme: rowNames().length > 10 ? "tableau20" : "tableau10" },
});
const legendBelow = (width) => ({ orient: "bottom", title: null, columns: Math.max(1, Math.floor(width / 170)) });
const evaluated = (protocol) => experiment().runs.filter((run) => run.scores[protocol]);
const finalMean = (run, protocol) => mean([...unpack(run.scores[protocol])].filter((v) => !Number.isNaN(v)));

// Of shares, up to 100 %; of other metrics, what there is.
function limits(values) {
  const least = values.reduce((low, v) => Math.min(low, v), values[0]);
  const most = values.reduce((high, v) => Math.max(high, v), values[0]);
  if (scaleOf(experiment().metric) === 100) return [Math.floor(least / 10) * 10, 100];
  const edge = 0.05 * (most - least) || 1;
  return [least - edge, most + edge];
}

function together(rows, key) {
  const found = new Map();
  for (const row of rows) gather(found, key(row), row);
  return [...found.values()];
}

const FIGURES = {
  curves: {
    rows() {
      const what = byId("what").value,
        against = byId("against").value,
        protocol = state.protocol;
      return evaluated(protocol)
        .flatMap((run) =>
          run.rounds.map((round, i) => ({
            method: rowNames()[run.row],
            seed: run.seed,
            protocol,
            rounds: round,
            megabits: run.megabits[i],
            [what]: run.curves[what]?.[protocol][i],
            x: run[against][i],
            run: run.hash,
          })),
        )
        .filter((row) => row[what] != null);
    },
    spec(rows, width) {
      const what = byId("what").value,
        against = byId("against").value;
      const scale = scaleOf(what);
      const values = together(rows, (r) => `${r.method}\n${r.rounds}`).map((same) => {
        const y = same.map((r) => scale * r[what]);
        return {
          method: same[0].method,
          x: mean(same.map((r) => r.x)),
          y: mean(y),
          low: mean(y) - std(y),
          high: mean(y) + std(y),
          runs: same.map((r) => r.run.slice(0, 8)).join(" "),
        };
      });
      const title = `${unitOf(what)} (${protocolName(state.protocol)})`;
      const last = values.reduce((most, v) => Math.max(most, v.x), 1);
      const x = {
        field: "x",
        type: "quantitative",
        title: against === "rounds" ? "rounds" : "megabits per client, both ways",
        scale: { domain: [0, last], nice: false },
        axis: { tickCount: against === "rounds" ? Math.min(10, last) : 10 },
      };
      const shown = { condition: { param: "picked", value: 1 }, value: 0.12 };
      const tooltip = [
        { field: "method" },
        { field: "x", format: ".4~g", title: against },
        { field: "y", format: ".4~g", title },
        { field: "runs" },
      ];
      return {
        width: width - 70,
        height: 320,
        data: { values },
        encoding: { x, color: { ...colour(), legend: legendBelow(width) }, opacity: shown },
        layer: [
          {
            mark: { type: "area", opacity: 0.15 },
            encoding: {
              y: { field: "low", type: "quantitative", title, scale: { zero: false } },
              y2: { field: "high" },
              opacity: { condition: { param: "picked", value: 0.15 }, value: 0.02 },
            },
          },
          {
            mark: "line",
            params: [{ name: "picked", select: { type: "point", fields: ["method"] }, bind: "legend" }],
            encoding: { y: { field: "y", type: "quantitative", title } },
          },
          { mark: { type: "circle", size: 36 }, encoding: { y: { field: "y", type: "quantitative", title }, tooltip } },
        ],
      };
    },
  },
  personal: {
    rows() {
      return runsOfSeed()
        .filter((run) => run.scores.received && run.scores.personal)
        .flatMap((run) => {
          const before = unpack(run.scores.received),
            after = unpack(run.scores.personal),
            cluster = unpack(run.clusterOf);
          return Array.from(before, (received, client) => ({
            method: rowNames()[run.row],
            seed: run.seed,
            client,
            name: nameOf(client),
            cluster: run.clusters == null || cluster[client] < 0 ? "-" : cluster[client],
            received,
            personal: after[client],
            run: run.hash,
          })).filter((row) => !Number.isNaN(row.received) && !Number.isNaN(row.personal));
        });
    },
    spec(rows, width) {
      const scaled = scaleOf(experiment().metric);
      const values = rows.map((r) => ({ ...r, before: scaled * r.received, after: scaled * r.personal }));
      const columns = Math.max(1, Math.min(5, rowNames().length, Math.floor(width / 210)));
      const [low, high] = limits(values.flatMap((r) => [r.before, r.after]));
      const scale = { domain: [low, high], nice: false };
      const x = { field: "before", type: "quantitative", title: scaled === 100 ? "received, %" : "received", scale };
      const y = { field: "after", type: "quantitative", title: scaled === 100 ? "personal, %" : "personal", scale };
      return {
        data: { values },
        columns,
        facet: { field: "method", type: "nominal", title: null, sort: rowNames() },
        spec: {
          width: Math.floor((width - 60) / columns) - 22,
          height: 150,
          layer: [
            {
              data: { values: [{ at: low }, { at: high }] },
              mark: { type: "line", color: INK, opacity: 0.4, strokeDash: [4, 3] },
              encoding: { x: { ...x, field: "at" }, y: { ...y, field: "at" } },
            },
            {
              mark: { type: "circle", opacity: 0.6, size: 22 },
              encoding: {
                x,
                y,
                color: { ...colour(), legend: null },
                tooltip: [
                  { field: "name", title: "client" },
                  { field: "cluster" },
                  { field: "before", title: "received", format: ".4~g" },
                  { field: "after", title: "personal", format: ".4~g" },
                  { field: "run" },
                ],
              },
            },
          ],
        },
      };
    },
  },
  spread: {
    rows() {
      return evaluated(state.protocol).flatMap((run) => {
        const sorted = Float32Array.from(unpack(run.scores[state.protocol]))
          .filter((v) => !Number.isNaN(v))
          .sort();
        if (!experiment().higherIsBetter) sorted.reverse();
        const steps = Math.min(sorted.length, 100);
        return Array.from({ length: steps }, (_, i) => ({
          method: rowNames()[run.row],
          seed: run.seed,
          protocol: state.protocol,
          share_of_clients: (i + 0.5) / steps,
          [experiment().metric]: sorted[Math.floor(((i + 0.5) / steps) * sorted.length)],
          run: run.hash,
        }));
      });
    },
    spec(rows, width) {
      const { metric } = experiment();
      const values = together(rows, (r) => `${r.method}\n${r.share_of_clients}`).map((same) => ({
        method: same[0].method,
        share: 100 * same[0].share_of_clients,
        score: scaleOf(metric) * mean(same.map((r) => r[metric])),
        runs: same.map((r) => r.run.slice(0, 8)).join(" "),
      }));
      return {
        width: width - 70,
        height: 280,
        layer: [
          {
            data: { values: [{ from: 0, to: 10 }] },
            mark: { type: "rect", color: INK, opacity: 0.07 },
            encoding: { x: { field: "from", type: "quantitative" }, x2: { field: "to" } },
          },
          {
            data: { values },
            mark: "line",
            encoding: {
              x: {
                field: "share",
                type: "quantitative",
                title: "clients in %, worst first",
                scale: { domain: [0, 100], nice: false },
              },
              y: {
                field: "score",
                type: "quantitative",
                title: `${unitOf(metric)} (${protocolName(state.protocol)})`,
                scale: { zero: false },
              },
              color: { ...colour(), legend: legendBelow(width) },
              tooltip: [{ field: "method" }, { field: "runs" }],
            },
          },
        ],
      };
    },
  },
  cost: {
    rows: () =>
      evaluated(state.protocol).map((run) => ({
        method: rowNames()[run.row],
        seed: run.seed,
        protocol: state.protocol,
        [experiment().metric]: finalMean(run, state.protocol),
        megabits_per_client: run.sent[2],
        bytes_down: run.sent[0],
        bytes_up: run.sent[1],
        run: run.hash,
      })),
    spec: (rows, width) => ({
      width: width - 70,
      height: 260,
      data: {
        values: rows.map((r) => ({ ...r, score: scaleOf(experiment().metric) * r[experiment().metric] })),
      },
      mark: { type: "point", filled: true, size: 80, opacity: 0.8 },
      encoding: {
        x: { field: "megabits_per_client", type: "quantitative", title: "megabits per client, both ways" },
        y: {
          field: "score",
          type: "quantitative",
          title: `${unitOf(experiment().metric)} (${protocolName(state.protocol)})`,
          scale: { zero: false },
        },
        color: { ...colour(), legend: legendBelow(width) },
        tooltip: [
          { field: "method" },
          { field: "seed" },
          { field: "score", title: experiment().metric, format: ".4~g" },
          { field: "megabits_per_client", format: ".1f", title: "megabits" },
          { field: "run" },
        ],
      },
    }),
  },
  stability: {
    rows: () =>
      (clustering()?.evidence.cuts ?? []).map((c) => ({
        clusters: c.n_clusters,
        lowest_merge_above_cut_over_noise: c.height,
        reproducibility: c.reproducibility,
        run: state.run.hash,
      })),
    spec: (rows, width) => ({
      width: width - 70,
      height: 150,
      layer: [
        {
          data: { values: [{ required: 0.85 }] },
          mark: { type: "rule", color: INK, opacity: 0.5, strokeDash: [4, 3] },
          encoding: { y: { field: "required", type: "quantitative" } },
        },
        {
          data: { values: rows.map((r) => ({ ...r, height: r.lowest_merge_above_cut_over_noise })) },
          mark: { type: "line", point: true },
          encoding: {
            x: {
              field: "clusters",
              type: "quantitative",
              axis: { values: rows.length > 12 ? undefined : rows.map((r) => r.clusters), format: "d" },
              scale: { zero: false },
            },
            y: { field: "reproducibility", type: "quantitative", title: "stability", scale: { domain: [0, 1] } },
            tooltip: [
              { field: "clusters" },
              { field: "reproducibility", format: ".3f" },
              { field: "height", title: "lowest merge above the cut, × noise", format: ".2f" },
              { field: "run" },
            ],
          },
        },
      ],
    }),
  },
  labels: {
    rows() {
      const { labels } = clientData(),
        classes = labels.shape[1],
        counts = unpack(labels),
        run = runsOfSeed()[0];
      return Array.from({ length: classes }, (_, label) => ({
        client: state.client,
        name: nameOf(state.client),
        label,
        samples: counts[state.client * classes + label],
        run: run.hash,
      }));
    },
    spec: (rows, width) => ({
      width: width - 60,
      height: 130,
      data: { values: rows },
      mark: { type: "bar", color: COLOURS[0] },
      encoding: {
        x: { field: "label", type: "ordinal", title: "class", axis: { labelAngle: 0, labelOverlap: true } },
        y: { field: "samples", type: "quantitative", axis: { tickMinStep: 1 } },
        tooltip: [{ field: "label", title: "class" }, { field: "samples" }],
      },
    }),
  },
};

function tipText(value) {
  return typeof value === "object"
    ? Object.entries(value)
        .map(([key, v]) => `${key}: ${v}`)
        .join("\n")
    : String(value);
}

async function drawFigure(id, box) {
  const { rows, spec } = FIGURES[id];
  const values = rows();
  box.closest("figure").hidden = values.length === 0;
  box.view?.finalize();
  box.view = null;
  if (!values.length) return;
  const request = (box.request = (box.request ?? 0) + 1);
  const canvas = element("div");
  const { view } = await vegaEmbed(canvas, spec(values, box.clientWidth), {
    mode: "vega-lite",
    config: LOOK,
    actions: false,
    renderer: values.length > MOST_IN_SVG ? "canvas" : "svg",
    tooltip: (_, event, __, value) => tip(event, value == null || value === "" ? "" : tipText(value)),
  });
  if (request !== box.request) return view.finalize(); // something else was selected meanwhile
  view.addEventListener("click", (_, item) => item?.datum?.client !== undefined && chooseClient(item.datum.client));
  box.replaceChildren(canvas);
  box.view = view;
}
