"""A look before the first step: a few probe replies, and what they say of the run to come.

    postgrad doctor --before grpo:words model=MINE

A run that samples takes it by itself, once everything is built and before its folder is made (on_look). The
probes come from a sampler and a seed of their own, so the run's own samples are what they would have been.
The limits are wide, as 64 replies are few: what is named is far outside what healthy runs show
(tests/recipes/look_test.py, proofs/truth.py look). Left out on purpose: anything that needs an update; the
doctor reads those from the run's figures.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import torch

from postgrad.data.tasks import Task
from postgrad.data.tasks.base import gold_demonstrations
from postgrad.evaluation import mean_of, passed
from postgrad.maths.diversity import repetition
from postgrad.maths.noise import seed_of
from postgrad.maths.passk import pass_at_k
from postgrad.methods import Policy
from postgrad.models.chat import Chat
from postgrad.models.families import Config
from postgrad.recipes.base import Probes, RunConfig, TrainingSetup
from postgrad.recipes.defaults import gpu_bytes, memory_needs, model_size
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.recipes.row_reader import RowSettings
from postgrad.recipes.sft import SFTConfig
from postgrad.records import Conversation, Scored
from postgrad.runs.display import duration
from postgrad.runs.doctor.limits import ERRORS, LEAKED, REPEATED
from postgrad.sampling import Sampling
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.batches.rollouts import is_flat
from postgrad.training.batches.shuffled import model_logp
from postgrad.training.distributed.sharding import unshard
from postgrad.training.memory import GB
from postgrad.training.oom import oom_phase

PROMPTS, GROUP = 8, 8  # of the probes: 64 replies
CUT = 0.25       # of the replies, at the limit: a cut answer cannot be right
LOOPS = 0.5      # of a reply's runs of four tokens were written before: it would not end in twice the room
UNPAID = 5       # replies more that are right leniently than strictly, and twice as many: 5 of 64, no chance
SOLVED = 0.95    # of the replies right: little is left to learn
NARROW = 0.75    # of the groups flat, two texts to a group: the model is certain
FORM_STEPS, FORM_ROWS = 20, 32  # of the SFT on gold that shows the form
SFT = "sft"      # of an offer that is no setting
WORTH = 10       # times the probes' replies: a run that samples fewer is over before a look pays
# what templates write as single tokens
MARK = re.compile(r"<\|[^\s<>|]+\|>|<\uff5c[^\s<>]+\uff5c>|<(?:start|end)_of_turn>")
SHOWN = 400      # characters of a text


class Concern(NamedTuple):
    """offer: the settings that cure it, where settings can; {"sft": steps}: SFT on gold replies first."""

    name: str
    evidence: str
    remedy: str
    offer: Mapping[str, int] = {}


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look found. prompt, reply: as the model reads and writes them, special tokens by name."""

    concerns: tuple[Concern, ...]
    figures: Mapping[str, float | int | None]
    prompt: str = ""
    reply: str = ""
    stop: tuple[str, ...] = ()
    seconds: float = field(default=0.0, compare=False)

    @property
    def offer(self) -> dict[str, int]:
        """All offers together."""
        return {name: value for concern in self.concerns for name, value in concern.offer.items()}

    @property
    def all_flat(self) -> bool:
        """Whether no group of the probes, judged at all, has two different scores: none has a gradient."""
        f = self.figures
        return bool(f.get("groups")) and f["flat"] == f["groups"] and f["errors"] != f["replies"]

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"concerns": [c._asdict() | {"offer": dict(c.offer)} for c in self.concerns],
                               "figures": dict(self.figures)}

    @property
    def sentence(self) -> str:
        """The look in one line."""
        f, parts = self.figures, []
        if f.get("replies"):
            parts.append(f"{f['replies']} probe replies: {f['cut']:.0%} cut, {f['flat']} of {f['groups']} "
                         "groups flat")
        if f.get("pass@1") is not None:
            lenient = f", lenient {f['lenient']:.0%}" if f.get("lenient") is not None else ""
            parts.append(f"pass@1 {f['pass@1']:.0%} (greedy {f['greedy']:.0%}, pass@{f['k']} "
                         f"{f['pass@k']:.0%}{lenient})")
        if f.get("run_seconds"):
            parts.append(f"about {duration(f['run_seconds'] or 0)} to come")
        return ", ".join(parts)

    def notes(self) -> list[str]:
        """What a run says of it: a line, and one for each concern."""
        return [f"before the first step, {self.sentence}" if self.sentence else "before the first step",
                *(f"{c.name}: {c.evidence}; {c.remedy}" for c in self.concerns)]

    def lines(self) -> Iterator[str]:
        """One screen."""
        f = self.figures
        if f.get("replies"):
            yield f"replies    {self.sentence}"
            yield (f"reward     {f['least']:.3g} to {f['most']:.3g}, mean {f['reward']:.3g}; {f['errors']} "
                   f"could not be judged; mean length {f['length']:.0f} of at most {f['limit']}")
        yield (f"prompts    {f['prompts']:,}, {f['repeated']:,} repeat another; {f['evaluated']:,} "
               f"evaluated, {f['leaked']:,} of them trained on too")
        if f.get("memory"):
            room = f" of the GPU's {(f['gpu'] or 0) / GB:.1f} GB" if f.get("gpu") else ""
            seen = f"; the probes took {(f['measured'] or 0) / GB:.2f} GB" if f.get("measured") else ""
            yield f"memory     {(f['memory'] or 0) / GB:.2f} GB by the estimate{room}{seen}"
        if f.get("run_replies"):
            yield (f"to come    {f['steps']:,} steps, {f['run_replies']:,} replies, {f['run_tokens']:,} "
                   f"sampled tokens, about {duration(f['run_seconds'] or 0)}")
        if self.prompt:
            yield f"prompt     {self.prompt!r}"
        if self.reply:
            yield f"reply      {self.reply!r} (what is trained on; it ends with {' or '.join(self.stop)})"
        for number, concern in enumerate(self.concerns, start=1):
            yield f"\n{number}. {concern.name}: {concern.evidence}.\n   do: {concern.remedy}."
        if not self.concerns:
            yield "\nNothing wrong was found."


# what is looked at

def template_concerns(chat: Chat) -> Iterator[Concern]:
    """A conversation there and back: marks that are no tokens of the model, a generation prompt that does not
    begin the assistant's turn, a turn that no stop token ends."""
    asked, reply = [{"role": "user", "content": "What is 2+3?"}], "It is 5."
    own = "take the chat template that the model was trained with (chat_template.jinja in its folder)"
    try:
        opened = chat.text_of(asked, reply=True)
        whole = chat.text_of([*asked, {"role": "assistant", "content": reply}], reply=False)
    except ValueError as error:
        yield Concern("wrong template", f"it cannot render a question and its answer ({error})", own)
        return
    if strange := sorted({mark for mark in MARK.findall(whole) if chat.tokenizer.token_to_id(mark) is None}):
        yield Concern("wrong template", f"the template writes {', '.join(strange)}, and the tokenizer has no "
                      "such token: the model reads it letter by letter", own)
    before, _, after = whole.partition(reply)
    rest = re.sub(r"<[^<>]*think[^<>]*>", "", opened.removeprefix(before) if opened.startswith(before)
                  else before.removeprefix(opened) if before.startswith(opened) else "?").strip()
    if rest:
        yield Concern("wrong template", f"a prompt ends with {opened[-30:]!r}, and in a conversation the "
                      f"assistant's reply follows {before[-30:]!r}", own)
    if not any(stop in after for stop in chat.stop_texts):
        yield Concern("wrong template", f"it ends a reply with {after[:30]!r}, and the model's stop tokens "
                      f"are {' and '.join(chat.stop_texts)}", f"{own}, or name its end in "
                      "generation_config.json")


def data_concerns(data: Mapping[str, object], sampled: bool = True) -> Iterator[Concern]:
    """Leaks between the splits, and duplicates. data: as `data_counts` gives it. sampled: the run samples
    replies to its prompts; rows of data may well share one."""
    prompts, repeated, evaluated, leaked = (int(str(data.get(name, 0))) for name in
                                            ("prompts", "repeated", "evaluated", "leaked"))
    if leaked > LEAKED * evaluated:
        yield Concern("leaked split", f"{leaked} of the {evaluated} evaluated problems are trained on too",
                      "take them out of the training rows, or hold prompts out with "
                      "evaluation.holdout_prompts=0.1")
    if sampled and repeated > REPEATED * prompts:
        yield Concern("duplicated prompts", f"{repeated:,} of {prompts:,} training prompts repeat another",
                      "remove the repeats: they weigh as often as they stand there")


def judged_groups(groups: Sequence[Sequence[Scored]]) -> list[list[Scored]]:
    return [sound for group in groups if (sound := [s for s in group if s.verdict.given])]


def reply_concerns(task: Task, groups: Sequence[Sequence[Scored]], limit: int, positions: int,
                   paid: bool = True) -> Iterator[Concern]:
    """Of the probes: cut replies, verdicts, form, groups without a difference. paid: by the task's verifier,
    so that a reply is right or not."""
    rows, judged = [s for group in groups for s in group], judged_groups(groups)
    show = task.gold is not None or task.demonstrations is not None
    sft: dict[str, int] = {SFT: FORM_STEPS} if show else {}
    demonstrate = (f"show the form first, {FORM_STEPS} steps of SFT on gold replies" if show else
                   "show the form first, with postgrad train sft data=FILE.jsonl of a few good replies")
    if errors := len(rows) - sum(map(len, judged)):
        if errors > max(1.0, 5 * ERRORS * len(rows)):
            first = next(s.verdict.error or s.verdict.reason for s in rows if not s.verdict.given)
            yield Concern("verifier fails", f"{errors} of {len(rows)} replies could not be judged "
                          f"({first:.120})", "mend the verifier, or name another judge with reward=")
    if not judged:
        return
    lost = [s for s in rows if not s.rollout.finished]
    right = [s for s in rows if s.verdict.given and passed(task, s)] if paid else []
    loose = [s for s in rows if paid and s.verdict.given and s.verdict.parts.get("lenient", 0.0) >= 1.0]
    if len(lost) > CUT * len(rows):
        evidence = f"{len(lost)} of {len(rows)} replies are cut at {limit} tokens"
        loops = sum(repetition(s.rollout.sampled) > LOOPS for s in lost)
        times = 2 if (len(lost) / len(rows)) ** 2 <= CUT else 4  # twice the room squares the share of a coin
        longer = min(times * limit, positions // 2)
        if loops > len(lost) / 2:
            yield Concern("cut replies", f"{evidence}, {loops} of them in a loop: they would not end in more "
                          "room either", demonstrate, sft)
        elif longer > limit:
            yield Concern("cut replies", evidence, f"set rollouts.max_new_tokens={longer}",
                          {"rollouts.max_new_tokens": longer, "evaluation.max_new_tokens": longer})
        else:
            yield Concern("cut replies", f"{evidence}, half of the model's positions",
                          "take a task with shorter replies, or a model with more positions")
    scores = [s.verdict.score for group in judged for s in group]
    flat = sum(map(is_flat, judged))
    if len(loose) >= max(UNPAID + len(right), 2 * len(right)):
        why = next((s.verdict.reason for s in loose if s.verdict.score < task.best), "")
        yield Concern("form is not paid", f"{len(loose)} of {len(rows)} replies are right and {len(right)} "
                      f"are paid: the others have another form than the verifier asks for ({why})",
                      f"{demonstrate}; or pay the answer alone with a lenient verifier (reward=)", sft)
    elif len(right) >= SOLVED * len(rows):
        yield Concern("no headroom", f"{len(right)} of {len(rows)} replies are right already",
                      "take harder problems")
    elif flat >= NARROW * len(judged) and mean_of(len({s.rollout.text for s in g}) for g in judged) <= 2:
        yield Concern("no headroom", f"{flat} of {len(judged)} groups are flat, and the replies to a prompt "
                      "are nearly the same text: there is nothing to prefer",
                      "take a model that is less certain (an earlier checkpoint), or raise "
                      "rollouts.temperature")
    elif flat == len(judged):
        same = f"{scores[0]:g}" if len({*scores}) == 1 else "one score within each group"
        yield Concern("flat groups", f"all {len(judged)} groups are flat, every reply gets {same}: no "
                      "difference, and so nothing to learn from",
                      f"take easier problems, or {demonstrate}", sft if not right else {})


def probe_figures(task: Task, groups: Sequence[Sequence[Scored]], greedy: Sequence[Scored], limit: int,
                  paid: bool = True) -> dict[str, float | int | None]:
    rows, judged = [s for group in groups for s in group], judged_groups(groups)
    scores = [s.verdict.score for group in judged for s in group] or [0.0]
    right = [(len(group), sum(passed(task, s) for s in group)) for group in judged] if paid else []
    loose = [s.verdict.parts["lenient"] for s in rows if s.verdict.given and "lenient" in s.verdict.parts]
    k = min((n for n, _ in right), default=0)
    return {"replies": len(rows), "groups": len(groups), "k": k, "limit": limit,
            "cut": mean_of(not s.rollout.finished for s in rows),
            "flat": sum(map(is_flat, groups)), "errors": len(rows) - sum(map(len, judged)),
            "reward": mean_of(scores), "least": min(scores), "most": max(scores),
            "length": mean_of(len(s.rollout.sampled) for s in rows),
            "pass@1": mean_of(c / n for n, c in right) if right else None,
            "pass@k": mean_of(pass_at_k(n, c, k) for n, c in right) if right else None,
            "greedy": mean_of(float(passed(task, s)) for s in greedy) if right and greedy else None,
            "lenient": mean_of(loose) if loose and paid else None}


# the look

def is_worth_a_look(config: RolloutConfig) -> bool:
    """Whether a run takes the look by itself."""
    r, collections = config.rollouts, -(-config.last_step // max(1, config.updates_per_collection))
    enough = collections * r.prompts_per_step * r.group_size >= WORTH * PROMPTS * GROUP
    return enough if config.on_look == "ask" else config.on_look != "off"


def take_look(config: RunConfig, setup: TrainingSetup) -> Look:
    """Looks at a run that is built and has not begun. Every rank takes the same look."""
    began, concerns = time.perf_counter(), [*template_concerns(setup.chat)]
    if not (setup.probes and setup.probes.task.plays):  # a game's prompts are alike, its secrets are not
        concerns += data_concerns(setup.data, setup.probes is not None)
    figures: dict[str, float | int | None] = {
        name: int(str(setup.data.get(name, 0))) for name in ("prompts", "repeated", "evaluated", "leaked")}
    figures |= memory_figures(config, setup)
    shown: dict[str, str] = {}
    if isinstance(config, RolloutConfig) and setup.probes:
        probes, limit = setup.probes, config.rollouts.budget
        with oom_phase("sampling"), unshard(setup.models):
            groups, greedy, seconds, forward = draw_probes(config, setup, probes)
        paid = config.reward is None and probes.task.judged
        taught = isinstance(config.row, Policy) and config.row.teacher
        figures |= probe_figures(probes.task, groups, greedy, limit, paid)
        figures |= forecast(config, figures, seconds, forward)
        if figures.get("gpu"):
            figures["measured"] = torch.cuda.max_memory_allocated(config.device)
        found = reply_concerns(probes.task, groups, limit, probes.positions, paid)
        concerns += [c for c in found if not taught or c.name == "cut replies"]
        first = next((s for group in groups for s in group if s.rollout.finished), groups[0][0]).rollout
        shown = {"prompt": clip("".join(setup.chat.pieces(first.prompt_tokens))),
                 "reply": clip("".join(setup.chat.pieces(first.tokens)))}
    gpu, needs = figures.get("gpu"), figures.get("memory")
    if gpu and needs and needs > gpu:
        concerns.append(Concern("memory", f"the run needs {needs / GB:.1f} GB by the estimate, and the GPU "
                                f"has {gpu / GB:.1f}",
                                "lower optim.tokens_per_pass or rollouts.max_concurrent"))
    return Look(concerns=tuple(concerns), figures=figures, stop=setup.chat.stop_texts,
                seconds=time.perf_counter() - began, **shown)


def draw_probes(config: RolloutConfig, setup: TrainingSetup,
                probes: Probes) -> tuple[list[list[Scored]], list[Scored], float, float]:
    """(scored groups, greedy replies, seconds of sampling the groups, seconds of a forward over them)."""
    asked = probes.prompts[:: max(1, len(probes.prompts) // PROMPTS)][:PROMPTS]
    likeliest = Sampling(max_new_tokens=config.rollouts.budget, temperature=0.0)
    seed, began = seed_of(config.seed, "look"), time.perf_counter()
    groups = probes.sampler.sample(asked, GROUP, config.rollouts.sampling, seed)
    seconds = time.perf_counter() - began
    greedy = probes.sampler.sample(asked, 1, likeliest, seed)
    probes.sampler.release()  # its cache and its copy of the weights: the run has a sampler of its own
    verdicts = iter(probes.reward.score([r for group in (*groups, *greedy) for r in group]))
    scored = [[Scored(rollout=r, verdict=next(verdicts)) for r in group] for group in (*groups, *greedy)]
    batch = rollout_batch([r for group in groups for r in group]).to(config.device)
    began = time.perf_counter()
    logp, _ = model_logp(setup.models.policy, batch, config.optim.at_once)
    logp.sum().item()
    return scored[: len(groups)], [s for (s,) in scored[len(groups):]], seconds, time.perf_counter() - began


def forecast(config: RolloutConfig, figures: Mapping[str, float | int | None], seconds: float,
             forward: float) -> dict[str, float | int | None]:
    """Replies, tokens and seconds of the run, from the probes' own: an update costs three forwards, a
    reference one more. On a GPU as many rows as a sampler takes at once cost what the probes cost."""
    r, how, updates = config.rollouts, config.evaluation, config.updates_per_collection
    rows, steps = r.prompts_per_step * r.group_size, config.last_step
    collections = -(-steps // max(1, updates))
    evaluations = 1 + steps // how.every if how.every else 0
    replies = collections * rows + evaluations * how.problems * how.samples
    probed, length = figures["replies"] or 1, figures["length"] or 0
    on_gpu = config.device.startswith("cuda")
    draws = (collections * -(-rows // r.max_concurrent) + evaluations) if on_gpu else replies / probed
    epochs = config.row.epochs if isinstance(config.row, Policy) else 1
    passes = (3 * epochs + config.row.needs_reference) * collections * rows / probed
    return {"steps": steps, "run_replies": replies, "run_tokens": round(replies * length),
            "run_seconds": draws * seconds + passes * forward}


def memory_figures(config: RunConfig, setup: TrainingSetup) -> dict[str, float | int | None]:
    shape = model_size(setup.source.origin).shape if setup.source else None
    if not isinstance(shape, Config):
        return {}
    return {"memory": memory_needs(config, shape).peak, "gpu": gpu_bytes(config.device)}


def clip(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2:]}"


# what it offers

def offer_text(offer: Mapping[str, int]) -> str:
    """In words."""
    return ", ".join(f"{value} steps of SFT on gold replies first" if name == SFT else f"{name}={value}"
                     for name, value in offer.items())


def settings_in(offer: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in offer.items() if name != SFT}


def form_sft(config: RolloutConfig, task: Task) -> SFTConfig:
    """The few steps of SFT that show a task's form: on gold replies, else on its demonstrations."""
    draw = (gold_demonstrations(task.prompts, task.gold) if task.gold is not None and not task.plays
            else task.demonstrations)
    assert draw is not None, "offered where there are gold replies"
    rows: list[Conversation] = draw("train", FORM_STEPS * FORM_ROWS, config.seed)
    return SFTConfig(model=config.model, data=rows, steps=FORM_STEPS, rows_per_step=FORM_ROWS,
                     save_every=FORM_STEPS, rows=RowSettings(holdout=0.0), seed=config.seed,
                     device=config.device)

