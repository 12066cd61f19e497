"""`postgrad serve`: a model, or the newest checkpoint of a run, for programs that speak OpenAI's protocol."""

from __future__ import annotations

import sys
from pathlib import Path

from postgrad.cli.options import ServeOptions, made
from postgrad.cli.output import say_json
from postgrad.system.sockets import bind, is_loopback, keep_token, origin, token_file

PORT = 8000
OFTEN = 0.05  # seconds between two looks into a folder of weights, for which a training waits


def serve(args) -> int:
    import uvicorn

    from postgrad.resolve.handles import begins_with
    from postgrad.resolve.models import open_folder, open_writer, run_named
    from postgrad.resolve.weights import is_weights_folder, shown_in
    from postgrad.serving.app import create_app
    from postgrad.serving.follow import Checkpoints, Pushed
    from postgrad.serving.record import Recorder
    from postgrad.serving.served import Served
    made(ServeOptions, args)  # checks itself
    sock = bind(args.host, args.port, PORT)
    pushed = is_weights_folder(args.model)
    run = None if pushed else run_named(args.model)
    folder = shown_in(args.model)[0] if pushed else open_folder(args.model)
    folder = begins_with(folder) if pushed and not folder.is_dir() else folder
    model, chat = open_writer(folder, args.device)
    training = Pushed(args.model, args.device, folder.name) if pushed else None
    weights = training.begin(model) if training else None
    step = weights.step if weights else int(folder.name) if run and folder.name.isdecimal() else 0
    context = min(args.context, model.config.max_position_embeddings)
    name = args.name or (Path(args.model).resolve().name if run or Path(args.model).exists() else args.model)
    served = Served.of(model.requires_grad_(False), chat, name, rows=args.rows, context=context,
                       waiting=args.queue, version=step)
    served.recorder = Recorder(args.record, chat) if args.record else None
    newer = training or (Checkpoints(run[0], args.device, step) if run and run[1] is None else None)
    served.weights = weights.name if weights else ""
    token = None if is_loopback(args.host) else keep_token(token_file("serve"))
    every = min(args.every, OFTEN) if weights else args.every
    app = create_app(served, token=token, newer=newer, every=every)
    url = f"{origin(args.host, sock.getsockname()[1])}/v1"
    say(args, url, name, token, newer is not None, context)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False,
                            timeout_graceful_shutdown=1, h11_max_incomplete_event_size=2**16)
    uvicorn.Server(config).run(sockets=[sock])
    return 0


def say(args, url: str, name: str, token: str | None, follows: bool, context: int) -> None:
    """Where it is, and how to ask."""
    if args.json:
        return say_json({"url": url, "model": name, "token": token, "follows": follows, "context": context,
                         "rows": args.rows})
    words = ", following its newest weights" if follows else ""
    print(f"postgrad serves {name}{words}\n  base_url {url}\n  model    {name}", flush=True)
    if token:
        print(f"  api_key  {token}", flush=True)
    print("Ctrl-C ends it.", flush=True)
    if token:
        print(f"Anybody who can reach {args.host} and has the key can use it; it goes over the network as "
              "it is.", file=sys.stderr)
    return None
