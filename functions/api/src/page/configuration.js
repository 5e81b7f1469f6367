// The configuration view: errors, unsupported attributes, pipelines, projects, jobs, labels and nodes.

const errorItem = (error, index) => {
  const { project, branch, path } = error.source_context;
  const where = [project, branch, path].filter(Boolean).join(", ");
  return el("li", { "data-key": `${index} ${error.short_error}`, class: `notice ${error.severity === "warning" ? "" : "bad"}` },
    el("p", {}, error.short_error), where ? el("p", { class: "quiet" }, where) : null,
    el("details", {}, el("summary", {}, "Show details"), el("pre", { class: "log" }, error.error)));
};

const configurationTable = (name, heads, rows) => el("section", { "data-key": name },
  el("h2", {}, name),
  rows.length
    ? el("table", {},
        el("thead", {}, el("tr", {}, heads.map((head) => el("th", { scope: "col" }, head)))),
        el("tbody", {}, rows.map((row) => el("tr", { "data-key": row[0] }, row.map((cell, at) => el("td", { "data-label": heads[at] }, cell))))))
    : el("p", { class: "quiet" }, "None."));

const showConfiguration = async () => {
  const [errors, pipelines, projects, jobs, labels, nodes] = await Promise.all(
    ["config-errors?limit=1000", "pipelines", "projects", "jobs", "labels", "nodes"].map((path) => ask(api(path))));
  const failures = errors.filter((error) => error.severity !== "warning");
  const warnings = errors.filter((error) => error.severity === "warning");
  show(
    el("h1", { "data-key": "title" }, "Configuration"),
    el("section", { "data-key": "errors" }, el("h2", {}, "Configuration errors"),
      failures.length ? el("ul", {}, failures.map(errorItem)) : el("p", { class: "quiet" }, "No errors.")),
    warnings.length > 0 && el("section", { "data-key": "warnings" }, el("h2", {}, "Not supported yet (ignored)"), el("ul", {}, warnings.map(errorItem))),
    configurationTable("Pipelines", ["Pipeline", "Triggers"], pipelines.map((pipeline) => [pipeline.name, pipeline.triggers.map((trigger) => trigger.driver).join(", ")])),
    configurationTable("Projects", ["Project", "Connection", "Type"], projects.map((project) => [project.canonical_name, project.connection_name, project.type])),
    configurationTable("Jobs", ["Job", "Description"], jobs.map((job) => [job.name, job.description || ""])),
    configurationTable("Labels", ["Label", "Canonical name"], labels.map((label) => [label.name, label.canonical_name])),
    configurationTable("Nodes", ["Node", "Label", "State", "Provider"], nodes.map((node) => [node.id, node.label, node.state, node.provider])));
  document.title = `Configuration · ${place.tenant} · Sluice`;
  return "still";
};
