// The status view: pipelines, queues as columns, items in order, and a rail that shows the speculative order.

const STATUSES = {
  waiting: ["◌", "waiting"], testing: ["◉", "testing"], failing: ["✕", "failing"], passed: ["✓", "passed"], landing: ["⇣", "merging"],
  "awaiting-landing": ["⇣", "queued to merge"], landed: ["✓", "merged"], reporting: ["⇢", "reporting"],
};

const changeName = (change) => (change.number ? `${change.project} #${change.number}` : `${change.project} ${change.ref}`);

// Short texts for what a job waits for.
const WAITS = [[/^(node request: |nodes \().*/, "waiting for nodes"], [/^(an )?executor$/, "waiting for an executor"], [/^dependencies: (.*)/, "after $1"], [/^semaphores: (.*)/, "waiting for $1"], [/^requirements: (.*)/, "waiting for $1 of a change ahead"], [/^job of a change ahead: (.*)/, "waiting for $1 of a change ahead"], [/^reports$/, "after the reports"], [/^repo state$/, "next"]];
const waitWords = (text) => {
  const found = WAITS.find(([pattern]) => pattern.test(text || ""));
  return found ? text.replace(found[0], found[1]) : "waiting";
};

const jobRow = (job, now) => {
  const name = job.build ? el("a", { href: pageOf("build", job.build) }, job.name) : job.name;
  let [mark, tone, text, bar] = ["◌", "still", waitWords(job.waits_for), null];
  if (job.state === "running") {
    const elapsed = job.started_at ? now - job.started_at : 0;
    [mark, tone, text] = ["●", "run", job.started_at ? duration(elapsed) : "preparing"];
    const share = job.estimate && job.started_at ? Math.min(0.98, elapsed / job.estimate) : null;
    if (share !== null) text = `${text} of about ${duration(job.estimate)}`;
    const label = share === null ? `${job.name} is running` : `${job.name}: ${Math.round(share * 100)} %`;
    bar = el("progress", { max: 1, value: share === null ? null : share.toFixed(3), "aria-label": label });
  } else if (job.state === "paused") {
    [mark, tone, text] = ["◐", "run", "paused for its dependent jobs"];
  } else if (job.state === "ended") {
    [mark, tone] = markOf(job.result);
    const took = job.started_at ? duration(job.ended_at - job.started_at) : null;
    text = job.result === "SUCCESS" ? took || "success" : [words(job.result), took].filter(Boolean).join(" in ");
  }
  // The provider's reason for waiting is shown, except for the normal one.
  const waitReason = job.state === "ordered" && /^nodes \(.*?\)(: (?!queued behind earlier requests$)|, which)/.test(job.waits_for || "") ? job.waits_for : null;
  const retryReason = !job.result && job.retry_reason ? `retrying: ${job.retry_reason}` : null;
  const detail = job.result && job.result !== "SUCCESS" ? job.detail : [retryReason, waitReason].filter(Boolean).join("; ");
  return el("li", { class: `job ${tone}`, "data-key": job.name },
    el("span", { class: "mark", "aria-hidden": "true" }, mark),
    el("span", { class: "job-name" }, name, job.voting ? null : el("small", {}, " non-voting"),
      job.attempt > 1 || job.retry_reason ? el("small", {}, ` attempt ${job.retry_reason && job.state === "waiting" ? job.attempt + 1 : job.attempt} of ${job.attempts}`) : null),
    el("span", { class: "job-text" }, text),
    bar,
    detail ? el("span", { class: "job-detail" }, detail) : null);
};

// Describes in words what the rail draws.
const footing = (item, byId) => {
  if (item.merge.state === "conflict" || item.merge.state === "misconfigured") return item.merge.why;
  if (!item.active) return "outside the window; tested later";
  const below = item.on && byId.get(item.on.item);
  const base = below ? `on top of ${changeName(below.change)}` : item.on && (selection.has("project") || selection.has("change")) ? "on top of a change that is not shown here" : `on ${item.change.branch || item.change.ref}`;
  const members = (item.bundle || []).map(changeName).join(", ");
  const state = members ? `bundled with ${members}, ${base}` : base;
  if (item.merge.state === "not-requested") return `to be tested ${state}`;
  if (item.merge.state === "requested") return `being merged ${state}`;
  return `tested ${state}`;
};

const itemCard = (item, byId, now) => {
  const status = STATUSES[item.status] ? item.status : "waiting";
  const [mark, label] = STATUSES[status];
  const done = item.jobs.filter((job) => job.state === "ended").length;
  const latest = item.reasons[item.reasons.length - 1];
  return el("li", { class: `item ${status}${item.active ? "" : " outside"}`, "data-key": item.id, "data-item": item.id, "data-on": item.on ? item.on.item : "base", "data-status": status },
    el("article", { "aria-label": `${changeName(item.change)}, ${label}` },
      el("header", {},
        el("p", { class: "item-line" },
          link(item.change.url, changeName(item.change), { class: "item-name" }),
          el("span", { class: `status ${status}` }, el("span", { class: "mark", "aria-hidden": "true" }, mark), label)),
        el("p", { class: "item-title" }, item.change.title || "(no title)"),
        el("p", { class: "item-foot" }, footing(item, byId),
          item.generation > 1 ? el("span", { class: "again", title: "Number of speculative states in which this change was tested" }, `state ${item.generation}`) : null)),
      item.jobs.length ? el("ul", { class: "jobs" }, item.jobs.map((job) => jobRow(job, now))) : null,
      el("details", {},
        el("summary", {}, el("span", { class: "why" }, "Why"), el("span", { class: "latest" }, latest ? latest.text : "no decision yet")),
        el("ol", { class: "reasons", reversed: true }, item.reasons.slice().reverse().map(reasonRow)),
        el("p", { class: "quiet" }, `${item.change.author ? `by ${item.change.author}, ` : ""}enqueued ${ago(item.since, now)}, ${done} of ${item.jobs.length} jobs done`,
          item.needs.length ? `; depends on ${item.needs.map(changeName).join(", ")}` : "", " · ",
          el("a", { href: pageOf("buildset", item.id) }, "details")))));
};

const queueColumn = (queue, pipeline, now) => {
  const byId = new Map(queue.items.map((item) => [item.id, item]));
  const named = pipeline.manager !== "independent";
  const branches = [...new Set(queue.items.map((item) => item.change.branch || item.change.ref))];
  const landed = queue.landed.map(changeName).join(", ");
  return el("section", { class: "queue", "data-key": queue.name, "aria-label": `Queue ${queue.name}` },
    named ? el("h3", {}, queue.name, el("small", {}, queue.window ? `window ${queue.window}` : "no window")) : null,
    queue.halted ? el("p", { class: "notice bad", role: "alert" }, `Halted: ${queue.halted}`) : null,
    el("ol", { class: "items" },
      el("li", { class: "base", "data-key": "base", "data-item": "base" },
        el("span", {}, branches.length ? branches.join(", ") : "branch"),
        landed ? el("small", {}, `Recently merged: ${landed}`) : null),
      queue.items.map((item) => itemCard(item, byId, now)),
      queue.inbox.map((message, index) => el("li", { class: "inbox-message", "data-key": `message-${index}` },
        `${message.changes.map(changeName).join(", ") || "The queue"} ${message.kind === "enqueue" ? "is being enqueued" : message.kind === "dequeue" ? "is being dequeued" : message.kind === "move-to-host" ? "is moving to its bundle" : "is being updated"}`))));
};

const pipelineSection = (pipeline, now) => {
  const count = pipeline.queues.reduce((sum, queue) => sum + queue.items.length, 0);
  const counted = count === 0 ? "empty" : count === 1 ? "1 change" : `${count} changes`;
  return el("section", { class: `pipeline${pipeline.queues.length > 1 ? " many" : ""}`, "data-key": pipeline.name },
    el("h2", {}, el("a", { href: `${pageOf("status", "pipeline")}/${encodeURIComponent(pipeline.name)}` }, pipeline.name), el("small", {}, `${pipeline.manager} · ${counted}`)),
    pipeline.disabled ? el("p", { class: "notice bad", role: "alert" }, `Disabled after ${pipeline.disabled} consecutive failures: only its disabled reporters report. To enable it again: sluice tenant reload ${place.tenant}`) : null,
    pipeline.description && count ? el("p", { class: "quiet about" }, pipeline.description) : null,
    count || pipeline.queues.length ? el("div", { class: "queues" }, pipeline.queues.map((queue) => queueColumn(queue, pipeline, now))) : null);
};

const recentList = (recent, now) => el("aside", { class: "recent", "data-key": "recent" },
  el("h2", {}, "Recently finished"),
  recent.length
    ? el("ul", {}, recent.map((item) => el("li", { "data-key": item.id },
        chip(item.result),
        el("a", { class: "recent-name", href: pageOf("buildset", item.id) }, changeName(item.change)),
        el("span", { class: "recent-why" }, item.why || item.change.title),
        el("small", {}, `${item.pipeline} · ${ago(item.at, now)}`))))
    : el("p", { class: "quiet" }, "No change has finished yet."));

const summary = (board) => {
  const items = board.pipelines.flatMap((pipeline) => pipeline.queues.flatMap((queue) => queue.items));
  // A build that is shared by several changes counts once.
  const jobs = [...new Map(items.flatMap((item) => item.jobs).map((job) => [job.build || job, job])).values()];
  const of = (list, test) => list.filter(test).length;
  const figure = (number, text, tone) => el("div", { class: `figure ${number ? tone : ""}`, "data-key": text }, el("dt", {}, text), el("dd", {}, String(number)));
  return el("dl", { class: "figures", "data-key": "figures" },
    figure(items.length, "changes in progress", "run"),
    figure(of(jobs, (job) => job.state === "running"), "jobs running", "run"),
    figure(of(jobs, (job) => job.state === "ordered"), "jobs queued", "still"),
    figure(of(items, (item) => ["passed", "landing", "awaiting-landing", "landed", "reporting"].includes(item.status)), "passed or merging", "good"),
    figure(of(items, (item) => item.status === "failing"), "failing", "bad"));
};

// Draws, next to each column, a line from every item to the one it is tested on. An arc bypasses skipped items.
const drawRails = () => {
  for (const list of document.querySelectorAll(".items")) {
    let rail = list.querySelector("svg.rail");
    if (!rail) {
      rail = svg("svg", { class: "rail", "aria-hidden": "true" });
      rail.dataset.preserved = "";
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
      parts.push(svg("path", { class: `edge ${node.dataset.status}${outside}`, d: path }));
    }
    nodes.forEach((node, index) => {
      const status = index ? node.dataset.status : "bed";
      parts.push(svg("circle", { class: `dot ${status}`, cx: x, cy: at.get(node.dataset.item).y, r: index ? 8 : 6 }));
    });
    const drawn = parts.map((part) => part.outerHTML).join("");
    if (rail.dataset.drawn !== drawn) {
      rail.replaceChildren(...parts);
      rail.dataset.drawn = drawn;
    }
    rail.setAttribute("height", list.scrollHeight);
  }
};

// The part of the board that the address selects: a pipeline or change as on Zuul's pages, or parameters.
const selection = (() => {
  const [kind, ...rest] = location.pathname.split("/").filter(Boolean).slice(3).map(decoded);
  const wanted = new URLSearchParams();
  for (const name of ["pipeline", "project", "change"]) {
    const value = kind === name ? rest.join("/") : new URLSearchParams(location.search).get(name);
    if (value) wanted.set(name, value);
  }
  return wanted;
})();

const showBoard = async () => {
  const board = await ask(api(`board?${selection}`));
  const isLoading = board.layout.wanted > board.layout.live;
  const full = (pipeline) => Boolean(pipeline.disabled) || pipeline.queues.some((queue) => queue.items.length || queue.inbox.length || queue.halted);
  const empty = board.pipelines.filter((pipeline) => !full(pipeline));
  show(
    el("h1", { "data-key": "title" }, "Status of ", place.tenant),
    [...selection].length > 0 && el("p", { class: "quiet", "data-key": "selection" }, `Only ${[...selection].map(([name, value]) => `${name} ${value}`).join(", ")}. `, el("a", { href: pageOf("status") }, "Show all")),
    board.held && el("p", { class: "notice", "data-key": "held" }, `Events on hold: ${board.held}`),
    isLoading && el("p", { class: "notice", "data-key": "loading" }, "A new configuration is being loaded. Nothing is enqueued or merged until it is live."),
    board.errors > 0 && el("p", { class: "notice bad", "data-key": "errors" }, `The configuration has ${board.errors} error${board.errors === 1 ? "" : "s"}. `, el("a", { href: pageOf("configuration") }, "Show errors")),
    board.halted_providers.map((provider) => el("p", { class: "notice bad", role: "alert" }, `The provider ${provider.name} is halted: ${provider.why}`)),
    board.problems.map((problem) => el("p", { class: "notice bad" }, problem)),
    summary(board),
    el("div", { class: "board", "data-key": "board" },
      el("div", { class: "pipelines", "data-key": "pipelines" },
        board.pipelines.filter(full).map((pipeline) => pipelineSection(pipeline, board.at)),
        empty.length > 0 && el("p", { class: "quiet empties", "data-key": "empties" }, `Empty: ${empty.map((pipeline) => pipeline.name).join(", ")}`)),
      recentList(board.recent, board.at)));
  drawRails();
  document.title = `${place.tenant} · Sluice`;
};
