// The hands of an instrument: points that are dragged, stages that are played, sliders that stand inside the picture.
// Each of them moves a slider of the form, and the form asks the server for the picture.
"use strict";

const tell = (slider) => slider.dispatchEvent(new Event("input", { bubbles: true }));

// a slider inside the picture belongs to its form, but its events don't pass there
document.addEventListener("input", (event) => {
  const form = event.target.form;
  if (form?.matches("[data-instrument]") && !form.contains(event.target)) form.dispatchEvent(new Event("input", { bubbles: true }));
});

// <circle data-drag="ID" data-from="40" data-to="700" data-low="0" data-high="4">: from and to in units of the drawing, low and high of
// the slider ID; where many have the same, they stand on an element around them
let held = null;

function drag(event) {
  const { x } = new DOMPoint(event.clientX, event.clientY).matrixTransform(held.toDrawing);
  const { from, to, low, high } = held.scale;
  const value = low + (high - low) * (x - from) / (to - from);
  if (!Number.isFinite(value)) return;
  const before = held.slider.value;
  held.slider.value = value;  // the slider keeps to its own ends and steps
  if (held.slider.value !== before) tell(held.slider);
}

document.addEventListener("pointerdown", (event) => {
  const handle = event.target.closest("[data-drag]"), slider = handle && document.getElementById(handle.dataset.drag);
  if (!slider || slider.matches(":disabled")) return;
  const { from, to, low, high } = handle.closest("[data-from]").dataset;
  held = { slider, toDrawing: handle.ownerSVGElement.getScreenCTM().inverse(), scale: { from: +from, to: +to, low: +low, high: +high } };
  slider.focus({ preventScroll: true });  // so that a late picture leaves its value alone
  event.preventDefault();
  drag(event);
});
document.addEventListener("mousedown", (event) => { if (held) event.preventDefault(); });
document.addEventListener("pointermove", (event) => { if (held) drag(event); });
for (const end of ["pointerup", "pointercancel"]) document.addEventListener(end, () => { held = null; });

// Play, Back and Next beside a slider with stops
const PACE = 1300;  // ms a stage
const playing = new Map();

function stop(slider) {
  clearInterval(playing.get(slider));
  playing.delete(slider);
  const button = slider.parentElement.querySelector("[data-play]");
  if (button) button.textContent = "Play";
}

function go(slider, by) {
  const before = slider.value;
  by > 0 ? slider.stepUp() : slider.stepDown();
  if (slider.value === before) return stop(slider);
  tell(slider);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-step], [data-play]"), slider = button?.closest(".slider")?.querySelector("input");
  if (!slider) return;
  const running = playing.has(slider);
  stop(slider);
  if (button.dataset.step) return go(slider, +button.dataset.step);
  if (running) return;
  button.textContent = "Pause";
  if (slider.value === slider.max) {
    slider.value = slider.min;
    tell(slider);
  } else go(slider, 1);
  playing.set(slider, setInterval(() => slider.isConnected ? go(slider, 1) : stop(slider), PACE));
});

// how long a question of a timed form stood there before it was answered
let asked = performance.now();
document.addEventListener("htmx:after:swap", () => { asked = performance.now(); });
document.addEventListener("click", (event) => {
  const form = event.target.closest("[data-timed] button")?.form;
  if (form) form.elements.seconds.value = ((performance.now() - asked) / 1000).toFixed(1);
}, true);

// <button data-move="mine" data-value="ABA">: a move of a game, kept in a hidden field of the form
document.addEventListener("click", (event) => {
  const move = event.target.closest(".instrument [data-move]"), form = move?.closest(".instrument").querySelector("[data-instrument]");
  if (!form) return;
  const { move: name, value } = move.dataset;
  let field = form.querySelector(`input[type="hidden"][name="${CSS.escape(name)}"]`);
  if (!field) {
    field = document.createElement("input");
    field.type = "hidden";
    field.name = name;
    form.prepend(field);
  }
  field.value = value;
  form.dispatchEvent(new Event("change", { bubbles: true }));
});
