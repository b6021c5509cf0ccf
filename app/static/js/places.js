// Fields of places: a list of suggestions for the line one types, and answers to “which one?”.

const DELAY_MS = 150;
const MIN_LENGTH = 2;
let timer;
let request = 0;

export function startPlaces() {
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-values]")) ask(event.target);
  });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("[data-values]")) steer(event);
  });
  document.addEventListener("focusout", (event) => {
    if (event.target.matches("[data-values]")) close(event.target);
  });
  // The field keeps the focus, so the list does not close before the click arrives.
  document.addEventListener("mousedown", (event) => {
    if (event.target.closest("[data-suggestion]")) event.preventDefault();
  });
  document.body.addEventListener("htmx:oobBeforeSwap", keepOpen);
  document.addEventListener("click", (event) => {
    const option = event.target.closest("[data-suggestion]");
    if (option) choose(fieldOf(option.parentElement), option);
    const answer = event.target.closest("[data-replace]");
    if (answer) replaceLines(answer);
  });
}

function ask(field) {
  clearTimeout(timer);
  const text = currentLine(field).text.trim();
  const isPlace = field.closest(".parameter")?.querySelector("select")?.value === "geography";
  if (!isPlace || text.length < MIN_LENGTH || field !== document.activeElement) return close(field);
  timer = setTimeout(() => show(field, text), DELAY_MS);
}

async function show(field, text) {
  const list = listOf(field);
  const number = ++request;
  const query = new URLSearchParams({ q: text });
  await htmx.ajax("GET", `${list.dataset.url}?${query}`, { target: list, swap: "innerHTML" });
  if (number !== request || field !== document.activeElement) return;
  const options = optionsOf(list);
  // What stands there already needs no list in front of the next line.
  list.hidden = !options.length || options.some((option) => option.dataset.suggestion === text);
  for (const option of options) option.id = `${field.id}-${option.id}`;
  field.removeAttribute("aria-activedescendant");
  if (!list.hidden) say(field, options.length);
}

function steer(event) {
  const field = event.target;
  const list = listOf(field);
  if (!list || list.hidden) return;
  const options = optionsOf(list);
  const index = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step) select(field, options, index, step);
  else if (event.key === "Enter" && index >= 0) choose(field, options[index]);
  else if (event.key === "Escape") close(field);
  else return;
  event.preventDefault();
}

function select(field, options, index, step) {
  const start = index < 0 && step < 0 ? 0 : index;
  const chosen = options[(start + step + options.length) % options.length];
  for (const option of options) option.setAttribute("aria-selected", String(option === chosen));
  field.setAttribute("aria-activedescendant", chosen.id);
  chosen.scrollIntoView({ block: "nearest" });
}

function choose(field, option) {
  const { start, end } = currentLine(field);
  field.setRangeText(option.dataset.suggestion, start, end, "end");
  close(field);
  field.focus();
  // Only counts and questions follow; suggestions for what was just chosen would be in the way.
  field.dispatchEvent(new Event("input", { bubbles: true }));
  clearTimeout(timer);
}

function close(field) {
  clearTimeout(timer);
  request += 1;
  const list = listOf(field);
  if (list) list.hidden = true;
  field.removeAttribute("aria-activedescendant");
}

function replaceLines(button) {
  const field = document.getElementById(button.getAttribute("aria-controls"));
  const { replace: from, with: to } = button.dataset;
  field.value = field.value
    .split("\n")
    .map((line) => (line.trim() === from ? to : line))
    .join("\n");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
}

// What was opened to be read stays open when the server says it anew.
function keepOpen(event) {
  const { target, fragment } = event.detail;
  if (!target.matches?.(".places") || !target.querySelector("details[open]")) return;
  fragment.querySelector("details")?.setAttribute("open", "");
}

function currentLine(field) {
  const { value, selectionStart } = field;
  const start = value.lastIndexOf("\n", selectionStart - 1) + 1;
  const next = value.indexOf("\n", selectionStart);
  const end = next < 0 ? value.length : next;
  return { start, end, text: value.slice(start, end) };
}

function say(field, count) {
  const status = document.getElementById(`${field.id}-suggested`);
  status.textContent = count === 1 ? "1 suggestion" : `${count} suggestions`;
}

const listOf = (field) => document.getElementById(`${field.id}-suggestions`);
const fieldOf = (list) => document.getElementById(list.id.replace(/-suggestions$/, ""));
const optionsOf = (list) => [...list.querySelectorAll("[data-suggestion]")];
