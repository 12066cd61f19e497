"""What more samples buy, and how different they are: figures of samples that are drawn and judged."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from postgrad.evaluation.examine import SHARE, passed, with_interval
from postgrad.maths.diversity import distinct, repetition, words
from postgrad.maths.intervals import mean_interval
from postgrad.maths.passk import best_of_n, majority_at_k, pass_at_k
from postgrad.records import Prompt, Reward, Scored
from postgrad.rewards.format import find_marked
from postgrad.rewards.number import bare_number, last_number, parse_number

Groups = Sequence[Sequence[Scored]]


def spent(samples: int) -> list[int]:
    """How many samples a curve looks at: 1, 2, 4, 8 ..., and all of them."""
    return sorted({samples, *(2**i for i in range(samples.bit_length()) if 2**i <= samples)})


def answer_of(prompt: Prompt, text: str) -> Hashable | None:
    """What a reply says the answer is: what it marks as one (<answer>, a box, ####, "the answer is"), else
    its last number where the gold answer is a number; None where it says none. Numbers are compared as
    numbers."""
    said = find_marked(text)
    if said is None and isinstance(prompt.answer, str | int) and parse_number(str(prompt.answer)) is not None:
        said = last_number(text)
    if not said:
        return None
    value = parse_number(bare_number(said))
    return said if value is None else value


def answers_in(task, groups: Groups) -> list[list[Hashable | None]] | None:
    """The answer of every sample; None where replies are not read by one, so that there is nothing to vote
    on: no sample has an answer, or a right one has none, or an episode is judged and not its last reply."""
    if task.plays:
        return None
    found = [[answer_of(s.rollout.prompt, s.rollout.text) for s in group] for group in groups]
    pairs = [(a, s) for said, group in zip(found, groups, strict=True)
             for a, s in zip(said, group, strict=True)]
    silent = any(a is None and passed(task, s) for a, s in pairs)
    return None if silent or all(a is None for a, _ in pairs) else found


def curve(task, groups: Groups, rankers: Mapping[str, Reward]) -> tuple[list[dict], str]:
    """A row for each number of samples spent: the share of problems solved, with intervals over problems,

        pass@k    where the verifier itself picks one of k samples, a right one if there is any
        maj@k     where the most frequent answer is taken, ties shared
        best@k/R  where the sample is taken that ranker R scores highest

    each the exact mean over every way to draw k of the samples. The second says why there is no vote, or "".
    A problem with fewer judged samples than k gives what its own give.
    """
    right = [[passed(task, s) for s in group] for group in groups]
    answers = answers_in(task, groups)
    ranked = {name: scores_of(ranker, groups) for name, ranker in rankers.items()}
    ks = spent(max(map(len, groups)))

    def figure(name: str, k: int, of: Callable[[int, int], float]) -> dict:
        values = [of(i, min(k, len(group))) for i, group in enumerate(groups)]
        return with_interval(name, mean_interval(values, SHARE))

    votes = [majority_at_k(said, hits, [min(k, len(hits)) for k in ks])
             for said, hits in zip(answers, right, strict=True)] if answers else []
    rows = []
    for at, k in enumerate(ks):
        row = {"k": k, **figure("pass@k", k, lambda i, k: pass_at_k(len(right[i]), sum(right[i]), k))}
        if votes:
            row |= figure("maj@k", k, lambda i, _, at=at: votes[i][at])
        for name, scores in ranked.items():
            row |= figure(f"best@k/{name}", k, lambda i, k, s=scores: best_of_n(s[i], right[i], k))
        rows.append(row)
    return rows, "" if votes else f"replies to {task.name} mark no answer that could be counted"


def scores_of(ranker: Reward, groups: Groups) -> list[list[float]]:
    """What a ranker says of every sample; one that it could not judge comes last."""
    said = iter(ranker.score([s.rollout for group in groups for s in group]))
    return [[v.score if (v := next(said)).given else float("-inf") for _ in group] for group in groups]


def diversity(task, groups: Groups) -> dict:
    """How different the samples of a problem are: means over problems, with intervals.

    distinct-1, distinct-2    different words, and pairs of words in a row, over all of them
    different_replies         the share of a problem's samples that differ as texts
    different_answers         how many different answers its samples give, where replies mark one
    repetition                the share of a reply that repeats itself
    """
    texts = [[words(s.rollout.text) for s in group] for group in groups]
    shares = {
        "distinct-1": [distinct(said, 1) for said in texts],
        "distinct-2": [distinct(said, 2) for said in texts],
        "different_replies": [len({s.rollout.text for s in group}) / len(group) for group in groups],
        "repetition": [sum(repetition(s.rollout.sampled) for s in group) / len(group) for group in groups],
    }
    out = {key: value for name, found in shares.items()
           for key, value in with_interval(name, mean_interval(found, SHARE)).items()}
    if answers := answers_in(task, groups):
        counts = [float(len(set(said) - {None})) for said in answers]
        out |= with_interval("different_answers", mean_interval(counts, (0.0, float(max(map(len, groups))))))
    return out
