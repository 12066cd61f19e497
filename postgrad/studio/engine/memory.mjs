// Starts Pyodide of a folder in Node, imports the library and writes Python's memory to FOLDER/memory (package.py).
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, info] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")));
const python = await loadPyodide({
  _makeSnapshot: true, indexURL: folder, lockFileContents: { info: JSON.parse(info), packages: {} }, env: { PYTHONHASHSEED: "0" },
});
python.unpackArchive(new Uint8Array(readFileSync(join(folder, "library.zip"))), "zip", { extractDir: "/library" });
python.runPython(`import sys
sys.path.insert(0, "/library")
from postgrad.studio.engine.run import import_all, run_in_page
import_all("/library")`);
writeFileSync(join(folder, "memory"), python.makeMemorySnapshot());
