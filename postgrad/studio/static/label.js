// Labelling: a judgement is sent once, never by the second half of a double click, and never lost without a word.
"use strict";

const CALM = 300;  // ms in which a pair that has just appeared takes no judgement: nobody reads faster

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  const form = button && button.form;
  if (!form || !form.hasAttribute("data-judge")) return;
  if (event.detail > 1 || document.querySelector("#pair[data-fresh]")) event.preventDefault();
}, true);

let shown = null;
function fresh() {
  const pair = document.querySelector("#pair");
  const now = pair && `${pair.dataset.item} ${pair.dataset.done}`;
  if (!pair || now === shown) return;
  shown = now;
  const here = new URLSearchParams(location.search);
  if (here.has("item") && here.get("item") !== pair.dataset.item) history.replaceState(null, "", "/label");  // it is judged
  pair.setAttribute("data-fresh", "");
  clearTimeout(fresh.later);
  fresh.later = setTimeout(() => pair.removeAttribute("data-fresh"), CALM);
}
document.addEventListener("DOMContentLoaded", fresh);
document.addEventListener("htmx:after:swap", fresh);

const unsaved = (on) => { const words = document.querySelector("#pair .unsaved"); if (words) words.hidden = !on; };
document.addEventListener("htmx:error", (event) => { if (event.target.closest?.("#pair")) unsaved(true); });
document.addEventListener("htmx:before:request", (event) => { if (event.target.closest?.("#pair")) unsaved(false); });

// a chosen file fills the text that is sent
document.addEventListener("change", async (event) => {
  const file = event.target.dataset?.fills && event.target.files[0];
  if (!file) return;
  document.getElementById(event.target.dataset.fills).value = await file.text();
  document.getElementById(event.target.dataset.names).value = file.name;
});
