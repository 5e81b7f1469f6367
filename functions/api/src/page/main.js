// Selects the view and refreshes it: every two seconds while the page is visible, more slowly when there is no answer.

const VIEWS = { status: showBoard, builds: showBuilds, build: showBuild, buildset: showBuildset, configuration: showConfiguration, tenants: showTenants };
const [REFRESH_MS, REFRESH_MS_MAX] = [2000, 30000];
let failures = 0;

const showNotFound = async () => {
  show(
    el("h1", { "data-key": "title" }, "Not found"),
    el("p", { class: "notice bad", "data-key": "why" }, `There is nothing at ${location.pathname}.`),
    el("p", { "data-key": "back" }, el("a", { href: "/" }, "All tenants")));
  return "still";
};

const nav = () => {
  if (!place.tenant) return;
  const views = [["status", "Status"], ["builds", "Builds"], ["configuration", "Configuration"]];
  const current = place.view === "build" ? "builds" : place.view === "buildset" ? "status" : place.view;
  document.getElementById("nav").append(...views.map(([view, label]) => el("a", { href: pageOf(view), "aria-current": view === current ? "page" : null }, label)));
};

const refresh = async () => {
  let next = REFRESH_MS;
  try {
    const state = document.hidden && failures === 0 && refresh.hasShown ? "moving" : await (VIEWS[place.view] || showNotFound)();
    refresh.hasShown = true;
    failures = 0;
    if (state === "still") next = REFRESH_MS_MAX;
    pulse(state === "still" ? "complete" : "live", "good");
  } catch (error) {
    failures += 1;
    next = Math.min(REFRESH_MS_MAX, REFRESH_MS * 2 ** Math.min(failures, 4));
    if (error instanceof ApiError && !refresh.hasShown) show(el("h1", { "data-key": "title" }, "Not found"), el("p", { class: "notice bad", "data-key": "why" }, error.message));
    pulse(error.status === 404 ? "not found" : error instanceof ApiError ? "error" : "not connected, retrying", "bad");
  }
  setTimeout(refresh, next);
};

new ResizeObserver(drawRails).observe(document.getElementById("main"));
document.addEventListener("toggle", drawRails, true);
nav();
refresh();
