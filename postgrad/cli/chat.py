"""`postgrad chat`: one question to a model, or the same question to several, side by side.

Left out on purpose: how a name becomes a model (`opening.models`) and what led to it (`opening.stages`).
"""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from functools import partial
from shutil import get_terminal_size

from postgrad.cli.output import say_json
from postgrad.cli.voices import Reply, Session, Voice
from postgrad.runs.display import clean, is_terminal

WIDE, COLUMN = 100, 30  # side by side in a terminal of so many columns, each model with so many of its own
MOST = 8                # models at once
HELP = """\
/new           forget what was said (--turns)
/system TEXT   a system message; none without TEXT
/temp 0.7      the temperature; 0 is greedy
/problem 3     ask the third test problem of the task (--task)
/help          this; an empty line or Ctrl-D leaves, Ctrl-C stops a reply"""


def answer(session: Session, question: str, problem=None, *, quiet: bool = False) -> bool:
    """One question to every model, written out as it comes; False where Ctrl-C broke it off."""
    rows = session.replies(question, problem)
    width = get_terminal_size().columns
    beside = (is_terminal(sys.stdout) and len(session.voices) > 1
              and width >= max(WIDE, COLUMN * len(session.voices)))
    whole = True
    try:
        (in_silence if quiet else in_columns if beside else in_lines)(session, rows)
    except KeyboardInterrupt:
        whole = False
        if not quiet:
            print(" (stopped)")
    session.keep(rows)
    if quiet:
        say_json({"prompt": question,
                  "replies": [reply.said() for column in zip(*rows, strict=True) for reply in column]})
    return whole


def in_silence(session: Session, rows: list[list[Reply]]) -> None:
    for row in rows:
        for reply in row:
            for _ in session.write(reply):
                pass


def in_lines(session: Session, rows: list[list[Reply]]) -> None:
    """One under another, with a heading where there are several."""
    for column in zip(*rows, strict=True):
        for i, reply in enumerate(column, 1):
            if len(session.voices) * session.samples > 1:
                print(f"--- {clean(reply.voice.heading)}"
                      + (f" ({i} of {session.samples})" if session.samples > 1 else ""))
            for piece in session.write(reply):
                print(clean(piece), end="", flush=True)
            print("".join(f"\n{line}" for line in remarks(session, reply)))


def in_columns(session: Session, rows: list[list[Reply]]) -> None:
    """Side by side, token by token: all write at the same time."""
    from rich.console import Console
    from rich.live import Live

    with Live(get_renderable=partial(picture, session, rows), console=Console(), refresh_per_second=12):
        for row in rows:
            writing = [session.write(reply) for reply in row]
            while writing:
                writing = [pieces for pieces in writing if next(pieces, None) is not None]


def picture(session: Session, rows: list[list[Reply]]):
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=SIMPLE_HEAD, expand=True, show_edge=False, show_lines=session.samples > 1,
                 padding=(0, 2, 0, 0))
    for voice in session.voices:
        grid.add_column(Text(clean(voice.heading), style="bold"), ratio=1, overflow="fold")
    for row in rows:
        grid.add_row(*(Text("\n").join([
            Text(clean(reply.whole)),
            *(Text(line, style=colour(reply) if line.startswith("score") else "dim")
              for line in remarks(session, reply)),
        ]) for reply in row))
    return grid


def colour(reply: Reply) -> str:
    return "green" if reply.verdict.score > 0 else "red"


def remarks(session: Session, reply: Reply) -> list[str]:
    """What is to be said below a reply: that it was cut, and how it was judged."""
    said = ([f"(cut at {session.settings.max_new_tokens} tokens: --max-new-tokens)"]
            if reply.ended == "length" else [])
    if verdict := reply.verdict:
        said.append(clean(f"not judged: {verdict.error}" if verdict.error
                          else f"score {verdict.score:g}: {verdict.reason}").replace("\n", " "))
    return said


def converse(session: Session, quiet: bool) -> int:
    """Questions from the terminal or a pipe, one a line; in a terminal /words are commands."""
    asking = sys.stdin.isatty()
    if asking:
        with suppress(ImportError):
            import readline  # noqa: F401  (arrow keys and history, where there are any)
        kept = ("The conversation goes on" if session.turns
                else "Each question stands alone (--turns keeps the conversation)")
        print(f"{', '.join(v.heading for v in session.voices)}\n"
              f"{kept}. /help; an empty line or Ctrl-D leaves.")
    while True:
        try:
            line = input("> " if asking else "").strip()
        except (EOFError, KeyboardInterrupt):
            line = ""
        if not line:
            return 0
        try:
            whole = (command(session, line, quiet) if asking and line.startswith("/")
                     else answer(session, line, quiet=quiet))
        except ValueError as error:  # in a terminal the next question may do better
            if not asking:
                raise
            print(f"postgrad: {error}", file=sys.stderr)
            continue
        if not asking and not whole:
            return 130


def command(session: Session, line: str, quiet: bool) -> bool:
    """A line such as /temp 0.7."""
    word, _, rest = line.partition(" ")
    rest = rest.strip()
    if word == "/problem":
        return answer_problem(session, whole_number(rest, "/problem 3"), quiet)
    if word == "/new":
        for voice in session.voices:
            voice.turns.clear()
        print("(all is forgotten)")
    elif word == "/system":
        session.system = rest or None
        print(f"(system message: {session.system or 'none'})")
    elif word == "/temp":
        try:
            session.settings = replace(session.settings, temperature=float(rest))
        except ValueError as error:
            raise ValueError(f"{line}: expected a temperature of 0 or more, e.g. /temp 0.7.") from error
        print(f"(temperature {session.settings.temperature:g})")
    elif word == "/help":
        print(HELP)
    else:
        raise ValueError(f"there is no {word} here: /help lists what there is.")
    return True


def whole_number(text: str, example: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is no whole number: expected e.g. {example}.")
    return int(text)


def answer_problem(session: Session, number: int, quiet: bool) -> bool:
    problem = session.problem(number)
    if not quiet:
        gold = f"  (answer: {problem.answer})" if isinstance(problem.answer, str | int | float) else ""
        print(clean(f"{problem.question}{gold}\n"))
    return answer(session, problem.question, problem, quiet=quiet)


def named(args) -> list:
    """The models that the command line means: each by itself, by its steps, or with all that led to it."""
    from postgrad.resolve.models import is_run, runs_in
    from postgrad.resolve.stages import Stage, stages
    found = []
    for name in args.model:
        if args.steps:
            if not is_run(name):
                raise ValueError(f"--steps names checkpoints of a run, and {name} is none.")
            found += [Stage("", f"{name}@{step.strip()}") for step in args.steps.split(",")]
        elif args.stages or runs_in(name):
            more, passed = stages(name)
            found += more
            for why in passed:
                print(f"({why})", file=sys.stderr)
        else:
            found.append(Stage("", name))
    if len(found) > MOST:
        raise ValueError(f"{len(found)} models at once are too many to compare: name up to {MOST} of them, "
                         f"e.g. postgrad chat {' '.join(s.name for s in found[-2:])}.")
    return found


def open_session(args) -> Session:
    from postgrad.data.tasks import load_task
    from postgrad.resolve.models import open_writer
    from postgrad.sampling import LocalSampler, Sampling
    if args.samples < 1 or args.samples > 1 and (args.turns or args.temperature == 0):
        raise ValueError(f"--samples {args.samples}: expected 1 or more, without --turns (which one would be "
                         "remembered?) and with a temperature above 0 (else all are the same).")
    if args.problem is not None and args.prompt is not None:
        raise ValueError("--problem asks a question of the task's, --prompt one of yours: name "
                         "one of the two.")
    temperature = args.temperature if args.temperature is not None else float(args.samples > 1)
    settings = Sampling(max_new_tokens=args.max_new_tokens, temperature=temperature, top_k=args.top_k,
                        top_p=args.top_p, min_p=args.min_p,
                        stop=tuple(text.replace("\\n", "\n") for text in args.stop))
    task = load_task(args.task) if args.task else None
    voices = [Voice(stage.name, stage.made_by, LocalSampler(*open_writer(stage.name, args.device)))
              for stage in named(args)]
    return Session(voices, settings, task=task, system=args.system, samples=args.samples, turns=args.turns,
                   seed=args.seed)


def chat(args) -> int:
    session = open_session(args)
    if args.problem is not None:
        return 0 if answer_problem(session, args.problem, args.json) else 130
    if args.prompt is not None:
        return 0 if answer(session, args.prompt, quiet=args.json) else 130
    return converse(session, args.json)
