"""What the tests of the loop share."""


import torch
from small import CHAT, PROMPTS, TALKS, by_text, reward_of, scheduled

from postgrad.methods import METHODS
from postgrad.recipes.teachers import asked_again
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.training import objectives
from postgrad.training.adamw import AdamW
from postgrad.training.batches import ConversationBatches, RolloutBatches, Rollouts

POLICY = [name for name, row in METHODS.items() if row.kind == "policy"]
SFT = objectives.build_objective(METHODS["sft"])


def new_run(folder, name="run", steps=10):
    return Run.create(folder / name, recipe="test", config={}, steps=steps)


def conversations(steps=6, rows=4):
    return ConversationBatches(TALKS, CHAT, METHODS["sft"], per_step=rows, steps=steps, seed=0,
                               max_tokens=100)


def rollouts(method, models, steps, epochs=1, minibatches=1, **settings):
    settings = Rollouts(**dict(prompts_per_step=2, group_size=4, max_new_tokens=8) | settings)
    sampler, how = LocalSampler(models.policy, CHAT), Sampling(max_new_tokens=settings.max_new_tokens)
    return RolloutBatches(PROMPTS, sample=lambda ps, size, seed, step: sampler.sample(ps, size, how, seed),
                          reward=reward_of(by_text), models=models, settings=settings, steps=steps,
                          method=scheduled(method, epochs, minibatches), seed=0, tokens_per_pass=512,
                          show=lambda prompt: CHAT.render(asked_again(prompt, "It is so.").messages))


def weights(models):
    return {f"{role}.{k}": v.clone() for role, m in models.trained().items()
            for k, v in m.state_dict().items()}


def identical(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


class Descent(AdamW):
    """Plain gradient descent, whose steps are as long as their gradients."""

    def __init__(self, params):
        super().__init__(params, betas=(0.0, 0.0), weight_decay=0.0)

    @torch.no_grad()
    def step(self, lr):
        for p in self.params:
            if p.grad is not None:
                p -= lr * p.grad
