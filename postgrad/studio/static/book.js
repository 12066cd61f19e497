// The book: the layer that a reader has chosen, and the answers given, are kept in this browser alone.
// A plain script, so that exported pages have it too; where nothing can be kept, the pages work without.
"use strict";

const kept = {
  get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* a browser that keeps nothing */ } },
};

// what a term or a symbol means, or what a citation is of, beside it: on hover, and for the keyboard on focus,
// which an equation takes for all of its symbols
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;

function placeTip(link) {
  const { left, top, bottom } = link.getClientRects()[0], { offsetWidth: width, offsetHeight: height } = tip;
  tip.style.left = `${Math.max(8, Math.min(left, document.documentElement.clientWidth - width - 8))}px`;
  tip.style.top = `${bottom + height + 8 < innerHeight ? bottom + 4 : Math.max(4, top - height - 4)}px`;
}

let told = null;  // the link whose tip is shown

function showTip(link) {
  hideTip();
  told = link;
  tip.textContent = link.dataset.tip ?? link.dataset.tips;
  tip.hidden = false;
  link.setAttribute("aria-describedby", tip.id);
  placeTip(link);
}

function hideTip() {
  tip.hidden = true;
  told?.removeAttribute("aria-describedby");
  told = null;
}

for (const [comes, goes, what] of [["mouseover", "mouseout", "[data-tip]"], ["focusin", "focusout", "[data-tip], [data-tips]"]]) {
  document.addEventListener(comes, ({ target }) => { if (target.closest?.(what)) showTip(target.closest(what)); });
  document.addEventListener(goes, ({ target }) => { if (target.closest?.(what)) hideTip(); });
}
document.addEventListener("keydown", ({ key }) => { if (key === "Escape") hideTip(); });
addEventListener("scroll", () => { if (told) placeTip(told); }, { passive: true });

// 0.79, .79, 0,79, −0.5 and 79 % are numbers; anything else is NaN
function numberIn(text) {
  const plain = text.trim().replace(/[\u2212\u2013]/g, "-").replace(",", ".").replace(/\s/g, "");
  const found = /^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)(%?)$/i.exec(plain);
  return found ? Number(found[1]) / (found[2] ? 100 : 1) : NaN;
}

// A question for a number: the answer and the known wrong values stand in the page, with what is said of each.
function askNumber(check, given) {
  const input = check.querySelector("input"), button = check.querySelector("button");
  const known = [...check.querySelectorAll("[data-number]")], other = check.querySelector("[data-otherwise]");
  const far = (item, value) => Math.abs(Number(item.dataset.number) - value);
  const judge = () => {
    const value = numberIn(input.value), near = known.filter((item) => far(item, value) <= Number(check.dataset.tolerance));
    for (const item of [...known, other]) item.hidden = item !== (near[0] ?? other) || !input.value.trim();
    other.querySelector("span").textContent = Number.isNaN(value) ? "That is no number: write it like 0.25 or 25 %."
      : value < Number(known[0].dataset.number) ? "It is more than that." : "It is less than that.";
    kept.set(`book:check:${check.dataset.check}`, input.value);
  };
  button.hidden = false;
  button.addEventListener("click", judge);
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); judge(); } });
  if (given) { input.value = given; judge(); }
}

document.addEventListener("DOMContentLoaded", () => {
  document.body.append(tip);
  document.querySelectorAll("figure.cut code").forEach(QUANTITIES.inCode);
  const here = document.querySelector(".layers [aria-current]");
  if (here) kept.set("book:layer", here.dataset.layer);
  if (here) kept.set(`book:read:${here.closest(".layers").dataset.chapter}/${here.dataset.layer}`, "1");
  // links to other chapters lead to the layer that is being read
  const layer = kept.get("book:layer");
  if (layer && layer !== "intuition") {
    for (const link of document.querySelectorAll("a[data-chapter][href]")) {
      const address = link.getAttribute("href");
      link.setAttribute("href", address.endsWith("index.html")
        ? address.replace(/index\.html$/, `${layer}/index.html`) : `${address}/${layer}`);
    }
  }
  for (const check of document.querySelectorAll("[data-check]")) {
    const chosen = kept.get(`book:check:${check.dataset.check}`);
    if (check.matches(".numeric")) {
      askNumber(check, chosen);
      continue;
    }
    const input = chosen && check.querySelector(`input[value="${CSS.escape(chosen)}"]`);
    if (input) input.checked = true;
    check.addEventListener("change", (event) => kept.set(`book:check:${check.dataset.check}`, event.target.value));
  }
});
