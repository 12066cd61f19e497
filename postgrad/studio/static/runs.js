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

/** How the curves of the page are drawn; kept in this browser. x: step, tokens or time; smooth: the weight of what came before. */
const view = { x: "step", smooth: 0, log: false, pins: [], ...JSON.parse(localStorage.getItem("curves") ?? "{}") };
const AXES = { tokens: (x) => `${brief(x >= 1e6 ? x / 1e6 : x >= 1e3 ? x / 1e3 : x)}${x >= 1e6 ? "M" : x >= 1e3 ? "k" : ""} tokens`,
               time: (x) => (x < 90 ? `${brief(x)} s` : x < 5400 ? `${brief(x / 60)} min` : `${brief(x / 3600)} h`), step: (x) => `step ${x}` };

/** The place of a step on the x axis, by the run's sums of tokens and seconds; between two known steps on a line. */
function place(run, step) {
  const axis = shown.axes?.[run], sums = axis?.[view.x];
  if (view.x === "step" || !sums) return step;
  let low = 0, high = axis.steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (axis.steps[middle] > step) high = middle; else low = middle;
  }
  const [a, b] = [axis.steps[low], axis.steps[high]];
  return a === b ? sums[low] : sums[low] + (sums[high] - sums[low]) * Math.min(1, Math.max(0, (step - a) / (b - a)));
}

/** The moving mean of a curve: each value has the weight 1 - smooth. Gaps stay. */
function smoothed(values, before = null) {
  let mean = before;
  return values.map((v) => (v === null ? null : (mean = mean === null ? v : view.smooth * mean + (1 - view.smooth) * v)));
}

function download(name, what) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(what);
  link.download = name.replace(/[^\w.@-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** <live-chart name="reward">: one metric of one run, or of several, drawn by uPlot. Rows are appended; nothing is smoothed unless asked for. */
class LiveChart extends HTMLElement {
  connectedCallback() {
    this.chart = shown.charts[this.getAttribute("name")];
    if (!this.chart) return;
    this.home ??= this.parentElement;
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
    this.plot = null;
    LiveChart.all.delete(this);
  }

  fit() {
    const width = this.plotted.clientWidth, height = this.plotted.clientHeight;
    if (this.plot && width && (width !== this.plot.width || height !== this.plot.height)) this.plot.setSize({ width, height });
  }

  /** x and the values of every run; where it is smoothed, the smoothed values after them. */
  data() {
    const series = this.detail || this.chart.series, runs = this.chart.series;
    const seen = (list) => (view.log ? list.map((v) => (v > 0 ? v : null)) : list);
    const tables = series.map((s, i) => [s.steps.map((step) => place(runs[i].run, step)), seen(s.values)]);
    if (view.smooth) {
      series.forEach((s, i) => {
        const soft = this.detail ? null : runs[i].soft;
        tables.push(soft ? [soft.steps.map((step) => place(runs[i].run, step)), seen(soft.values)] : [tables[i][0], seen(smoothed(s.values))]);
      });
    }
    return tables.length > 1 ? uPlot.join(tables) : tables[0];
  }

  draw() {
    this.plot?.destroy();
    const { series, role } = this.chart, several = series.length > 1;
    const ink = studio.colour("soft"), rule = studio.colour("rule"), faint = studio.colour("ghost");
    const axis = { stroke: ink, font: "11px Inter, sans-serif", ticks: { show: false }, values: (_, at) => at.map(brief) };
    const upward = (_, at) => at.map((x) => (x === null ? "" : this.words(x)));
    const onward = (_, at) => at.map((x) => (view.x === "step" ? brief(x) : AXES[view.x](x).replace(" tokens", "")));
    const line = (one, i) => ({
      stroke: studio.colour(several ? RUNS[i] : role), width: 1.6, spanGaps: false,
      points: { show: (u) => one.steps.length < 2 || one.low !== undefined && !one.band || one.steps.length * 14 < u.width, size: 5 },
    });
    const raw = (one, i) => (view.smooth ? { ...line(one, i), stroke: several ? studio.colour(RUNS[i]) : faint, alpha: several ? 0.25 : 1, width: 1, points: { show: false } } : line(one, i));
    this.plot = new uPlot({
      width: this.plotted.clientWidth || 300, height: this.plotted.clientHeight || 150,
      padding: [10, several ? 24 : 8, 0, 0], legend: { show: false },
      cursor: { sync: { key: "runs", scales: ["x", null] }, drag: { x: true, y: false, dist: 6 }, points: { size: 7 } },
      scales: { x: { time: false }, y: view.log ? { distr: 3, range: (_, low, high) => (low > 0 ? uPlot.rangeLog(low, high, 10, false) : [0.1, 1]) } : { range: (_, low, high) => this.range(low, high) } },
      axes: [
        { ...axis, values: onward, grid: { show: false }, size: 24, gap: 4, space: 60, ...(view.x === "step" ? { incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6] } : {}) },
        { ...axis, values: upward, grid: { stroke: rule, width: 1 }, size: 48, gap: 6, space: 34 },
      ],
      series: [{}, ...series.map(raw), ...(view.smooth ? series.map((one, i) => ({ ...line(one, i), spanGaps: true, points: { show: false } })) : [])],
      hooks: {
        draw: [(u) => this.marks(u)],
        setCursor: [() => this.read()],
        setScale: [(u, key) => key === "x" && this.zoomed(u)],
      },
    }, this.data(), this.plotted);
    this.plot.over.addEventListener("click", () => {
      if (this.plot.select.width < 6 && this.plot.cursor.idx !== null) turn(this.stepAt(this.plot.cursor.idx));
    });
    this.read();
  }

  /** Drawn as the page's controls now say; a long curve is smoothed by the server, over every step. */
  async redraw() {
    for (const s of this.chart.series) {
      const far = view.smooth && !s.whole && !s.late && !studio.exported && !s.band;
      s.soft = null;
      if (!far) continue;
      const asked = { run: s.run, name: this.chart.name, from: 0, to: 1e12, smooth: view.smooth };
      const answer = await studio.fetch(`/runs/-/curves?${new URLSearchParams(asked)}`);
      s.soft = (await answer.json())[this.chart.name];
    }
    this.detail = null;
    if (this.plot) this.draw();
  }

  /** The step of a point that is drawn. */
  stepAt(index) {
    const x = this.plot.data[0][index];
    if (view.x === "step") return x;
    const [s] = this.detail || this.chart.series, { run } = this.chart.series[0];
    return s.steps.reduce((best, step) => (Math.abs(place(run, step) - x) < Math.abs(place(run, best) - x) ? step : best), s.steps[0]);
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

  /** Intervals of evaluations, bands of seeds, the letters of runs at their ends, and the step whose samples are shown. */
  marks(u) {
    const { ctx } = u, dot = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    ctx.save();
    ctx.clip();
    this.chart.series.forEach((s, i) => {
      const x = (k) => u.valToPos(place(s.run, s.steps[k]), "x", true), y = (v) => u.valToPos(view.log ? Math.max(v, 1e-12) : v, "y", true);
      ctx.strokeStyle = ctx.fillStyle = studio.colour(this.chart.series.length > 1 ? RUNS[i] : this.chart.role);
      ctx.lineWidth = dot;
      if (s.band) {
        ctx.globalAlpha = 0.16;
        ctx.beginPath();
        s.steps.forEach((_, k) => ctx.lineTo(x(k), y(s.high[k] ?? s.values[k])));
        for (let k = s.steps.length - 1; k >= 0; k--) ctx.lineTo(x(k), y(s.low[k] ?? s.values[k]));
        ctx.fill();
        ctx.globalAlpha = 1;
        return;
      }
      s.low?.forEach((low, k) => {
        if (low === null) return;
        ctx.globalAlpha = 0.45;
        ctx.beginPath();
        ctx.moveTo(x(k), y(low));
        ctx.lineTo(x(k), y(s.high[k]));
        ctx.stroke();
        ctx.globalAlpha = 1;
      });
    });
    ctx.restore();
    if (this.chart.series.length > 1) this.letter(u, dot);
    const step = Number(document.getElementById("samples-body")?.dataset.step);
    const at = place(this.chart.series[0].run, step);
    if (at >= u.scales.x.min && at <= u.scales.x.max && !(this.chart.series.length > 1)) {
      ctx.strokeStyle = studio.colour("ghost");
      ctx.setLineDash([3 * dot, 3 * dot]);
      ctx.beginPath();
      ctx.moveTo(u.valToPos(at, "x", true), u.bbox.top);
      ctx.lineTo(u.valToPos(at, "x", true), u.bbox.top + u.bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** The letter of each run where its curve ends, one above the other where they would meet. */
  letter(u, dot) {
    const ends = this.chart.series.map((s, i) => ({ i, x: place(s.run, s.steps.at(-1)), y: s.values.at(-1) }))
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
    if (hovered) parts.push(element("span", AXES[view.x](this.plot.data[0][idx]), "at"));
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
    this.plotted.setAttribute("aria-label", `${this.chart.label} by ${view.x}: ${this.words(one.values[0])} at step ${one.steps[0]}, ${this.words(one.values.at(-1))} at step ${one.steps.at(-1)}`);
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
    if (s.soft) {
      let old = s.soft.steps.length;
      while (old && s.soft.steps[old - 1] >= new_[0].step) old--;
      s.soft.steps.length = s.soft.values.length = old;
      s.soft.steps.push(...new_.map((row) => row.step));
      s.soft.values.push(...smoothed(new_.map((row) => row[name]), s.soft.values.at(-1) ?? null));
    }
    if (!this.detail) this.plot?.setData(this.data());
    this.read();
  }

  /** The points of a chart in the drawer; what was logged while they were on their way comes after them. */
  fill(found) {
    for (const one of found) {
      const s = this.chart.series.find(({ run }) => run === one.run);
      if (!s?.late) continue;
      Object.assign(s, one, { late: false });
      this.append(s.run, s.pending ?? []);
    }
  }

  /** Zoomed into a curve that was thinned: the points in between are fetched; zoomed out: they go. */
  async zoomed(u) {
    const [first, last] = [u.data[0][0], u.data[0].at(-1)], { min, max } = u.scales.x;
    if (this.busy || !this.plot || studio.exported || view.x !== "step" || this.chart.series.every((s) => s.whole || s.band)) return;
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

  /** On top of the page, in this browser, until it is taken down. */
  async pin(on) {
    if (this.chart.series.some((s) => s.late)) await fillLate([this]);
    const top = document.getElementById("pinned");
    (on ? top : this.home).append(this);
    top.hidden = !top.children.length;
    this.querySelector("[data-act=pin]")?.setAttribute("aria-pressed", on);
    view.pins = [...view.pins.filter((name) => name !== this.chart.name), ...(on ? [this.chart.name] : [])];
    keepView();
  }

  /** The picture as it stands, on paper, with its name above. */
  picture() {
    const from = this.plot.ctx.canvas, dot = devicePixelRatio, head = 34 * dot, canvas = document.createElement("canvas");
    canvas.width = from.width;
    canvas.height = from.height + head;
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = studio.colour("paper");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.fillStyle = studio.colour("ink");
    ctx.font = `600 ${14 * dot}px Inter, sans-serif`;
    ctx.fillText(`${this.chart.label}${this.chart.unit ? `, ${this.chart.unit}` : ""}   ${Object.keys(shown.runs).join(", ")}`, 8 * dot, 22 * dot);
    ctx.drawImage(from, 0, head);
    canvas.toBlob((blob) => download(`${Object.keys(shown.runs).join("-")}-${this.chart.name}.png`, blob));
  }
}
LiveChart.all = new Set();

function keepView() {
  try {
    localStorage.setItem("curves", JSON.stringify(view));
  } catch { /* a browser that keeps nothing */ }
}
customElements.define("live-chart", LiveChart);
studio.onTheme(() => LiveChart.all.forEach((chart) => chart.plot && chart.draw()));

/** The points of charts that came without them. */
async function fillLate(charts) {
  if (!charts.some((chart) => chart.chart.series.some((s) => s.late))) return;
  const asked = shown.seeds ? [[["seeds", 1], ...shown.seeds.map((run) => ["run", run])]] : Object.keys(shown.runs).map((run) => [["run", run]]);
  for (const query of asked) {
    const answer = await studio.fetch(`/runs/-/curves?${new URLSearchParams(query)}`), found = await answer.json();
    charts.forEach((chart) => chart.fill(found[chart.chart.name]?.series ?? [{ run: query[0][1] }]));
  }
}

// the drawer of further curves: fetched and drawn when it is first opened
document.querySelector("details.drawer")?.addEventListener("toggle", async (event) => {
  const inside = [...event.target.querySelectorAll("live-chart")].filter((chart) => chart.chart && !chart.plot);
  await fillLate(inside);
  inside.forEach((chart) => chart.redraw().then(() => chart.plot || chart.draw()));
});

// the controls of all curves
const tools = document.getElementById("curve-tools");
if (tools) {
  const sums = Object.values(shown.axes ?? {});
  for (const option of tools.elements.x.options) option.disabled = option.value !== "step" && !(sums.length && sums.every((axis) => axis[option.value]));
  if ([...tools.elements.x.options].find((option) => option.value === view.x)?.disabled !== false) view.x = "step";
  tools.elements.x.value = view.x;
  tools.elements.smooth.value = view.smooth;
  tools.elements.log.checked = view.log;
  tools.addEventListener("input", ({ target }) => {
    const words = tools.elements.find.value.toLowerCase().split(/\s+/).filter(Boolean), drawer = document.querySelector("details.drawer");
    if (target.name === "find") {
      const fits = (chart) => words.every((word) => `${chart.chart?.name} ${chart.chart?.label}`.toLowerCase().includes(word));
      const all = [...document.querySelectorAll("live-chart")];
      all.forEach((chart) => { chart.hidden = !fits(chart); });
      if (drawer) drawer.open = words.length > 0 && all.some((chart) => !chart.hidden && drawer.contains(chart));
      document.getElementById("none-found").hidden = all.some((chart) => !chart.hidden);
      return;
    }
    Object.assign(view, { x: tools.elements.x.value, smooth: Number(tools.elements.smooth.value), log: tools.elements.log.checked });
    keepView();
    clearTimeout(tools.later);
    tools.later = setTimeout(() => LiveChart.all.forEach((chart) => chart.plot && chart.redraw()), target.type === "range" ? 60 : 0);
  });
  if (view.smooth) LiveChart.all.forEach((chart) => chart.plot && chart.redraw());
  view.pins.forEach((name) => [...LiveChart.all].find((chart) => chart.chart.name === name)?.pin(true));
}
document.addEventListener("click", (event) => {
  const act = event.target.closest("live-chart [data-act]"), chart = act?.closest("live-chart");
  if (!chart?.chart) return;
  if (act.dataset.act === "pin") chart.pin(act.getAttribute("aria-pressed") !== "true");
  if (act.dataset.act === "png") chart.picture();
  if (act.dataset.act === "full") document.fullscreenElement ? document.exitFullscreen() : chart.requestFullscreen();
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

/** The fields of a new run that the plan's sentence is about are marked, and come into sight. */
function markFaults() {
  const plan = document.getElementById("plan"), faults = JSON.parse(plan?.dataset.faults ?? "{}");
  for (const input of document.querySelectorAll("#settings :is(input, select):not([type=hidden])")) {
    const bad = input.name in faults, field = input.closest(".field");
    bad ? input.setAttribute("aria-invalid", "true") : input.removeAttribute("aria-invalid");
    field.classList.toggle("faulty", bad);
    field.querySelector(".fault")?.remove();
    if (!bad) continue;
    field.append(element("p", faults[input.name], "fault"));
    const folded = field.closest("details:not([open])");
    if (folded) folded.open = true;
  }
}
markFaults();

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
  markFaults();
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
    this.axis(news);
    LiveChart.all.forEach((chart) => chart.append(news.run, news[chart.chart.log]));
    this.events(news.events);
    this.head(news);
    this.samples(news.samples);
  },

  /** The sums of tokens and seconds go on with the rows. */
  axis({ run, metrics }) {
    const axis = shown.axes?.[run];
    if (!axis || !metrics.length) return;
    let keep = axis.steps.length;
    while (keep && axis.steps[keep - 1] >= metrics[0].step) keep--;
    for (const list of [axis.steps, axis.tokens, axis.time]) if (list) list.length = keep;
    for (const row of metrics) {
      axis.steps.push(row.step);
      axis.tokens?.push((axis.tokens.at(-1) ?? 0) + (row.tokens ?? 0));
      axis.time?.push((axis.time.at(-1) ?? 0) + (row["time/step"] ?? 0));
    }
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
