"""Two stages and what each was worth: imitation, then reinforcement, then all models on the same problems.

    python examples/sft_then_grpo.py
"""

import postgrad as pg

sft = pg.fit("tiny", "sft", task="words", steps=12, rows_per_step=16, examples=400,
             evaluation={"every": 0}, run="runs/stages/sft")
rl = pg.fit(sft, "grpo", task="words", steps=3, prompts_per_step=4, group_size=8, evaluation={"every": 0},
            run="runs/stages/grpo")
for row in pg.compare("tiny", sft, rl, task="words", problems=16, samples=4):
    low, high = row["pass@1_gain_interval"]
    gain = f"{row['pass@1_gain']:+.2f} ({low:+.2f} to {high:+.2f})"
    print(f"pass@1 {row['pass@1']:.2f}, gain {gain}: {row['model']}")
print(pg.evaluate(rl, "words", problems=8, samples=4)["pass@4"])
