"""SFT with TRL. models/tiny-chat is the embedded model as a folder: docs/coming-from-trl.md says how it is
made."""

from datasets import Dataset
from trl import SFTConfig, SFTTrainer

rows = [{"prompt": [{"role": "user", "content": f"What is {n}+1?"}],
         "completion": [{"role": "assistant", "content": f"It is {n + 1}."}]} for n in range(40)]
trainer = SFTTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows),
    args=SFTConfig(output_dir="runs/sft-trl", learning_rate=1e-3, per_device_train_batch_size=8, max_steps=3,
                   use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
trainer.save_model("models/sft-trl")
