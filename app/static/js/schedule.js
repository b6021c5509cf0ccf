// A new schedule starts in the zone of the person's own clock, which the server cannot know.

export function startSchedule() {
  const field = document.querySelector("[data-own-zone]");
  if (!field || field.value !== "UTC") return;
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const isKnown = [...field.list.options].some((option) => option.value === zone);
  if (!isKnown) return;
  field.value = zone;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}
