"""A callback that draws the reward as it comes, a bar a step.

It gets the step and the row of metrics that the run logs. What it raises ends the run: so it can stop one.

    python examples/callback.py
"""

import postgrad as pg


def draw(step, row):
    print(f"{step:>3} {row['reward']:.2f} {'#' * round(40 * row['reward'])}")


class GoodEnough(Exception):
    pass


def draw_until(wanted):
    def callback(step, row):
        draw(step, row)
        if row["reward"] >= wanted:
            raise GoodEnough(f"reward {row['reward']:.2f} at step {step}")
    return callback


small = {"task": "arithmetic", "prompts_per_step": 4, "group_size": 4, "rollouts": {"max_new_tokens": 24},
         "evaluation": {"every": 0}, "save_every": 1, "display": False}
run = pg.fit("tiny-chat", "grpo", steps=4, callback=draw, run="runs/drawn", **small)
try:
    pg.fit("tiny-chat", "grpo", steps=50, callback=draw_until(0.5), run="runs/until", **small)
except GoodEnough as end:
    kept = pg.Run.open("runs/until")
    print(end, "- the newest checkpoint:", kept.latest().name if kept.latest() else "none yet")
