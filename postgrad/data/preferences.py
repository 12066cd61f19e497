"""Preference files: pairs, rankings and labelled singles as records. Errors name the line; repeats and
contradictions are counted, never dropped."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from postgrad.data.rows import (
    BadRows,
    DataRow,
    Source,
    Understood,
    gather_rows,
    is_trained,
    meant_for,
    read_messages,
    read_tools,
    records_of_kind,
    refuse_columns,
    source_name,
)
from postgrad.records import Completion, Conversation, Message, Pair, without_training
from postgrad.system.disk_list import select

RowT = TypeVar("RowT", Pair, Conversation)
MOST_ANSWERS = 200   # to one prompt: 19,900 pairs
FEWEST_PROMPTS = 20  # a file with fewer has no held-out rows


def read_pairs(source: Source, bad: BadRows | None = None) -> Sequence[Pair]:
    """Rows {"prompt", "chosen", "rejected"}: texts, or lists of messages. Without a prompt, the messages that
    chosen and rejected share at their start are the prompt; a prompt that they begin with is taken once.
    So of texts that are dialogues ("\\n\\nHuman: ...\\n\\nAssistant: ...").
    Optional: "id", "margin" (in units of reward), "tie": true, "tools".

    Or rankings {"prompt", "answers": [...], "ranking": [2, 0, 1]} (best first), or "ranks": [1, 2, 2] (1
    best; equal: a tie).
    """
    bad = bad or BadRows()

    def read(number: str, where: str, row: DataRow) -> list[Pair]:
        row = drop_nulls(row)
        return [replace(pair, where=where) for pair in read_pair_row(row, str(row.get("id", number)), where,
                                                                     bad.understood)]

    return records_of_kind(source, Pair) or gather_rows(source, read, bad)


def drop_nulls(row: DataRow) -> DataRow:
    """The row without null values."""
    return {key: value for key, value in row.items() if value is not None}


def read_pair_row(row: DataRow, name: str, where: str, form: Understood | None = None) -> list[Pair]:
    """The pairs of one row: one, two halves of a tie, or those of a ranking. form: counts what it is."""
    form = form or Understood()
    refuse_columns(row, where)
    if "answers" in row:
        pairs = ranking_pairs(row, name, where)
        form.add("rankings", row, ("prompt", "answers", "ranking", "ranks", "id"), 0)
        return pairs
    for key in ("chosen", "rejected"):
        if not row.get(key):
            raise ValueError(f"{where}: {key!r} is missing or empty; a pair needs both answers"
                             f"{meant_for(row, 'pairs')}.")
    won, lost = row["chosen"], row["rejected"]
    dialogues = [] if "prompt" in row else [read_dialogue(won), read_dialogue(lost)]
    if spoken := bool(dialogues) and all(dialogues):
        won, lost = dialogues
    messages, (chosen, rejected), remark = read_sides(row.get("prompt"), won, lost, where)
    if chosen == rejected:
        raise ValueError(f"{where}: chosen and rejected are the same text, so nothing is preferred: "
                         "remove the line.")
    margin, even = row.get("margin", 0.0), row.get("tie", False)
    if not is_json_number(margin):
        raise ValueError(f"{where}: margin is {margin!r}; it must be a number.")
    if not isinstance(even, bool):
        raise ValueError(f"{where}: tie is {even!r}; it must be true or false.")
    if even and margin:
        raise ValueError(f"{where}: a tie with margin {margin}; neither answer is better, so leave one "
                         "of the two out.")
    texts = all(isinstance(row.get(key), str) for key in ("prompt", "chosen", "rejected"))
    several = any(not isinstance(side, str) and len(side) > 1 for side in (chosen, rejected))
    form.add("prompt, chosen and rejected as texts (a user's and an assistant's turn)" if texts else
             "chosen and rejected as dialogues (Human: and Assistant: are turns)" if spoken else
             "chosen and rejected as messages", row,
             ("prompt", "chosen", "rejected", "margin", "tie", "tools", "id"), 0 if texts else len(messages),
             *([remark] if remark else []),
             *(["of an answer of several turns the assistant's are trained"] if several else []))
    pair = Pair(id=name, messages=messages, chosen=chosen, rejected=rejected, margin=float(margin),
                tools=read_tools(row.get("tools"), where))
    return split_tie(pair) if even else [pair]


def read_dialogue(text: object) -> list[Message]:
    """The turns of a text "\\n\\nHuman: ...\\n\\nAssistant: ...", as in HH-RLHF; none of other texts."""
    first, *rest = re.split(r"(?:\A\s*|\n\n)(Human|Assistant):", text) if isinstance(text, str) else [""]
    if first.strip() or "Assistant" not in rest[::2]:
        return []
    return [{"role": "user" if who == "Human" else "assistant", "content": text.strip()}
            for who, text in zip(rest[::2], rest[1::2], strict=True)]


def read_sides(prompt: object, chosen: object, rejected: object,
               where: str) -> tuple[tuple[Message, ...], tuple[Completion, Completion], str]:
    """The prompt's messages, the two completions, and a remark where a part stood twice and is taken once."""
    if isinstance(prompt, str) and not prompt.strip():
        raise ValueError(f"{where}: the prompt is empty.")
    sides = [({"role": "assistant", "content": side},) if isinstance(side, str) else
             read_messages(side, f"{where}, {name}")
             for name, side in (("chosen", chosen), ("rejected", rejected))]
    for name, side in zip(("chosen", "rejected"), sides, strict=True):
        last = side[-1]
        if last["role"] != "assistant" or not (last["content"].strip() or last.get("tool_calls")):
            raise ValueError(f"{where}: {name} is empty; it must be text, or messages that end with "
                             "an assistant's.")
    shortest = min(map(len, sides)) - 1  # each side keeps its last message
    shared = next((i for i in range(shortest) if sides[0][i] != sides[1][i]), shortest)
    remark = ""
    if prompt is not None and not isinstance(prompt, str):
        messages = read_messages(prompt, f"{where}, prompt")
        shared = len(messages) if messages == sides[0][:shared][: len(messages)] else 0
        remark = "the prompt stands in chosen and rejected too, and is taken once" if shared else ""
    elif isinstance(prompt, str) and all(side[0]["role"] == "assistant" for side in sides):
        messages, shared = ({"role": "user", "content": prompt},), 0
    else:
        messages = sides[0][:shared]
        if prompt is not None and shared:
            same = any(isinstance(prompt, str) and prompt.strip() == m["content"].strip() for m in messages)
            remark = ("the prompt stands in chosen and rejected too, and is taken once" if same else
                      "the prompt is what chosen and rejected begin with; the column 'prompt' says something "
                      "else, and is ignored")
    if not messages and (prompt is not None or sides[0][0] != sides[1][0] and "user" in (
            side[0]["role"] for side in sides)):
        raise ValueError(f"{where}: chosen and rejected must answer the same prompt.")
    if not messages:
        raise ValueError(f"{where}: there is no prompt, in 'prompt' or before the answer.")
    rest = [side[shared:] for side in sides]
    if any(side[0]["role"] not in ("assistant", "tool") for side in rest):
        raise ValueError(f"{where}: chosen and rejected must answer the same prompt.")
    won, lost = (_completion(side) for side in rest)
    return messages, (won, lost), remark


def _completion(messages: tuple[Message, ...]) -> Completion:
    """One plain reply as its text."""
    return (messages[0]["content"] if len(messages) == 1 and messages[0].keys() == {"role", "content"}
            else messages)


def split_tie(pair: Pair) -> list[Pair]:
    """A tie as two pairs, swapped, of half the weight."""
    half = replace(pair, weight=pair.weight / 2, tie=True)
    return [replace(half, id=f"{pair.id}="),
            replace(half, id=f"{pair.id}=swapped", chosen=pair.rejected, rejected=pair.chosen)]


def ranking_pairs(row: DataRow, name: str, where: str) -> list[Pair]:
    """All k(k-1)/2 pairs of a ranking of k answers, each of weight 1/(k-1), as in InstructGPT (Ouyang et al.
    2022, 2203.02155, 3.5).

    They found that pairs spread over an epoch overfit: each answer is trained on k-1 times. Weight 1/(k-1)
    gives every answer a total of 1, as in a single pair. (Their 1/C(k,2) gives every ranking 1; for rankings
    of one length the two differ by a constant that the normaliser removes.)
    """
    messages, answers = answers_of(row, where)
    if row.get("margin") or row.get("tie"):
        raise ValueError(f"{where}: a ranking has no margin and no tie: say what is equal with "
                         "equal 'ranks'.")
    ranks, k = ranks_of(row, len(answers), where), len(answers)
    out = []
    for i, j in combinations(sorted(range(k), key=lambda i: ranks[i]), 2):
        pair = Pair(id=f"{name}:{i},{j}", messages=messages, chosen=answers[i], rejected=answers[j],
                    weight=1 / (k - 1))
        out += split_tie(pair) if ranks[i] == ranks[j] else [pair]
    return out


def answers_of(row: DataRow, where: str) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The prompt and the distinct answers, at least two, of a row with "answers"."""
    given = row["answers"]
    if not isinstance(given, list) or len(given) < 2:
        raise ValueError(f"{where}: 'answers' must be a list of two or more.")
    if len(given) > MOST_ANSWERS:
        raise ValueError(f"{where}: there are {len(given):,} answers, and at most {MOST_ANSWERS} are "
                         "compared, each with each: split the line.")
    messages, answers = read_answers(row.get("prompt"), {f"answer {i}": text for i, text in enumerate(given)},
                                     where)
    for i, j in combinations(range(len(answers)), 2):
        if answers[i] == answers[j]:
            raise ValueError(f"{where}: answers {i} and {j} are the same text, so neither is "
                             "preferred: remove one.")
    return messages, answers


def ranks_of(row: DataRow, k: int, where: str) -> list[float]:
    """The rank of each answer, best lowest, from "ranking" (indices, best first) or "ranks"."""
    if ("ranking" in row) == ("ranks" in row):
        raise ValueError(f"{where}: answers need either 'ranking' (their numbers, best first) or 'ranks' (a "
                         "rank for each). To have them labelled: postgrad label import.")
    given = row["ranking"] if "ranking" in row else row["ranks"]
    if not isinstance(given, list) or not all(map(is_json_number, given)):
        raise ValueError(f"{where}: {json.dumps(given)[:60]} is no list of numbers.")
    if "ranks" in row:
        if len(given) != k:
            raise ValueError(f"{where}: ranks {given} for {k} answers; give each answer one.")
        return given
    if sorted(given) != list(range(k)):
        raise ValueError(f"{where}: ranking {given} must name each of the {k} answers once, by its number "
                         f"from 0 to {k - 1}.")
    return [given.index(i) for i in range(k)]


def is_json_number(x: object) -> bool:
    """Whether x is a finite number, and no bool."""
    return isinstance(x, int | float) and not isinstance(x, bool) and abs(x) <= sys.float_info.max


def read_singles(source: Source, bad: BadRows | None = None) -> Sequence[Conversation]:
    """Rows {"messages", "label"} or {"prompt", "completion", "label"} for KTO; label: whether the last answer
    is wanted."""
    bad = bad or BadRows()
    out = records_of_kind(source, Conversation) or gather_rows(
        source, partial(_single, form=bad.understood), bad)
    if len({single.label for single in out}) == 1:
        raise ValueError(f"{source_name(source)}: all {len(out)} labels are {json.dumps(out[0].label)}; KTO "
                         "weighs wanted against unwanted answers, so it needs both.")
    return out


def _single(number: str, where: str, row: DataRow, *, form: Understood) -> list[Conversation]:
    row = drop_nulls(row)
    refuse_columns(row, where)
    if "label" not in row:
        raise ValueError(f"{where}: the label is missing, true for a wanted answer, false for an unwanted one"
                         f"{meant_for(row, 'labelled')}.")
    if row["label"] not in (0, 1):
        raise ValueError(f"{where}: label is {json.dumps(row['label'])[:40]}; it must be true or "
                         "false (or 1 or 0).")
    key = "messages" if "messages" in row else "completion"
    if key not in row:
        raise ValueError(f"{where}: expected 'messages', or 'prompt' and 'completion', with 'label'; "
                         f"found {', '.join(sorted(row))}.")
    prompt = () if key == "messages" or "prompt" not in row else read_side(row["prompt"], "user",
                                                                           f"{where}, prompt")
    answer = read_side(row[key], "assistant", f"{where}, {key}")
    if answer[-1]["role"] != "assistant" or not is_trained(answer[-1]) or not (
            answer[-1]["content"].strip() or answer[-1].get("tool_calls")):
        raise ValueError(f"{where}: {key} is empty; it must be text, or messages that end with "
                         "an assistant's.")
    if not prompt:  # the last turn of a conversation is the answer
        prompt, answer = answer[:-1], answer[-1:]
    if not prompt:
        raise ValueError(f"{where}: there is no prompt, in 'prompt' or before the answer.")
    form.add(f"{key} with labels", row, ("messages", "prompt", "completion", "label", "tools", "id"),
             len(prompt) + len(answer))
    marked = without_training(prompt)
    if len(answer) > 1:  # an explicit weight says that all its assistant's turns are trained
        answer = tuple({"weight": 1, **m} if m["role"] == "assistant" else m for m in answer)
    elif marked != prompt:
        answer = ({**answer[0], "weight": 1},)
    return [Conversation(id=str(row.get("id", number)), messages=(*marked, *answer), label=bool(row["label"]),
                         tools=read_tools(row.get("tools"), where), where=where)]


def read_side(value: object, role: str, where: str) -> tuple[Message, ...]:
    """A text as one turn of a role, or messages."""
    if isinstance(value, str) and role == "user" and not value.strip():
        raise ValueError(f"{where} is empty.")
    return ({"role": role, "content": value},) if isinstance(value, str) else read_messages(value, where)


def read_answers(prompt: object, answers: Mapping[str, object],
                 where: str) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """The prompt's messages and the answers' texts. Each may be text or messages; the answers may begin with
    the prompt."""
    if isinstance(prompt, str) and not prompt.strip():
        raise ValueError(f"{where}: the prompt is empty.")
    before = (() if prompt is None else read_messages(prompt, f"{where}, prompt")
              if not isinstance(prompt, str) else ({"role": "user", "content": prompt},))
    found = []
    for name, value in answers.items():
        *lead, last = ({"role": "assistant", "content": value},) if isinstance(value, str) else \
            read_messages(value, f"{where}, {name}")
        if last["role"] != "assistant" or not last["content"].strip():
            raise ValueError(f"{where}: {name} is empty; it must be text, or messages that end with "
                             "an assistant's.")
        found.append(((*before, *lead), last["content"]))
    ask = found[0][0]
    if not ask:
        raise ValueError(f"{where}: there is no prompt, in 'prompt' or before the answer.")
    if any(other != ask for other, _ in found):
        raise ValueError(f"{where}: {' and '.join(answers)} must answer the same prompt.")
    return ask, tuple(text for _, text in found)


def ask_of(messages: Sequence[Message]) -> str:
    """A prompt as one text, equal for equal messages."""
    return json.dumps([[m["role"], m["content"], *more] if (more := [
        [key, m[key]] for key in sorted(m.keys() - {"role", "content", "weight"})])
        else [m["role"], m["content"]] for m in messages])


def completion_key(completion: Completion) -> str:
    """A completion as one text, equal for equal ones."""
    return completion if isinstance(completion, str) else ask_of(completion)


def prompt_messages(row: Pair | Conversation) -> tuple[Message, ...]:
    return row.messages if isinstance(row, Pair) else row.prompt


def split_rows(rows: Sequence[RowT], share: float = 0.1,
               most: float = math.inf) -> tuple[Sequence[RowT], Sequence[RowT]]:
    """(train, held out): holds out a share of the prompts, at most `most`, the first by a hash, with all
    their rows. So no prompt is on both sides. Nothing is held out of fewer than FEWEST_PROMPTS."""
    ((train, held_out),) = split_sources([rows], share, most)
    return train, held_out


def split_sources(sources: Sequence[Sequence[RowT]], share: float,
                  most: float = math.inf) -> list[tuple[Sequence[RowT], Sequence[RowT]]]:
    """`split_rows` of several sources at once: a prompt is held out in all of them."""
    hashes = [prompt_hashes(rows) for rows in sources]
    distinct = np.unique(np.concatenate(hashes))  # in the order of the hashes
    wanted = max(1, int(min(round(len(distinct) * share, 6), most))) if share else 0
    held = [np.isin(part, distinct[:wanted if len(distinct) >= FEWEST_PROMPTS else 0]) for part in hashes]
    return [(select(rows, np.flatnonzero(~out).tolist()), select(rows, np.flatnonzero(out).tolist()))
            for rows, out in zip(sources, held, strict=True)]


def prompt_hashes(rows: Iterable[Pair | Conversation]) -> NDArray[np.uint64]:
    """The first 8 bytes of the SHA-256 of each prompt."""
    digests = (hashlib.sha256(ask_of(prompt_messages(row)).encode()).digest() for row in rows)
    return np.fromiter((int.from_bytes(digest[:8], "big") for digest in digests), np.uint64)


def preference_report(rows: Iterable[Pair | Conversation], shown: int = 5) -> dict[str, Any]:
    """Counts of repeated and contradicted judgements, with the first ids of each. A tie contradicts nothing.

    {"judgements": 3, "ties": 0, "prompts": 1, "repeated": 1, "repeats": [["1", "3"]], "contradicted": 1,
    "contradictions": [["1", "2"]]}: 3 repeats 1, 2 contradicts it.
    """
    judged: dict[int, dict[object, list[str]]] = defaultdict(lambda: defaultdict(list))  # by a hash
    prompts, answers, side = set[int](), tuple[str, ...](), object()
    for row in rows:
        if isinstance(row, Conversation):
            ask, answers, side = ask_of(row.messages[:-1]), (row.messages[-1]["content"],), row.label
        else:
            chosen, rejected = completion_key(row.chosen), completion_key(row.rejected)
            if row.tie and chosen > rejected:  # the other half of the same tie
                continue
            ask, answers = ask_of(row.messages), tuple(sorted((chosen, rejected)))
            side = "tie" if row.tie else answers.index(chosen)
        prompts.add(hash(ask))
        judged[hash((ask, *answers))][side].append(row.id)
    repeats = [[ids[0], again] for sides in judged.values() for ids in sides.values() for again in ids[1:]]
    clear = [[ids for side, ids in sides.items() if side != "tie"] for sides in judged.values()]
    both = [list(two) for sides in clear if len(sides) == 2 for two in zip(*sides, strict=False)]
    return {"judgements": sum(len(ids) for sides in judged.values() for ids in sides.values()),
            "ties": sum(len(sides.get("tie", ())) for sides in judged.values()),
            "prompts": len(prompts), "repeated": len(repeats), "repeats": repeats[:shown],
            "contradicted": len(both), "contradictions": both[:shown]}


def preference_sentence(counts: Mapping[str, Any]) -> str:
    """A report in words: "3 judgements on 1 prompts, 1 repeated (1 and 3)"."""
    def some(count: int, what: str, ids: Sequence[Sequence[str]]) -> str:
        more = ", ..." if count > len(ids) else ""
        return f", {count} {what} ({', '.join(f'{x} and {y}' for x, y in ids)}{more})" if count else ""

    return (f"{counts['judgements']} judgements on {counts['prompts']} prompts"
            + some(counts["repeated"], "repeated", counts["repeats"])
            + some(counts["contradicted"], "labelled both ways", counts["contradictions"]))
