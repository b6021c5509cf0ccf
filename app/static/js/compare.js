// The comparison: all videos follow the control's time, with one set of buttons.

const MAX_DRIFT_S = 0.08;

export function startCompare() {
  const bar = document.querySelector("[data-compare-bar]");
  const videos = [...document.querySelectorAll("[data-compared]")];
  if (!bar || videos.length === 0) return;
  const [control] = videos;
  const time = bar.querySelector("[data-compare-time]");
  const toggle = bar.querySelector("[data-compare-toggle]");
  bar.hidden = false;
  const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (!isStill) playAll(videos);
  toggle.addEventListener("click", () => (control.paused ? playAll(videos) : pauseAll(videos)));
  bar.querySelector("[data-compare-restart]").addEventListener("click", () => {
    seek(videos, 0);
    playAll(videos);
  });
  time.addEventListener("input", () => {
    pauseAll(videos);
    seek(videos, (control.duration || 0) * (time.value / 1000));
  });
  control.addEventListener("timeupdate", () => {
    follow(control, videos);
    if (document.activeElement !== time) {
      time.value = String(1000 * (control.currentTime / (control.duration || 1)));
    }
  });
  const showState = () => {
    toggle.querySelector("[data-when-playing]").hidden = control.paused;
    toggle.querySelector("[data-when-paused]").hidden = !control.paused;
  };
  for (const name of ["play", "pause"]) control.addEventListener(name, showState);
  showState();
}

function playAll(videos) {
  for (const video of videos) video.play().catch(() => {});
}

function pauseAll(videos) {
  for (const video of videos) video.pause();
  seek(videos, videos[0].currentTime);
}

function seek(videos, seconds) {
  for (const video of videos) video.currentTime = Math.min(seconds, video.duration || seconds);
}

// A video that has fallen behind or run ahead is set to the control's time.
function follow(control, videos) {
  for (const video of videos) {
    const wanted = Math.min(control.currentTime, video.duration || control.currentTime);
    if (Math.abs(video.currentTime - wanted) > MAX_DRIFT_S) video.currentTime = wanted;
  }
}
