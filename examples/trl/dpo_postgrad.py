"""The same with postgrad: prompts and answers may be texts or messages; one prompt in ten is held out and
evaluated."""

import postgrad as pg

rows = [{"prompt": f"What is {n}+1?", "chosen": f"It is {n + 1}.",
         "rejected": "Who knows?"} for n in range(40)]
run = pg.fit("tiny-chat", pg.method("dpo", beta=0.1), data=rows, lr=1e-4, pairs={"per_step": 8}, steps=3,
             run="runs/dpo")
print(run.evaluations()[-1]["accuracy"])
run.model().save("models/dpo")
