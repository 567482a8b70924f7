"use strict";
// The form works without this. With it, rows are hidden as one types; where the page does not hold every row, the
// form is sent once typing pauses.
const form = document.querySelector("form");
const box = form.elements.filter;
const rows = [...document.querySelectorAll("tbody tr")].map((row) => [row, row.dataset.name.toLowerCase()]);
const count = document.querySelector("#count");
let pause;

function hideOthers() {
  const wanted = box.value.trim().toLowerCase();
  let shown = 0;
  for (const [row, name] of rows) {
    row.hidden = !name.includes(wanted);
    shown += !row.hidden;
  }
  const total = count.dataset.total;
  count.textContent = wanted ? `${shown} of ${total}` : total;
}

if (form.dataset.complete) {
  form.querySelector("button").hidden = true;
  box.addEventListener("input", hideOthers);
  form.addEventListener("submit", (event) => event.preventDefault());
  if (box.value) hideOthers();
} else {
  if (box.value) box.setSelectionRange(box.value.length, box.value.length);
  box.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => form.requestSubmit(), 400);
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) {
    event.preventDefault();
    box.focus();
  }
});
