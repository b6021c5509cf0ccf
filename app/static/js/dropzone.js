// A file field that also takes dropped files, shows the name and sends the form at once.

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
  }
}

function mark(event, zone, isOver) {
  event.preventDefault();
  zone.classList.toggle("is-over", isOver);
}

function send(zone, input) {
  if (!input.files.length) return;
  zone.querySelector("[data-dropzone-title]").textContent = `Reading ${input.files[0].name} …`;
  zone.setAttribute("aria-busy", "true");
  zone.closest("form").requestSubmit();
}
