// The light, dark or system theme. A cookie keeps it, so the server renders the right one at once.
const DARK = window.matchMedia("(prefers-color-scheme: dark)");
const A_YEAR_S = 365 * 24 * 3600;

export function startTheme() {
  const button = document.querySelector("[data-theme-toggle]");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    // The first click always shows a change: away from what the system looks like.
    const order = DARK.matches ? ["system", "light", "dark"] : ["system", "dark", "light"];
    const next = order[(order.indexOf(root.dataset.theme) + 1) % order.length];
    root.dataset.theme = next;
    document.cookie = `theme=${next}; path=/; max-age=${A_YEAR_S}; samesite=lax`;
    button.setAttribute("aria-label", `Theme: ${next}. Change`);
    button.title = `Theme: ${next}`;
  });
}
