"""Dr. GRPO with TRL: a reward that waits for a service, as an `async` function."""
import asyncio

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

rows = [{"prompt": [{"role": "user", "content": f"Count to {n}."}]} for n in (3, 4, 5, 6)]


async def variety(completions, **kwargs):
    async def ask(text):
        await asyncio.sleep(0)  # a request
        return len(set(text)) / 40

    return await asyncio.gather(*(ask(reply[0]["content"]) for reply in completions))


trainer = GRPOTrainer(
    model="models/tiny-chat",
    reward_funcs=variety,
    train_dataset=Dataset.from_list(rows),
    args=GRPOConfig(output_dir="runs/grpo-async-trl", loss_type="dr_grpo", scale_rewards="none",
                    learning_rate=1e-5, per_device_train_batch_size=16, num_generations=4,
                    max_completion_length=16, max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
