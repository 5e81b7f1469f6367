// Helpers: elements, patching the document, times, reading the API.

// Creates an element. Skips children that are null or false. Text is never parsed as markup.
const el = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
};

const svg = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  return node;
};

// Updates `old` to match `fresh` without replacing unchanged nodes: focus, selection and open details survive a refresh.
const patch = (old, fresh) => {
  for (const { name } of [...old.attributes]) {
    if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of [...fresh.attributes]) {
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patchChildren(old, [...fresh.childNodes]);
};

const keyOf = (node) => (node.dataset && node.dataset.key ? node.dataset.key : null);
const isPreserved = (node) => node.dataset && node.dataset.preserved !== undefined;

const patchChildren = (old, children) => {
  const keyed = new Map();
  for (const child of old.childNodes) if (keyOf(child)) keyed.set(keyOf(child), child);
  let place = old.firstChild;
  const skipPreserved = () => { while (place && isPreserved(place)) place = place.nextSibling; };
  for (const fresh of children) {
    skipPreserved();
    const found = keyOf(fresh) ? keyed.get(keyOf(fresh)) : place && !keyOf(place) ? place : null;
    const fits = found && found.nodeType === fresh.nodeType && found.nodeName === fresh.nodeName;
    if (!fits) {
      old.insertBefore(fresh, place);
      continue;
    }
    if (found === place) place = place.nextSibling;
    else old.insertBefore(found, place);
    if (fresh.nodeType === Node.TEXT_NODE) {
      if (found.data !== fresh.data) found.data = fresh.data;
    } else patch(found, fresh);
  }
  while (place) {
    const next = place.nextSibling;
    if (!isPreserved(place)) place.remove();
    place = next;
  }
};

const show = (...content) => patchChildren(document.getElementById("main"), content.flat(Infinity).filter(Boolean));

const duration = (milliseconds) => {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  if (hours) return minutes ? `${hours} h ${minutes} min` : `${hours} h`;
  if (minutes) return seconds % 60 ? `${minutes} min ${seconds % 60} s` : `${minutes} min`;
  return `${seconds} s`;
};

const ago = (then, now) => {
  const seconds = Math.max(0, Math.round((now - then) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} days ago`;
};

// The API returns times in UTC without a zone.
const SHORT = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const moment = (text) => (text ? new Date(`${text}Z`) : null);
const timeElement = (text) => dateElement(moment(text));
const dateElement = (at) => {
  return at ? el("time", { datetime: at.toISOString(), title: at.toISOString() }, at.toLocaleString(undefined, SHORT)) : "–";
};

// A decision about a change: its time and its text.
const reasonRow = (reason) => el("li", {}, dateElement(new Date(reason.at)), " ", reason.text);

class ApiError extends Error {}

const ask = async (path) => {
  const response = await fetch(path, { headers: { Accept: "application/json" } });
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    const failure = new ApiError(body.description || `The server answered ${response.status}.`);
    failure.status = response.status;
    throw failure;
  }
  return response.json();
};

const MARKS = {
  SUCCESS: ["✓", "good"], SKIPPED: ["↷", "still"], RETRY: ["↻", "still"], ABORTED: ["■", "still"], DEQUEUED: ["■", "still"], NO_JOBS: ["–", "still"],
};
const markOf = (result) => MARKS[result] || ["✕", "bad"];
const words = (text) => text.toLowerCase().replaceAll("_", " ");
const chip = (result, isWaiting) => {
  if (!result && isWaiting) return el("span", { class: "chip still" }, el("span", { class: "mark", "aria-hidden": "true" }, "◌"), "waiting");
  if (!result) return el("span", { class: "chip run" }, el("span", { class: "mark", "aria-hidden": "true" }, "●"), "in progress");
  const [mark, tone] = markOf(result);
  return el("span", { class: `chip ${tone}` }, el("span", { class: "mark", "aria-hidden": "true" }, mark), words(result));
};

// Only http and https addresses become links: addresses from forges and jobs are not trusted.
const link = (address, text, attributes) => {
  const safe = typeof address === "string" && /^(https?:\/\/|\/)/.test(address);
  return safe ? el("a", { href: address, ...attributes }, text) : el("span", attributes, text);
};

// Zuul's page names and the nearest view here, so that links to Zuul's pages work.
const ZUUL_VIEWS = { stream: "build", buildsets: "builds", projects: "configuration", project: "configuration", jobs: "configuration", job: "configuration", "config-errors": "configuration" };

// Decodes a part of the address; returns it unchanged if it is not valid.
const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

const place = (() => {
  const parts = location.pathname.split("/").filter(Boolean).map(decoded);
  if (parts[0] === "t" && parts[1]) return { tenant: parts[1], view: ZUUL_VIEWS[parts[2]] || parts[2] || "status", id: parts[3] };
  return { tenant: null, view: parts.length ? "notFound" : "tenants", id: null };
})();
const api = (path) => `/api/tenant/${encodeURIComponent(place.tenant)}/${path}`;
// The id is encoded as one part of the path: with slashes it could lead elsewhere, even to a file of a job.
const apiOf = (kind, rest = "") => api(`${kind}/${encodeURIComponent(place.id)}${rest}`);
const pageOf = (view, id) => `/t/${encodeURIComponent(place.tenant)}/${view}${id ? `/${encodeURIComponent(id)}` : ""}`;

const pulse = (text, tone) => {
  const node = document.getElementById("pulse");
  node.className = `pulse ${tone}`;
  if (node.textContent !== text) node.textContent = text;
};
