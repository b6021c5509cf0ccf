// A file field that also takes dropped files, sends them at once, and shows how far the check is.

const PROGRESS_TYPE = "application/x-ndjson";

export function startDropzones() {
  for (const zone of document.querySelectorAll("[data-dropzone]")) {
    const input = zone.querySelector("input[type=file]");
    for (const name of ["dragenter", "dragover"]) {
      zone.addEventListener(name, (event) => mark(event, zone, true));
    }
    for (const name of ["dragleave", "drop"]) {
      zone.addEventListener(name, (event) => mark(event, zone, false));
    }
    zone.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      input.files = event.dataTransfer.files;
      send(zone, input);
    });
    input.addEventListener("change", () => send(zone, input));
    // Chosen before this script ran, on a slow line.
    send(zone, input);
  }
}

function mark(event, zone, isOver) {
  event.preventDefault();
  zone.classList.toggle("is-over", isOver);
}

function send(zone, input) {
  if (!input.files.length || zone.getAttribute("aria-busy") === "true") return;
  const form = zone.closest("form");
  const view = {
    zone,
    input,
    title: zone.querySelector("[data-dropzone-title]"),
    idle: zone.querySelector("[data-dropzone-title]").textContent,
    panel: form.querySelector("[data-dropzone-progress]"),
    errors: document.querySelector("[data-dropzone-errors]"),
    seen: 0,
    isDone: false,
  };
  const request = new XMLHttpRequest();
  request.upload.addEventListener("progress", (event) => {
    if (event.lengthComputable) show(view, event.loaded, event.total, "Sending");
  });
  request.addEventListener("progress", () => readLines(view, request.responseText));
  request.addEventListener("load", () => {
    if (request.getResponseHeader("Content-Type")?.startsWith(PROGRESS_TYPE)) {
      readLines(view, request.responseText);
      if (!view.isDone) fail(view, "The connection broke. Nothing was saved; please try again.");
    } else {
      fail(view, pageError(request));
    }
  });
  request.addEventListener("error", () => {
    fail(view, "The server cannot be reached. Check your connection and try again.");
  });
  begin(view);
  request.open("POST", form.action);
  request.setRequestHeader("Accept", PROGRESS_TYPE);
  request.send(new FormData(form));
  // The form has the file by now.
  input.disabled = true;
}

function begin(view) {
  view.title.textContent = `Reading ${view.input.files[0].name} …`;
  view.zone.setAttribute("aria-busy", "true");
  view.errors.replaceChildren();
  view.panel.hidden = false;
  view.panel.querySelector("progress").removeAttribute("value");
}

// Each line is one message; the last one may not have arrived whole.
function readLines(view, text) {
  let end = text.indexOf("\n", view.seen);
  while (end >= 0) {
    act(view, JSON.parse(text.slice(view.seen, end)));
    view.seen = end + 1;
    end = text.indexOf("\n", view.seen);
  }
}

function act(view, message) {
  if (message.url) {
    view.isDone = true;
    location.assign(message.url);
  } else if (message.title) {
    fail(view, message.title, message.errors);
  } else {
    show(view, message.rows, message.expected, `Checked ${message.rows.toLocaleString()} rows`);
  }
}

function show(view, done, total, words) {
  const bar = view.panel.querySelector("progress");
  const isKnown = total > 0;
  if (isKnown) {
    bar.max = Math.max(total, done);
    bar.value = done;
  } else {
    bar.removeAttribute("value");
  }
  const share = isKnown ? ` – ${Math.min(100, Math.round((100 * done) / total))} %` : "";
  view.panel.querySelector("[role=status]").textContent = words + share;
}

function fail(view, title, errors = []) {
  view.isDone = true;
  const list = document.createElement("ul");
  list.append(...errors.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
  const words = document.createElement("div");
  words.append(title, list);
  const notice = document.createElement("div");
  notice.className = "notice notice--error notice--plain";
  notice.append(words);
  view.errors.replaceChildren(notice);
  view.panel.hidden = true;
  view.title.textContent = view.idle;
  view.zone.removeAttribute("aria-busy");
  view.input.disabled = false;
  view.input.value = "";
  view.input.focus();
}

// An answer that is a whole page: take over what it says.
function pageError(request) {
  const page = new DOMParser().parseFromString(request.responseText, "text/html");
  const words = page.querySelector("main .notice, main p")?.textContent.trim();
  return words || "That did not work. Reload the page and try again.";
}
