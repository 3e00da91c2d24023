// One client: what it has, who is near it, and how it fares under each method.

function chooseClient(client) {
  state.client = client;
  showClient();
  ring();
  stale("labels");
}

function showClient() {
  const client = state.client,
    group = clustering();
  byId("client").value = client;
  const samples = unpack(people().train)[client];
  const facts = [samples ? `${nameOf(client)} has ${samples} training samples.` : `${nameOf(client)}.`];
  if (groupOf(client)) facts.push(`It belongs to ${groupOf(client)}.`);
  const place = group ? placeOf(group, client) : undefined;
  if (place !== undefined) {
    const { clusters, at } = clustersAt(group, state.beta);
    const { start, end } = clusters[at[place]];
    const inRun = unpack(group.labels)[unpack(group.order)[place]];
    facts.push(`At this β it is in cluster ${at[place] + 1} with ${end - start - 1} others.`);
    facts.push(`It was given cluster ${inRun}.`);
    if (group.newcomers.includes(client)) facts.push("It came as a newcomer.");
    if (group.bridges.some((bridge) => bridge.client === client))
      facts.push("It stands between two clusters of the run.");
  }
  byId("client-facts").textContent = facts.join(" ");
  showNeighbours(group, place);
  showUnderEach(client);
}

function showNeighbours(group, place) {
  const rows = [];
  if (place !== undefined) {
    const row = unpack(group.order)[place],
      [, m] = group.near.shape;
    const near = unpack(group.near),
      angles = unpack(group.near_angles),
      { at } = clustersAt(group, state.beta);
    for (let i = row * m; i < (row + 1) * m; i++) {
      const client = unpack(group.clients)[near[i]];
      rows.push([
        nameOf(client),
        angles[i].toFixed(2),
        at[placeOf(group, client)] + 1,
        unpack(people().train)[client] || "–",
        groupOf(client),
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
    ...protocols.map((p) => (run.accuracy[p] ? percent(unpack(run.accuracy[p])[client]) : "–")),
    run.hash.slice(0, 8),
  ]);
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
