"""`postgrad chat`: one question to a model, or the same question to several, side by side."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.options import DEVICE, MODEL, TEMPLATE
from postgrad.system.settings import setting

if TYPE_CHECKING:
    from rich.table import Table

    from postgrad.recipes.chat_session import ChatReply, ChatSession, Problem
    from postgrad.resolve.stages import ModelStage

MOST = 8  # models at once
WIDE, COLUMN = 100, 30  # columns of a terminal for panels side by side: at all, and of each model
HELP = """\
/new           forget the conversation (--turns)
/system TEXT   a system message; none without TEXT
/temp 0.7      the temperature; 0 is greedy
/problem 3     ask the third test problem of the task (--task)
/help          this; an empty line or Ctrl-D leaves, Ctrl-C stops a reply"""


@dataclass(frozen=True, kw_only=True)
class ChatOptions(CommandOptions):
    model: list[str] = setting(about=f"{MODEL}; or a folder of runs", metavar="MODEL", positional=True)
    stages: bool = setting(False, "every stage of a run: the base model, the runs between, the run")
    steps: str | None = setting(None, "checkpoints of a run at these steps; 0 is the model it began with",
                                metavar="N,N")
    prompt: str | None = setting(None, "ask one question and exit")
    task: str | None = setting(None, "a task whose verifier judges the replies, and whose tools answer calls",
                               metavar="NAME|FILE")
    problem: int | None = setting(None, "ask the N-th test problem of the task and exit", metavar="N")
    system: str | None = setting(None, "a system message")
    template: str | None = setting(None, TEMPLATE[0], metavar="NAME|FILE")
    turns: bool = setting(False, "multi-turn conversation (the embedded models are trained on single turns)")
    samples: int = setting(1, "replies of each model", metavar="N")
    temperature: float | None = setting(None, "0 is greedy; default: 0, and 1 with --samples")
    top_k: int = setting(0, "sample from the k likeliest tokens; 0: all")
    top_p: float = setting(1.0, "nucleus sampling: the likeliest tokens with this total probability")
    min_p: float = setting(0.0, "tokens at least this fraction as likely as the likeliest")
    stop: list[str] = setting([], r"a text that ends a reply, e.g. '\n'", metavar="TEXT")
    max_new_tokens: int = setting(128, "the most tokens of a reply")
    seed: int = setting(0, "random seed of the sampling")
    device: str = setting("cpu", DEVICE)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1 or self.samples > 1 and (self.turns or self.temperature == 0):
            raise ValueError(f"--samples {self.samples}: expected 1 or more, without --turns (which one "
                             "would be remembered?) and with a temperature above 0 (else all are the same).")
        if self.problem is not None and self.prompt is not None:
            raise ValueError("--problem asks a question of the task's, --prompt one of yours: name "
                             "one of the two.")


def run_chat(options: ChatOptions) -> int:
    session = start_session(options)
    if options.problem is not None:
        return 0 if ask_problem(session, options.problem, options.json) else 130
    if options.prompt is not None:
        return 0 if ask_models(session, options.prompt, quiet=options.json) else 130
    return converse(session, options.json)


def start_session(options: ChatOptions) -> ChatSession:
    from postgrad.recipes.chat_session import open_session
    temperature = options.temperature if options.temperature is not None else float(options.samples > 1)
    return open_session(chat_models(options), max_new_tokens=options.max_new_tokens, temperature=temperature,
                        top_k=options.top_k, top_p=options.top_p, min_p=options.min_p,
                        stop=tuple(text.replace("\\n", "\n") for text in options.stop), task=options.task,
                        system=options.system, samples=options.samples, turns=options.turns,
                        seed=options.seed, device=options.device, template=options.template)


def chat_models(options: ChatOptions) -> list[ModelStage]:
    """The models that the command line means: each by itself, by its steps, or with all that led to it."""
    from postgrad.resolve.models import is_run, runs_in_folder
    from postgrad.resolve.stages import ModelStage, model_stages
    models: list[ModelStage] = []
    for name in options.model:
        if options.steps:
            if not is_run(name):
                raise ValueError(f"--steps names checkpoints of a run, and {name} is none.")
            models += [ModelStage("", f"{name}@{step.strip()}") for step in options.steps.split(",")]
        elif options.stages or runs_in_folder(name):
            led_to, passed = model_stages(name)
            models += led_to
            for why in passed:
                print(f"({why})", file=sys.stderr)
        else:
            models.append(ModelStage("", name))
    if len(models) > MOST:
        raise ValueError(f"{len(models)} models at once are too many to compare: name up to {MOST} of them, "
                         f"e.g. postgrad chat {' '.join(stage.name for stage in models[-2:])}.")
    return models


def ask_models(session: ChatSession, question: str, problem: Problem | None = None, *,
               quiet: bool = False) -> bool:
    """One question to every model, its replies shown as they come; False where Ctrl-C broke it off."""
    rows = session.replies(question, problem)
    finished = True
    try:
        show_replies(session, rows, quiet)
    except KeyboardInterrupt:
        finished = False
        if not quiet:
            print(" (stopped)")
    session.remember(rows)
    if quiet:
        print_json({"prompt": question,
                    "replies": [reply.as_json() for column in zip(*rows, strict=True) for reply in column]})
    return finished


def ask_problem(session: ChatSession, number: int, quiet: bool) -> bool:
    from postgrad.runs.display import clean
    problem = session.problem(number)
    if not quiet:
        gold = f"  (answer: {problem.answer})" if isinstance(problem.answer, str | int | float) else ""
        print(clean(f"{problem.question}{gold}\n"))
    return ask_models(session, problem.question, problem, quiet=quiet)


def converse(session: ChatSession, quiet: bool) -> int:
    """Questions from the terminal or a pipe, one a line; in a terminal a line such as /help is a command."""
    interactive = sys.stdin.isatty()
    if interactive:
        with suppress(ImportError):
            import readline  # noqa: F401  (arrow keys and history, where there are any)
        memory = ("The conversation goes on" if session.turns
                  else "Each question stands alone (--turns keeps the conversation)")
        print(f"{', '.join(model.heading for model in session.models)}\n"
              f"{memory}. /help; an empty line or Ctrl-D leaves.")
    while True:
        try:
            line = input("> " if interactive else "").strip()
        except (EOFError, KeyboardInterrupt):
            line = ""
        if not line:
            return 0
        try:
            finished = (chat_command(session, line, quiet) if interactive and line.startswith("/")
                        else ask_models(session, line, quiet=quiet))
        except ValueError as error:  # in a terminal the next question may do better
            if not interactive:
                raise
            print(f"postgrad: {error}", file=sys.stderr)
            continue
        if not interactive and not finished:
            return 130


def chat_command(session: ChatSession, line: str, quiet: bool) -> bool:
    """A line such as /temp 0.7."""
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    if name == "/problem":
        if not rest.isdecimal():
            raise ValueError(f"{rest!r} is no whole number: expected e.g. /problem 3.")
        return ask_problem(session, int(rest), quiet)
    if name == "/new":
        for model in session.models:
            model.turns.clear()
        print("(all is forgotten)")
    elif name == "/system":
        session.system = rest or None
        print(f"(system message: {session.system or 'none'})")
    elif name == "/temp":
        try:
            session.settings = replace(session.settings, temperature=float(rest))
        except ValueError as error:
            raise ValueError(f"{line}: expected a temperature of 0 or more, e.g. /temp 0.7.") from error
        print(f"(temperature {session.settings.temperature:g})")
    elif name == "/help":
        print(HELP)
    else:
        raise ValueError(f"there is no {name} here: /help lists what there is.")
    return True


# replies as they are sampled

def show_replies(session: ChatSession, rows: list[list[ChatReply]], quiet: bool) -> None:
    """Samples the replies, [sample][model], and prints them token by token."""
    from postgrad.runs.display import is_terminal
    wide = get_terminal_size().columns >= max(WIDE, COLUMN * len(session.models))
    if quiet:
        for reply in (reply for row in rows for reply in row):
            for _ in session.sample(reply):
                pass
    elif is_terminal(sys.stdout) and len(session.models) > 1 and wide:
        show_panels(session, rows)
    else:
        show_lines(session, rows)


def show_lines(session: ChatSession, rows: list[list[ChatReply]]) -> None:
    """One below another, with headings where there are several."""
    from postgrad.runs.display import clean
    for column in zip(*rows, strict=True):
        for i, reply in enumerate(column, 1):
            if len(session.models) * session.samples > 1:
                print(f"--- {clean(reply.model.heading)}"
                      + (f" ({i} of {session.samples})" if session.samples > 1 else ""))
            for piece in session.sample(reply):
                print(clean(piece), end="", flush=True)
            print("".join(f"\n{line}" for line in reply_notes(session, reply)))


def show_panels(session: ChatSession, rows: list[list[ChatReply]]) -> None:
    """Side by side, token by token: all models sample at the same time."""
    from rich.console import Console
    from rich.live import Live

    with Live(get_renderable=partial(panels, session, rows), console=Console(), refresh_per_second=12):
        for row in rows:
            sampling = [session.sample(reply) for reply in row]
            while sampling:
                sampling = [pieces for pieces in sampling if next(pieces, None) is not None]


def panels(session: ChatSession, rows: list[list[ChatReply]]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from postgrad.runs.display import clean
    grid = Table(box=SIMPLE_HEAD, expand=True, show_edge=False, show_lines=session.samples > 1,
                 padding=(0, 2, 0, 0))
    for model in session.models:
        grid.add_column(Text(clean(model.heading), style="bold"), ratio=1, overflow="fold")
    for row in rows:
        grid.add_row(*(Text("\n").join([
            Text(clean(reply.transcript)),
            *(Text(line, style=verdict_colour(reply) if line.startswith("score") else "dim")
              for line in reply_notes(session, reply)),
        ]) for reply in row))
    return grid


def verdict_colour(reply: ChatReply) -> str:
    return "green" if reply.verdict is not None and reply.verdict.score > 0 else "red"


def reply_notes(session: ChatSession, reply: ChatReply) -> list[str]:
    """The lines below a reply: whether it was cut, and its verdict."""
    from postgrad.runs.display import clean
    notes = ([f"(cut at {session.settings.max_new_tokens} tokens: --max-new-tokens)"]
             if reply.ended == "length" else [])
    if verdict := reply.verdict:
        notes.append(clean(f"not judged: {verdict.error}" if verdict.error
                           else f"score {verdict.score:g}: {verdict.reason}").replace("\n", " "))
    return notes


COMMANDS = (Command("chat", "talk to a model, or to several side by side", ChatOptions, run_chat, """\
examples:
  postgrad chat tiny-chat                           one question a line
  postgrad chat runs/demo                           base, SFT and RL side by side, on the same question
  postgrad chat runs/demo --task words --problem 3  ... on a test problem, each reply with its verdict
  postgrad chat runs/grpo-words-1 --steps 0,best    a run's checkpoints; RUN@best names one of them"""),)
