// The player of a variant: its video plays by itself, unless the person asked for less motion.

const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;

export function startPlayers() {
  const player = document.querySelector("[data-player]");
  if (player) playVideo(player);
  // A render that ends while somebody looks brings its video.
  document.body.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.matches("[data-player]")) playVideo(event.target);
  });
}

export function playVideo(root) {
  if (!isStill) root.querySelector("video")?.play().catch(() => {});
}
