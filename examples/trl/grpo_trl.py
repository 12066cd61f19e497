"""GRPO with TRL. models/tiny-chat is the embedded model as a folder: docs/coming-from-trl.md says how it is
made."""

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

sums = [(a, b) for a in range(1, 9) for b in range(1, 9)]
rows = [{"prompt": [{"role": "user", "content": f"What is {a}+{b}?"}], "answer": str(a + b)} for a, b in sums]


def right(completions, answer, **kwargs):
    return [float(gold in reply[0]["content"]) for reply, gold in zip(completions, answer, strict=True)]


trainer = GRPOTrainer(
    model="models/tiny-chat",
    reward_funcs=right,
    train_dataset=Dataset.from_list(rows),
    args=GRPOConfig(output_dir="runs/grpo-trl", learning_rate=3e-4, per_device_train_batch_size=16,
                    num_generations=4, max_completion_length=24, max_steps=3, use_cpu=True, bf16=False,
                    report_to="none"),
)
trainer.train()
trainer.save_model("models/grpo-trl")
