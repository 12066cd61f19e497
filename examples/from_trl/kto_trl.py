"""KTO with TRL, on answers labelled good or bad."""
from datasets import Dataset
from trl import KTOConfig, KTOTrainer

rows = [{"prompt": [{"role": "user", "content": f"What is {n}+1?"}], "label": n % 2 == 0,
         "completion": [{"role": "assistant", "content": f"It is {n + n % 2}{' indeed' * n}."}]}
        for n in range(8, 0, -1)]
trainer = KTOTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows),
    args=KTOConfig(output_dir="runs/kto-trl", learning_rate=1e-5, beta=0.1, per_device_train_batch_size=8,
                   max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
