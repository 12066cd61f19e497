// Pages without a server: what a moved control asks for is answered here, by the scripts that `postgrad studio export` made of the
// instruments (static/alive/NAME.js) and of the runs' samples. htmx asks as ever, and swaps the answer in.
"use strict";

const alive = (() => {
  const instruments = {};

  /** The numbers of every state, as studio/script/given.py keeps them. */
  const table = (fields, pool, rows) => (state, query) => Object.fromEntries(fields.map((name, i) => [name, pool[rows[query][i]]]));

  const text = (value) => typeof value === "boolean" ? String(+value) : typeof value === "number" ? py.format(value, ".6g") : value;
  const members = (value) => Array.isArray(value) ? value : [value];

  /** The state as a query, defaults left out. */
  function address(of, state) {
    const changed = Object.keys(of.fresh).filter((name) => !py.eq(state[name], of.fresh[name]));
    return new URLSearchParams(changed.flatMap((name) => members(state[name]).map((x) => [name, text(x)]))).toString();
  }

  /** What a query says of a field; what cannot be read leaves it as it begins. */
  function parsed(word, kind, start, control) {
    if (control?.options) return control.pairs().map(([value]) => value).find((value) => text(value) === word) ?? start;
    if (kind === "bool") return word === "1";
    if (kind === "str") return word.slice(0, 200);
    let value = word.trim() === "" ? NaN : Number(word);
    if (!Number.isFinite(value)) return start;
    if (control?.low !== undefined) value = Math.min(Math.max(value, control.low), control.high);
    return kind.startsWith("int") ? py.round(value) : value;
  }
  function read(of, query) {
    const controls = Object.fromEntries(of.controls(of.start).map((c) => [c.name, c])), state = { ...of.fresh };
    for (const [name, kind] of Object.entries(of.kinds)) {
      const words = query.getAll(name), several = Array.isArray(state[name]);
      if (!words.length) continue;
      state[name] = several ? words.map((word, i) => parsed(word, kind, of.fresh[name][i] ?? 0, controls[name]))
        : parsed(words.at(-1), kind, of.fresh[name], controls[name]);
    }
    return of.settle(state);
  }

  function numbers(of, state) {
    const query = address(of, state);
    of.kept ??= new Map();
    if (of.kept.size > 64) of.kept.clear();
    if (!of.kept.has(query)) of.kept.set(query, of.numbers(state, query));
    return of.kept.get(query);
  }

  /** The picture of an instrument, as /instruments/NAME/figure gives it. */
  function figure(name, query, swapped = true) {
    const of = instruments[name];
    const state = read(of, query), ghost = query.has("before") ? read(of, new URLSearchParams(query.get("before"))) : of.start;
    const controls = of.controls(state), found = numbers(of, state), sent = [...query.keys()].filter((key) => key !== "before").length;
    return of.figure({
      instrument: of.instrument, state, ghost, numbers: found, before: numbers(of, ghost), insight: of.insight(found), controls,
      query: address(of, state), held: address(of, ghost), panel: controls.filter((c) => !c.placed), stale: sent !== controls.length, swapped,
    }).text;
  }

  /** The number that a reader foretells, as /instruments/NAME/measure gives it; null where there is none. */
  function measure(name, query) {
    const of = instruments[name];
    if (!of.measure) return null;
    const [words, value] = of.measure, found = value(numbers(of, read(of, query)));
    return { words, value: found === null ? null : Math.round(found * 1e6) / 1e6 };
  }

  /** One step of a run's samples, as /runs/-/samples gives it; the run's page holds the rows. */
  let step = () => null;
  function samples(panel, template, colours) {
    const { run, steps, rows } = JSON.parse(document.getElementById("samples-data").textContent);
    step = (query) => {
      const whole = (name, otherwise) => /^\d{1,15}$/.test(query.get(name) ?? "") ? Number(query.get(name)) : otherwise;
      const at = Math.max(0, steps.findLastIndex((s) => s <= whole("step", Infinity)));
      const colour = colours.includes(query.get("colour")) ? query.get("colour") : "adv";
      const found = panel(rows[at], [steps[at - 1] ?? null, steps[at + 1] ?? null], [steps[0], steps.at(-1)], whole("group", 0), whole("sample", 0), colour);
      return template({ samples: found, name: run }).text;
    };
  }

  /** Addresses of the site in a picture, from where this page lies. */
  const root = new URL("..", document.currentScript?.src || location);
  const local = (html) => html.replace(/ href="\/([^"?#]*)/g, (_, path) => ` href="${new URL(`${path}/index.html`, root)}`);

  /** The answer to a request for part of a page; null where only a server has it. */
  function answer(url) {
    const { pathname, searchParams } = new URL(url, "http://here/");
    const [, name] = /\/instruments\/([^/]+)\/figure$/.exec(pathname) ?? [];
    if (instruments[name]) return local(figure(name, searchParams));
    return pathname.endsWith("/runs/-/samples") ? step(searchParams) : null;
  }

  document.addEventListener("htmx:config:request", ({ detail: { ctx } }) => {
    ctx.fetch = async (url, request) => {
      const found = answer(url) ?? (typeof engine === "undefined" ? null : await engine.answer(url, request.body));
      return found === null ? new Response("", { status: 404 }) : new Response(found, { headers: { "Content-Type": "text/html" } });
    };
  });

  // a site that is served stays readable without a connection; one that is opened from a folder needs nothing
  if (location.protocol.startsWith("http")) navigator.serviceWorker?.register(new URL("offline.js", root)).catch(() => {});

  // an address with a state, as a link or a reader gives it
  document.addEventListener("DOMContentLoaded", () => {
    const body = document.getElementById("samples-body"), slider = document.getElementById("step"), there = body && location.search && step(new URLSearchParams(location.search));
    if (there) {
      body.outerHTML = there;
      slider.value = document.getElementById("samples-body").dataset.step;
      slider.parentElement.querySelector("output").textContent = slider.value;
    }
    const form = document.querySelector("main > .instrument [data-instrument]");
    if (!form || !location.search) return;
    const name = form.closest(".instrument").id, picture = document.getElementById(`${name}-picture`);
    const query = new URLSearchParams(location.search);
    picture.outerHTML = local(figure(name, query, false));
    const of = instruments[name], state = read(of, query), macros = py.macros(of.macros);
    document.getElementById(`${name}-controls`).innerHTML = '<legend class="sr">Controls</legend>'
      + of.controls(state).filter((c) => !c.placed).map((c) => macros.control(c, state, name)).join("");
    if (query.has("before")) form.insertAdjacentHTML("afterbegin", `<input type="hidden" name="before" value="${py.out(query.get("before"))}">`);
    follow(document.getElementById(`${name}-picture`));
  });

  return { instruments, samples, table, figure, measure, read, address, numbers, answer };
})();
