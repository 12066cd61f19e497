// Predict first: a moved control waits until the reader has said what it will do to the figure's number. The score
// of each instrument is kept in this browser alone.
"use strict";
{
  const WAYS = { rise: "It rises", fall: "It falls", stay: "It stays" };
  const store = {
    get: (name) => { try { return JSON.parse(localStorage.getItem(`predict:${name}`)) ?? { right: 0, asked: 0 }; } catch { return { right: 0, asked: 0 }; } },
    set: (name, score) => { try { localStorage.setItem(`predict:${name}`, JSON.stringify(score)); } catch { /* a browser that keeps nothing */ } },
  };
  const shown = (value) => value === null ? "none" : studio.number(value, Math.abs(value) < 10 ? 3 : 1);

  /** The number at a state, from the functions that draw the figure. */
  async function measure(form) {
    const query = new URLSearchParams(new FormData(form));
    query.delete("before");
    if (studio.exported) return alive.measure(form.closest(".instrument").id, query);
    const answer = await studio.fetch(`${form.getAttribute("action")}/measure?${query}`);
    return answer.status === 200 ? answer.json() : null;
  }

  function ask(form, found) {
    const name = form.closest(".instrument").id, { right, asked } = store.get(name), box = document.createElement("div");
    box.className = "predict";
    box.innerHTML = '<p role="status"></p><p class="ways"></p><p class="soft"></p>';
    const [says, ways, score] = box.children;
    says.textContent = `Move a control. Before the figure changes, say what happens to ${found.words}; now it is ${shown(found.value)}.`;
    score.textContent = asked ? `${right} of ${asked} foretold.` : "";
    for (const [way, words] of Object.entries(WAYS)) {
      const button = document.createElement("button");
      Object.assign(button, { type: "button", className: "button plain", textContent: words, disabled: true });
      button.dataset.way = way;
      ways.append(button);
    }
    form.querySelector(".predict")?.remove();
    form.append(box);
    form.predicting = { before: found, waits: false, told: false };
    ways.addEventListener("click", ({ target }) => target.dataset.way && judge(form, target.dataset.way));
  }

  async function judge(form, way) {
    const name = form.closest(".instrument").id, now = await measure(form), { before } = form.predicting;
    const gap = (now?.value ?? 0) - (before.value ?? 0), truth = Math.abs(gap) < 1e-6 ? "stay" : gap > 0 ? "rise" : "fall";
    const score = store.get(name);
    store.set(name, { right: score.right + (way === truth), asked: score.asked + 1 });
    form.predicting.told = true;
    form.dispatchEvent(new Event("change", { bubbles: true }));
    ask(form, now);
    form.querySelector(".predict p").textContent = `${way === truth ? "Right" : "Not so"}: ${before.words} went from ${shown(before.value)} to ${shown(now.value)}. Move a control again.`;
  }

  // the form hears of a move before htmx does
  for (const kind of ["input", "change"]) {
    document.addEventListener(kind, (event) => {
      const form = event.target.closest?.("[data-instrument]") ?? event.target.form, state = form?.predicting;
      if (!state || state.told) return;
      event.stopImmediatePropagation();
      studio.showValue(event.target);
      form.querySelectorAll(".predict button").forEach((button) => { button.disabled = false; });
    }, true);
  }

  document.addEventListener("click", async ({ target }) => {
    const button = target.closest("[data-predict]");
    if (!button) return;
    const form = button.closest("form");
    if (form.predicting) {
      delete form.predicting;
      form.querySelector(".predict").remove();
      form.dispatchEvent(new Event("change", { bubbles: true }));
    } else {
      const found = await measure(form);
      if (found) ask(form, found);
    }
    button.textContent = form.predicting ? "Stop predicting" : "Predict first";
  });
  const reveal = () => document.querySelectorAll("[data-predict][hidden]").forEach((button) => { button.hidden = false; });
  for (const when of ["DOMContentLoaded", "htmx:after:swap"]) document.addEventListener(when, reveal);
}
