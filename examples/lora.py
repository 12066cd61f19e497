"""LoRA: an adapter of rank 8 on a frozen model; the run's model has it merged, and it is exported alone too.

    python examples/lora.py
"""

from pathlib import Path

import postgrad as pg
from postgrad.recipes.export import export_model

run = pg.fit("tiny-chat", "grpo", task="arithmetic", lora=8, alpha=16, targets=["q_proj", "v_proj"], lr=1e-3,
             steps=5, prompts_per_step=8, group_size=4, rollouts={"max_new_tokens": 24},
             evaluation={"every": 0}, run="runs/lora")
print(run.chat("What is 2+3?"))
made = export_model(str(run.folder), Path("models/lora-adapter"), adapter=True)
print(f"{made['bytes'] / 1e3:.0f} kB:", ", ".join(made["files"]))
