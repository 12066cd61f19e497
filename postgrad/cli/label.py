"""`postgrad label ...`: preferences into a store, out of it, from a model's answers, and given in a
terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postgrad.cli.options import SPLITS, STORE, Command, CommandOptions, options_from
from postgrad.cli.output import print_json, print_table, progress_tracker
from postgrad.system.options import MODEL, SampleOptions
from postgrad.system.settings import COUNT, Range, setting

if TYPE_CHECKING:
    from postgrad.data.store import AskedItem

KEYS = "a, b: this answer is better   t: tie   s: skip   u: undo   q: leave"


@dataclass(frozen=True, kw_only=True)
class StoreOptions(CommandOptions):
    """Of every action of `label`."""

    store: str = setting(STORE, "the preference store", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ImportLabelsOptions(StoreOptions):
    file: str = setting(about="pairs, rankings, or answers to be labelled", metavar="FILE.jsonl",
                        positional=True)
    labeller: str | None = setting(None, "the labeller of lines that name none",
                                   metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class ExportLabelsOptions(StoreOptions):
    out: str = setting(about="file to write", metavar="FILE.jsonl")
    format: str = setting("pairs", "pairs for reward and dpo, singles for kto", choices=("pairs", "singles"))
    labeller: str | None = setting(None, "only the labels of this labeller", metavar="NAME")
    how: str = setting("majority", "one judgement an item by majority (else a tie), or every labeller's",
                       choices=("majority", "all"))


@dataclass(frozen=True, kw_only=True)
class MakeOptions(SampleOptions, StoreOptions):
    model: str = setting(about=MODEL)
    temperature: float = setting(1.0, "sampling temperature; 1 is the model's own distribution",
                                 within=Range("above 0, for the two answers to differ", lambda x: x > 0))
    prompts: int = setting(50, "number of prompts", within=COUNT)
    split: str = setting("train", "split of the task", choices=SPLITS)


@dataclass(frozen=True, kw_only=True)
class LabelOptions(StoreOptions):
    labeller: str = setting(about="your name", metavar="NAME")


def print_result(options: CommandOptions, counts: Mapping[str, Any], text: str) -> None:
    print_json(counts) if options.json else print(text)


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def import_labels(options: ImportLabelsOptions) -> None:
    from postgrad.data.exchange import read_items
    from postgrad.data.preferences import preference_sentence
    from postgrad.data.store import Store
    items, labels, seen = read_items(Path(options.file), options.labeller)
    with Store.open(options.store) as store:
        counts = store.add(items, labels)
    lines = [f"{options.store}: {plural(counts['added'], 'new item')}, {counts['known']} known; "
             f"{plural(counts['labels'], 'new label')}, {counts['known_labels']} known"]
    if counts["conflicting"]:
        lines.append(f"{plural(counts['conflicting'], 'label')} not taken: the labeller has said "
                     "otherwise before")
    if seen["repeated"] or seen["contradicted"]:
        lines.append(f"{options.file}: {preference_sentence(seen)}")
    if seen["margins"]:
        lines.append(f"{plural(seen['margins'], 'margin')} left behind: the store keeps who won, "
                     "not by how much")
    if seen["rankings"]:
        lines.append(f"{plural(seen['rankings'], 'ranking')} taken apart into pairs, each of which "
                     "weighs as any other")
    print_result(options, counts | {"file": seen}, "\n".join(lines))


def export_judgements(options: ExportLabelsOptions) -> None:
    from postgrad.data.exchange import export_store
    from postgrad.data.store import Store
    with Store.open(options.store, create=False) as store:
        counts = export_store(store, Path(options.out), form=options.format, labeller=options.labeller,
                              how=options.how)
    among = "left out" if options.format == "singles" else "among them"
    ties = f", {plural(counts['ties'], 'tie')} {among}" if counts["ties"] else ""
    print_result(options, counts | {"out": options.out},
                 f"{options.out}: {plural(counts['rows'], 'row')} of "
                 f"{plural(counts['judgements'], 'judgement')}{ties}; {plural(counts['unjudged'], 'item')} "
                 "not judged")


def make_items(options: MakeOptions) -> None:
    from postgrad.recipes.pick import make_label_items
    counts = make_label_items(options_from(SampleOptions, options), options.store, prompts=options.prompts,
                              split=options.split,
                              track=progress_tracker(f"{options.model} on {options.task}", options.json))
    print_result(options, counts, f"{options.store}: {plural(counts['added'], 'new item')}, "
                 f"{counts['known']} known, of {plural(counts['prompts'], 'prompt')} "
                 f"({options.prompts} asked for); {counts['skipped']} skipped, for the answers were equal\n"
                 f"Label them: postgrad label ask --store {options.store} --labeller NAME")


def print_stats(options: StoreOptions) -> None:
    from postgrad.data.store import Store
    from postgrad.runs.display import figure
    with Store.open(options.store, create=False) as store:
        stats = store.stats() | {"agreement": store.agreement()}
    if options.json:
        return print_json(stats)
    names = {"items": "items", "judged": "judged by somebody", "contradicted": "judged both ways",
             "labels": "labels"}
    counts = {text: stats[key] for key, text in names.items()} | {"ties": stats["choices"]["tie"],
                                                                  "skips": stats["choices"]["skip"]}
    print_table([{"": name, "count": count} for name, count in counts.items()])
    if stats["labellers"]:
        print()
        print_table([{"labeller": who, **by, "labels": sum(by.values())}
                     for who, by in stats["labellers"].items()])
    if stats["agreement"]:
        print()
        print_table([{"labellers": " and ".join(row["labellers"]), "items of both": row["items"],
                      "agreed": row["agreed"],
                      "Cohen's kappa": "unknown" if row["kappa"] is None else figure(row["kappa"])}
                     for row in stats["agreement"]])
    return None


def ask_labels(options: LabelOptions) -> None:
    """One key a line, from a terminal or a pipe; every label is on the disk before the next pair is shown."""
    from postgrad.data.store import Store
    from postgrad.runs.display import clean
    with Store.open(options.store, create=False) as store:
        labelled = undone = refused = 0
        asked = store.next(options.labeller)
        print_text(options, KEYS)
        while True:
            print_item(options, asked)
            key = read_key(options)
            if key in (None, "q"):
                break
            if key == "u":
                back = store.undo(options.labeller)
                undone += back is not None
                print_text(options, "taken back" if back else "there is nothing to undo")
                asked = back or asked
            elif asked and key in ("a", "b", "t", "s"):
                store.label(asked.item.uid, options.labeller,
                            {"a": asked.sides[0], "b": asked.sides[1], "t": "tie", "s": "skip"}[key])
                labelled += 1
                asked = store.next(options.labeller)
            else:
                refused += 1
                print_text(options, f"{key!r} is no key here. {KEYS}")
        left = store.left(options.labeller)
    print_result(options, {"labelled": labelled, "undone": undone, "refused": refused, "left": left},
                 f"\n{labelled} labelled, {undone} undone, {left} left for {clean(options.labeller)}")


def print_text(options: CommandOptions, text: str) -> None:
    from postgrad.runs.display import print_plain
    if not options.json:
        print_plain(sys.stdout, text)


def print_item(options: CommandOptions, asked: AskedItem | None) -> None:
    if asked is None:
        return print_text(options, "\nThere is nothing left to label: u to take the last one back, q to "
                          "leave.")
    prompt = "\n".join(f"{m['role']}: {m['content']}" for m in asked.item.messages)
    return print_text(options, f"\n{prompt}\n\n[a] {asked.answers[0]}\n\n[b] {asked.answers[1]}")


def read_key(options: CommandOptions) -> str | None:
    """The next key, lower case; None where the input has ended. Empty lines are passed over."""
    prompt = "> " if sys.stdin.isatty() and not options.json else ""
    while True:
        try:
            key = input(prompt).strip().lower()
        except (EOFError, KeyboardInterrupt):
            return None
        if key:
            return key


COMMANDS = (Command("label", "collect preferences: answer pairs and labellers' judgements", actions=(
    Command("import", "import pairs, rankings, or answers to be labelled from a JSONL file",
            ImportLabelsOptions, import_labels),
    Command("export", "export the judgements as a JSONL file to train on", ExportLabelsOptions,
            export_judgements),
    Command("make", "sample items to label: two answers of a model to each prompt of a task", MakeOptions,
            make_items),
    Command("stats", "count items, labels and contradictions, and the agreement between labellers",
            StoreOptions, print_stats),
    Command("ask", "label in the terminal, one key a line", LabelOptions, ask_labels),
)),)
