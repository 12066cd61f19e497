"""DPO with TRL on rows of UltraFeedback's form, whose prompt stands in three columns."""
from datasets import Dataset
from trl import DPOConfig, DPOTrainer


def talk(question, answer):
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]


rows = [{"prompt": f"What is {n}+1?", "score_chosen": 8.0, "score_rejected": 3.0,
         "chosen": talk(f"What is {n}+1?", f"It is {n + 1}, {'very ' * (n % 3)}gladly."),
         "rejected": talk(f"What is {n}+1?", f"No{'!' * (n % 4)}")} for n in range(8)]
trainer = DPOTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows).select_columns(["chosen", "rejected"]),
    args=DPOConfig(output_dir="runs/dpo-ultrafeedback-trl", learning_rate=1e-5, beta=0.1,
                   per_device_train_batch_size=8, max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
