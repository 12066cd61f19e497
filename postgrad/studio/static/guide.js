// What goes step by step: the guided tour of a chapter, and the walks through its code.
"use strict";

/** "3 of 9" between Back and Next; show(at) is told where it stands. last: what Next says at the end. */
function stepper(count, show, last) {
  const bar = document.createElement("p"), [back, told, next] = ["button", "span", "button"].map((tag) => bar.appendChild(document.createElement(tag)));
  let at = 0;
  bar.className = "steps";
  for (const button of [back, next]) Object.assign(button, { type: "button", className: "button plain" });
  back.textContent = "Back";
  told.setAttribute("role", "status");
  const go = (to) => {
    if (to < 0 || to > count - (last ? 0 : 1)) return;
    if (to === count) return show(null);
    at = to;
    told.textContent = `${at + 1} of ${count}`;
    next.textContent = last && at === count - 1 ? last : "Next";
    if (at === 0 && document.activeElement === back) next.focus();
    back.disabled = at === 0;
    next.disabled = !last && at === count - 1;
    show(at);
  };
  back.addEventListener("click", () => go(at - 1));
  next.addEventListener("click", () => go(at + 1));
  return { bar, go, by: (step) => go(at + step) };
}

const motion = () => (matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth");
// keys that a control, a scrolling place or an editor uses itself
const BUSY = "input, select, textarea, summary, pre, [contenteditable], [tabindex='0']";

{
  const start = document.querySelector("button[data-tour]"), texts = document.getElementById("tour");
  if (start && texts) {
    const stops = [...texts.content.querySelectorAll("ol > li")], card = document.createElement("section");
    const says = document.createElement("div"), end = document.createElement("button");
    let here = null, waiting = null;  // the stop, and the one whose figure has not been set

    card.id = "tour-card";
    card.hidden = true;
    card.tabIndex = -1;
    card.setAttribute("aria-label", "Guided tour");
    says.setAttribute("aria-live", "polite");
    Object.assign(end, { type: "button", className: "link", textContent: "End the tour" });
    const steps = stepper(stops.length, visit, "Finish");
    steps.bar.append(end);
    card.append(says, steps.bar);

    /** What stands between the marks of a stop. */
    function places(stop) {
      const found = [], last = document.querySelector(`[data-stop-end="${stop + 1}"]`);
      for (let e = document.querySelector(`[data-stop="${stop + 1}"]`); e !== last; e = e.nextElementSibling) if (e.getClientRects().length) found.push(e);
      return found;
    }

    /** The controls of a figure as the stop wants them; false while the figure is not there. */
    function pose(stop) {
      const { figure, pose: wanted } = stops[stop].dataset, form = document.getElementById(`${figure}-form`);
      if (!form) return !figure;
      const state = new URLSearchParams(wanted);
      for (const name of new Set(state.keys())) {
        const values = state.getAll(name), fields = [...form.elements].filter((field) => field.name === name);
        for (const [i, field] of fields.entries()) {
          if (field.type === "radio") field.checked = field.value === values[0];
          else {
            field.value = values[i];
            studio.showValue(field);
          }
        }
      }
      form.dispatchEvent(new Event("change", { bubbles: true }));
      return true;
    }

    function mark() {
      document.querySelectorAll(".toured").forEach((place) => place.classList.remove("toured"));
      if (here !== null) places(here).forEach((place) => place.classList.add("toured"));
    }

    function note() {
      const address = new URL(remember.address || location);
      here === null ? address.searchParams.delete("tour") : address.searchParams.set("tour", here + 1);
      remember(address.href);
    }

    function visit(stop) {
      here = stop;
      card.hidden = stop === null;
      mark();
      note();
      if (stop === null) {
        delete document.body.dataset.tour;
        start.focus({ preventScroll: true });
        start.scrollIntoView({ block: "center", behavior: motion() });
        return;
      }
      document.body.dataset.tour = "on";
      says.replaceChildren(...document.importNode(stops[stop], true).childNodes);
      waiting = pose(stop) ? null : stop;
      places(stop)[0].scrollIntoView({ block: "start", behavior: motion() });
    }

    function begin(stop) {
      steps.go(stop);
      card.focus({ preventScroll: true });
    }

    // a figure that has just come is set, is marked, and moves what stands below it
    let missing = Infinity;
    document.addEventListener("htmx:after:settle", () => setTimeout(() => {
      const still = document.querySelectorAll(".figure-place").length, come = still < missing;
      missing = still;
      if (here === null || !come) return;
      mark();
      if (waiting === here && pose(here)) waiting = null;
      places(here)[0].scrollIntoView({ block: "start" });
    }));
    start.addEventListener("click", () => begin(0));
    end.addEventListener("click", () => visit(null));
    document.addEventListener("keydown", (event) => {
      if (here === null || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || document.body.dataset.side) return;
      if (event.key === "Escape") return visit(null);
      const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!by || event.target.closest(BUSY)) return;
      event.preventDefault();
      steps.by(by);
    }, true);

    document.body.append(card);
    start.hidden = false;
    start.insertAdjacentHTML("afterend", ` <span class="soft">${stops.length} stops, about ${start.dataset.tour} minutes</span>`);
    const asked = Number(new URLSearchParams(location.search).get("tour"));
    if (asked) addEventListener("load", () => begin(Math.min(Math.max(Math.trunc(asked), 1), stops.length) - 1));
  }
}

for (const walk of document.querySelectorAll(".walk")) {
  const items = [...walk.querySelectorAll(".walk-steps > li")], code = walk.querySelector(".walk-code");
  const steps = stepper(items.length, (at) => {
    items.forEach((item, i) => { item.hidden = i !== at; });
    walk.querySelectorAll(".row").forEach((row) => row.classList.toggle("marked", row.dataset.step.split(" ").includes(String(at + 1))));
    const [first] = walk.querySelectorAll(".row.marked"), block = first.closest("pre"), high = code.clientHeight;
    const tall = [...walk.querySelectorAll(".row.marked")].at(-1).getBoundingClientRect().bottom - first.getBoundingClientRect().top;
    const to = first.getBoundingClientRect().top - code.getBoundingClientRect().top + code.scrollTop - Math.max(24, (high - tall) / 3);
    code.scrollTo({ top: block === code.querySelector("pre") && to < 60 ? 0 : to, behavior: motion() });
  });
  walk.querySelectorAll("pre code").forEach(QUANTITIES.inCode);
  walk.querySelector(".walk-steps").after(steps.bar);
  walk.dataset.stepping = "";
  steps.go(0);
}
