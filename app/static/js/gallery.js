// The gallery: play on hover, the lightbox, and its keys.

import { playVideo } from "./player.js";
import { toggleTick } from "./selection.js";

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
  document.addEventListener("error", (event) => noteGone(event.target), true);
  // Those that failed before this script ran.
  document.querySelectorAll(".tile__media > img").forEach((picture) => {
    if (picture.complete && !picture.naturalWidth) noteGone(picture);
  });
  const help = document.querySelector("[data-keys-help]");
  if (help) {
    help.hidden = false;
    help.addEventListener("click", showKeys);
  }
}

function play(media) {
  if (!media || media.querySelector(".tile__preview")) return;
  const preview = new Image();
  preview.className = "tile__preview";
  preview.alt = "";
  preview.src = media.dataset.preview;
  media.append(preview);
}

// A poster that does not come: the tile says so, and the page asks how many files are gone.
function noteGone(picture) {
  const media = picture.matches?.(".tile__media > img:not(.tile__preview)") && picture.parentElement;
  if (!media || media.querySelector(".tile__state")) return;
  const words = document.createElement("span");
  words.className = "tile__state tile__gone small";
  words.textContent = "The picture is gone";
  media.append(words);
  media.setAttribute("aria-label", `${media.getAttribute("aria-label")}. ${words.textContent}`);
  askForMissing();
}

function askForMissing() {
  const box = document.querySelector("[data-missing-url]");
  if (!box) return;
  const url = box.dataset.missingUrl;
  // Once is enough for all of them.
  delete box.dataset.missingUrl;
  window.htmx.ajax("GET", url, { target: box, swap: "innerHTML" });
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
  playVideo(lightbox);
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

const STEPS = { ArrowRight: 1, ArrowDown: 1, j: 1, ArrowLeft: -1, ArrowUp: -1, k: -1 };

function onKey(event, lightbox) {
  const isTyping = event.target.closest("input:not([type=checkbox]), textarea, select");
  if (isTyping || event.metaKey || event.ctrlKey || event.altKey) return;
  if (event.key === "?") {
    event.preventDefault();
    showKeys();
    return;
  }
  if (document.querySelector("dialog[open]:not(#lightbox)")) return;
  if (lightbox.open ? onLightboxKey(event, lightbox) : onGridKey(event)) event.preventDefault();
}

function showKeys() {
  const help = document.getElementById("keys");
  if (help && !help.open) help.showModal();
}

function onLightboxKey(event, lightbox) {
  if (event.key in STEPS) {
    move(lightbox, STEPS[event.key]);
    return true;
  }
  if (event.key === " " && !event.target.closest("button, a, summary, video")) {
    const video = lightbox.querySelector("video");
    if (video?.paused) video.play().catch(() => {});
    else video?.pause();
    return true;
  }
  const button = lightbox.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  button?.click();
  return Boolean(button);
}

// In the grid the keys act on the tile that has the focus; j and k give it.
function onGridKey(event) {
  const all = links();
  const tile = event.target.closest("[data-version]");
  if (event.key === "j" || event.key === "k") {
    const at = all.findIndex((link) => link.closest("[data-version]") === tile);
    const next = at < 0 ? all[0] : all[at + STEPS[event.key]];
    next?.focus();
    return Boolean(next);
  }
  if (!tile) return false;
  if (event.key === " " && !event.target.matches("input")) {
    toggleTick(tile);
    return true;
  }
  const state = { a: "approved", r: "rejected" }[event.key];
  if (!state || !tile.dataset.review) return false;
  const next = tile.classList.contains(`is-${state}`) ? "pending" : state;
  window.htmx
    .ajax("POST", tile.dataset.review, { values: { state: next, place: "gallery" }, swap: "none" })
    .then(() => document.getElementById(tile.id)?.querySelector("[data-lightbox]")?.focus());
  return true;
}
