"""`postgrad studio` and `serve`: the web app, and a model by OpenAI's protocol."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import STORE, Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.options import DEVICE, MODEL, TEMPLATE
from postgrad.system.settings import COUNT, NOT_NEGATIVE, POSITIVE, Range, setting

STUDIO_PORT, API_PORT = 8765, 8000


@dataclass(frozen=True, kw_only=True)
class StudioOptions(CommandOptions):
    words: list[str] = setting([], "the folder of runs (default: runs), or `export` and what to write: a "
                               "folder, or the book as FILE.epub or FILE.pdf", metavar="RUNS | export PATH",
                               positional=True)
    runs: str = setting("runs", "the folder of runs, for export", metavar="FOLDER")
    engine: str | None = setting(None, "for export: the package `pyodide`, a folder or .tgz, with which "
                                 "cells and exercises run in the pages (`npm pack pyodide`)",
                                 metavar="FILE")
    store: str = setting(STORE, "the preference store", metavar="FILE")
    port: int | None = setting(None, "default: 8765, or any free port if that is taken")
    host: str = setting("127.0.0.1", "address to listen on; by default only this machine can connect")
    no_open: bool = setting(False, "do not open a browser")


def run_studio(options: StudioOptions) -> None:
    words = options.words
    if words[:1] == ["export"]:
        if len(words) != 2:
            raise ValueError("postgrad studio export takes one folder or file: postgrad studio export "
                             "site [--runs runs]")
        path = Path(words[1])
        return (export_book if path.suffix in (".epub", ".pdf") else export_studio)(options, path)
    if len(words) > 1:
        raise ValueError(f"postgrad studio takes one folder of runs, not {len(words)}: {' '.join(words)}")
    return serve_studio(options, Path(words[0] if words else options.runs))


def export_studio(options: StudioOptions, folder: Path) -> None:
    from postgrad.studio.export import export_site
    written = export_site(folder, runs=Path(options.runs), store=Path(options.store),
                          engine=Path(options.engine) if options.engine else None)
    if options.json:
        return print_json(written)
    print(f"{written['pages']} pages, {written['bytes'] / 1e6:.1f} MB: open {folder / 'index.html'}")
    if not options.engine:
        print("Without --engine, cells and exercises are shown and do not run.", file=sys.stderr)
    if written["lost"]:
        print(f"without a page: {', '.join(written['lost'])}", file=sys.stderr)
    return None


def export_book(options: StudioOptions, path: Path) -> None:
    from postgrad.studio.editions import write_epub, write_pdf
    written = (write_epub if path.suffix == ".epub" else write_pdf)(path, runs=Path(options.runs))
    if options.json:
        return print_json(written)
    print(f"{written['pages']} pages of the book, {written['bytes'] / 1e6:.1f} MB: {path}")
    return None


def serve_studio(options: StudioOptions, runs: Path) -> None:
    import threading
    import webbrowser
    from socket import gethostname

    from postgrad.studio.app import create_studio
    from postgrad.studio.security import start_url
    from postgrad.system.gc_tuning import seldom_collected
    from postgrad.system.sockets import LOOPBACK, bind, is_loopback, keep_token, origin, token_file
    from postgrad.system.web_server import http_server
    sock = bind(options.host, options.port, STUDIO_PORT)
    host, port = options.host, sock.getsockname()[1]
    loopback = is_loopback(host)
    token = keep_token(token_file("studio"))
    names = LOOPBACK if loopback else (*LOOPBACK, host, gethostname())
    app = create_studio(runs=runs, token=token, hosts=names, store=Path(options.store), loopback=loopback)
    url = start_url(origin(host, port), token)
    if options.json:
        print_json({"url": url, "runs": str(runs), "port": port})
    else:
        print(f"postgrad studio on {runs}: open\n  {url}\nCtrl-C ends it; trainings started from it go on.",
              flush=True)
    if not loopback:
        print(f"Anybody who can reach {host} and knows this address can use it; starting runs and cells "
              "is switched off.", file=sys.stderr)
    if not options.no_open and not options.json:
        webbrowser.open(url)
    timer = threading.Timer(1.0, warm_studio)
    timer.daemon = True
    timer.start()
    with seldom_collected():
        http_server(app).run(sockets=[sock])


def warm_studio() -> None:
    """Imports torch, computes every instrument once and compiles every template, so that the first slider
    does not wait. One thread: a training may need the cores."""
    import gc

    import torch

    from postgrad.studio.instruments import INSTRUMENTS
    from postgrad.studio.instruments.web import first_numbers
    from postgrad.studio.pages import jinja_environment
    torch.set_num_threads(1)
    for instrument in INSTRUMENTS.values():
        first_numbers(instrument)
    for name in jinja_environment().list_templates():
        jinja_environment().get_template(name)
    gc.freeze()  # torch stays: a collection over all of it takes longer than a page


# serve

@dataclass(frozen=True, kw_only=True)
class ServeOptions(CommandOptions):
    model: str = setting(about=f"{MODEL}; of a run, the newest checkpoint while it trains; of a folder of "
                         "weights that a training writes for its samplers, the newest",
                         metavar="MODEL|RUN", positional=True)
    name: str | None = setting(None, "name of the model for clients; default: its own")
    rows: int = setting(16, "replies sampled at once", within=COUNT, metavar="N")
    context: int = setting(2048, "the most tokens of a prompt and its reply together, within the model's own "
                           "limit", within=Range("at least 2", lambda x: x >= 2), metavar="N")
    queue: int = setting(256, "requests that may wait; more are refused", within=NOT_NEGATIVE,
                         metavar="N")
    port: int | None = setting(None, "default: 8000, or any free port if that is taken")
    host: str = setting("127.0.0.1", "address to listen on; by default only this machine can connect, others "
                        "need a token")
    record: str | None = setting(None, "save the exact tokens and log-probs of every chat, a file for each "
                                 "X-Session-ID or API key", metavar="FOLDER")
    every: float = setting(2.0, "seconds between checks for a newer checkpoint", within=POSITIVE,
                           metavar="SECONDS")
    template: str | None = setting(None, TEMPLATE[0], metavar="NAME|FILE")
    fronts: int | None = setting(None, "processes that serve HTTP; 0: this one alone. Default: 0 on a CPU "
                                 "and with --record, up to 4 on a GPU", within=NOT_NEGATIVE, metavar="N")
    tinker: bool = setting(False, "train the model over the Tinker protocol too, whose SDK takes the address "
                           "as its base_url (pip install 'postgrad[tinker]')")
    runs: str = setting("runs", "where the training runs of --tinker go", metavar="FOLDER")
    device: str = setting("cpu", DEVICE)


def run_serve(options: ServeOptions) -> None:
    from postgrad.recipes.serve import default_fronts, open_served, serve_opened
    from postgrad.system.sockets import bind, is_loopback, keep_token, origin, token_file
    if options.record and options.fronts:
        raise ValueError(f"--record keeps all chats in one process: leave --fronts {options.fronts} out.")
    fronts = default_fronts(options.device) if options.fronts is None else options.fronts
    if options.tinker and options.fronts:
        raise ValueError(f"--tinker trains in the process that serves: leave --fronts {options.fronts} out.")
    fronts = 0 if options.record or options.tinker else fronts
    sock = bind(options.host, options.port, API_PORT, shared=fronts > 0)
    token = None if is_loopback(options.host) else keep_token(token_file("serve"))
    if token and options.tinker:
        token = f"tml-{token}"  # what its SDK takes for a key
    opened = open_served(
        options.model, name=options.name, rows=options.rows, context=options.context, queue=options.queue,
        record=options.record, every=options.every, device=options.device, template=options.template,
        tinker_runs=options.runs if options.tinker else None)
    address = origin(options.host, sock.getsockname()[1])
    url = f"{address}/v1"

    def ready() -> None:
        if options.json:
            print_json({"url": url, "model": opened.served.name, "token": token,
                        "follows": opened.source is not None, "context": opened.served.context,
                        "rows": options.rows, "tinker": address if options.tinker else None})
        else:
            print_address(url, opened.served.name, token, opened.source is not None, options.host,
                          address if options.tinker else None)

    serve_opened(opened, sock, token, fronts, ready)


def print_address(url: str, name: str, token: str | None, follows: bool, host: str,
                  tinker: str | None) -> None:
    follow = ", following its newest weights" if follows else ""
    key = f"\n  api_key  {token}" if token else ""
    train = f"\n  tinker   base_url={tinker}, any api_key that begins with tml-" if tinker else ""
    print(f"postgrad serves {name}{follow}\n  base_url {url}\n  model    {name}{key}{train}\n"
          "Ctrl-C ends it.", flush=True)
    if token:
        print(f"Anybody who can reach {host} and has the key can use it; it goes over the network as "
              "it is.", file=sys.stderr)


COMMANDS = (
    Command("studio", "open the studio in the browser: runs, preference labelling, instruments and the book",
            StudioOptions, run_studio,
            "postgrad studio export DIR [--runs FOLDER] writes a static site: the book with its search, "
            "the instruments, and the runs with every step. Cells, labelling and new runs need the server."),
    Command("serve", "serve a model, or a run while it trains, over OpenAI's protocol",
            ServeOptions, run_serve, """\
examples:
  postgrad serve tiny-chat             then: OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
  postgrad serve runs/grpo-words-1     a run, at its newest checkpoint while it trains; RUN@best: its best
  postgrad serve tiny-chat --record kept   save the exact tokens of every chat"""),
)
