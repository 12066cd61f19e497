"""A row of your own with its own surrogate, in one file: trained by name and by object.

A row is functions and constants. sharpness is one, and is set like those of the table.

    postgrad train examples/own_method.py --task arithmetic method.sharpness=3
    python examples/own_method.py
"""

import torch

import postgrad as pg


def soft_clip(logp, old_logp, adv, mask, *, sharpness=2.0):
    """The gradient fades as the ratio leaves 1, instead of being cut: -A 4/k sigmoid(k (ratio - 1)).

    All are [rows, tokens]; so are the loss and the mask of tokens that a clip is at work on, which come out.
    At ratio 1 its gradient is the policy gradient's.
    """
    ratio = torch.where(mask, logp - old_logp, 0.0).exp()
    loss = -adv * 4 / sharpness * torch.sigmoid(sharpness * (ratio - 1))
    return torch.where(mask, loss, 0.0), torch.zeros_like(mask)


soft = pg.method("grpo", name="soft", surrogate=soft_clip, about="GRPO with a soft clip")

if __name__ == "__main__":
    small = {"task": "arithmetic", "steps": 4, "prompts_per_step": 8, "group_size": 4, "epochs": 2,
             "rollouts": {"max_new_tokens": 24}, "evaluation": {"every": 0}, "display": False}
    named = pg.fit("tiny-chat", __file__, run="runs/soft-by-name", **small)
    given = pg.fit("tiny-chat", soft, run="runs/soft-by-object", **small)
    sharp = pg.fit("tiny-chat", pg.method(soft, sharpness=8.0), run="runs/sharp", **small)
    for run in (named, given, sharp):
        constants = run.info["row"]["constants"]
        print(run.folder.name, f"sharpness {constants['sharpness']}, loss {run.metrics()[-1]['loss']:.5f}")
