// The gallery: play on hover, the lightbox, and its keys.

const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;

export function startGallery() {
  const lightbox = document.getElementById("lightbox");
  if (!lightbox) return;
  if (!isStill) {
    document.addEventListener("pointerover", (event) => play(event.target.closest("[data-preview]")));
    document.addEventListener("pointerout", (event) => stopOutside(event));
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-lightbox]");
    if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    show(lightbox, link);
  });
  lightbox.addEventListener("click", (event) => {
    if (event.target === lightbox || event.target.closest("[data-close]")) lightbox.close();
    const step = event.target.closest("[data-step]");
    if (step) move(lightbox, Number(step.dataset.step));
  });
  lightbox.addEventListener("close", () => returnFocus(lightbox));
  document.addEventListener("keydown", (event) => onKey(event, lightbox));
}

function play(media) {
  if (!media || media.querySelector(".tile__preview")) return;
  const preview = new Image();
  preview.className = "tile__preview";
  preview.alt = "";
  preview.src = media.dataset.preview;
  media.append(preview);
}

function stopOutside(event) {
  const media = event.target.closest("[data-preview]");
  if (media && !media.contains(event.relatedTarget)) media.querySelector(".tile__preview")?.remove();
}

async function show(lightbox, link) {
  const response = await fetch(link.dataset.lightbox, { headers: { "HX-Request": "true" } });
  if (!response.ok) {
    // The variant's own page says what is wrong.
    location.assign(link.href);
    return;
  }
  lightbox.innerHTML = await response.text();
  window.htmx.process(lightbox);
  lightbox.dataset.tile = link.closest("[data-version]").id;
  if (!lightbox.open) lightbox.showModal();
  lightbox.querySelector("video")?.play().catch(() => {});
}

function links() {
  return [...document.querySelectorAll("[data-version] [data-lightbox]")];
}

function move(lightbox, step) {
  const all = links();
  const at = all.findIndex((link) => link.closest("[data-version]").id === lightbox.dataset.tile);
  const next = all[at + step];
  if (next) show(lightbox, next);
}

function returnFocus(lightbox) {
  lightbox.replaceChildren();
  document.getElementById(lightbox.dataset.tile)?.querySelector("[data-lightbox]")?.focus();
}

function onKey(event, lightbox) {
  const isTyping = event.target.closest("input, textarea, select");
  if (!lightbox.open || isTyping || event.metaKey || event.ctrlKey || event.altKey) return;
  const steps = { ArrowRight: 1, ArrowDown: 1, j: 1, ArrowLeft: -1, ArrowUp: -1, k: -1 };
  if (event.key in steps) {
    event.preventDefault();
    move(lightbox, steps[event.key]);
    return;
  }
  const button = lightbox.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (button) {
    event.preventDefault();
    button.click();
  }
}
