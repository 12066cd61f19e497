// The book: the layer that a reader has chosen, and the answers given, are kept in this browser alone.
// A plain script, so that exported pages have it too; where nothing can be kept, the pages work without.
"use strict";

const kept = {
  get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* a browser that keeps nothing */ } },
};

document.addEventListener("DOMContentLoaded", () => {
  const here = document.querySelector(".layers [aria-current]");
  if (here) kept.set("book:layer", here.dataset.layer);
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
    const input = chosen && check.querySelector(`input[value="${CSS.escape(chosen)}"]`);
    if (input) input.checked = true;
    check.addEventListener("change", (event) => kept.set(`book:check:${check.dataset.check}`, event.target.value));
  }
});
