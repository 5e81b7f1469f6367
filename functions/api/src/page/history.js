// Builds with filters, buildsets, tenants.

const FILTERS = [["project", "Project"], ["pipeline", "Pipeline"], ["job_name", "Job"], ["branch", "Branch"], ["change", "Change"]];
const RESULTS = ["SUCCESS", "FAILURE", "TIMED_OUT", "POST_FAILURE", "RETRY_LIMIT", "RETRY", "NODE_FAILURE", "SKIPPED", "ABORTED", "MERGE_CONFLICT", "CONFIG_ERROR", "DISK_FULL"];
const PAGE = 50;

const refName = (ref) => (ref.change ? `${ref.project} #${ref.change}` : `${ref.project} ${ref.ref}`);

const buildRow = (build) => {
  const took = build.duration === null ? "–" : duration(build.duration * 1000);
  const cell = (label, ...content) => el("td", { "data-label": label }, ...content);
  return el("tr", { "data-key": build.uuid || `${build._id}-${build.job_name}` },
    cell("Result", chip(build.result, !build.start_time), build.final === false ? el("small", {}, " not final") : null),
    cell("Job", build.uuid ? el("a", { href: pageOf("build", build.uuid) }, build.job_name) : build.job_name, build.voting ? null : el("small", {}, " non-voting"),
      build.error_detail && build.result !== "SUCCESS" ? el("small", { class: "job-detail" }, build.error_detail.split("\n")[0]) : null),
    cell("Change", link(build.ref.ref_url, refName(build.ref)), el("small", {}, ` ${build.ref.branch || ""}`)),
    build.pipeline ? cell("Pipeline", build.pipeline) : null,
    cell("Duration", took),
    cell("Queued at", timeElement(build.execute_time || build.end_time)));
};

const oidElement = (oid) => el("code", { title: oid }, oid.slice(0, 12));

const buildTable = (builds, caption) => {
  const heads = ["Result", "Job", "Change", ...(builds.some((build) => build.pipeline) ? ["Pipeline"] : []), "Duration", "Queued at"];
  return el("table", { "data-key": "builds" },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, builds.map(buildRow)));
};

const filterForm = (query) => el("form", { class: "filters", "data-key": "filters", role: "search", method: "get", action: pageOf("builds") },
  FILTERS.map(([name, label]) => el("label", {}, label, el("input", { name, value: query.get(name) || "", autocomplete: "off", inputmode: name === "change" ? "numeric" : "text" }))),
  el("label", {}, "Result",
    el("select", { name: "result" },
      el("option", { value: "" }, "any"),
      RESULTS.map((result) => el("option", { value: result, selected: query.get("result") === result }, words(result))))),
  el("button", { type: "submit" }, "Filter"),
  query.size ? el("a", { class: "plain", href: pageOf("builds") }, "Clear") : null);

const showBuilds = async () => {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of [...query]) if (!value) query.delete(name);
  const request = new URLSearchParams(query);
  request.set("limit", String(PAGE));
  // Skipped jobs are numerous and rarely of interest, so they are only shown on request.
  if (!request.has("result")) request.set("exclude_result", "SKIPPED");
  const builds = await ask(api(`builds?${request}`));
  const older = new URLSearchParams(query);
  if (builds.length) older.set("idx_max", String(builds[builds.length - 1]._id - 1));
  show(
    el("h1", { "data-key": "title" }, "Builds"),
    filterForm(query),
    builds.length ? buildTable(builds, `${place.tenant}, newest first; use * as a wildcard in the filters`) : el("p", { class: "quiet", "data-key": "none" }, "No builds match."),
    builds.length === PAGE && el("p", { "data-key": "older" }, el("a", { class: "button", href: `${pageOf("builds")}?${older}` }, "Older builds")));
  document.title = `Builds · ${place.tenant} · Sluice`;
};

const showBuildset = async () => {
  const [buildset, item] = await Promise.all([ask(apiOf("buildset")), ask(apiOf("item")).catch(() => null)]);
  const ref = buildset.refs[0];
  const facts = [
    ["Change", link(ref.ref_url, refName(ref))],
    ["Branch", ref.branch || "–"],
    ["Pipeline", buildset.pipeline],
    ["First build", timeElement(buildset.first_build_start_time)],
    ["Last build", timeElement(buildset.last_build_end_time)],
  ];
  if (item && item.merge.tested) facts.push(["Tested tree", oidElement(item.merge.tested.tree)], ["Tested commit", oidElement(item.merge.tested.id)]);
  show(
    el("p", { class: "crumb", "data-key": "crumb" }, el("a", { href: pageOf("status") }, "Status"), " / buildset"),
    el("h1", { "data-key": "title" }, refName(ref), " ", chip(buildset.result)),
    item && item.change.title && el("p", { class: "lead", "data-key": "lead" }, item.change.title),
    buildset.message && el("p", { class: buildset.result && buildset.result !== "SUCCESS" ? "notice bad" : "notice", "data-key": "message" }, buildset.message),
    el("dl", { class: "facts", "data-key": "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))),
    buildset.builds ? buildTable(buildset.builds, "Builds of this item, including retries") : el("p", { class: "quiet", "data-key": "none" }, "No builds yet."),
    item && item.reasons.length > 0 && el("section", { "data-key": "reasons" }, el("h2", {}, "Decisions and reasons"), el("ol", { class: "reasons" }, item.reasons.map(reasonRow))));
  document.title = `${refName(ref)} · Sluice`;
};

const showTenants = async () => {
  const tenants = await ask("/api/tenants");
  if (tenants.length === 1) {
    location.replace(`/t/${encodeURIComponent(tenants[0].name)}/status`);
    return;
  }
  show(
    el("h1", { "data-key": "title" }, "Tenants"),
    tenants.length
      ? el("ul", { class: "tenants", "data-key": "tenants" }, tenants.map(({ name }) => el("li", { "data-key": name }, el("a", { href: `/t/${encodeURIComponent(name)}/status` }, name))))
      : el("p", { class: "quiet", "data-key": "none" }, "There are no tenants yet."));
};
