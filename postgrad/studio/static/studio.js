// What every page of the studio needs: the header on each request, the theme, sliders' numbers, <tex-math>, <key-bar>.
// A plain script, not a module, so that exported pages work as files too.
"use strict";

const studio = {
  /** Whether these are the pages of an export, which have no server to ask. */
  exported: "exported" in document.documentElement.dataset,

  /** A number with a true minus sign. */
  number: (value, digits = 3) => (+value).toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "\u2212"),

  /** fetch with the header that the server asks of every write. */
  fetch: (url, options = {}) =>
    fetch(url, { ...options, credentials: "same-origin", headers: { ...options.headers, "X-Postgrad": "1" } }),

  /** The colour of a role ("policy", "reward", "soft", ...) as it is now, light or dark: for canvases. */
  colour(role) {
    const probe = document.createElement("span");
    probe.hidden = true;
    probe.style.color = `var(--${role})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  },

  /** Call f whenever the page turns light or dark. */
  onTheme(f) {
    document.addEventListener("studio:theme", f);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", f);
  },
};

document.addEventListener("htmx:config:request", (event) => {
  event.detail.ctx.request.headers["X-Postgrad"] = "1";
});

document.addEventListener("click", (event) => {
  if (!event.target.closest("[data-theme-switch]")) return;
  const root = document.documentElement;
  const dark = (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=strict`;
  document.dispatchEvent(new Event("studio:theme"));
});

// a slider shows its number while it moves, before the answer comes
studio.showValue = (input) => {
  const output = input.type === "range" && input.parentElement.querySelector("output");
  if (!output) return;
  const { min, step, value } = input, stops = output.dataset.stops && JSON.parse(output.dataset.stops);
  output.textContent = stops ? stops[Math.round((value - min) / step)] : studio.number(value, +output.dataset.digits);
};
document.addEventListener("input", (event) => studio.showValue(event.target));

// htmx wakes a moment after the page: what was moved before that is sent then
document.addEventListener("htmx:after:process", (event) => {
  if (event.target !== document.body) return;
  const differs = (e) => e.tagName === "SELECT" ? [...e.options].some((o) => o.selected !== o.defaultSelected)
    : e.type === "radio" || e.type === "checkbox" ? e.checked !== e.defaultChecked : e.value !== e.defaultValue;
  const moved = [...document.querySelectorAll(":is(form[hx-get], [data-instrument], #settings) :is(input, select)")].filter(differs);
  for (const form of new Set(moved.map((input) => input.form))) form.dispatchEvent(new Event("input", { bubbles: true }));
}, true);

// an instrument's address follows its state; what it links to, too
function follow(picture) {
  const panel = picture.closest(".instrument").querySelector("[data-instrument]");
  const page = panel.getAttribute("action");
  const join = (...parts) => { const query = parts.filter(Boolean).join("&"); return query ? `${page}?${query}` : page; };
  const { query, held } = picture.dataset;
  const before = held && `before=${encodeURIComponent(held)}`;
  const set = (act, url) => panel.querySelector(`[data-act=${act}]`)?.setAttribute("href", url);
  set("link", join(query, before));
  set("hold", join(query, query && `before=${encodeURIComponent(query)}`));
  const figure = picture.closest(".instrument");
  if (location.pathname === new URL(page, location).pathname) return remember(join(query, before));
  if (studio.exported || !("figure" in figure.dataset)) return;
  const here = new URL(remember.address || location);  // in a chapter: ?NAME=its state
  if (query === figure.dataset.start) here.searchParams.delete(figure.id);
  else here.searchParams.set(figure.id, query);
  remember(here.href);
}

function remember(address) {
  remember.address = new URL(address, location).href;
  clearTimeout(remember.later);  // browsers refuse a flood of replaceState
  remember.later = setTimeout(() => history.replaceState(history.state, "", remember.address), 150);
}

// in a chapter, Reset and Keep act on the figure where it stands; Link copies its address, with the state in it
document.addEventListener("click", async (event) => {
  const act = event.target.closest(".instrument [data-act]");
  if (!act || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const figure = act.closest(".instrument"), { figure: number, start } = figure.dataset, { query } = figure.querySelector(".picture").dataset;
  if (act.dataset.act === "link" && navigator.clipboard) {
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(new URL(act.getAttribute("href"), location).href);
      act.textContent = "Link copied";
    } catch {  // not allowed here: the address is opened, and can be copied from there
      location.assign(act.href);
    }
  } else if (number !== undefined && !studio.exported && act.dataset.act !== "link") {
    event.preventDefault();
    const page = figure.querySelector("[data-instrument]").getAttribute("action");
    const state = act.dataset.act === "reset" ? start : `${query}&before=${encodeURIComponent(query)}`;
    htmx.ajax("GET", `${page}/frame?figure=${number}&start=${encodeURIComponent(start)}&${state}`, { target: figure, swap: "outerHTML" });
  }
});

/** What is wider than its place says so, and on which side it goes on. */
const cut = (place) => {
  const left = place.scrollLeft > 1, right = place.scrollLeft + place.clientWidth < place.scrollWidth - 1;
  const now = left && right ? "both" : left ? "left" : right ? "right" : "";
  if ((place.dataset.cut || "") !== now) now ? place.dataset.cut = now : delete place.dataset.cut;
};
const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => cut(target.closest(".scroll, .strip"))));
const watched = new WeakSet();  // a new picture drops attributes, so they cannot say who is watched
const watchScroll = () => document.querySelectorAll(".scroll, .strip").forEach((place) => {
  if (!watched.has(place)) {
    watched.add(place);
    place.addEventListener("scroll", () => cut(place), { passive: true });
    sizes.observe(place);
    if (place.firstElementChild) sizes.observe(place.firstElementChild);
  }
  cut(place);
});
for (const when of ["DOMContentLoaded", "htmx:after:swap"]) document.addEventListener(when, watchScroll);
document.addEventListener("htmx:after:swap", () => document.querySelectorAll(".instrument .picture").forEach(follow));
document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".instrument .picture").forEach(follow));

/** <tex-math>\sigma(x)</tex-math>, or <tex-math display>: its text is TeX; whenever the text is replaced it is set again. */
class TexMath extends HTMLElement {
  connectedCallback() {
    this.watch = new MutationObserver(() => this.set());
    this.set();
    this.reach();
  }

  disconnectedCallback() {
    clearTimeout(this.later);
    this.watch.disconnect();
  }

  set() {
    this.watch.disconnect();
    if (!this.querySelector(".katex")) {
      const display = this.hasAttribute("display");
      this.says = this.textContent.trim();
      const tex = (display ? "\\displaystyle " : "") + QUANTITIES.inTex(this.says);  // not KaTeX's own display mode, which never wraps
      katex.render(tex, this, { throwOnError: false, strict: "ignore", maxSize: 20, maxExpand: 200, trust: ({ command }) => command === "\\htmlClass" || command === "\\htmlData" });
      QUANTITIES.tell(this);
      clearTimeout(this.later);  // to ask for its width now would lay out the page once for each equation
      this.later = setTimeout(() => this.reach(), 200);
    }
    this.watch.observe(this, { childList: true, characterData: true, subtree: true });
  }

  /** What is wider than its place scrolls, and what has symbols tells them: both must be reached by the tab key. */
  reach() {
    if (this.dataset.tips || (this.hasAttribute("display") && this.scrollWidth > this.clientWidth)) this.tabIndex = 0;
    else this.removeAttribute("tabindex");
  }
}
customElements.define("tex-math", TexMath);

// an equation that says in a new picture what it said before is left as it is set
document.addEventListener("DOMContentLoaded", () => htmx.registerExtension("set-equations", {
  htmx_before_morph_node: (old, { newNode }) => !(old instanceof TexMath && old.says === newNode.textContent.trim()),
}));

/** <key-bar>: lists the elements of the page with data-key="a" (and data-says, or their text), and makes the keys press them. */
class KeyBar extends HTMLElement {
  connectedCallback() {
    this.press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || event.defaultPrevented) return;
      if (event.composedPath()[0].closest("input:not([type=range], [type=radio], [type=checkbox]), textarea, select, [contenteditable]")) return;
      const found = [...document.querySelectorAll("[data-key]")].find(
        (e) => e.dataset.key.toLowerCase() === event.key.toLowerCase() && !e.disabled);
      if (!found) return;
      event.preventDefault();
      found.click();
    };
    document.addEventListener("keydown", this.press);
    this.list();
    this.swapped = () => this.list();
    document.addEventListener("htmx:after:swap", this.swapped);
  }

  disconnectedCallback() {
    document.removeEventListener("keydown", this.press);
    document.removeEventListener("htmx:after:swap", this.swapped);
  }

  list() {
    this.replaceChildren(...[...document.querySelectorAll("[data-key]")].map((element) => {
      const item = document.createElement("span"), key = document.createElement("kbd");
      key.textContent = element.dataset.key;
      item.append(key, element.dataset.says || element.firstChild.textContent.trim());
      return item;
    }));
  }
}
customElements.define("key-bar", KeyBar);
