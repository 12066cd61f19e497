"""The same with postgrad: the assistant's turns are what is trained."""

import postgrad as pg

rows = [{"prompt": f"What is {n}+1?", "completion": f"It is {n + 1}."} for n in range(40)]
run = pg.fit("tiny-chat", "sft", data=rows, lr=1e-3, rows_per_step=8, steps=3, run="runs/sft")
run.model().save("models/sft")
