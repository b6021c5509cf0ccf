// Fields with an error: the red goes once the field is good, not only when the form is sent again.

export function startFields() {
  document.addEventListener("input", (event) => forgive(event.target));
  document.addEventListener("change", (event) => forgive(event.target));
  document.body.addEventListener("htmx:afterSettle", followAnswers);
}

// What the server judges while one types says so in an error with role=status; see below.
function forgive(field) {
  if (field.getAttribute?.("aria-invalid") !== "true") return;
  const error = errorOf(field);
  if (error?.getAttribute("role") === "status") return;
  if (!field.checkValidity() || (field.required && !field.value.trim())) return;
  field.removeAttribute("aria-invalid");
  error?.remove();
}

function followAnswers() {
  for (const error of document.querySelectorAll(".field__error[role=status]")) {
    const field = document.querySelector(`[aria-describedby~="${error.id}"]`);
    if (!field?.matches("input, select, textarea")) continue;
    if (error.textContent.trim()) field.setAttribute("aria-invalid", "true");
    else field.removeAttribute("aria-invalid");
  }
}

function errorOf(field) {
  return document.getElementById(`${field.id}-error`);
}
