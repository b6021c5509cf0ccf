// Ticked variants of the gallery: remembered while tiles are replaced, and counted in the bar.

const ticked = new Set();

export function startSelection() {
  startToast();
  if (!document.querySelector("[data-selection-bar]")) return;
  document.addEventListener("change", (event) => {
    if (!event.target.matches(".tile__tick input")) return;
    ticked[event.target.checked ? "add" : "delete"](event.target.value);
    show();
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-untick]")) return;
    ticked.clear();
    show();
  });
  // Tiles come and are replaced by several ways; whatever it was, ticks are put back.
  new MutationObserver(show).observe(document.querySelector("main"), {
    childList: true,
    subtree: true,
  });
  // Coming back in history, browsers restore checked boxes without an event.
  for (const box of document.querySelectorAll(".tile__tick input:checked")) ticked.add(box.value);
  show();
}

// It stays until it is closed, but a reload or a link to the page does not bring it back.
function startToast() {
  const toast = document.querySelector("[data-toast]");
  if (!toast) return;
  const address = new URL(location.href);
  address.searchParams.delete("reviewed");
  history.replaceState(history.state, "", address);
  toast.querySelector("[data-close-toast]").addEventListener("click", () => toast.remove());
}

export function toggleTick(tile) {
  tile?.querySelector(".tile__tick input")?.click();
}

function show() {
  const bar = document.querySelector("[data-selection-bar]");
  if (!bar) return;
  let shown = 0;
  for (const box of document.querySelectorAll(".tile__tick input")) {
    box.checked = ticked.has(box.value);
    shown += box.checked ? 1 : 0;
  }
  bar.classList.toggle("is-idle", shown === 0);
  const text = `${shown} ticked`;
  const count = bar.querySelector("[data-selected]");
  if (count.textContent !== text) count.textContent = text;
  bar.querySelector("[data-untick]").hidden = shown === 0;
}
