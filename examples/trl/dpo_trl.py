"""DPO with TRL. models/tiny-chat is the embedded model as a folder: docs/coming-from-trl.md says how it is
made."""

from datasets import Dataset
from trl import DPOConfig, DPOTrainer


def said(role, text):
    return [{"role": role, "content": text}]


rows = [{"prompt": said("user", f"What is {n}+1?"), "chosen": said("assistant", f"It is {n + 1}."),
         "rejected": said("assistant", "Who knows?")} for n in range(40)]
trainer = DPOTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows),
    args=DPOConfig(output_dir="runs/dpo-trl", learning_rate=1e-4, beta=0.1, per_device_train_batch_size=8,
                   max_steps=3, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
trainer.save_model("models/dpo-trl")
