"""A rollout line on small models, and what its batches say."""

from dataclasses import fields

from small import CHAT, PROMPTS, by_text, reward_of, scheduled, small_models
from torch import Tensor

from postgrad.methods import METHODS
from postgrad.recipes.teachers import asked_again
from postgrad.records import Rollout, Verdict
from postgrad.sampling import LocalSampler, Sampling, ScriptedSampler
from postgrad.system.throughput import repeatable
from postgrad.training.batches import RolloutBatches, Rollouts
from postgrad.training.stats import resolve_deferred

POLICY = [name for name, row in METHODS.items() if row.kind == "policy"]


def line(name="grpo", *, sample=None, verify=by_text, models=None, steps=4, seed=0, prompts=PROMPTS,
         at_once=10**6, epochs=1, minibatches=1, **settings):
    """A rollout line on small models, with the real sampler unless a script is given; a collection serves one
    update unless more are asked for."""
    models = models or small_models()

    def show(prompt):
        return CHAT.render(asked_again(prompt, "It is so.").messages)

    settings = Rollouts(**dict(prompts_per_step=4, group_size=2, max_new_tokens=6) | settings)
    sampler = sample or LocalSampler(models.policy, CHAT)
    how = Sampling(max_new_tokens=settings.max_new_tokens, temperature=settings.temperature)
    return RolloutBatches(prompts, sample=lambda ps, size, seed, step: sampler.sample(ps, size, how, seed),
                          reward=reward_of(verify), models=models, settings=settings,
                          method=scheduled(METHODS[name], epochs, minibatches), steps=steps, seed=seed,
                          tokens_per_pass=at_once, show=show)


def scripted(replies):
    """Every question gets these replies; the score is the reply read as a number,
    and "fault" is a verifier that failed."""
    def verify(prompt, text):
        return Verdict(score=0.0, error="infrastructure") if text == "fault" else Verdict(score=float(text))
    return dict(sample=ScriptedSampler(CHAT, {p.question: replies for p in PROMPTS}), verify=verify,
                group_size=len(replies))


def by_id(batch, column):
    """id -> the column's values on the sampled tokens of that row (also where the mask is off)."""
    rows = getattr(batch, column)
    starts = [len(s.rollout.prompt_tokens) for s in batch.scored]
    return {name: rows[i, starts[i] : batch.lengths[i]].tolist() for i, name in enumerate(batch.ids)}


def contents(batch):
    """All that a batch says, but for the clock and the gold answer, which a checkpoint leaves out."""
    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)
               if isinstance(getattr(batch, f.name), Tensor)}
    known = [f.name for f in fields(Rollout) if f.name != "prompt"]
    rows = [(s.rollout.prompt.id, s.rollout.prompt.messages, s.verdict,
             *(getattr(s.rollout, name) for name in known)) for s in batch.scored]
    facts = resolve_deferred(repeatable(batch.facts))
    return ({k: (v.dtype, tuple(v.shape), v.numpy().tobytes()) for k, v in tensors.items()}, batch.ids, rows,
            facts)
