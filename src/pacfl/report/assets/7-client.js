// One client: its data, its nearest neighbours, and its score under each method.

function chooseClient(client) {
  state.client = client;
  showClient();
  ring();
  stale("labels");
}

function showClient() {
  const client = state.client,
    clustered = clustering();
  byId("client").value = client;
  const samples = unpack(clientData().train)[client];
  const facts = [samples ? `${nameOf(client)} has ${samples} ${trained() ? "training " : ""}samples.` : `${nameOf(client)}.`];
  if (trueClusterOf(client)) facts.push(`Its true cluster is ${trueClusterOf(client)}.`);
  const place = clustered ? placeOf(clustered, client) : undefined;
  if (place !== undefined) {
    const { clusters, at } = clustersAt(clustered, state.beta);
    const { start, end, number } = clusters[at[place]];
    const inRun = unpack(clustered.labels)[unpack(clustered.order)[place]];
    if (number !== NONE) facts.push(`At this β it is in cluster ${number} with ${end - start - 1} others.`);
    facts.push(`In the ${kindOfRun()} it ${inRun < 0 ? "cannot be judged and is in no cluster" : `is in cluster ${inRun}`}.`);
    if (clustered.newcomers.includes(client)) facts.push("It joined as a newcomer.");
    if (clustered.mergeSuggestions.some((merge) => merge.client === client))
      facts.push(`It is within β of two clusters of the ${kindOfRun()}.`);
  }
  byId("client-facts").textContent = facts.join(" ");
  showNeighbours(clustered, place);
  showUnderEach(client);
}

function showNeighbours(clustered, place) {
  const rows = [];
  if (place !== undefined) {
    const row = unpack(clustered.order)[place],
      [, m] = clustered.near.shape;
    const near = unpack(clustered.near),
      distances = unpack(clustered.nearDistances),
      { clusters, at } = clustersAt(clustered, state.beta);
    for (let i = row * m; i < (row + 1) * m; i++) {
      if (!Number.isFinite(distances[i])) break; // no class in common
      const client = unpack(clustered.clients)[near[i]];
      rows.push([
        nameOf(client),
        distances[i].toFixed(2),
        clusters[at[placeOf(clustered, client)]].number,
        unpack(clientData().train)[client] || "-",
        trueClusterOf(client),
      ]);
    }
  }
  byId("neighbours").tBodies[0].replaceChildren(
    ...rows.map((cells) =>
      element("tr", {}, ...cells.map((cell, i) => element("td", i === 4 ? { class: "text" } : {}, String(cell)))),
    ),
  );
}

function showUnderEach(client) {
  const protocols = experiment().protocols;
  const head = ["method", ...protocols.map(protocolName), "run"].map((text) => element("th", {}, text));
  const rows = runsOfSeed().map((run) => [
    experiment().rows[run.row],
    ...protocols.map((p) => (run.scores[p] ? score(unpack(run.scores[p])[client]) : "-")),
    run.hash.slice(0, 8),
  ]);
  if (trained()) byId("under-each-title").textContent = `Under each method: ${unitOf(experiment().metric)}`;
  byId("under-each").tHead.replaceChildren(element("tr", {}, ...head));
  byId("under-each").tBodies[0].replaceChildren(
    ...rows.map((cells) =>
      element(
        "tr",
        {},
        ...cells.map((cell, i) => element("td", i === cells.length - 1 ? { class: "hash" } : {}, cell)),
      ),
    ),
  );
}
