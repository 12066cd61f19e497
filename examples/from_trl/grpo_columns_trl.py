"""GRPO with TRL's own defaults: two weighted rewards, one of them by columns of the rows."""
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

rows = [{"prompt": [{"role": "user", "content": f"What is {a}+{b}?"}], "answer": str(a + b), "level": a}
        for a in (3, 7) for b in (2, 5)]


def right(completions, answer, level, **kwargs):
    return [n * float(gold in reply[0]["content"])
            for reply, gold, n in zip(completions, answer, level, strict=True)]


def short(completions, **kwargs):
    return [-len(reply[0]["content"]) / 40 for reply in completions]


trainer = GRPOTrainer(
    model="models/tiny-chat",
    reward_funcs=[right, short],
    train_dataset=Dataset.from_list(rows),
    args=GRPOConfig(output_dir="runs/grpo-columns-trl", reward_weights=[1.0, 0.2], learning_rate=1e-5,
                    per_device_train_batch_size=16, num_generations=4, max_completion_length=16, max_steps=2,
                    use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
