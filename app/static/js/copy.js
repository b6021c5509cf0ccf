// Buttons that copy the value of a field, and say that they did.

const SHOWN_MS = 2000;

export function startCopying() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
}

async function copy(button) {
  const field = document.getElementById(button.dataset.copy);
  const words = button.querySelector("[data-copy-words]");
  const before = button.dataset.words ?? (button.dataset.words = words.textContent);
  field.select();
  try {
    await navigator.clipboard.writeText(field.value);
    words.textContent = "Copied";
  } catch {
    // Without a secure connection browsers offer no clipboard: the text is selected for the keys.
    words.textContent = "Selected: copy it with Ctrl+C";
  }
  clearTimeout(Number(button.dataset.timer));
  button.dataset.timer = String(setTimeout(() => (words.textContent = before), SHOWN_MS));
}
