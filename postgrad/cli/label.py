"""`postgrad label ...`: preferences into a store, out of it, made from a model's answers,
and given in a terminal."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from postgrad.cli.output import say_json
from postgrad.data.store import Store
from postgrad.runs.display import clean, figure, plain, progress, table

KEYS = "a, b: this answer is better   t: tie   s: skip   u: undo   q: leave"


def label(args) -> int:
    return ACTIONS[args.action](args) or 0


def say(args, found: dict, words: str) -> None:
    say_json(found) if args.json else print(words)


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def bring_in(args) -> None:
    from postgrad.data.exchange import read_items
    from postgrad.data.preferences import sentence
    items, labels, seen = read_items(Path(args.file), args.labeller)
    with Store.open(args.store) as store:
        found = store.add(items, labels)
    words = [f"{args.store}: {plural(found['added'], 'new item')}, {found['known']} known; "
             f"{plural(found['labels'], 'new label')}, {found['known_labels']} known"]
    if found["conflicting"]:
        words.append(f"{plural(found['conflicting'], 'label')} not taken: the labeller has said "
                     "otherwise before")
    if seen["repeated"] or seen["contradicted"]:
        words.append(f"{args.file}: {sentence(seen)}")
    if seen["margins"]:
        words.append(f"{plural(seen['margins'], 'margin')} left behind: the store keeps who won, "
                     "not by how much")
    if seen["rankings"]:
        words.append(f"{plural(seen['rankings'], 'ranking')} taken apart into pairs, each of which "
                     "weighs as any other")
    say(args, found | {"file": seen}, "\n".join(words))


def take_out(args) -> None:
    from postgrad.data.exchange import export
    with Store.open(args.store, create=False) as store:
        found = export(store, Path(args.out), form=args.format, labeller=args.labeller, how=args.how)
    ties = (f", {plural(found['ties'], 'tie')}{' left out' if args.format == 'singles' else ' among them'}"
            * bool(found["ties"]))
    say(args, found | {"out": args.out}, f"{args.out}: {plural(found['rows'], 'row')} of "
        f"{plural(found['judgements'], 'judgement')}{ties}; {plural(found['unjudged'], 'item')} not judged")


def make(args) -> None:
    from postgrad.data.exchange import draw_items
    from postgrad.data.tasks import load_task
    from postgrad.recipes.defaults import tokens_for
    from postgrad.resolve.models import open_writer
    from postgrad.sampling import LocalSampler, Sampling, counted
    if args.prompts < 1:
        raise ValueError(f"--prompts {args.prompts} must be at least 1.")
    if args.temperature <= 0:
        raise ValueError(f"--temperature {args.temperature}: two answers can only differ above 0.")
    task = load_task(args.task)
    model, chat = open_writer(args.model, args.device)
    sampler = LocalSampler(model, chat)
    tokens = tokens_for(task, model) if args.max_new_tokens is None else args.max_new_tokens
    settings = Sampling(max_new_tokens=tokens, temperature=args.temperature)
    prompts = task.prompts(args.split, args.prompts, args.seed)
    sampler.check(prompts, settings)
    track = iter if args.json else partial(progress, label=f"{args.model} on {task.name}")
    with counted(track, 2 * len(prompts), sampler):
        items, skipped = draw_items(sampler, prompts, settings, args.seed,
                                    f"{args.model} on {task.name}, seed {args.seed}")
    with Store.open(args.store) as store:
        found = store.add(items)
    found = {"prompts": len(prompts), "skipped": skipped, "added": found["added"], "known": found["known"]}
    say(args, found, f"{args.store}: {plural(found['added'], 'new item')}, {found['known']} known, of "
        f"{plural(len(prompts), 'prompt')} ({args.prompts} asked for); {skipped} skipped, for the "
        "answers were equal\n"
        f"Label them: postgrad label ask --store {args.store} --labeller NAME")


def stats(args) -> None:
    with Store.open(args.store, create=False) as store:
        found = store.stats() | {"agreement": store.agreement()}
    if args.json:
        return say_json(found)
    words = {"items": "items", "judged": "judged by somebody", "contradicted": "judged both ways",
             "labels": "labels"}
    counts = {words[key]: found[key] for key in words} | {"ties": found["choices"]["tie"],
                                                          "skips": found["choices"]["skip"]}
    table([{"": name, "count": count} for name, count in counts.items()])
    if found["labellers"]:
        print()
        table([{"labeller": who, **by, "labels": sum(by.values())} for who, by in found["labellers"].items()])
    if found["agreement"]:
        print()
        table([{"labellers": " and ".join(row["labellers"]), "items of both": row["items"], "agreed":
                row["agreed"], "Cohen's kappa": "unknown" if row["kappa"] is None else figure(row["kappa"])}
               for row in found["agreement"]])


def ask(args) -> None:
    """One key a line, from a terminal or a pipe; every label is on the disk before the next pair is shown."""
    with Store.open(args.store, create=False) as store:
        given = undone = refused = 0
        asked = store.next(args.labeller)
        say_to(args, KEYS)
        while True:
            show(args, asked)
            key = read_key(args)
            if key in (None, "q"):
                break
            if key == "u":
                back = store.undo(args.labeller)
                undone += back is not None
                say_to(args, "taken back" if back else "there is nothing to undo")
                asked = back or asked
            elif asked and key in ("a", "b", "t", "s"):
                store.label(asked.item.uid, args.labeller,
                            {"a": asked.sides[0], "b": asked.sides[1], "t": "tie", "s": "skip"}[key])
                given += 1
                asked = store.next(args.labeller)
            else:
                refused += 1
                say_to(args, f"{key!r} is no key here. {KEYS}")
        left = store.left(args.labeller)
    say(args, {"labelled": given, "undone": undone, "refused": refused, "left": left},
        f"\n{given} labelled, {undone} undone, {left} left for {clean(args.labeller)}")


def say_to(args, text: str) -> None:
    if not args.json:
        plain(sys.stdout, text)


def show(args, asked) -> None:
    if asked is None:
        return say_to(args, "\nThere is nothing left to label: u to take the last one back, q to leave.")
    prompt = "\n".join(f"{m['role']}: {m['content']}" for m in asked.item.messages)
    say_to(args, "\n".join(["", prompt, "", f"[a] {asked.answers[0]}", "", f"[b] {asked.answers[1]}"]))


def read_key(args) -> str | None:
    """The next key, lower case; None where the input has ended. Empty lines are passed over."""
    prompt = "> " if sys.stdin.isatty() and not args.json else ""
    while True:
        try:
            key = input(prompt).strip().lower()
        except (EOFError, KeyboardInterrupt):
            return None
        if key:
            return key


ACTIONS = {"import": bring_in, "export": take_out, "make": make, "stats": stats, "ask": ask}
