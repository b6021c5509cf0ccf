// The export page: placeholders written into the pattern where the cursor is.

export function startExport() {
  const pattern = document.getElementById("pattern");
  if (!pattern) return;
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-name-part]");
    if (!button) return;
    const { selectionStart: start, selectionEnd: end, value } = pattern;
    const joint = start > 0 && !/[-_.]$/.test(value.slice(0, start)) ? "_" : "";
    pattern.setRangeText(`${joint}${button.dataset.namePart}`, start, end, "end");
    pattern.focus();
    pattern.dispatchEvent(new Event("input", { bubbles: true }));
  });
}
