// Live parts of a page: conditional polling, rest while nobody looks, tiles patched one by one.

export function startLive() {
  const { body } = document;
  body.addEventListener("htmx:configRequest", sendVersion);
  body.addEventListener("htmx:beforeRequest", restWhileHidden);
  body.addEventListener("htmx:beforeSwap", patchTiles);
  body.addEventListener("htmx:sendError", () => setOffline(true));
  body.addEventListener("htmx:afterOnLoad", () => setOffline(false));
}

// The server answers 304 without a body as long as nothing has changed.
function sendVersion(event) {
  const { etag } = event.detail.elt.dataset;
  if (etag) event.detail.headers["If-None-Match"] = etag;
}

function restWhileHidden(event) {
  if (document.hidden && event.detail.elt.matches("[data-live]")) event.preventDefault();
}

// Only tiles whose version changed are replaced: hovering, focus and loaded images stay.
function patchTiles(event) {
  const { target, shouldSwap, serverResponse } = event.detail;
  if (!shouldSwap || !target.matches("[data-tiles]")) return;
  const fresh = new DOMParser().parseFromString(serverResponse, "text/html");
  const block = fresh.querySelector("[data-tiles]");
  if (!block || event.detail.requestConfig.elt !== target) return;
  event.detail.shouldSwap = false;
  for (const tile of block.querySelectorAll("[data-version]")) {
    const old = document.getElementById(tile.id);
    if (!old) target.append(tile);
    else if (old.dataset.version !== tile.dataset.version) old.replaceWith(tile);
  }
  target.dataset.etag = block.dataset.etag;
  // The server leaves the trigger out once nothing more will change.
  if (!block.hasAttribute("hx-trigger")) {
    const settled = target.cloneNode(false);
    for (const name of ["hx-get", "hx-trigger", "data-live"]) settled.removeAttribute(name);
    settled.append(...target.childNodes);
    target.replaceWith(settled);
  }
}

function setOffline(isOffline) {
  const notice = document.getElementById("offline");
  if (notice) notice.hidden = !isOffline;
}
