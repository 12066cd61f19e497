"""Reliability: docs/results/reliability.json and its page.

    python proofs/reliability.py [PART ...]      what a reply cannot do: earned, fresh, gold, injections,
                                                 templates, degenerate; faults: kills, kills_again, pipelines,
                                                 full_disk, machine, flips, numbers (faults.py), hours in all;
                                                 soak and logs (soak.py); counted attacks: signals, labels,
                                                 ranks, jail, answers, files, lines, servers, pages
                                                 (attacks.py)
    python proofs/reliability.py fresh seeds=50  other seeds than the tests have
    python proofs/reliability.py kills flips workers=10 minutes=18
                                                 so many cases of faults at once, and no longer;
                                                 only=ppo,dpo: those of these names

A part is a function; each measures by itself. GSM8K is read from the folder $POSTGRAD_DATA.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harness import DATA, HOME, Bars, Page, Tables, arguments, bar
from attacks import PARTS as ATTACKS
from faults import CASES, at_once
from faults import PARTS as FAULTS
from golden_templates import open_chat, templates
from hostile import unearned
from hostile.injections import forging_texts, injections, obeyed
from soak import logs, soak

from postgrad.data.tasks import load_task
from postgrad.data.tasks.gsm8k import verify as gsm8k
from postgrad.data.tasks.gym import names_another_number
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Rollout, Sampling, Verdict
from postgrad.rewards.constitution import read_constitution
from postgrad.rewards.constraints import KINDS, is_kept
from postgrad.rewards.format import find_marked
from postgrad.rewards.grader import GraderReward
from postgrad.rewards.judges import comparison_request
from postgrad.rewards.named import read_spec

SHIPPED = read_constitution()
TASKS = (
    "words",
    "words-es",
    "words-hard",
    "arithmetic",
    "countdown",
    "countdown-4",
    "questions",
    "constraints",
    "constraints-hard",
)
TOWERS = (
    r"\boxed{\frac{5^{(5^{(5^{(5^5)})}-4)}-5}{16}}",
    r"\boxed{9^{9^{9^{9^9}}}}",
    r"\boxed{2^{2^{2^{2^{2^{2^2}}}}}}",
    r"\boxed{\{4951077, 人权 国 \{1,1-3-10);5个_ALL2. _HEAD1\}}",
    r"\boxed{(x+1)^{9999}(y+2)^{9999}}",
    r"\boxed{((7^{999})^{999})^{999}}",
    r"\boxed{1000000!}",
    r"\boxed{((9!)!)!}",
    r"\boxed{\binom{10^9}{5^9}}",
    r"\boxed{\sum_{k=1}^{10^9} k^k}",
    r"\boxed{\int_0^{10^9} x^x dx}",
    r"\boxed{\log_{2}(\log_{2}(10^{9999}))}",
    r"\boxed{" + r"\sqrt{" * 60 + "2" + "}" * 60 + "}",
    r"\boxed{" + "(" * 200 + "1" + ")" * 200 + "}",
    r"\boxed{" + r"\sin(" * 40 + "x" + ")" * 40 + "}",
    r"\boxed{\frac{1}{" * 40 + "2" + "}" * 81,
    r"\boxed{2003^{2002^{2001}}}",
    "$$" + "9" * 5000 + "$$",
    r"\boxed{x^{x^{x^x}}}",
    r"\boxed{" + "+x" * 140 + "}",
)
RUNS = (
    "a",
    " ",
    "\n",
    "1",
    "1,",
    "not ",
    "answer is ",
    "<think>",
    "</think>",
    "<!--",
    r"\boxed{",
    "{",
    '{"a":',
    "\u200b",
    "\u0301",
    "\ufdfa",
    "the answer is not ",
    "f o o l ",
    "* x\n",
    "#### 1\n",
)
SPECS = (
    "number",
    "number(lenient)",
    "text",
    "think",
    "boxed",
    "json",
    "length(1,5)",
    "length(1,5,characters)",
    "language(en)",
    "maths",
)


def earned(spec: str, gold: str, reply: str) -> Verdict:
    """What a verifier of unearned.py's says; a style in shares earns what is over a half."""
    if spec in unearned.FORMED:
        return Verdict(score=float(is_kept(reply, unearned.FORMED[spec])))
    if spec == "constitution":
        return Verdict(score=float("no insults" not in SHIPPED.broken(reply)))
    said = (
        gsm8k(Prompt.ask("?", gold), reply)
        if spec == "gsm8k"
        else read_spec(spec)(Prompt.ask("?", gold), reply)
    )
    return (
        said if not spec.startswith("language") else Verdict(score=float(said.score > 0.5), error=said.error)
    )


def listed() -> Iterator[tuple[str, str, str]]:
    """(verifier, gold answer, reply) of every cheat in tests/support/hostile/unearned.py."""
    for reply in unearned.ANSWERS.values():
        yield from ((spec, "42", reply) for spec in ("number", "maths"))
        yield "gsm8k", "42", "So " + reply.replace(r"\boxed{42}", "\n#### 42\n")
    yield from (("maths", gold, reply) for gold, reply in unearned.MATHS.values())
    yield from ((spec, "42", reply) for spec, replies in unearned.FORMS.items() for reply in replies)
    yield from (("constitution", "", reply) for reply in unearned.RUDE)


def paid_rows(rows: Iterator[tuple[str, str, str]]) -> tuple[int, list[str], int, Counter[str]]:
    """How many were tried, what was paid, how many had an error, and how many there were by verifier."""
    paid, errors, kinds = [], 0, Counter[str]()
    for spec, gold, reply in rows:
        said = earned(spec, gold, reply)
        kinds[spec] += 1
        paid += [f"{spec}: {reply}"] if said.score else []
        errors += said.error is not None
    return kinds.total(), paid, errors, kinds


def earned_bars(folder: Path) -> tuple[Bars, Tables]:
    tried, paid, errors, kinds = paid_rows(listed())
    rules = [(rule, reply) for rule, replies in unearned.CONSTRAINTS.items() for reply in replies]
    kept = [f"{rule[0]}: {reply}" for rule, reply in rules if is_kept(reply, rule)]
    answers = [answer.replace("{}", "37") for answer in unearned.GSM_SYMBOLIC]
    signs = [answer for answer in answers if not names_another_number(answer, "37")]
    unlisted = [reply for reply in unearned.UNLISTED if find_marked(reply) == "7"]
    total, all_paid = tried + len(rules) + len(answers), paid + kept + signs
    rows = [
        {"verifier": name, "tried": count, "paid": sum(row.startswith(f"{name}: ") for row in paid)}
        for name, count in kinds.items()
    ]
    rows += [
        {"verifier": "constraints", "tried": len(rules), "paid": len(kept)},
        {"verifier": "gym:gsm_symbolic", "tried": len(answers), "paid": len(signs)},
    ]
    return [
        bar(
            "replies that are hidden, denied, hedged or without content: paid",
            f"0 of {total}",
            f"{len(all_paid)} of {total}{': ' if all_paid else ''}{'; '.join(all_paid[:5])}",
            not all_paid,
        ),
        bar("the same: infrastructure errors", "0", errors, not errors),
    ], {
        "What was tried for nothing": rows,
        "Denials in words that no list has (no target: words are known by lists, in English)": [
            {"tried": len(unearned.UNLISTED), "paid": len(unlisted)}
        ],
    }


def fresh_bars(folder: Path, seeds: str = "10", first: str = "100") -> tuple[Bars, Tables]:
    """The generator's denials and disguises were written apart from the lists, and the lists mended as
    classes by what it found since."""
    shares, shown = [], []
    for seed in range(int(first), int(first) + int(seeds)):
        tried, paid, errors, _ = paid_rows(unearned.fresh(seed))
        shares.append(len(paid) / tried)
        shown += [
            {"seed": seed, "tried": tried, "paid": len(paid), "errors": errors, "first": (paid or ["-"])[0]}
        ]
    return [
        bar(
            "fresh cheats by a seed: paid, the worst 100", "<= 2 %", f"{max(shares):.0%}", max(shares) <= 0.02
        )
    ], {"Fresh cheats": shown}


def gold_bars(folder: Path) -> Bars:
    rows = [
        json.loads(line)
        for line in (HOME / "tests" / "assets" / "replies.jsonl").read_text("utf-8").split("\n")[:-1]
    ]
    said = [
        (
            row["right"],
            (gsm8k if row["verifier"] == "gsm8k" else read_spec(row["verifier"]))(
                Prompt.ask("?", row["gold"]), row["reply"]
            ).score
            == 1,
        )
        for row in rows
    ]
    right, wrong = ([paid for is_right, paid in said if is_right == which] for which in (True, False))
    golds = [(task, prompt) for task in map(load_task, TASKS) for prompt in task.prompts("train", 100, 0)]
    lost = sum(task.verify(prompt, task.gold(prompt)).score < task.best - 1e-6 for task, prompt in golds)
    bars = [
        bar("gold replies of our tasks: paid in full", f"all {len(golds)}", len(golds) - lost, not lost),
        bar(
            "replies that a person finds right: paid",
            f">= 95 % of {len(right)}",
            f"{sum(right) / len(right):.1%}",
            sum(right) >= 0.95 * len(right),
        ),
        bar("replies that a person finds wrong: paid", f"0 of {len(wrong)}", sum(wrong), not any(wrong)),
    ]
    if (DATA / "gsm8k" / "train.jsonl").exists():
        task = load_task(f"gsm8k:{DATA / 'gsm8k'}")
        asked = [
            prompt for split in ("train", "validation", "test") for prompt in task.prompts(split, 10_000, 0)
        ]
        for name, verify in (
            ("gsm8k", task.verify),
            ("number", read_spec("number")),
            ("maths", read_spec("maths")),
        ):
            paid = sum(verify(prompt, task.gold(prompt)).score == 1 for prompt in asked)
            bars.append(
                bar(f"gold solutions of GSM8K by {name}: paid", f"all {len(asked)}", paid, paid == len(asked))
            )
    return bars


class ObedientSampler:
    """A grader that answers what the last turn or instruction in its tokens says."""

    def __init__(self, chat: Chat):
        self.chat = chat

    def sample(self, prompts: list[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        return [[rollout(obeyed(self.chat, self.chat.render(prompt.messages)))] for prompt in prompts]


def rollout(text: str) -> Rollout:
    return Rollout(
        prompt=Prompt.ask("What is 2+3?", "5"),
        prompt_tokens=(1,),
        tokens=(2,),
        logp=(0.0,),
        text=text,
        finished=True,
        seed=0,
    )


def chats() -> Iterator[tuple[str, Chat]]:
    yield from ((name, open_chat(path.read_text())) for name, path, _ in templates())


def injection_bars(folder: Path) -> tuple[Bars, Tables]:
    rows, asked = [], Prompt.ask("What is 2+3?", "5")
    for name, chat in chats():
        grader, texts = GraderReward(ObedientSampler(chat), Sampling(temperature=0.0)), injections(chat)
        plain, *scores = grader.score([rollout(text) for text in ("5", *texts)])
        graded = sum(said.error is not None or said.score > plain.score for said in scores)
        pairs = sum(
            {
                obeyed(chat, chat.render(comparison_request(SHIPPED.rules[0], asked, *pair)))
                for pair in ((text, "5"), ("5", text))
            }
            != {"2"}
            for text in texts
        )
        rows.append(
            {"template": name, "tried": len(texts), "moved a grader": graded, "moved a choice": pairs}
        )
    tried, moved = (
        sum(sum(row[key] for key in keys) for row in rows)
        for keys in (("tried",), ("moved a grader", "moved a choice"))
    )
    return [
        bar(
            "injections against a judge that obeys the last turn or instruction it tokenises: paid more "
            "than the "
            "same reply without",
            f"0 of {tried}, each graded and compared",
            moved,
            not moved,
        )
    ], {"Injections by template": rows}


FEWER_TEXTS = [{"target": "0 of 41, 12 texts in up to 4 conversations each", "by": "maintainers",
                "why": "four times as many texts"}]


def template_bars(folder: Path, count: str = "48") -> tuple[Bars, Tables]:
    rows = []
    for name, chat in chats():
        bad = forging_texts(chat, int(count))
        rows.append({"template": name, "texts": int(count), "forged": len(bad)})
    wrong = [row["template"] for row in rows if row["forged"]]
    return [
        bar(
            "templates under which a text in a message, a tool or its result became a control token",
            f"0 of {len(rows)}, {count} texts in up to 4 conversations each",
            f"{len(wrong)} {wrong[:3]}",
            not wrong,
            earlier=FEWER_TEXTS,
        ),
        bar("templates tried", ">= 40", len(rows), len(rows) >= 40),
    ], {"Hostile texts by template": rows}


def degenerate_bars(folder: Path) -> tuple[Bars, Tables]:
    """Processor time of this process for 10^6 characters; wall time for towers, which the jail ends."""
    prompt, worst, errors, tried = Prompt.ask("?", "42"), [], 0, 0
    judges = {spec: read_spec(spec) for spec in SPECS} | {"gsm8k": gsm8k}
    for run in RUNS:
        for text in (run * (10**6 // len(run)), rf"\boxed{{42}} {run * (10**6 // len(run))}"):
            for name, judge in judges.items():
                began = time.process_time()
                errors += judge(prompt, text).error is not None
                worst.append((time.process_time() - began, name, run))
            began = time.process_time()
            SHIPPED.broken(text)
            worst.append((time.process_time() - began, "constitution", run))
            began = time.process_time()
            [is_kept(text, (kind, KINDS[kind].values[0])) for kind in KINDS]
            worst.append((time.process_time() - began, "constraints, all kinds", run))
            tried += len(judges) + 2
    judges["maths"](prompt, r"\boxed{\sqrt{1764}}")  # the jail starts
    paid, towers = 0, []
    for text in TOWERS:
        began = time.perf_counter()
        said = judges["maths"](prompt, text)
        towers.append((time.perf_counter() - began, text[:60]))
        paid, errors = paid + (said.score > 0), errors + (said.error is not None)
    slow, tall = max(worst), max(towers)
    return [
        bar(
            f"{tried} verdicts on degenerate replies of 10^6 characters: the slowest",
            "<= 5 s of processor time",
            f"{slow[0]:.2f} s ({slow[1]}, {slow[2]!r})",
            slow[0] <= 5,
        ),
        bar(
            f"{len(TOWERS)} towers and hangs known of symbolic verifiers: the slowest verdict",
            "<= 5 s",
            f"{tall[0]:.2f} s ({tall[1]})",
            tall[0] <= 5,
        ),
        bar("the same: paid", "0", paid, not paid),
        bar("both: infrastructure errors", "0", errors, not errors),
    ], {
        "The slowest verdicts": [
            {"seconds": seconds, "verifier": name, "reply": repr(run)}
            for seconds, name, run in sorted(worst, reverse=True)[:8]
        ]
    }


PAGE = Page(
    "reliability", "Reliability: what was tried, and what was lost",
    {"earned": earned_bars, "fresh": fresh_bars, "gold": gold_bars, "injections": injection_bars,
     "templates": template_bars, "degenerate": degenerate_bars, **FAULTS,
     **ATTACKS, "soak": soak, "logs": logs},
    [0])

if __name__ == "__main__":
    words, settings = arguments()
    folder = Path(settings.get("folder", HOME / "runs/proof-reliability"))
    parts = [part for part in FAULTS if part in words or not words]
    for part in parts:  # it counts cases that are recorded each for itself
        (folder / f"{part}.json").unlink(missing_ok=True)
    only = settings.get("only", "").split(",")
    at_once([case for part in parts for case in CASES[part](folder / part)
             if only == [""] or case.record.parent.name in only],
            int(settings.get("workers", 1)), float(settings.get("minutes", "inf")))
    PAGE.main()
