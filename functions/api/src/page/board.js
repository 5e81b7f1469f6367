// The status view: pipelines, queues as columns, items in order, and the rail that shows who is tested on whom.

const STANDINGS = {
  waiting: ["◌", "waiting"], testing: ["◉", "testing"], failing: ["✕", "failing"], passed: ["✓", "passed"], landing: ["⇣", "landing"],
  pledged: ["⇣", "pledged"], landed: ["✓", "landed"], reporting: ["⇢", "reporting"],
};

const changeName = (change) => (change.number ? `${change.project} #${change.number}` : `${change.project} ${change.ref}`);

// What a job waits for, in words for people.
const WAITS = [[/^(node request: |nodes \().*/, "waits for nodes"], [/^(an )?executor$/, "waits for an executor"], [/^dependencies: (.*)/, "after $1"], [/^semaphores: (.*)/, "waits for $1"], [/^requirements: (.*)/, "waits for $1 of a change ahead"], [/^job of a change ahead: (.*)/, "waits for $1 of a change ahead"], [/^reports$/, "after the reports"], [/^repo state$/, "next"]];
const waitWords = (text) => {
  const found = WAITS.find(([pattern]) => pattern.test(text || ""));
  return found ? text.replace(found[0], found[1]) : "waiting";
};

const jobRow = (job, now) => {
  const name = job.build ? el("a", { href: pageOf("build", job.build) }, job.name) : job.name;
  let [mark, tone, said, bar] = ["◌", "still", waitWords(job.waits_for), null];
  if (job.state === "running") {
    const elapsed = job.started_at ? now - job.started_at : 0;
    [mark, tone, said] = ["●", "run", job.started_at ? duration(elapsed) : "preparing"];
    const share = job.estimate && job.started_at ? Math.min(0.98, elapsed / job.estimate) : null;
    if (share !== null) said = `${said} of about ${duration(job.estimate)}`;
    const label = share === null ? `${job.name} is running` : `${job.name}: ${Math.round(share * 100)} %`;
    bar = el("progress", { max: 1, value: share === null ? null : share.toFixed(3), "aria-label": label });
  } else if (job.state === "paused") {
    [mark, tone, said] = ["◐", "run", "paused for the jobs behind it"];
  } else if (job.state === "ended") {
    [mark, tone] = markOf(job.result);
    const took = job.started_at ? duration(job.ended_at - job.started_at) : null;
    said = job.result === "SUCCESS" ? took || "success" : [words(job.result), took].filter(Boolean).join(" in ");
  }
  // Why nodes do not come is told by their provider; waiting for one's turn needs no words.
  const waited = job.state === "ordered" && /^nodes \(.*?\)(: (?!its turn$)| that)/.test(job.waits_for || "") ? job.waits_for : null;
  const detail = job.result && job.result !== "SUCCESS" ? job.detail : waited;
  return el("li", { class: `job ${tone}`, "data-key": job.name },
    el("span", { class: "mark", "aria-hidden": "true" }, mark),
    el("span", { class: "job-name" }, name, job.voting ? null : el("small", {}, " non-voting"),
      job.attempt > 1 ? el("small", {}, ` attempt ${job.attempt} of ${job.attempts}`) : null),
    el("span", { class: "job-said" }, said),
    bar,
    detail ? el("span", { class: "job-detail" }, detail) : null);
};

// Says in words what the rail draws.
const footing = (item, byId) => {
  if (item.ask.state === "conflict" || item.ask.state === "misconfigured") return item.ask.why;
  if (!item.active) return "outside the window; it waits for its turn";
  const below = item.on && byId.get(item.on.item);
  const base = below ? `on top of ${changeName(below.change)}` : item.on && (narrowed.has("project") || narrowed.has("change")) ? "on top of a change that is not shown here" : `on ${item.change.branch || item.change.ref} as it is`;
  const mates = (item.together || []).map(changeName).join(", ");
  const state = mates ? `as one with ${mates}, ${base}` : base;
  if (item.ask.state === "not-asked") return `to be tested ${state}`;
  if (item.ask.state === "asked") return `being merged ${state}`;
  return `tested ${state}`;
};

const itemCard = (item, byId, now) => {
  const [mark, word] = STANDINGS[item.standing] || STANDINGS.waiting;
  const done = item.jobs.filter((job) => job.state === "ended").length;
  const latest = item.reasons[item.reasons.length - 1];
  return el("li", { class: `item ${word}${item.active ? "" : " outside"}`, "data-key": item.id, "data-item": item.id, "data-on": item.on ? item.on.item : "base", "data-standing": word },
    el("article", { "aria-label": `${changeName(item.change)}, ${word}` },
      el("header", {},
        el("p", { class: "item-line" },
          link(item.change.url, changeName(item.change), { class: "item-name" }),
          el("span", { class: `standing ${word}` }, el("span", { class: "mark", "aria-hidden": "true" }, mark), word)),
        el("p", { class: "item-title" }, item.change.title || "(no title)"),
        el("p", { class: "item-foot" }, footing(item, byId),
          item.generation > 1 ? el("span", { class: "again", title: "How many speculative states it was tested in" }, `state ${item.generation}`) : null)),
      item.jobs.length ? el("ul", { class: "jobs" }, item.jobs.map((job) => jobRow(job, now))) : null,
      el("details", {},
        el("summary", {}, el("span", { class: "why" }, "Why"), el("span", { class: "latest" }, latest || "nothing was decided yet")),
        el("ol", { class: "reasons", reversed: true }, item.reasons.slice().reverse().map((reason) => el("li", {}, reason))),
        el("p", { class: "quiet" }, `${item.change.author ? `by ${item.change.author}, ` : ""}here since ${ago(item.since, now)}, ${done} of ${item.jobs.length} jobs done`,
          item.needs.length ? `; needs ${item.needs.map(changeName).join(", ")}` : "", " · ",
          el("a", { href: pageOf("buildset", item.id) }, "details")))));
};

const queueColumn = (queue, pipeline, now) => {
  const byId = new Map(queue.items.map((item) => [item.id, item]));
  const named = pipeline.manager !== "independent";
  const branches = [...new Set(queue.items.map((item) => item.change.branch || item.change.ref))];
  const landed = queue.landed.map(changeName).join(", ");
  return el("section", { class: "queue", "data-key": queue.name, "aria-label": `Queue ${queue.name}` },
    named ? el("h3", {}, queue.name, el("small", {}, queue.window ? `window ${queue.window}` : "no window")) : null,
    queue.frozen ? el("p", { class: "notice bad", role: "alert" }, `Frozen: ${queue.frozen}`) : null,
    el("ol", { class: "items" },
      el("li", { class: "base", "data-key": "base", "data-item": "base" },
        el("span", {}, branches.length ? branches.join(", ") : "branch"),
        landed ? el("small", {}, `landed of late: ${landed}`) : null),
      queue.items.map((item) => itemCard(item, byId, now)),
      queue.arrivals.map((arrival, index) => el("li", { class: "arrival", "data-key": `arrival-${index}` },
        `${arrival.changes.map(changeName).join(", ") || "something"} ${arrival.kind === "enqueue" ? "is arriving" : arrival.kind === "dequeue" ? "is being taken out" : arrival.kind === "make-way" ? "is joining those that need it" : "was looked at again"}`))));
};

const pipelineSection = (pipeline, now) => {
  const count = pipeline.queues.reduce((sum, queue) => sum + queue.items.length, 0);
  const counted = count === 0 ? "empty" : count === 1 ? "1 change" : `${count} changes`;
  return el("section", { class: `pipeline${pipeline.queues.length > 1 ? " many" : ""}`, "data-key": pipeline.name },
    el("h2", {}, el("a", { href: `${pageOf("status", "pipeline")}/${encodeURIComponent(pipeline.name)}` }, pipeline.name), el("small", {}, `${pipeline.manager} · ${counted}`)),
    pipeline.disabled ? el("p", { class: "notice bad", role: "alert" }, `Disabled: ${pipeline.disabled} failures followed each other, and reports go to its disabled reporters alone. Once that is looked into: sluice tenant reload ${place.tenant}`) : null,
    pipeline.description && count ? el("p", { class: "quiet about" }, pipeline.description) : null,
    count || pipeline.queues.length ? el("div", { class: "queues" }, pipeline.queues.map((queue) => queueColumn(queue, pipeline, now))) : null);
};

const recentList = (recent, now) => el("aside", { class: "recent", "data-key": "recent" },
  el("h2", {}, "Left of late"),
  recent.length
    ? el("ul", {}, recent.map((gone) => el("li", { "data-key": gone.id },
        chip(gone.result),
        el("a", { class: "recent-name", href: pageOf("buildset", gone.id) }, changeName(gone.change)),
        el("span", { class: "recent-why" }, gone.why || gone.change.title),
        el("small", {}, `${gone.pipeline} · ${ago(gone.at, now)}`))))
    : el("p", { class: "quiet" }, "Nothing has left a queue yet."));

const summary = (board) => {
  const items = board.pipelines.flatMap((pipeline) => pipeline.queues.flatMap((queue) => queue.items));
  // A build that runs for several changes is one.
  const jobs = [...new Map(items.flatMap((item) => item.jobs).map((job) => [job.build || job, job])).values()];
  const of = (list, test) => list.filter(test).length;
  const figure = (number, text, tone) => el("div", { class: `figure ${number ? tone : ""}`, "data-key": text }, el("dt", {}, text), el("dd", {}, String(number)));
  return el("dl", { class: "figures", "data-key": "figures" },
    figure(items.length, "changes in flight", "run"),
    figure(of(jobs, (job) => job.state === "running"), "jobs running", "run"),
    figure(of(jobs, (job) => job.state === "ordered"), "jobs waiting for a place", "still"),
    figure(of(items, (item) => ["passed", "landing", "pledged", "landed", "reporting"].includes(item.standing)), "passed or landing", "good"),
    figure(of(items, (item) => item.standing === "failing"), "failing", "bad"));
};

// Draws, beside each column, a line from every item to the state below it. Skipped items are bypassed in an arc.
const drawRails = () => {
  for (const list of document.querySelectorAll(".items")) {
    let rail = list.querySelector("svg.rail");
    if (!rail) {
      rail = svg("svg", { class: "rail", "aria-hidden": "true" });
      rail.dataset.kept = "";
      list.append(rail);
    }
    const at = new Map();
    const nodes = [...list.querySelectorAll(":scope > li[data-item]")];
    nodes.forEach((node, index) => at.set(node.dataset.item, { y: node.offsetTop + (index ? 25 : node.offsetHeight / 2), index }));
    const x = 30;
    const parts = [];
    for (const node of nodes.slice(1)) {
      const from = at.get(node.dataset.item);
      const to = at.get(node.dataset.on) || at.get("base");
      const apart = from.index - to.index;
      const reach = x - Math.min(24, 12 + 4 * apart);
      const path = apart <= 1 ? `M${x} ${from.y}V${to.y}` : `M${x} ${from.y}C${reach} ${from.y - 26} ${reach} ${to.y + 26} ${x} ${to.y}`;
      const outside = node.classList.contains("outside") ? " outside" : "";
      parts.push(svg("path", { class: `edge ${node.dataset.standing}${outside}`, d: path }));
    }
    nodes.forEach((node, index) => {
      const standing = index ? node.dataset.standing : "bed";
      parts.push(svg("circle", { class: `dot ${standing}`, cx: x, cy: at.get(node.dataset.item).y, r: index ? 8 : 6 }));
    });
    const drawn = parts.map((part) => part.outerHTML).join("");
    if (rail.dataset.drawn !== drawn) {
      rail.replaceChildren(...parts);
      rail.dataset.drawn = drawn;
    }
    rail.setAttribute("height", list.scrollHeight);
  }
};

// What part of the board the address asks for: a pipeline or a change as on Zuul's pages, or a parameter.
const narrowed = (() => {
  const [kind, ...rest] = location.pathname.split("/").filter(Boolean).slice(3).map(decoded);
  const wanted = new URLSearchParams();
  for (const name of ["pipeline", "project", "change"]) {
    const value = kind === name ? rest.join("/") : new URLSearchParams(location.search).get(name);
    if (value) wanted.set(name, value);
  }
  return wanted;
})();

const showBoard = async () => {
  const board = await ask(api(`board?${narrowed}`));
  const settling = board.layout.wanted > board.layout.live;
  const full = (pipeline) => Boolean(pipeline.disabled) || pipeline.queues.some((queue) => queue.items.length || queue.arrivals.length || queue.frozen);
  const empty = board.pipelines.filter((pipeline) => !full(pipeline));
  show(
    el("h1", { "data-key": "title" }, place.tenant),
    [...narrowed].length > 0 && el("p", { class: "quiet", "data-key": "narrowed" }, `Only ${[...narrowed].map(([name, value]) => `${name} ${value}`).join(", ")}. `, el("a", { href: pageOf("status") }, "Show all")),
    board.held && el("p", { class: "notice", "data-key": "held" }, `Held back by an operator: ${board.held}`),
    settling && el("p", { class: "notice", "data-key": "settling" }, "A new configuration is being read. Nothing enters or lands until it is live."),
    board.errors > 0 && el("p", { class: "notice bad", "data-key": "errors" }, `The configuration has ${board.errors} mistake${board.errors === 1 ? "" : "s"}. `, el("a", { href: pageOf("configuration") }, "Read more")),
    board.frozen_providers.map((provider) => el("p", { class: "notice bad", role: "alert" }, `The provider ${provider.name} is frozen: ${provider.why}`)),
    board.troubles.map((trouble) => el("p", { class: "notice bad" }, trouble)),
    summary(board),
    el("div", { class: "board", "data-key": "board" },
      el("div", { class: "pipelines", "data-key": "pipelines" },
        board.pipelines.filter(full).map((pipeline) => pipelineSection(pipeline, board.at)),
        empty.length > 0 && el("p", { class: "quiet empties", "data-key": "empties" }, `Empty: ${empty.map((pipeline) => pipeline.name).join(", ")}`)),
      recentList(board.recent, board.at)));
  drawRails();
  document.title = `${place.tenant} · Sluice`;
};
