"""Test-time compute: pass@k, majority vote and best-of-n against the samples spent; and diversity."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import partial

from postgrad.evaluation.evaluate import SHARE, EvalTask, Figures, Groups, passed, with_interval
from postgrad.maths.diversity import distinct_n, repetition, word_tokens
from postgrad.maths.intervals import mean_interval
from postgrad.maths.passk import best_of_n, majority_at_k, pass_at_k
from postgrad.records import Prompt, Reward
from postgrad.rewards.format import find_marked
from postgrad.rewards.number import bare_number, last_number, parse_number


def sample_counts(samples: int) -> list[int]:
    """The numbers of samples of a curve: 1, 2, 4, 8 ..., and all of them."""
    return sorted({samples, *(2**i for i in range(samples.bit_length()) if 2**i <= samples)})


def answer_in_reply(prompt: Prompt, text: str) -> Hashable | None:
    """The answer that a reply marks (<answer>, a box, ####, "the answer is"), else its last number where the
    gold answer is a number; None where there is neither. A number is given as a Fraction, so that 5 = 5.0."""
    answer = find_marked(text)
    if (answer is None and isinstance(prompt.answer, str | int)
            and parse_number(str(prompt.answer)) is not None):
        answer = last_number(text)
    if not answer:
        return None
    value = parse_number(bare_number(answer))
    return answer if value is None else value


def answers_in(task: EvalTask, groups: Groups) -> list[list[Hashable | None]] | None:
    """The answer of every sample. None where there is nothing to vote on: no sample has an answer, a right
    one has none, or the task plays episodes."""
    if task.plays:
        return None
    answers = [[answer_in_reply(s.rollout.prompt, s.rollout.text) for s in group] for group in groups]
    pairs = [(a, s) for row, group in zip(answers, groups, strict=True)
             for a, s in zip(row, group, strict=True)]
    unmarked = any(a is None and passed(task, s) for a, s in pairs)
    return None if unmarked or all(a is None for a, _ in pairs) else answers


def compute_curve(task: EvalTask, groups: Groups,
                  rankers: Mapping[str, Reward]) -> tuple[list[Figures], str]:
    """A row for each number k of samples spent: the share of problems solved, with intervals over problems,

        pass@k    where the verifier itself picks one of k samples, a right one if there is any
        maj@k     where the most frequent answer is taken, ties shared
        best@k/R  where the sample is taken that ranker R scores highest

    each the exact mean over every way to draw k of the samples. The second value says why there is no vote,
    or "". A problem with fewer than k scored samples uses all it has.
    """
    right = [[passed(task, s) for s in group] for group in groups]
    answers = answers_in(task, groups)
    ranked = {name: ranker_scores(ranker, groups) for name, ranker in rankers.items()}
    ks = sample_counts(max(map(len, groups)))

    def figure(name: str, k: int, of: Callable[[int, int], float]) -> Figures:
        values = [of(i, min(k, len(group))) for i, group in enumerate(groups)]
        return with_interval(name, mean_interval(values, SHARE))

    votes = [majority_at_k(row, hits, [min(k, len(hits)) for k in ks])
             for row, hits in zip(answers, right, strict=True)] if answers else []
    rows: list[Figures] = []
    for at, k in enumerate(ks):
        row: Figures = {"k": k,
                        **figure("pass@k", k, lambda i, k: pass_at_k(len(right[i]), sum(right[i]), k))}
        if votes:
            row |= figure("maj@k", k, partial(_vote, votes, at))
        for name, scores in ranked.items():
            row |= figure(f"best@k/{name}", k, partial(_best, scores, right))
        rows.append(row)
    return rows, "" if votes else f"replies to {task.name} mark no answer that could be counted"


def _vote(votes: list[list[float]], at: int, problem: int, k: int) -> float:
    return votes[problem][at]


def _best(scores: list[list[float]], right: list[list[bool]], problem: int, k: int) -> float:
    return best_of_n(scores[problem], right[problem], k)


def ranker_scores(ranker: Reward, groups: Groups) -> list[list[float]]:
    """A ranker's score of every sample; -inf where it gives none."""
    verdicts = iter(ranker.score([s.rollout for group in groups for s in group]))
    return [[v.score if (v := next(verdicts)).given else float("-inf") for _ in group] for group in groups]


def diversity(task: EvalTask, groups: Groups) -> Figures:
    """How different the samples of a problem are: means over problems, with intervals.

    distinct-1, distinct-2    different words, and pairs of words in a row, over all of them
    different_replies         the share of a problem's samples that differ as texts
    different_answers         how many different answers its samples give, where replies mark one
    repetition                the share of a reply that repeats itself
    """
    texts = [[word_tokens(s.rollout.text) for s in group] for group in groups]
    shares = {
        "distinct-1": [distinct_n(said, 1) for said in texts],
        "distinct-2": [distinct_n(said, 2) for said in texts],
        "different_replies": [len({s.rollout.text for s in group}) / len(group) for group in groups],
        "repetition": [sum(repetition(s.rollout.sampled) for s in group) / len(group) for group in groups],
    }
    out: Figures = {}
    for name, values in shares.items():
        out |= with_interval(name, mean_interval(values, SHARE))
    if answers := answers_in(task, groups):
        counts = [float(len(set(said) - {None})) for said in answers]
        out |= with_interval("different_answers", mean_interval(counts, (0.0, float(max(map(len, groups))))))
    return out
