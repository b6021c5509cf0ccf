// Helpers of the campaign form: insert placeholders and known words, toggle preset values, count.

// Where a person typed last; the cards may have been exchanged since.
let lastField = "prompt";

export function startPromptTools() {
  document.addEventListener("click", (event) => {
    const insert = event.target.closest("[data-insert]");
    if (insert) insertPlaceholder(insert.dataset.insert);
    const preset = event.target.closest("[data-preset]");
    if (preset) togglePreset(preset);
    const word = event.target.closest("[data-word], [data-phrase]");
    if (word) insertWord(word.dataset.word ?? word.dataset.phrase);
  });
  document.addEventListener("focusin", (event) => {
    if (event.target.matches("#prompt, [data-values]")) lastField = event.target.id;
  });
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-values]")) refresh(event.target);
  });
  document.body.addEventListener("htmx:afterSettle", refreshAll);
  refreshAll();
}

function insertPlaceholder(name) {
  insertIntoPrompt(`{{ ${name} }}`);
}

function insertWord(word) {
  const field = document.getElementById(lastField);
  if (!field?.matches("[data-values]")) return insertIntoPrompt(word);
  if (!lines(field).includes(word)) field.value = [...lines(field), word].join("\n");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

function insertIntoPrompt(text) {
  const prompt = document.getElementById("prompt");
  const { selectionStart: start, selectionEnd: end, value } = prompt;
  const before = start > 0 && !/\s$/.test(value.slice(0, start)) ? " " : "";
  prompt.setRangeText(`${before}${text}`, start, end, "end");
  prompt.focus();
  prompt.dispatchEvent(new Event("input", { bubbles: true }));
}

function lines(textarea) {
  return textarea.value.split("\n").map((line) => line.trim()).filter(Boolean);
}

// “A beach” is the known value “beach” as well.
function bare(text) {
  return text.trim().toLowerCase().replace(/^(?:an?|the)\s+/, "");
}

function togglePreset(button) {
  const textarea = document.getElementById(button.getAttribute("aria-controls"));
  const value = button.dataset.preset;
  const present = lines(textarea);
  const others = present.filter((line) => bare(line) !== bare(value));
  const next = others.length < present.length ? others : [...present, value];
  textarea.value = next.join("\n");
  textarea.dispatchEvent(new Event("input", { bubbles: true }));
}

function refreshAll() {
  document.querySelectorAll("[data-values]").forEach(refresh);
}

function refresh(textarea) {
  const present = lines(textarea);
  const known = new Set(present.map(bare));
  for (const button of document.querySelectorAll(`[aria-controls="${textarea.id}"][data-preset]`)) {
    button.setAttribute("aria-pressed", String(known.has(bare(button.dataset.preset))));
  }
  const count = document.querySelector(`[data-count-of="${textarea.id}"]`);
  if (count) count.textContent = present.length === 1 ? "1 value" : `${present.length} values`;
}
