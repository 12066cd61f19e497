"""Run folders that are not what they seem: links, pipes, endless files, wrong types, damaged JSON."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hostile.drive import Case, Place

DEEP = "[" * 100_000
NEST = '{"a":' * 50_000
LISTS = (("runs",), ("GET", "/runs"), ("GET", "/"), ("GET", "/runs/bad"), ("runs", "runs/bad"))
RESUME, EXPORT = ("resume", "runs/bad", "steps=3", "--json"), ("export", "runs/bad", "--out", "out")
LOGS = ("metrics.jsonl", "evals.jsonl", "samples.jsonl", "events.jsonl")
LAST = "checkpoints/000002"


def copied(at: Place) -> Path:
    """Two sound runs side by side, the one to be spoilt."""
    for name in ("bad", "good"):
        shutil.copytree(at.run, at.inside / "runs" / name)
    return at.inside / "runs" / "bad"


def spoilt(change: Callable[[Path, Place], object], at: Place) -> None:
    change(copied(at), at)


def gone(path: Path) -> Path:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# what stands in a file's place


def linked(name: str, to: str, run: Path, at: Place) -> None:
    gone(run / name).symlink_to(at.outside / to)


def moved_out(name: str, run: Path, at: Place) -> None:
    """The real thing outside, a link to it in its place."""
    shutil.move(run / name, at.outside / "moved")
    (run / name).symlink_to(at.outside / "moved")


def piped(name: str, run: Path, _) -> None:
    os.mkfifo(gone(run / name))


def endless(name: str, run: Path, _) -> None:
    gone(run / name).symlink_to("/dev/zero")


def sparse(name: str, run: Path, _) -> None:
    with open(gone(run / name), "wb") as file:
        file.truncate(2**40)


def foldered(name: str, run: Path, _) -> None:
    gone(run / name).mkdir()


def written(name: str, data: str | bytes, run: Path, _) -> None:
    gone(run / name).write_bytes(data if isinstance(data, bytes) else data.encode())


def appended(name: str, data: str | bytes, run: Path, _) -> None:
    with open(run / name, "ab") as file:
        file.write((data if isinstance(data, bytes) else data.encode()) + b"\n")


def said(name: str, changes: dict, run: Path, _) -> None:
    """Keys of a JSON file with other values; ... leaves one out."""
    raw = json.loads((run / name).read_text()) | changes
    text = json.dumps({key: value for key, value in raw.items() if value is not ...})
    (run / name).write_text(text.replace('"HUGE"', "1" + "0" * 400))


def sealed(change: Callable[[Path, Place], object], run: Path, at: Place) -> None:
    """A changed checkpoint with a manifest that fits it."""
    from postgrad.runs import disk

    folder = run / LAST
    change(folder, at)
    (folder / "manifest.json").unlink()
    disk.seal(folder, 2, {})


def remanifested(body: dict, run: Path, _) -> None:
    from postgrad.runs import disk

    (run / LAST / "manifest.json").write_bytes(disk.manifest({"step": 2} | body))


def piped_and_sealed(run: Path, at: Place) -> None:
    """A pipe in a checkpoint whose manifest expects an empty file there."""
    remanifested({"files": {"pipe": {"bytes": 0, "sha256": "0"}}}, run, at)
    os.mkfifo(run / LAST / "pipe")


def outside_named(run: Path, at: Place) -> None:
    remanifested({"files": {str(at.outside / "file"): {"bytes": 30, "sha256": "0"}}}, run, at)


# the cases


def links() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    for name in (
        *LOGS,
        "lock",
        "status.json",
        "run.json",
        "config.json",
        ".status.json.tmp",
        ".metrics.jsonl.tmp",
        ".x.tmp",
        f"{LAST}/model.safetensors",
        f"{LAST}/manifest.json",
    ):
        yield f"{name} is a link", partial(linked, name, "file"), RESUME
    for name in ("metrics.jsonl", "events.jsonl", "lock", ".status.json.tmp", "status.json"):
        yield f"{name} is a link to nothing", partial(linked, name, "new"), RESUME
    for name in (
        "checkpoints",
        LAST,
        "checkpoints/.tmp-x",
        "checkpoints/.old-000001",
        "checkpoints/000003",
        "checkpoints/000009",
        "start",
    ):
        yield f"{name} is a link to a folder", partial(linked, name, "folder"), RESUME
    for name in ("checkpoints", LAST, "checkpoints/000001", *LOGS, "run.json", "lock"):
        yield f"{name} was moved out", partial(moved_out, name), RESUME


def places() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    turns = 0
    for name in ("run.json", "config.json", "status.json", "lock", *LOGS):
        for kind, change in (
            ("a pipe", piped),
            ("endless", endless),
            ("a terabyte", sparse),
            ("a folder", foldered),
        ):
            turns += 1
            yield (
                f"{name} is {kind}",
                partial(change, name),
                (RESUME if turns % 3 == 0 else LISTS[turns % len(LISTS)]),
            )
    yield "checkpoints is a file", partial(written, "checkpoints", "x"), RESUME
    for name in ("manifest.json", "model.safetensors", "state.json", "tokenizer.json"):
        for kind, change in (("a pipe", piped), ("endless", endless), ("a terabyte", sparse)):
            yield (
                f"a checkpoint's {name} is {kind}",
                partial(change, f"{LAST}/{name}"),
                EXPORT if kind == "a pipe" else RESUME,
            )
    yield "a pipe in a checkpoint, sealed", piped_and_sealed, EXPORT


def damaged() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    texts = {
        "brackets": DEEP,
        "nested": NEST,
        "a list": "[1, 2]",
        "a number": "1" * 5000,
        "no text": b"\xff\xfe\x00",
        "empty": "",
        "a text": '"run"',
        "nul": "\0" * 4096,
    }
    for at, (what, text) in enumerate(texts.items()):
        for turn, name in enumerate(("run.json", "config.json", "status.json")):
            words = (*LISTS, RESUME)[(at + turn) % 6]
            yield f"{name} is {what}", partial(written, name, text), words
        for turn, name in enumerate(LOGS):
            words = (*LISTS, RESUME)[(at + turn) % 6]
            yield f"{name} has a line of {what}", partial(appended, name, text), words
    for what in ("brackets", "a list", "nul"):
        yield f"a manifest of {what}", partial(written, f"{LAST}/manifest.json", texts[what]), RESUME


def wrong() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    values = ("x", [], {}, None, -1, "HUGE", ..., True, 1e308)
    for at, value in enumerate(values):
        for turn, key in enumerate(("created", "steps", "recipe", "method", "begins_with", "files", "row")):
            if (at + turn) % 3 == 0:
                words = RESUME if key in ("recipe", "begins_with", "files", "row") else LISTS[(at + turn) % 5]
                yield f"run.json: {key} is {value!r:.10}", partial(said, "run.json", {key: value}), words
        for turn, key in enumerate(
            ("steps", "seed", "optim", "model", "task", "method", "save_every", "nosuch")
        ):
            if (at + turn) % 3 == 1:
                yield (
                    f"config.json: {key} is {value!r:.10}",
                    partial(said, "config.json", {key: value}),
                    RESUME,
                )
    for key, value in (("pid", "x"), ("state", []), ("state", "running"), ("updated", "HUGE"), ("error", {})):
        yield (
            f"status.json: {key} is {value!r:.10}",
            partial(said, "status.json", {key: value}),
            LISTS[len(key) % 5],
        )
    rows = (
        '{"step": null, "loss": 1}',
        '{"step": -5, "loss": 1}',
        '{"step": true, "loss": 1}',
        '{"step": 1' + "0" * 400 + "}",
        '{"step": 3, "loss": [1]}',
        '{"step": 3, "time/step": 1' + "0" * 400 + "}",
        '{"step": 3, "reward": {"a": 1}}',
        '{"step": 3, "reward": "x", "series": null}',
        '{"step": 3.5}',
        '{"step": 9223372036854775808, "loss": 1}',
    )
    for at, row in enumerate(rows):
        yield (
            f"metrics.jsonl has {row[:40]}",
            partial(appended, "metrics.jsonl", row),
            (*LISTS, RESUME)[at % 6],
        )
        yield (
            f"evals.jsonl has {row[:40]}",
            partial(appended, "evals.jsonl", row),
            (*LISTS, RESUME)[(at + 3) % 6],
        )
        yield (
            f"events.jsonl has {row[:40]}",
            partial(appended, "events.jsonl", row),
            (*LISTS, RESUME)[(at + 1) % 6],
        )
        yield f"samples.jsonl has {row[:40]}", partial(appended, "samples.jsonl", row), LISTS[(at + 3) % 5]


def checkpoints() -> Iterator[tuple[str, Callable, tuple[str, ...]]]:
    for body in (
        {"files": []},
        {"files": {"state.json": 3}},
        {"files": {"state.json": {"bytes": "x"}}},
        {"files": {"../../run.json": {"bytes": 1, "sha256": ""}}},
        {"files": {"a\0b": {"bytes": 1}}},
        {"files": {"state.json": {"bytes": 10**400, "sha256": 3}}},
        {},
    ):
        yield f"a manifest with {str(body)[:50]}", partial(remanifested, body), RESUME
    yield "a manifest that names a file outside", outside_named, EXPORT
    for what, text in {
        "brackets": DEEP,
        "a list": "[]",
        "nothing": "{}",
        "a slot": '{"models": {"__tensor__": "/x"}}',
        "no JSON": "x",
    }.items():
        yield f"state.json of {what}", partial(sealed, partial(written, "state.json", text)), RESUME
    for what, data in {
        "a header of 2^60 bytes": b"\0\0\0\0\0\0\0\x10",
        "nothing": b"",
        "text": b"x" * 99,
    }.items():
        yield f"state.tensors of {what}", partial(sealed, partial(written, "state.tensors", data)), RESUME
    for what, text in {
        "brackets": DEEP,
        "a list": "[]",
        "another recipe": '{"recipe": "x", "config": {}}',
        "no recipe": "{}",
        "a list for a recipe": '{"recipe": [], "config": []}',
        "settings of lists": '{"recipe": "align", "config": [], "command": ""}',
    }.items():
        yield f"pipeline.json of {what}", partial(written, "pipeline.json", text), RESUME


def cases() -> Iterator[Case]:
    for group in (links, places, damaged, wrong, checkpoints):
        for name, change, words in group():
            yield Case(f"run: {name}", partial(spoilt, change), words)
