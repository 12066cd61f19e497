// The quantities of the book: one name, one colour, in formulas and in code. tex: as formulas write them;
// code: as the library calls them. A test reads this table.
"use strict";
const QUANTITIES = [
  {"name": "reference", "code": ["ref_logp", "old_logp", "sampler_logp", "teacher_logp", "reference"], "tex": ["\\pi_{\\text{ref}}", "\\pi_{\\text{old}}"]},
  {"name": "policy", "code": ["logp", "policy"], "tex": ["\\pi_\\theta", "\\pi"]},
  {"name": "ratio", "code": ["ratio", "log_ratio"], "tex": ["\\rho_{i,t}", "\\rho_t"]},
  {"name": "advantage", "code": ["adv", "next_adv"], "tex": ["A_{i,k}", "A_{t+1}", "A_{k+1}", "A_i", "A_t", "A_k"]},
  {"name": "value", "code": ["value", "next_value", "old_value"], "tex": ["V_{t+1}", "V_{k+1}", "V_t", "V_k", "V"]},
  {"name": "reward", "code": ["reward", "rewards", "score", "chosen", "rejected"], "tex": ["r(x, y_w)", "r(x, y_l)", "r(x, y)", "r(y)", "r_{x,i}", "\\bar r_x", "\\bar r", "r_w", "r_l", "r_i", "r_j", "r_t", "r_k"]},
  {"name": "beta", "code": ["beta"], "tex": ["\\beta"]}
];
{
  const tex = QUANTITIES.flatMap(({ name, tex }) => tex.map((form) => [form, name])).sort(([a], [b]) => b.length - a.length);
  const quoted = (text) => text.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const forms = new RegExp(`(?<![A-Za-z\\\\])(?:${tex.map(([form]) => quoted(form)).join("|")})(?![A-Za-z])`, "g");
  const names = new Map(tex), code = new Map(QUANTITIES.flatMap(({ name, code }) => code.map((word) => [word, name])));
  const words = new RegExp(`\\b(?:${[...code.keys()].sort((a, b) => b.length - a.length).join("|")})\\b`, "g");

  // the book's table of symbols, where a page has it: each says what it means under the pointer
  const symbols = JSON.parse(document.getElementById("symbol-table")?.textContent ?? "[]");
  const places = new Map(symbols.map(([form], i) => [form, i]));
  const standing = symbols.map(([form]) => (form.startsWith("\\") ? "" : "(?<![A-Za-z\\\\])") + quoted(form));
  const marks = new RegExp(`(?:${standing.join("|") || "$^"})(?![A-Za-z])`, "g");

  /** TeX with each quantity in its class, and each symbol with its place in the table. */
  QUANTITIES.inTex = (text) => text.replace(forms, (form) => `{\\htmlClass{q-${names.get(form)}}{${form}}}`)
    .replace(marks, (form) => `{\\htmlData{symbol=${places.get(form)}}{${form}}}`);

  /** What the symbols of an equation mean: each by itself, and all of them where it is reached by the keyboard. */
  QUANTITIES.tell = (equation) => {
    const found = new Set();
    for (const place of equation.querySelectorAll("[data-symbol]")) {
      const [, means] = symbols[place.dataset.symbol], name = place.textContent.trim();
      place.dataset.tip = means;
      found.add(`${name}: ${means}`);
    }
    if (found.size && equation.hasAttribute("display")) equation.dataset.tips = [...found].join("\n");
    else delete equation.dataset.tips;
  };

  /** The quantities of a piece of code as spans of their class. */
  QUANTITIES.inCode = (place) => {
    const walk = document.createTreeWalker(place, NodeFilter.SHOW_TEXT), texts = [];
    while (walk.nextNode()) texts.push(walk.currentNode);
    for (const text of texts) {
      const parts = [];
      let at = 0;
      for (const hit of text.data.matchAll(words)) {
        const span = document.createElement("span");
        span.className = `q-${code.get(hit[0])}`;
        span.textContent = hit[0];
        parts.push(text.data.slice(at, hit.index), span);
        at = hit.index + hit[0].length;
      }
      if (at) text.replaceWith(...parts, text.data.slice(at));
    }
  };
}
