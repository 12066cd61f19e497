"""A preference loss of your own: DPO with a hinge, SLiC's way, on pairs that are handed in.

    python examples/own_preference_loss.py
"""

import torch

import postgrad as pg


def hinge(chosen, rejected, margin, *, beta=0.1):
    """max(0, 1 + margin - beta (chosen - rejected)), a loss a pair; both are log-ratios to the start."""
    return torch.relu(1 + margin - beta * (chosen - rejected))


row = pg.method("dpo", name="hinge", loss=hinge, about="DPO with a hinge")
pairs = [{"prompt": f"What is {n}+1?", "chosen": f"<think></think><answer>{n + 1}</answer>",
          "rejected": "That is hard to say."} for n in range(60)]
run = pg.fit("tiny-chat", row, data=pairs, lr=1e-4, steps=8, pairs={"per_step": 16}, run="runs/hinge")
for evaluated in run.evaluations():
    print(evaluated["step"], f"accuracy {evaluated['accuracy']:.2f}, margin {evaluated['margin']:.2f}")
