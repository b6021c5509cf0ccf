// The page of one variant: the arrows of the gallery lead to the variants before and after it.

const RELATIONS = { ArrowRight: "next", j: "next", ArrowLeft: "prev", k: "prev" };

export function startVariantPage() {
  const steps = document.querySelector("[data-variant-steps]");
  if (!steps) return;
  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select, video");
    if (isTyping || event.metaKey || event.ctrlKey || event.altKey || event.shiftKey) return;
    steps.querySelector(`[rel="${RELATIONS[event.key]}"]`)?.click();
  });
}
