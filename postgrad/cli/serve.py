"""`postgrad serve`: a model, or the newest checkpoint of a run, by OpenAI's protocol."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.options import DEVICE, MODEL
from postgrad.system.settings import COUNT, NOT_NEGATIVE, POSITIVE, Range, setting

PORT = 8000


@dataclass(frozen=True, kw_only=True)
class ServeOptions(CommandOptions):
    model: str = setting(about=f"{MODEL}; a run is followed to its newest checkpoint, and a folder of "
                         "weights that a training leaves for its samplers to the newest of them",
                         metavar="MODEL|RUN", positional=True)
    name: str | None = setting(None, "what clients call it; without it: its own name")
    rows: int = setting(16, "replies that are written at once", within=COUNT, metavar="N")
    context: int = setting(2048, "the most tokens of a prompt and its reply together; the model's own limit "
                           "holds too", within=Range("at least 2", lambda x: x >= 2), metavar="N")
    queue: int = setting(256, "replies that may wait for their turn; more are refused", within=NOT_NEGATIVE,
                         metavar="N")
    port: int | None = setting(None, "without it: 8000, or any free one where that is taken")
    host: str = setting("127.0.0.1", "who can reach it; by default this machine alone, others need a token")
    record: str | None = setting(None, "keep the exact tokens and log-probs of every chat, a file for each "
                                 "client's X-Session-ID or key", metavar="FOLDER")
    every: float = setting(2.0, "seconds between two looks for a newer checkpoint", within=POSITIVE,
                           metavar="SECONDS")
    device: str = setting("cpu", DEVICE)


def run_serve(options: ServeOptions) -> None:
    import uvicorn

    from postgrad.recipes.serve import serve_model
    from postgrad.system.sockets import bind, is_loopback, keep_token, origin, token_file
    sock = bind(options.host, options.port, PORT)
    token = None if is_loopback(options.host) else keep_token(token_file("serve"))
    app, name, context, follows = serve_model(
        options.model, name=options.name, rows=options.rows, context=options.context, queue=options.queue,
        record=options.record, every=options.every, device=options.device, token=token)
    url = f"{origin(options.host, sock.getsockname()[1])}/v1"
    if options.json:
        print_json({"url": url, "model": name, "token": token, "follows": follows, "context": context,
                    "rows": options.rows})
    else:
        print_address(url, name, token, follows, options.host)
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False,
                            timeout_graceful_shutdown=1, h11_max_incomplete_event_size=2**16)
    uvicorn.Server(config).run(sockets=[sock])


def print_address(url: str, name: str, token: str | None, follows: bool, host: str) -> None:
    follow = ", following its newest weights" if follows else ""
    key = f"\n  api_key  {token}" if token else ""
    print(f"postgrad serves {name}{follow}\n  base_url {url}\n  model    {name}{key}\nCtrl-C ends it.",
          flush=True)
    if token:
        print(f"Anybody who can reach {host} and has the key can use it; it goes over the network as "
              "it is.", file=sys.stderr)


COMMAND = Command("serve", "a model or a running training for other programs, by OpenAI's protocol",
                  ServeOptions, run_serve, """\
examples:
  postgrad serve tiny-chat             then: OpenAI(base_url="http://127.0.0.1:8000/v1", api_key="none")
  postgrad serve runs/grpo-words-1     a run, at its newest checkpoint while it trains; RUN@20: one step
  postgrad serve tiny-chat --record kept   the exact tokens of every chat, by conversation""")
