"""The same with postgrad; the run itself is a reward from here on: pg.fit(..., reward=run)."""

import postgrad as pg

rows = [{"prompt": f"What is {n}+1?", "chosen": f"It is {n + 1}.",
         "rejected": "Who knows?"} for n in range(40)]
run = pg.fit("tiny-chat", "reward", data=rows, lr=1e-3, pairs={"per_step": 8}, steps=3, run="runs/reward")
print(run.evaluations()[-1]["accuracy"])
