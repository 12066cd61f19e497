"""`postgrad studio`: the web app on this machine, or the same pages as files."""

from __future__ import annotations

import socket
import sys
import threading
import webbrowser
from pathlib import Path

from postgrad.cli.output import say_json
from postgrad.system.sockets import LOOPBACK, bind, is_loopback, keep_token, origin, token_file

PORT = 8765


def studio(args) -> int:
    words = args.words
    if words[:1] == ["export"]:
        if len(words) != 2:
            raise ValueError("postgrad studio export takes one folder: postgrad studio export "
                             "site [--runs runs]")
        return export(args, Path(words[1]))
    if len(words) > 1:
        raise ValueError(f"postgrad studio takes one folder of runs, not {len(words)}: {' '.join(words)}")
    return serve(args, Path(words[0] if words else args.runs))


def export(args, folder: Path) -> int:
    from postgrad.studio.export import export_site as write
    found = write(folder, runs=Path(args.runs), store=Path(args.store))
    if args.json:
        return say_json(found)
    print(f"{found['pages']} pages, {found['bytes'] / 1e6:.1f} MB: open {folder / 'index.html'}")
    if found["lost"]:
        print(f"without a page: {', '.join(found['lost'])}", file=sys.stderr)
    return 0


def serve(args, runs: Path) -> int:
    import uvicorn

    from postgrad.studio.app import create_studio
    from postgrad.studio.security import start_url
    sock = bind(args.host, args.port, PORT)
    host, port = args.host, sock.getsockname()[1]
    loopback = is_loopback(host)
    token = keep_token(token_file("studio"))
    names = LOOPBACK if loopback else (*LOOPBACK, host, socket.gethostname())
    app = create_studio(runs=runs, token=token, hosts=names, store=Path(args.store), loopback=loopback)
    url = start_url(origin(host, port), token)
    if args.json:
        say_json({"url": url, "runs": str(runs), "port": port})
    else:
        print(f"postgrad studio on {runs}: open\n  {url}\nCtrl-C ends it; trainings started from it go on.",
              flush=True)
    if not loopback:
        print(f"Anybody who can reach {host} and knows this address can use it; starting runs and cells "
              "is switched off.",
              file=sys.stderr)
    if not args.no_open and not args.json:
        webbrowser.open(url)
    later = threading.Timer(1.0, warm)
    later.daemon = True
    later.start()
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False,
                            timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[sock])
    return 0


def warm() -> None:
    """torch is imported, every instrument computed once and every template compiled while the first page is
    being read: the first slider need not wait. One thread: a slider's sums are small, and a training beside
    it needs the cores."""
    import torch

    from postgrad.studio.instruments import INSTRUMENTS, first
    from postgrad.studio.pages import jinja_environment
    torch.set_num_threads(1)
    for instrument in INSTRUMENTS.values():
        first(instrument)
    for name in jinja_environment().list_templates():
        jinja_environment().get_template(name)
