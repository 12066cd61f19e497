// The worker of a page that runs Python. Before it stand, in one file, `createPyodideModule` and `loadPyodide` (studio/engine/package.py).
// It has no address to load from and may ask no server: Pyodide's requests are answered from what the page hands over.
let run = null;

async function begin({ module, stdlib, library, memory, info }) {
  const compiled = WebAssembly.instantiateStreaming;
  WebAssembly.instantiateStreaming = async (_, imports) => ({ module, instance: await WebAssembly.instantiate(module, imports) });
  self.fetch = async (url) => new Response(String(url).endsWith(".zip") ? stdlib : null);
  const python = await loadPyodide({
    createPyodideModule, indexURL: "https://engine.invalid/", lockFileContents: { info, packages: {} }, _loadSnapshot: memory,
  });
  WebAssembly.instantiateStreaming = compiled;
  python.unpackArchive(library, "zip", { extractDir: "/library" });  // its memory has the modules, not the files that they came from
  python.runPython("from postgrad.studio.engine.run import wake; wake()");
  run = python.globals.get("run_in_page");
}

self.onmessage = async ({ data }) => {
  if (run) return self.postMessage({ number: data.number, answer: JSON.parse(run(data.job)) });
  try {
    await begin(data);
    self.postMessage({ ready: true });
  } catch (fault) {
    self.postMessage({ fault: String(fault) });
  }
};
