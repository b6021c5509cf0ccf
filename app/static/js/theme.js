// The light, dark or system theme. A cookie keeps it, so the server renders the right one at once.
const ORDER = ["system", "light", "dark"];
const A_YEAR_S = 365 * 24 * 3600;

export function startTheme() {
  const button = document.querySelector("[data-theme-toggle]");
  if (!button) return;
  button.hidden = false;
  button.addEventListener("click", () => {
    const root = document.documentElement;
    const next = ORDER[(ORDER.indexOf(root.dataset.theme) + 1) % ORDER.length];
    root.dataset.theme = next;
    document.cookie = `theme=${next}; path=/; max-age=${A_YEAR_S}; samesite=lax`;
    button.setAttribute("aria-label", `Theme: ${next}. Change`);
    button.title = `Theme: ${next}`;
  });
}
