// The pages about runs: charts that grow, one stream a tab, the step scrubber, the token strip.
// A plain script, so that exported pages work as files too; what comes from a run is only ever set as text.
"use strict";

const block = document.getElementById("run-data");
const shown = block ? JSON.parse(block.textContent) : { charts: {}, runs: {} };
const RUNS = ["policy", "down", "up", "critic", "reward", "soft"];  // the colours of runs side by side
const LETTERS = "ABCDEF";

/** A number in few characters, with a true minus sign. */
function brief(x) {
  if (x === null || x === undefined) return "–";
  const size = Math.abs(x);
  const text = size && (size < 5e-4 || size >= 1e5) ? x.toExponential(1) : String(+x.toFixed(size < 1 ? 3 : size < 100 ? 2 : 1));
  return text.replace(/-/g, "\u2212");
}

function element(name, text, ...classes) {
  const made = document.createElement(name);
  made.textContent = text;
  made.classList.add(...classes);
  return made;
}

/** <live-chart name="reward">: one metric of one run, or of several, drawn by uPlot. No smoothing; rows are appended. */
class LiveChart extends HTMLElement {
  connectedCallback() {
    this.chart = shown.charts[this.getAttribute("name")];
    if (!this.chart) return;
    this.plotted = this.querySelector(".plot");
    this.now = this.querySelector(".now");
    if (!this.closest("details.drawer:not([open])")) this.draw();
    this.size = new ResizeObserver(() => this.fit());
    this.size.observe(this.plotted);
    LiveChart.all.add(this);
  }

  disconnectedCallback() {
    this.size?.disconnect();
    this.plot?.destroy();
    LiveChart.all.delete(this);
  }

  fit() {
    const width = this.plotted.clientWidth;
    if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height: this.plotted.clientHeight });
  }

  data() {
    const series = this.detail || this.chart.series;
    const tables = series.map((s) => [s.steps, s.values]);
    return tables.length > 1 ? uPlot.join(tables) : tables[0];
  }

  draw() {
    this.plot?.destroy();
    const { series, role } = this.chart, several = series.length > 1;
    const ink = studio.colour("soft"), rule = studio.colour("rule");
    const axis = { stroke: ink, font: "11px Inter, sans-serif", ticks: { show: false }, values: (_, at) => at.map(brief) };
    const upward = (_, at) => at.map((x) => this.words(x));
    const line = (one, i) => ({
      stroke: studio.colour(several ? RUNS[i] : role), width: 1.6, spanGaps: false,
      points: { show: (u) => one.steps.length < 2 || one.low !== undefined || one.steps.length * 14 < u.width, size: 5 },
    });
    this.plot = new uPlot({
      width: this.plotted.clientWidth || 300, height: this.plotted.clientHeight || 150,
      padding: [10, several ? 24 : 8, 0, 0], legend: { show: false },
      cursor: { sync: { key: "runs", scales: ["x", null] }, drag: { x: true, y: false, dist: 6 }, points: { size: 7 } },
      scales: { x: { time: false }, y: { range: (_, low, high) => this.range(low, high) } },
      axes: [
        { ...axis, grid: { show: false }, size: 24, gap: 4, space: 60, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] },
        { ...axis, values: upward, grid: { stroke: rule, width: 1 }, size: 48, gap: 6, space: 34 },
      ],
      series: [{}, ...series.map(line)],
      hooks: {
        draw: [(u) => this.marks(u)],
        setCursor: [() => this.read()],
        setScale: [(u, key) => key === "x" && this.zoomed(u)],
      },
    }, this.data(), this.plotted);
    this.plot.over.addEventListener("click", () => {
      const at = this.plot.posToVal(this.plot.cursor.left, "x");
      if (this.plot.select.width < 6) turn(Math.round(at));
    });
    this.read();
  }

  /** A value of this chart in few characters: a share in percent. */
  words(x) {
    return this.chart.share && typeof x === "number" ? `${brief(Math.round(1000 * x) / 10)} %` : brief(x);
  }

  /** From 0 where nothing is below it, with a little room above; a share from 0 to 100 %, in every chart. */
  range(low, high) {
    if (this.chart.share) return [0, 1];
    if (low === null || low === undefined) return [0, 1];
    const ends = (this.chart.series).flatMap((s) => [...(s.low || []), ...(s.high || [])]).filter((x) => x !== null);
    low = Math.min(low, 0, ...ends);
    high = Math.max(high, ...ends);
    if (high - low < 1e-9) high = low + 1;  // all of it 0: a clip that never clipped
    return [low < 0 ? low - 0.06 * (high - low) : 0, high + 0.06 * (high - low)];
  }

  /** Intervals of evaluations, the letters of runs at their ends, and the step whose samples are shown. */
  marks(u) {
    const { ctx } = u, dot = devicePixelRatio;
    ctx.save();
    this.chart.series.forEach((s, i) => {
      ctx.strokeStyle = ctx.fillStyle = studio.colour(this.chart.series.length > 1 ? RUNS[i] : this.chart.role);
      ctx.lineWidth = dot;
      s.low?.forEach((low, k) => {
        if (low === null || s.steps[k] < u.scales.x.min || s.steps[k] > u.scales.x.max) return;
        const x = u.valToPos(s.steps[k], "x", true);
        ctx.globalAlpha = 0.45;
        ctx.beginPath();
        ctx.moveTo(x, u.valToPos(low, "y", true));
        ctx.lineTo(x, u.valToPos(s.high[k], "y", true));
        ctx.stroke();
        ctx.globalAlpha = 1;
      });
    });
    if (this.chart.series.length > 1) this.letter(u, dot);
    const step = Number(document.getElementById("samples-body")?.dataset.step);
    if (step >= u.scales.x.min && step <= u.scales.x.max && !(this.chart.series.length > 1)) {
      ctx.strokeStyle = studio.colour("ghost");
      ctx.setLineDash([3 * dot, 3 * dot]);
      ctx.beginPath();
      ctx.moveTo(u.valToPos(step, "x", true), u.bbox.top);
      ctx.lineTo(u.valToPos(step, "x", true), u.bbox.top + u.bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** The letter of each run where its curve ends, one above the other where they would meet. */
  letter(u, dot) {
    const ends = this.chart.series.map((s, i) => ({ i, x: s.steps.at(-1), y: s.values.at(-1) }))
      .filter((end) => typeof end.y === "number" && end.x <= u.scales.x.max)
      .map((end) => ({ ...end, x: u.valToPos(end.x, "x", true) + 9 * dot, y: u.valToPos(end.y, "y", true) + 4 * dot }))
      .sort((a, b) => b.y - a.y);
    let above = Infinity;
    u.ctx.font = `600 ${12 * dot}px Inter, sans-serif`;
    for (const end of ends) {
      above = Math.min(end.y, above - 13 * dot);
      u.ctx.fillStyle = studio.colour(RUNS[end.i]);
      u.ctx.fillText(LETTERS[end.i], end.x, above);
    }
  }

  /** The numbers in the head: at the cursor, or the last ones. */
  read() {
    if (!this.plot) return;
    const { idx } = this.plot.cursor, parts = [];
    const hovered = idx !== null && idx !== undefined && this.plot.cursor.left >= 0;
    if (hovered) parts.push(element("span", `step ${this.plot.data[0][idx]}`, "at"));
    this.chart.series.forEach((s, i) => {
      const value = hovered ? this.plot.data[i + 1][idx] : s.values.at(-1);
      if (hovered && value === undefined) return;
      const part = element("span", this.words(value), "side", `run-${i}`);
      if (this.chart.series.length > 1) part.prepend(element("span", LETTERS[i], "letter"));
      parts.push(part);
    });
    this.now.replaceChildren(...parts);
    this.now.dataset.count = this.chart.series.map((s) => s.steps.length).join(" ");
    const [one] = this.chart.series;
    this.plotted.setAttribute("aria-label", `${this.chart.label} by step: ${this.words(one.values[0])} at step ${one.steps[0]}, ${this.words(one.values.at(-1))} at step ${one.steps.at(-1)}`);
  }

  /** Rows of a run from their first step on: a step that comes again, after a resume, replaces what stood there. */
  append(run, rows) {
    const s = this.chart.series.find((one) => one.run === run), name = this.chart.metric;
    const new_ = rows.filter((row) => row[name] !== undefined);
    if (!s || !new_.length) return;
    if (s.late) return (s.pending ??= []).push(...new_);
    let keep = s.steps.length;
    while (keep && s.steps[keep - 1] >= new_[0].step) keep--;
    for (const list of [s.steps, s.values, s.low, s.high]) if (list) list.length = keep;
    for (const row of new_) {
      s.steps.push(row.step);
      s.values.push(row[name]);
      const bar = row[`${name}_interval`];
      s.low?.push(bar ? bar[0] : null);
      s.high?.push(bar ? bar[1] : null);
    }
    if (!this.detail) this.plot?.setData(this.data());
    this.read();
  }

  /** The points of a chart in the drawer; what was logged while they were on their way comes after them. */
  fill(run, found) {
    const s = this.chart.series.find((one) => one.run === run);
    if (!s?.late) return;
    Object.assign(s, found?.series[0], { run, late: false });
    this.append(run, s.pending ?? []);
  }

  /** Zoomed into a curve that was thinned: the points in between are fetched; zoomed out: they go. */
  async zoomed(u) {
    const [first, last] = [u.data[0][0], u.data[0].at(-1)], { min, max } = u.scales.x;
    if (this.busy || !this.plot || studio.exported || this.chart.series.every((s) => s.whole)) return;
    const whole = this.chart.series.map((s) => [s.steps[0], s.steps.at(-1)]);
    const full = min <= Math.min(...whole.map((w) => w[0])) && max >= Math.max(...whole.map((w) => w[1]));
    if (full && !this.detail) return;
    this.busy = true;
    if (full) this.detail = null;
    else if (!this.detail || min < first || max > last || u.data[0].length < 800) {
      const wanted = { name: this.chart.name, from: Math.max(0, Math.floor(min)), to: Math.ceil(max) };
      this.detail = await Promise.all(this.chart.series.map(async (s) => {
        const answer = await studio.fetch(`/runs/-/curves?${new URLSearchParams({ ...wanted, run: s.run })}`);
        return (await answer.json())[this.chart.name];
      }));
    }
    u.batch(() => { u.setData(this.data(), false); u.setScale("x", { min, max }); });
    this.busy = false;
  }
}
LiveChart.all = new Set();
customElements.define("live-chart", LiveChart);
studio.onTheme(() => LiveChart.all.forEach((chart) => chart.plot && chart.draw()));

// the drawer of further curves: fetched and drawn when it is first opened
document.querySelector("details.drawer")?.addEventListener("toggle", async (event) => {
  const inside = [...event.target.querySelectorAll("live-chart")].filter((chart) => chart.chart && !chart.plot);
  if (inside.some((chart) => chart.chart.series.some((s) => s.late))) {
    for (const run of Object.keys(shown.runs)) {
      const answer = await studio.fetch(`/runs/-/curves?${new URLSearchParams({ run })}`), found = await answer.json();
      inside.forEach((chart) => chart.fill(run, found[chart.chart.name]));
    }
  }
  inside.forEach((chart) => chart.draw());
});

/** <token-strip>: one stop for the tab key; arrows move along the tokens; what is known of a token stands beneath. */
class TokenStrip extends HTMLElement {
  connectedCallback() {
    for (const kind of ["pointerover", "focusin"]) this.addEventListener(kind, (event) => this.say(event.target.closest(".tok")));
    this.addEventListener("keydown", (event) => {
      const all = [...this.querySelectorAll(".tok")], at = all.indexOf(document.activeElement);
      const to = { ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + 10, ArrowUp: at - 10, Home: 0, End: all.length - 1 }[event.key];
      if (to === undefined || at < 0) return;
      event.preventDefault();
      const next = all[Math.max(0, Math.min(all.length - 1, to))];
      all[at].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    this.enter();
  }

  /** The first token that was sampled is where the tab key enters. */
  enter() {
    if (this.querySelector('.tok[tabindex="0"]')) return;
    const first = this.querySelector(".tok:not(.given)") || this.querySelector(".tok");
    if (first) first.tabIndex = 0;
  }

  say(token) {
    if (!token) return;
    const place = [...this.querySelectorAll(".tok")].indexOf(token) + 1;
    const told = element("span", token.dataset.says);
    this.parentElement.querySelector(".readout").replaceChildren(
      element("span", `${place} `, "soft"), element("code", token.textContent), told);
  }
}
customElements.define("token-strip", TokenStrip);

// the scrubber
function turn(step) {
  const slider = document.getElementById("step");
  if (!slider || !Number.isFinite(step)) return;
  slider.value = step;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}
document.addEventListener("click", (event) => {
  const to = event.target.closest("[data-turn]")?.dataset.turn;
  const step = to ? document.getElementById("samples-body").dataset[to] : event.target.closest("[data-turn-to]")?.dataset.turnTo;
  if (step) turn(Number(step));
});

/** A run that is ill says so in the tab's title. */
function alarm() {
  const bad = document.getElementById("doctor")?.dataset.level === "bad", title = document.title.replace(/^! /, "");
  document.title = bad ? `! ${title}` : title;
}
alarm();
document.addEventListener("change", (event) => event.target.closest("[data-go]")?.requestSubmit());

document.addEventListener("htmx:after:swap", () => {
  live.open();  // what came may be alive
  alarm();
  document.querySelectorAll("token-strip").forEach((strip) => strip.enter());
  const body = document.getElementById("samples-body"), form = document.getElementById("samples");
  const plan = document.getElementById("plan");
  const address = body?.dataset.query ? `${form.getAttribute("action")}?${body.dataset.query}` : plan ? `/runs/new?${plan.dataset.query}` : null;
  if (body) LiveChart.all.forEach((chart) => chart.plot?.redraw(false));
  if (!address) return;
  clearTimeout(turn.later);  // browsers refuse a flood of replaceState
  turn.later = setTimeout(() => history.replaceState(history.state, "", address), 150);
});

/** One stream for the whole tab: closed when it is hidden, opened again where it was. */
const live = {
  source: null,

  open() {
    const list = document.querySelector("[data-signature]"), query = new URLSearchParams();
    for (const [run, at] of Object.entries(shown.runs)) query.append("watch", [run, ...at].join(":"));
    if (list) query.append("list", list.dataset.signature);
    if (document.hidden || this.source || !query.size || studio.exported) return;
    this.source = new EventSource(`/runs/-/live?${query}`);
    this.source.addEventListener("rows", (event) => this.rows(JSON.parse(event.data), event.lastEventId));
    this.source.addEventListener("doctor", (event) => this.doctor(JSON.parse(event.data)));
    this.source.addEventListener("progress", (event) => this.progress(JSON.parse(event.data)));
    this.source.addEventListener("list", (event) => this.list(JSON.parse(event.data)));
  },

  close() {
    this.source?.close();
    this.source = null;
  },

  rows(news, last) {
    for (const word of last.split(" ")) {
      const [run, ...at] = word.split(":");
      if (run in shown.runs) shown.runs[run] = at.map(Number);
    }
    if (news.reload) return location.reload();
    const strange = (rows, prefix) => rows.some((row) => Object.entries(row).some(
      ([key, x]) => key !== "step" && typeof x === "number" && !(prefix + key in shown.charts)));
    if (strange(news.metrics, "") || strange(news.evals, "evals/")) return location.reload();  // it needs another chart
    LiveChart.all.forEach((chart) => chart.append(news.run, news[chart.chart.log]));
    this.events(news.events);
    this.head(news);
    this.samples(news.samples);
  },

  /** How far the run is and how fast, in the server's words. */
  progress({ run, words }) {
    const head = document.getElementById("head");
    if (head?.dataset.run === run) head.querySelector(".progress").textContent = words;
  },

  /** What the doctor says now. */
  doctor({ run }) {
    if (document.getElementById("doctor")?.dataset.run !== run) return;
    htmx.ajax("GET", `/runs/-/doctor?run=${encodeURIComponent(run)}`, { target: "#doctor", swap: "outerMorph" });
  },

  /** The sentence about the run and its buttons, when its state is another; between, only the bar. */
  head(news) {
    const head = document.getElementById("head");
    if (!head) return;
    head.querySelector("progress")?.setAttribute("value", news.state.step);
    if (head.querySelector(".state").textContent === news.state.state) return;
    const run = encodeURIComponent(news.run);
    htmx.ajax("GET", `/runs/-/head?run=${run}`, { target: "#head", swap: "outerMorph" });
    if (document.getElementById("output")) htmx.ajax("GET", `/runs/-/output?run=${run}`, { target: "#output", swap: "outerMorph" });
  },

  events(rows) {
    const list = document.getElementById("events");
    for (const row of list ? rows : []) {
      const item = document.createElement("li");
      if (row.step !== null) item.append(element("span", `step ${row.step}`, "soft"), " ");
      item.append(element("strong", row.kind), ` ${row.text}`);
      list.append(item);
      document.getElementById("no-events").hidden = true;
    }
  },

  /** New samples: the scrubber grows; whoever stands at its end goes along. */
  samples(last) {
    const slider = document.getElementById("step");
    if (last === null || last === undefined) return;
    if (!slider) return document.querySelector("live-chart") && !document.querySelector(".sides") && location.reload();
    const follows = slider.value === slider.max && !slider.matches(":active");
    if (Number(slider.max) === last) return;
    slider.max = last;
    if (follows) turn(last);
  },

  list({ signature }) {
    for (const list of document.querySelectorAll("[data-signature]")) {
      if (list.hasAttribute("data-reload")) return location.reload();
      list.dataset.signature = signature;
      htmx.ajax("GET", list.dataset.refresh, { target: `#${list.id}`, swap: "outerMorph" });
    }
  },
};
document.addEventListener("visibilitychange", () => (document.hidden ? live.close() : live.open()));
addEventListener("pagehide", () => live.close());
addEventListener("pageshow", () => live.open());
