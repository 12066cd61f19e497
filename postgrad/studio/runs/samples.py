"""A step's samples as they are shown: the group of a prompt, and the tokens of one sample with
what is known of each.

Completions are untrusted text. They go through `clean` here and through Jinja's autoescape in the templates.
Left out on purpose: colours; a token has a class for its size and sign, and the style sheet does the rest.
"""

from __future__ import annotations

import math
import re

from postgrad.runs import number
from postgrad.studio.json_types import JsonDict, JsonList

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
LEVELS = 6
COLOURS = {  # what may colour the tokens: name -> (label, kind, what it says)
    "adv": ("Advantage", "signed", "How much each token is praised (teal) or blamed (rust)."),
    "ratio": ("Ratio", "signed",
              "How much likelier (teal) or less likely (rust) the token has become since it was sampled."),
    "moved": ("Moved", "signed",
              "How much the update raised (teal) or lowered (rust) the token's log-probability."),
    "kl": ("KL", "size", "How far the policy has moved from the reference at this token (k3, nats)."),
    "entropy": ("Entropy", "size", "How undecided the policy was before this token (nats)."),
    "logp": ("Surprise", "size",
             "How unlikely the token was when it came: minus its log-probability (nats)."),
    "mask": ("Mask", "mask", "The tokens that are trained; a prompt is read and never trained."),
}
NUMBERS = {"mask": "mask", "adv": "advantage", "ratio": "ratio", "moved": "moved", "kl": "KL",
           "entropy": "entropy", "logp": "log-probability"}


def safe_text(text: object) -> str:
    """Text that cannot steer a page: control characters,
    direction marks and half characters become a sign."""
    text = str(text)
    return text if text.isprintable() else CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def as_list(value: object) -> JsonList:
    return value if isinstance(value, list) else []


def finite_number(value: object) -> float | None:
    return found if math.isfinite(found := number(value)) else None


def prompt_groups(rows: list[JsonDict]) -> list[JsonDict]:
    """The samples by prompt, in the order of their numbers;
    mean and population std of the scores as GRPO takes them."""
    found: dict[str, list[JsonDict]] = {}
    for row in rows:
        found.setdefault(safe_text(row.get("prompt", "")), []).append(row)
    return [prompt_group(prompt, sorted(members, key=sample_order)) for prompt, members in found.items()]


def sample_order(row: JsonDict) -> tuple[int, str]:
    """words/35*2+16/10 comes after words/35*2+16/9."""
    tail = str(row.get("id", "")).rsplit("/", 1)[-1]
    return (int(tail), "") if tail.isascii() and tail.isdecimal() and len(tail) < 9 else (0, tail)


def prompt_group(prompt: str, rows: list[JsonDict]) -> JsonDict:
    scores = [s for row in rows if (s := finite_number(row.get("score"))) is not None]
    mean = sum(scores) / len(scores) if scores else None
    std = math.sqrt(sum((s - mean) ** 2 for s in scores) / len(scores)) if mean is not None else None
    best = max((abs(a) for row in rows if (a := finite_number(row.get("adv"))) is not None), default=0.0)
    return {"prompt": prompt, "rows": [sample_view(row, best) for row in rows], "mean": mean, "std": std,
            "flat": bool(scores) and max(scores) - min(scores) <= 1e-6}


def sample_view(row: JsonDict, best: float) -> JsonDict:
    """One completion. share: its advantage as a part of the group's largest, in -1 .. 1."""
    adv, parts = finite_number(row.get("adv")), row.get("parts")
    return {
        "id": safe_text(row.get("id", "")), "text": safe_text(row.get("text", "")),
        "score": finite_number(row.get("score")),
        "adv": adv, "reason": safe_text(row.get("reason") or ""),
        "finished": row.get("finished") is not False,
        "parts": {safe_text(k): finite_number(v) for k, v in parts.items()} if isinstance(parts, dict)
        else {},
        "length": len(as_list(row.get("tokens"))), "share": adv / best if adv is not None and best else 0.0,
        "raw": row,
    }


def colour_value(name: str, x: object) -> float | None:
    """The number that colours a token: ratios by their logarithm, so that half and double weigh the same."""
    size = finite_number(x)
    if size is None or name == "ratio" and size <= 0:
        return None
    return math.log(size) if name == "ratio" else -size if name == "logp" else size


def colour_scale(rows: list[JsonDict], name: str) -> float:
    """The largest size over the samples shown, so that strips can be compared."""
    sizes = (abs(v) for row in rows for x in as_list(token_columns(row).get(name))
             if (v := colour_value(name, x)) is not None)
    return max(sizes, default=0.0)


def token_columns(row: JsonDict) -> JsonDict:
    return row["columns"] if isinstance(row.get("columns"), dict) else {}


def available_colours(rows: list[JsonDict]) -> list[str]:
    """What these samples can be coloured by."""
    return [name for name in COLOURS if any(name in token_columns(row) for row in rows)]


def token_strip(row: JsonDict, name: str, largest: float) -> list[JsonDict]:
    """The tokens of a sample, its prompt's first: text, class, and the numbers known of it."""
    table, turns = token_columns(row), turn_spans(row)
    tokens: list[JsonDict] = [{"text": visible_token(t), "turn": "", "look": "given",
                               "numbers": [("mask", 0.0)]}
              for t in as_list(row.get("prompt_tokens"))]
    for i, text in enumerate(as_list(row.get("tokens"))):
        numbers = {key: finite_number(x[i]) for key in NUMBERS if i < len(x := as_list(table.get(key)))}
        by = next((role for start, end, role in turns if start <= i < end), "assistant")
        begins = any(start == i for start, _, _ in turns)
        tokens.append({"text": visible_token(text), "turn": by if begins else "",
                       "look": token_class(name, numbers.get(name), largest) if by == "assistant"
                       else "given",
                       "numbers": [(NUMBERS[k], v) for k, v in numbers.items()]})
    return tokens


def episode_turns(row: JsonDict) -> list[JsonDict]:
    """An episode turn by turn: who wrote it, what, how many tokens, of them trained, and what it was paid."""
    tokens, mask = as_list(row.get("tokens")), as_list(token_columns(row).get("mask"))
    spans = [t for t in as_list(row.get("turns")) if isinstance(t, dict)]
    first = as_list(row.get("prompt_tokens"))
    made = [{"who": "prompt", "text": safe_text("".join(map(str, first))), "tokens": len(first), "trained": 0,
             "reward": None}] if spans else []
    for (start, end, who), span in zip(turn_spans(row), spans, strict=True):
        if not 0 <= start <= end <= len(tokens):
            continue  # a file that somebody has changed
        wrote, trained = tokens[int(start):int(end)], mask[int(start):int(end)]
        made.append({"who": who, "text": safe_text("".join(map(str, wrote))), "tokens": len(wrote),
                     "trained": sum(bool(finite_number(x)) for x in trained),
                     "reward": finite_number(span.get("reward"))})
    return made


def turn_spans(row: JsonDict) -> list[tuple[float, float, str]]:
    """Where the turns of an episode begin and end among its tokens, and who wrote them."""
    spans = [t for t in as_list(row.get("turns")) if isinstance(t, dict)]
    return [(number(t.get("start")), number(t.get("end")), safe_text(t.get("role", ""))) for t in spans]


def token_class(name: str, x: float | None, largest: float) -> str:
    """The class of a token: its kind and a level from 0 to LEVELS.

    'up-6' has the largest advantage of the group.
    """
    v = colour_value(name, x)
    if v is None:
        return "unknown"
    if COLOURS[name][1] == "mask":
        return "size-3" if v else "given"
    level = round(LEVELS * min(1.0, abs(v) / largest)) if largest > 0 else 0
    return f"size-{level}" if COLOURS[name][1] == "size" else f"{'up' if v >= 0 else 'down'}-{level}"


def visible_token(text: object) -> str:
    """A token as it is printed in the strip: a line's end has a sign, and so has a token of spaces alone."""
    shown = safe_text(text)
    shown = shown if shown.strip(" ") else shown.replace(" ", "␣")
    return shown.replace("\n", "↵\n").replace("\t", "⇥")


def step_panel(rows: list[JsonDict], neighbours: tuple[int | None, int | None], ends: tuple[int, int],
               at: int,
               picked: int, colour: str) -> JsonDict:
    """What the page shows of one step: a group, and the tokens of one of its samples.

    neighbours: the logged steps before and after it. ends: the first and the last that there are.
    """
    found = prompt_groups(rows)
    at = min(at, len(found) - 1)
    shown_group = found[at]
    picked = min(picked, len(shown_group["rows"]) - 1)
    ways = available_colours(rows)
    colour = colour if colour in ways or not ways else ways[0]
    largest, one = colour_scale(rows, colour), shown_group["rows"][picked]
    return {"step": rows[0]["step"], "before": neighbours[0], "after": neighbours[1], "first": ends[0],
            "last": ends[1], "groups": found, "group": shown_group, "at": at, "picked": picked, "sample": one,
            "colour": colour, "ways": [(key, COLOURS[key][0]) for key in ways], "says": COLOURS[colour][2],
            "kind": COLOURS[colour][1], "largest": largest, "strip": token_strip(one["raw"], colour, largest),
            "episode": episode_turns(one["raw"])}


def safe_row(value: object) -> object:
    """A logged row with texts that cannot steer a page, and without what JSON has no word for."""
    if isinstance(value, dict):
        return {safe_text(key): safe_row(x) for key, x in value.items()}
    if isinstance(value, list):
        return [safe_row(x) for x in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return safe_text(value) if isinstance(value, str) else value


WORKED = {
    "group_zscore": r"\hat A_i = \frac{r_i - \bar r}{\sigma} = \frac{%s - %s}{%s} = %s",
    "group_centre": r"\hat A_i = r_i - \bar r = %s - %s = %s",
    "leave_one_out": r"\hat A_i = \tfrac{G}{G-1}\,(r_i - \bar r) = \tfrac{%s}{%s}\,(%s - %s) = %s",
}


# of the scores of one group, and of no more
BY_SCORES = ("raw", "group_zscore", "group_centre", "leave_one_out", "over_mean")


def worked_advantages(group: JsonDict, method: str, config: JsonDict, row: object = None) -> JsonDict:
    """The group's advantages once more, by the function that trained: {"function", "adv", "gap"}; or {"why"}
    where they hang on what is not logged. row: as the run keeps it."""
    import torch

    from postgrad import methods
    from postgrad.maths import credit
    row = row if isinstance(row, dict) else methods.describe_row(methods.get_method(method))
    assert isinstance(row, dict)
    kept = row.get("constants", {})
    (home, _, name) = row.get("functions", {}).get("credit", "").rpartition(".")
    if row.get("kind") != "policy":
        return {"why": f"{method} takes no advantages: it compares, or imitates."}
    if kept.get("critic"):
        return {"why": f"{method} asks a critic, token by token; the advantages that it gave are in "
                       "the strip below."}
    if home != "postgrad.maths.credit":
        return {"why": f"{method} has a credit function of its own, {name}; the advantages that it gave "
                       "are in the strip."}
    if name not in BY_SCORES or kept.get("whiten"):
        return {"why": f"{method} looks at more than the scores of a group; the advantages that came out "
                       "are in the strip."}
    if kept.get("kl_in_reward"):
        return {"why": f"{method} has its KL inside the reward, token by token; the advantages that came out "
                       "are in the strip."}
    rows = [s["raw"] for s in group["rows"]]
    scores = torch.tensor([finite_number(r.get("score")) or 0.0 for r in rows], dtype=torch.float32)
    if kept.get("overlong"):
        budget = int(config["rollouts"]["max_new_tokens"])
        scores += credit.overlong(torch.tensor([len(r["tokens"]) for r in rows]), budget, max(1, budget // 5))
    mask = torch.tensor([[any(as_list(token_columns(r).get("mask", [1])))] for r in rows], dtype=torch.bool)
    adv = getattr(credit, name)(credit.place_reward(scores, mask), mask, len(rows))[:, 0].tolist()
    gap = max((abs(a - s["adv"]) for a, s in zip(adv, group["rows"], strict=True) if s["adv"] is not None),
              default=0.0)
    return {"function": f"{home}.{name}", "name": name, "scores": scores.tolist(),
            "adv": adv, "gap": gap, "rows": len(rows)}
