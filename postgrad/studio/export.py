"""The studio's pages as plain files, which open without a server:
whatever links lead to, with relative addresses.

The app itself is asked, in this process and without a port; so what is exported is what is served.
Templates see `exported`. Instruments and samples stay alive: what a moved control asks for is answered by
scripts, made of the same Python and templates (studio/script/).
With an engine (studio/engine) cells and exercises run in the pages as well.
Left out on purpose: what lives on a server (labelling, starting runs; cells, without an engine), of which a
page says what it needs, and whatever writes.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Coroutine, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from posixpath import relpath
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from markupsafe import escape
from starlette.types import ASGIApp

from postgrad.studio.app import create_studio
from postgrad.studio.engine.package import engine_scripts
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import STATIC, jinja_environment
from postgrad.studio.script import export_scripts
from postgrad.studio.security import COOKIE, EXPORT_POLICY

# autoescape leaves no quote in text, so these are attributes
LINK = re.compile(r'(\s)(href|src|action)="([^"]*)"')
WRITES = re.compile(r'<(form|button)\b[^>]*(?:\shx-(?:post|put|patch|delete)=|\smethod="post")[^>]*>.*?</\1>',
                    re.S | re.I)
RUNS = re.compile(r'\shx-post="/(?:cells/[\w-]+/run|exercises/[\w-]+/check)"')  # what an engine answers
HOST = "export"
STAYS = ("/start", "/runs/compare", "/runs/-")  # these need a server
NEEDS = {  # so do these: their place is taken by a sentence, and a link to what there is without one
    "/label": ("Label", "Labelling keeps each judgement on a disk and trains a reward model on it, so it "
                        "needs the studio on your own machine. Here you can try the",
               "/instruments/preference-labeller", "preference labeller"),
    "/lab": ("Lab", "A cell runs Python, so the lab needs the studio on your own machine. Here you can move "
                    "what its functions compute: the", "/instruments", "instruments"),
    "/runs/new": ("New run", "A training needs a processor and Python, so it is started from the studio on "
                             "your own machine. Here you can look at the", "/runs", "recorded runs"),
}
# what a reader has opened, and the pages of the book, stay readable without a connection
OFFLINE = """const NAME = "%(name)s", FIRST = %(files)s;
self.addEventListener("install", (event) => event.waitUntil((async () => {
  const kept = await caches.open(NAME);
  await Promise.all(FIRST.map((file) => kept.add(new Request(file, { cache: "reload" }))));
  await self.skipWaiting();
})()));
self.addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith("postgrad-") && name !== NAME);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
})()));
self.addEventListener("fetch", (event) => {
  if (event.request.method !== "GET" || new URL(event.request.url).origin !== self.location.origin) return;
  event.respondWith((async () => {
    const address = new URL(event.request.url);
    if (address.pathname.endsWith("/")) address.pathname += "index.html";
    address.hash = "";
    if (address.pathname.endsWith(".html")) address.search = "";
    const kept = await caches.open(NAME), found = await kept.match(address.href);
    if (found) return found;
    const answer = await fetch(event.request);
    if (answer.ok) await kept.put(address.href, answer.clone());
    return answer;
  })());
});
"""
T = TypeVar("T")
TOKEN = "an export asks itself, and nobody else"


async def get_from_app(app: ASGIApp, path: str, *,
                       headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """GET from an ASGI app without a port: (status, headers, body).

    `path` is taken as it is, already decoded.
    """
    path, _, query = path.partition("?")
    found: JsonDict = {"status": 0, "headers": {}, "body": b""}
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
             "scheme": "http", "path": path, "raw_path": quote(path).encode(), "query_string": query.encode(),
             "root_path": "", "server": (HOST, 80), "client": ("127.0.0.1", 1),
             "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()]}

    async def receive() -> JsonDict:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            found["status"] = message["status"]
            found["headers"] = {k.decode().lower(): v.decode() for k, v in message["headers"]}
        else:
            found["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return found["status"], found["headers"], found["body"]


def run_coroutine(work: Coroutine[object, object, T]) -> T:
    """The result of a coroutine, from a thread of its own: the caller may have an event loop already."""
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(asyncio.run, work).result()


def lies_below(path: str) -> Callable[[str], bool]:
    return lambda above: path == above or path.startswith(f"{above}/")


def exported_file(address: str, engine: bool = False) -> str | None:
    """The file of an address: / -> index.html, /runs/a?step=3 -> runs/a/index.html;
    None for what is not exported."""
    path = unquote(urlsplit(address).path)
    if path.startswith("/static/"):
        return path[1:]
    if any(map(lies_below(path), STAYS)) or {"..", "."} & set(path.split("/")) or "\0" in path:
        return None
    path = next(filter(lies_below(path), needs_server(engine)), path)
    return f"{path.strip('/')}/index.html".lstrip("/")


def needs_server(engine: bool) -> list[str]:
    """The addresses that need a server; with an engine the lab does not."""
    return [address for address in NEEDS if not (engine and address == "/lab")]


def with_relative_links(text: str, file: str, known: set[str], engine: bool = False) -> str:
    """The page with addresses relative to its own file; a link to what is not there stays as
    words without a link."""
    def turn(match: re.Match[str]) -> str:
        space, name, address = match[1], match[2], unescape(match[3])
        if not address.startswith("/"):
            return match[0]
        target = exported_file(address, engine)
        if target is None or (target not in known and not target.startswith("static/")):
            return ""
        parts = urlsplit(address)
        state = f"?{parts.query}" if parts.query and not target.startswith("static/") else ""
        mark = f"#{parts.fragment}" if parts.fragment else ""
        goal = quote(relpath(target, os.path.dirname(file))) + state + mark
        return f'{space}{name}="{escape(goal)}"'

    def still(match: re.Match[str]) -> str:
        return match[0] if engine and RUNS.search(match[0].partition(">")[0]) else ""

    return LINK.sub(turn, WRITES.sub(still, text))


def needs_server_page(address: str) -> str:
    """The page of what cannot be without a server: one sentence."""
    title, sentence, link, words = NEEDS[address]
    return jinja_environment().get_template("needs.html").render(
        title=title, sentence=sentence, link=link, words=words, path=address, exported=True, nonce="",
        policy=EXPORT_POLICY, engine=False, theme="")


async def crawl_pages(app: ASGIApp, engine: bool = False) -> tuple[dict[str, str], list[str]]:
    """file -> page, for every page that links lead to from the first one; and the addresses that did not
    answer with a page."""
    headers = {"host": HOST, "cookie": f"{COOKIE}={TOKEN}", "x-postgrad-export": "1",
               "x-postgrad-engine": str(int(engine))}
    pages = {str(exported_file(address)): needs_server_page(address) for address in needs_server(engine)}
    lost, waiting, seen = [], ["/"], {"index.html", *pages}
    while waiting:
        address = waiting.pop(0)
        status, kind, body = await get_from_app(app, unquote(address), headers=headers)
        if status != 200 or not kind.get("content-type", "").startswith("text/html"):
            lost.append(f"{address} ({status})")
            continue
        text = pages[str(exported_file(address, engine))] = body.decode()
        for _, _, link in LINK.findall(text):
            target = urlsplit(unescape(link))
            path, elsewhere = target.path, target.scheme or target.netloc
            file = exported_file(path, engine) if path.startswith("/") and not elsewhere else None
            if file and not file.startswith("static/") and file not in seen:
                seen.add(file)
                waiting.append(path)
    return pages, lost


def offline_script(written: dict[str, str]) -> str:
    """The service worker of a site that is served: pages and what they load are kept, the engine once it was
    asked for."""
    files = {name: text.encode() for name, text in written.items()} | {
        f"static/{p.relative_to(STATIC).as_posix()}": p.read_bytes()
        for p in STATIC.rglob("*") if p.is_file()}
    content = hashlib.sha256(b"".join(files[name] for name in sorted(files))).hexdigest()[:12]
    at_once = [name for name in sorted(files) if not name.startswith(("static/engine/", "reference/"))]
    return OFFLINE % {"name": f"postgrad-{content}", "files": json.dumps(at_once)}


def export_site(folder: Path, *, runs: Path, store: Path | None = None,
                engine: Path | None = None) -> JsonDict:
    """Write the pages into a new or empty folder; -> {"pages", "bytes", "lost": addresses without a page}.
    engine: the package `pyodide`, with which the pages run cells and exercises."""
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder} exists and is not an empty folder: choose another, or move "
                         "that away first.")
    python, runs_code = engine_scripts(engine) if engine else {}, engine is not None
    pages, lost = run_coroutine(crawl_pages(create_studio(runs=runs, token=TOKEN, hosts=(HOST,),
                                                          store=store), runs_code))
    shutil.copytree(STATIC, folder / "static", dirs_exist_ok=True)
    written = {f"static/alive/{name}": text for name, text in export_scripts(engine=runs_code).items()}
    written |= {f"static/engine/{name}": text for name, text in python.items()}
    written |= {file: with_relative_links(text, file, set(pages), runs_code) for file, text in pages.items()}
    written["offline.js"] = offline_script(written)
    for file, text in written.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, encoding="utf-8")
    return {"pages": len(pages), "lost": lost,
            "bytes": sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())}
