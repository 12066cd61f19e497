"""`postgrad studio`: the web app on this machine, or the same pages as files."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from postgrad.cli.options import STORE, Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.settings import setting

PORT = 8765


@dataclass(frozen=True, kw_only=True)
class StudioOptions(CommandOptions):
    words: list[str] = setting([], "the folder of runs (without it: runs), or `export` and a folder to write",
                               metavar="RUNS | export DIR", positional=True)
    runs: str = setting("runs", "the runs, for export", metavar="FOLDER")
    store: str = setting(STORE, "the preferences", metavar="FILE")
    port: int | None = setting(None, "without it: 8765, or any free one where that is taken")
    host: str = setting("127.0.0.1", "who can reach it; by default this machine alone")
    no_open: bool = setting(False, "don't open a browser")


def run_studio(options: StudioOptions) -> None:
    words = options.words
    if words[:1] == ["export"]:
        if len(words) != 2:
            raise ValueError("postgrad studio export takes one folder: postgrad studio export "
                             "site [--runs runs]")
        return export_studio(options, Path(words[1]))
    if len(words) > 1:
        raise ValueError(f"postgrad studio takes one folder of runs, not {len(words)}: {' '.join(words)}")
    return serve_studio(options, Path(words[0] if words else options.runs))


def export_studio(options: StudioOptions, folder: Path) -> None:
    from postgrad.studio.export import export_site
    written = export_site(folder, runs=Path(options.runs), store=Path(options.store))
    if options.json:
        return print_json(written)
    print(f"{written['pages']} pages, {written['bytes'] / 1e6:.1f} MB: open {folder / 'index.html'}")
    if written["lost"]:
        print(f"without a page: {', '.join(written['lost'])}", file=sys.stderr)
    return None


def serve_studio(options: StudioOptions, runs: Path) -> None:
    import socket
    import threading
    import webbrowser

    import uvicorn

    from postgrad.studio.app import create_studio
    from postgrad.studio.security import start_url
    from postgrad.system.sockets import LOOPBACK, bind, is_loopback, keep_token, origin, token_file
    sock = bind(options.host, options.port, PORT)
    host, port = options.host, sock.getsockname()[1]
    loopback = is_loopback(host)
    token = keep_token(token_file("studio"))
    names = LOOPBACK if loopback else (*LOOPBACK, host, socket.gethostname())
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
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False,
                            timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[sock])


def warm_studio() -> None:
    """Imports torch, computes every instrument once and compiles every template, so that the first slider
    does not wait. One thread: a training may need the cores."""
    import torch

    from postgrad.studio.instruments import INSTRUMENTS
    from postgrad.studio.instruments.web import first_numbers
    from postgrad.studio.pages import jinja_environment
    torch.set_num_threads(1)
    for instrument in INSTRUMENTS.values():
        first_numbers(instrument)
    for name in jinja_environment().list_templates():
        jinja_environment().get_template(name)


COMMAND = Command("studio", "see every run, label preferences and touch the mathematics, in the browser",
                  StudioOptions, run_studio,
                  "postgrad studio export DIR [--runs FOLDER] writes the same pages as files that open "
                  "without a server and can be published as they are: the book with its search, instruments "
                  "that answer in the page, and the runs with every step. Cells, labelling and new runs say "
                  "what they need.")
