// Which view this is, and looking again: every two seconds while somebody looks, slower when nothing is heard.

const VIEWS = { status: showBoard, builds: showBuilds, build: showBuild, buildset: showBuildset, configuration: showConfiguration, tenants: showTenants };
const [LOOK_MS, LOOK_MS_MAX] = [2000, 30000];
let failures = 0;

const showNowhere = async () => {
  show(
    el("h1", { "data-key": "title" }, "Not here"),
    el("p", { class: "notice bad", "data-key": "why" }, `There is nothing at ${location.pathname}.`),
    el("p", { "data-key": "back" }, el("a", { href: "/" }, "To the tenants")));
  return "still";
};

const nav = () => {
  if (!place.tenant) return;
  const views = [["status", "Status"], ["builds", "Builds"], ["configuration", "Configuration"]];
  const current = place.view === "build" ? "builds" : place.view === "buildset" ? "status" : place.view;
  document.getElementById("nav").append(...views.map(([view, label]) => el("a", { href: pageOf(view), "aria-current": view === current ? "page" : null }, label)));
};

const look = async () => {
  let next = LOOK_MS;
  try {
    const state = document.hidden && failures === 0 && look.seen ? "moving" : await (VIEWS[place.view] || showNowhere)();
    look.seen = true;
    failures = 0;
    if (state === "still") next = LOOK_MS_MAX;
    pulse(state === "still" ? "complete" : "live", "good");
  } catch (error) {
    failures += 1;
    next = Math.min(LOOK_MS_MAX, LOOK_MS * 2 ** Math.min(failures, 4));
    if (error instanceof Refused && !look.seen) show(el("h1", { "data-key": "title" }, "Not here"), el("p", { class: "notice bad", "data-key": "why" }, error.message));
    pulse(error instanceof Refused ? "refused" : "not connected, trying again", "bad");
  }
  setTimeout(look, next);
};

new ResizeObserver(drawRails).observe(document.getElementById("main"));
document.addEventListener("toggle", drawRails, true);
nav();
look();
