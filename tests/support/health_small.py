"""Runs that a doctor has something to say about."""

from postgrad.runs import Run

ROW = {"kind": "policy", "compares": True}


def collapsed(folder, steps=20, after=0, of=None):
    """A run, or further steps of one: every reward is 0 and every group flat from step `after` on."""
    run = folder if isinstance(folder, Run) else Run.create(
        folder, recipe="rollouts", config={"steps": of or steps, "seed": 0}, steps=of or steps,
        method="grpo", row=ROW, model="tiny-chat", task="words")
    for step in range(run.next_step, run.next_step + steps):
        gone = step > after
        run.log(step, {"reward": 0.0 if gone else 0.6, "reward_std": 0.0 if gone else 0.4,
                       "flat_groups": 1.0 if gone else 0.1, "sampled": 64.0, "length": 20.0,
                       "entropy": 0.5, "loss": 0.0, "grad_norm": 0.0 if gone else 1.0, "kl_k1": 0.01,
                       "time/step": 1.0, "tokens": 100})
    return run
