"""A reward model with TRL, trained further on new pairs."""
from datasets import Dataset
from trl import RewardConfig, RewardTrainer


def said(role, text):
    return [{"role": role, "content": text}]


rows = [{"prompt": said("user", f"What is {n}+1?"), "chosen": said("assistant", f"It is {n + 1}."),
         "rejected": said("assistant", f"Who knows{'?' * (n % 4)}")} for n in range(8)]
trainer = RewardTrainer(
    model="models/scorer",
    train_dataset=Dataset.from_list(rows),
    args=RewardConfig(output_dir="runs/reward-trl", center_rewards_coefficient=0.01, learning_rate=1e-5,
                      per_device_train_batch_size=8, max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
