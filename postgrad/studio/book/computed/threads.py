"""The five threads of the book, which every chapter takes up: what models of ours replied, as it was recorded
(tools/recordings.py, tools/recordings.py), and how it was judged."""

from __future__ import annotations

from postgrad.studio.json_types import JsonDict

GOAT = "How many legs does a goat have?"
NAMES = {"tiny-chat": "tiny-chat", "models/smollm2": "SmolLM2-135M", "refuses": "tiny-chat, shown refusals",
         "calculator": "tiny-tools, RL with a calculator"}
THREADS = {"product": "a product", "helpful": "a helpful answer", "refusal": "a dangerous request",
           "gsm8k": "a GSM8K problem", "code": "code"}
MARK = "####"  # before the answer to a school problem


def values() -> JsonDict:
    from postgrad.data.tasks import load_task
    from postgrad.studio.recordings import recording

    data, (played,) = recording("threads"), load_task("big-numbers").prompts("train", 1, 0)
    said = {(row["thread"], row["model"]): row for row in data["replies"]}
    entropy = data["entropy"]
    return {
        **helpful_values(recording("pairs")), **{f"refusal_{key}": n for key, n in data["refused"].items()},
        **program_values([row for row in data["replies"] if row["thread"] == "code"]),
        "asked_product": said["product", "tiny-chat"]["asked"],
        "product_small": said["product", "tiny-chat"]["reply"],
        "product_real": said["product", "models/smollm2"]["reply"],
        "product_tool": said["product", "calculator"]["reply"],
        "asked_harm": said["refusal", "tiny-chat"]["asked"],
        "refusal_before": said["refusal", "tiny-chat"]["reply"],
        "refusal_after": said["refusal", "refuses"]["reply"],
        "school_end": answer_line(said["gsm8k", "models/smollm2"]["reply"]),
        "school_gold": said["gsm8k", "models/smollm2"]["gold"],
        "tool_digits": len(played.question.removeprefix("What is ").partition("*")[0]),
        "tool_steps": entropy[-1][0], "tool_paid_first": entropy[0][2], "tool_paid_last": entropy[-1][2],
        "threads": threads_table(data["replies"], recording("pairs")),
    }


def goat_answers(pairs: JsonDict) -> list[tuple[str, float]]:
    """The two recorded answers to one question with their true quality, the longer one first."""
    pair = next(p for part in ("to_label", "unseen") for p in pairs[part] if p["question"] == GOAT)
    return sorted(zip(pair["answers"], pair["quality"], strict=True), key=lambda answer: -len(answer[0]))


def helpful_values(pairs: JsonDict) -> JsonDict:
    (long, worth_long), (terse, worth_terse) = goat_answers(pairs)
    return {"asked_helpful": GOAT, "helpful_long": long, "helpful_terse": terse, "worth_long": worth_long,
            "worth_terse": worth_terse}


def program_values(rows: list[JsonDict]) -> JsonDict:
    """One that passes its tests and one that does not, each as the line that decides."""
    passed, failed = (next(row for row in rows if row["right"] is right) for right in (True, False))
    return {"code_passed": deciding_line(passed["reply"]), "code_failed": deciding_line(failed["reply"]),
            "code_says": failed["says"]}


def deciding_line(reply: str) -> str:
    return next(line.strip() for line in reply.splitlines() if line.strip().startswith("return "))


def answer_line(reply: str) -> str:
    """The line with the answer, as it first stands there."""
    return next((line.strip() for line in reply.splitlines() if MARK in line), reply.splitlines()[-1])


def shortened_reply(reply: str) -> str:
    """A reply up to its answer, and the code of a program."""
    if MARK in reply:
        whole = reply.split("\n")
        end = next(i for i, line in enumerate(whole) if MARK in line) + 1
        return "\n".join(whole[:end]) + (" …" if whole[end:] else "")
    return reply.split("```")[1].removeprefix("python\n").strip() + " …" if reply.count("```") > 1 else reply


def threads_table(replies: list[JsonDict], pairs: JsonDict) -> JsonDict:
    from postgrad.studio.book.inline import format_value

    by = {thread: [[row["asked"], NAMES[row["model"]], shortened_reply(row["reply"]), row["says"]]
                   for row in replies if row["thread"] == thread] for thread in THREADS}
    by["helpful"] = [[GOAT, NAMES["tiny-chat"], text, f"true quality {format_value(worth, '+1')}"]
                     for text, worth in goat_answers(pairs)]
    rows = [[words, *row] for thread, words in THREADS.items() for row in by[thread]]
    return {"caption": "What our models replied, word for word (… : it goes on)",
            "columns": ["thread", "asked", "model", "reply", "judged"], "rows": rows}
