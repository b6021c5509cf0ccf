// The columns of an upload: the way on opens once every placeholder that needs one has a column.

export function startColumns() {
  const form = document.getElementById("columns-form");
  const button = document.querySelector("[data-needs-columns]");
  if (!form || !button) return;
  form.addEventListener("change", () => show(form, button));
  // Coming back in history, browsers restore choices without an event.
  show(form, button);
}

function show(form, button) {
  const missing = [...form.querySelectorAll("[data-required]")]
    .filter((select) => !select.value)
    .map((select) => select.dataset.required);
  button.disabled = missing.length > 0;
  document.querySelector("[data-missing-columns]").textContent = missing.length
    ? `Choose a column for ${missing.join(", ")} first.`
    : "";
}
