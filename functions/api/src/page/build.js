// The view of one build with its live log.

const LINES_MAX = 8000;
const log = { next: 0, ended: false, rest: "", lines: 0, dropped: 0, decoder: new TextDecoder(), isRead: false, isFollowed: false };
// A line is on the page within a second after it was printed; the rest of the page is refreshed more slowly.
const FOLLOW_MS = 700;

// How a line of the log is coloured, by what follows its time: `TASK [Say]`, `node | ok`, `node | ERROR: …`, the recap
// `node | ok: 2 changed: 1 unreachable: 0 failed: 1 …`, and the executor's own lines.
const toneOf = (line) => {
  const message = line.replace(/^[-0-9: .]+\| /, "");
  if (/^(PLAY|TASK|RUNNING HANDLER)\b/.test(message)) return "head";
  const recap = / \| ok: \d+ changed: \d+ unreachable: (\d+) failed: (\d+)/.exec(message);
  if (recap) return recap[1] === "0" && recap[2] === "0" ? "good" : "bad";
  const end = /^(?:PRE-RUN|RUN|POST-RUN) END RESULT_(\w+)/.exec(message);
  if (end) return end[1] === "NORMAL" ? "head" : "bad";
  const result = /^Job ended: (\w+)/.exec(message);
  if (result) return result[1] === "SUCCESS" ? "good" : "bad";
  if (/^(ERROR!|\[ERROR\]|Ran out of time: |\S+ \| (ERROR(?! \(ignored\))|UNREACHABLE)\b)/.test(message)) return "bad";
  if (/^\S+ \| (ok|changed)\b/.test(message)) return "good";
  return null;
};

const addLines = (target, text) => {
  const lines = (log.rest + text).split("\n");
  log.rest = lines.pop();
  const fresh = document.createDocumentFragment();
  for (const line of lines) fresh.append(el("span", { class: toneOf(line) }, `${line}\n`));
  target.append(fresh);
  log.lines += lines.length;
  while (target.childNodes.length > LINES_MAX) {
    target.firstChild.remove();
    log.dropped += 1;
  }
};

// Reads the log to its present end, in at most a fixed number of parts; the next call reads the rest. Calls do not overlap.
const followLog = async () => {
  if (log.isRead) return;
  log.isRead = true;
  try {
    await readLog();
  } finally {
    log.isRead = false;
  }
};

const readLog = async () => {
  const target = document.getElementById("log");
  for (let round = 0; round < 8 && target && !log.ended; round += 1) {
    const response = await fetch(apiOf("build", `/log?offset=${log.next}`));
    if (!response.ok) return;
    const bytes = await response.arrayBuffer();
    log.next = Number(response.headers.get("x-log-next"));
    log.ended = response.headers.get("x-log-ended") === "1";
    const follows = target.scrollTop + target.clientHeight >= target.scrollHeight - 40;
    addLines(target, log.decoder.decode(bytes, { stream: true }));
    if (log.ended && log.rest) addLines(target, "\n");
    if (follows) target.scrollTop = target.scrollHeight;
    const dropped = log.dropped ? `; the first ${log.dropped} lines are only in the file` : "";
    const state = document.getElementById("log-state");
    const words = log.ended ? `The log is complete: ${log.lines} lines` : log.lines ? `Following: ${log.lines} lines so far` : "The log is empty so far";
    state.textContent = `${words}${dropped}`;
    if (!bytes.byteLength) return;
  }
};

// Reads the log again and again until it is complete. Errors are shown by the refresh of the page.
const keepFollowing = async () => {
  let next = FOLLOW_MS;
  try {
    if (!document.hidden) await followLog();
  } catch {
    next = REFRESH_MS;
  }
  if (!log.ended) setTimeout(keepFollowing, next);
};

// How to log in on a node that is held.
const heldNodeRow = (node) => el("li", { "data-key": node.node },
  el("code", {}, node.ssh),
  node.known_hosts ? [el("br"), el("code", {}, node.known_hosts), el("span", { class: "quiet" }, " is its line for known_hosts")] : null,
  el("span", { class: "quiet" }, ` held by autohold request ${node.autohold} ${node.held_until ? `until ${node.held_until} UTC` : "until the request is deleted"}; the key is ${node.ssh_key || "the key of the node pool"}`));

const showBuild = async () => {
  const build = await ask(apiOf("build"));
  const [started, ended] = [moment(build.start_time), moment(build.end_time)];
  const took = started ? duration((ended || new Date()) - started) : ended ? "no playbook ran" : "not started yet";
  const facts = [
    ["Change", link(build.ref.ref_url, refName(build.ref))],
    ["Branch", build.ref.branch || "–"],
    ["Pipeline", build.pipeline],
    ["Buildset", el("a", { href: pageOf("buildset", build.buildset.uuid) }, build.buildset.uuid.slice(0, 8))],
    ["Queued at", timeElement(build.execute_time)],
    ["Duration", took],
    ["Nodes", [build.nodeset, build.held && "held by an autohold request"].filter(Boolean).join(", ") || "–"],
    ["Voting", build.voting ? "yes" : "no"],
    ["Logs", build.log_url ? link(build.log_url, "files") : "–"],
  ];
  const artifacts = build.artifacts.filter((artifact) => artifact.name);
  const heldNodes = build.held_nodes || [];
  show(
    el("p", { class: "crumb", "data-key": "crumb" }, el("a", { href: pageOf("builds") }, "Builds"), " / build"),
    el("h1", { "data-key": "title" }, build.job_name, " ", chip(build.result, !build.start_time)),
    build.error_detail && el("p", { class: "notice bad lines", "data-key": "detail" }, build.error_detail),
    (build.warnings || []).length > 0 && el("section", { "data-key": "warnings" }, el("h2", {}, "Warnings"), el("ul", {}, build.warnings.map((warning) => el("li", { class: "lines" }, warning)))),
    el("dl", { class: "facts", "data-key": "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    heldNodes.length > 0 && el("section", { "data-key": "held" }, el("h2", {}, "Held nodes"), el("ul", {}, heldNodes.map(heldNodeRow))),
    artifacts.length > 0 && el("section", { "data-key": "artifacts" }, el("h2", {}, "Artifacts"), el("ul", {}, artifacts.map((artifact) => el("li", {}, link(artifact.url, artifact.name))))),
    document.getElementById("log-frame") ? null : el("section", { id: "log-frame", "data-preserved": "" },
      el("h2", {}, "Log"),
      el("p", { id: "log-state", class: "quiet", role: "status" }, "Loading…"),
      el("pre", { id: "log", class: "log", tabindex: "0", "aria-label": "Log of the build" })));
  document.title = `${build.job_name} · Sluice`;
  await followLog();
  if (!log.isFollowed) {
    log.isFollowed = true;
    setTimeout(keepFollowing, FOLLOW_MS);
  }
  return build.result && log.ended ? "still" : "moving";
};
