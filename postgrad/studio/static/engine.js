// Cells and exercises of an export: Python in a worker of this page (studio/engine). What the forms ask for is answered here, with the
// templates of the server. The engine's files are scripts, for a page that was opened from a folder may not fetch; they come when the
// first run asks for them.
"use strict";

const engine = (() => {
  const here = document.currentScript.src, files = {}, pages = { cells: {}, exercises: {} };
  let loading = null, worker = null, ready = null, queue = Promise.resolve(), count = 0;

  const script = (name) => new Promise((done, failed) => {
    const element = Object.assign(document.createElement("script"), { src: new URL(`engine/${name}`, here), onload: done });
    element.onerror = () => failed(new Error(`${name} could not be loaded`));
    document.head.append(element);
  });
  const escaped = [0, 10, 13, 34, 92];  // the characters for which 0x80 and on stand (package.py)

  /** The bytes of a text with seven bits a character. */
  function bytes(text) {
    const out = new Uint8Array(Math.floor(text.length * 7 / 8));
    for (let i = 0, at = 0, held = 0, bits = 0; i < text.length; i += 1) {
      const code = text.charCodeAt(i);
      held = (held << 7 | (code < 0x80 ? code : escaped[code - 0x80])) & 0x3fff;
      bits += 7;
      if (bits >= 8) out[at++] = held >> (bits -= 8);
    }
    return out;
  }
  const unzipped = (text) => new Blob([bytes(text)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const opened = async (text) => new Uint8Array(await new Response(unzipped(text)).arrayBuffer());

  /** The files of the engine, unpacked once for this page. */
  async function load() {
    await Promise.all([script("python.js"), script("library.js")]);
    const wasm = new Response(unzipped(files.wasm), { headers: { "Content-Type": "application/wasm" } });
    const [module, source, stdlib, memory, library] = await Promise.all([
      WebAssembly.compileStreaming(wasm), ...["worker", "stdlib", "memory", "library"].map((name) => opened(files[name]))]);
    const loaded = { module, stdlib, memory, library, info: files.info, source: URL.createObjectURL(new Blob([source], { type: "text/javascript" })) };
    for (const name of Object.keys(files)) delete files[name];
    return loaded;
  }

  /** A worker that is ready for a job. */
  async function start() {
    loading ??= load().catch((fault) => { loading = null; throw fault; });
    const { source, ...given } = await loading;
    const made = new Worker(source);
    await new Promise((done, failed) => {
      made.onmessage = ({ data }) => data.ready ? done() : failed(new Error(data.fault));
      made.onerror = (event) => failed(new Error(event.message || "the worker did not start"));
      made.postMessage(given);
    });
    return worker = made;
  }
  const warm = () => ready ??= start().catch((fault) => { ready = null; throw fault; });

  /** What a job came to; one at a time, and none for longer than the limit. */
  function run(job) {
    const mine = queue.then(async () => {
      const at = await warm(), number = count += 1;
      return new Promise((done) => {
        const stop = (fault) => {
          at.terminate();
          ready = null;
          done({ rows: [{ fault }], output: "", seconds: own.limit });
          warm().catch(() => {});
        };
        const late = setTimeout(stop, 1000 * own.limit, `stopped after ${own.limit} seconds: an endless loop?`);
        at.onmessage = ({ data }) => { if (data.number === number) { clearTimeout(late); done(data.answer); } };
        at.onerror = (event) => { clearTimeout(late); stop(`the page's Python ended (${event.message})`); };
        at.postMessage({ number, job: JSON.stringify(job) });
      });
    });
    queue = mine.catch(() => {});
    return mine;
  }

  /** Whether this reader has solved an exercise, here. */
  const solved = (name, now) => {
    const kept = JSON.parse(localStorage.getItem("exercises") || "[]");
    if (now && !kept.includes(name)) localStorage.setItem("exercises", JSON.stringify([...kept, name]));
    return now || kept.includes(name);
  };

  async function cell(name, source) {
    const { module, names, source: original } = pages.cells[name];
    const { rows, output, seconds } = await run({ cell: name, module, names, source });
    const fault = rows.find((row) => row.fault)?.fault ?? "";
    const checks = Object.fromEntries(rows.filter((row) => "check" in row).map((row) => [row.check, [row.ok, row.message]]));
    const result = { checks, output, seconds, fault, plots: rows.filter((row) => row.plot).map((row) => row.plot) };
    return pages.result({ cell: pages.cells[name], result, edited: source.trim() !== original.trim() }).text;
  }

  async function exercise(name, source) {
    const { rows, output } = await run({ exercise: name, source });
    const end = rows.find((row) => row.fault)?.fault ?? "";
    const verdict = rows.find((row) => row.verdict)?.verdict
      ?? { passed: false, says: `The answer did not come to its end: ${end}${/[.?!]$/.test(end) ? "" : "."}`, example: "", checks: [] };
    return pages.verdict({ exercise: pages.exercises[name], verdict: { ...verdict, output }, solved: solved(name, verdict.passed) }).text;
  }

  /** No Python: said where the answer would stand. */
  const failed = (kind, name, says) => (kind === "cells"
    ? pages.result({ cell: pages.cells[name], result: { checks: {}, output: "", seconds: 0, fault: says, plots: [] }, edited: false })
    : pages.verdict({ exercise: pages.exercises[name], verdict: { passed: false, says, example: "", checks: [], output: "" }, solved: false })).text;

  /** The answer to a form, or null where it is not for us. */
  async function answer(url, fields) {
    const [, kind, name] = /\/(cells|exercises)\/([^/]+)\/(?:run|check)$/.exec(new URL(url, "http://here/").pathname) ?? [];
    if (!kind || !pages[kind]?.[name]) return null;
    const form = document.getElementById(`cell-${name}`), source = String(fields.get("source") ?? "").replaceAll("\r\n", "\n");
    const says = form?.querySelector("[data-engine]");
    if (says && !worker) says.textContent = "loading Python …";
    form?.setAttribute("aria-busy", "true");
    try {
      await warm();
      if (says) says.textContent = "running …";
      return await (kind === "cells" ? cell : exercise)(name, source);
    } catch (fault) {
      return failed(kind, name, `Python did not start in this browser: ${fault.message}.`);
    } finally {
      form?.removeAttribute("aria-busy");
      if (says) says.textContent = "";
    }
  }

  const own = { files, pages, answer, warm, run, limit: 20, get ready() { return worker !== null; } };  // limit: seconds of a run
  return own;
})();
