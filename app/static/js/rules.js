// Rules of the campaign form: a row more, a row less; the count follows as for any other field.

export function startRules() {
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-add-rule]")) addRule();
    const remove = event.target.closest("[data-remove-rule]");
    if (remove) removeRule(remove.closest(".rule"));
  });
}

function addRule() {
  const list = document.getElementById("rule-list");
  list.append(document.getElementById("rule-row").content.cloneNode(true));
  list.lastElementChild.querySelector("select").focus();
}

function removeRule(row) {
  const list = row.parentElement;
  const next = row.nextElementSibling ?? row.previousElementSibling;
  row.remove();
  (next?.querySelector("[data-remove-rule]") ?? document.querySelector("[data-add-rule]")).focus();
  list.dispatchEvent(new Event("input", { bubbles: true }));
}
