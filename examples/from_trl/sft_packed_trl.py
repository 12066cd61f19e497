"""SFT with TRL, rows packed into blocks of 96 tokens."""
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

rows = [{"prompt": [{"role": "user", "content": f"Say {n}."}],
         "completion": [{"role": "assistant", "content": f"I say {n}{' again' * (n % 5)}."}]}
        for n in range(12)]
trainer = SFTTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows),
    args=SFTConfig(output_dir="runs/sft-packed-trl", packing=True, max_length=96, learning_rate=1e-5,
                   per_device_train_batch_size=12, max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
