"""The same with postgrad: the reward function is TRL's, as it stands."""

import postgrad as pg

sums = [(a, b) for a in range(1, 9) for b in range(1, 9)]
rows = [{"prompt": f"What is {a}+{b}?", "answer": str(a + b)} for a, b in sums]


def right(completions, answer, **kwargs):
    return [float(gold in reply[0]["content"]) for reply, gold in zip(completions, answer, strict=True)]


run = pg.fit("tiny-chat", "grpo", task=rows, reward=pg.from_trl(right), lr=3e-4, prompts_per_step=4,
             group_size=4, rollouts={"max_new_tokens": 24}, steps=3, run="runs/grpo")
run.model().save("models/grpo")
