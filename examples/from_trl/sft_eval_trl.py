"""SFT with TRL, an evaluation set of one's own, and the best model at the end."""
from datasets import Dataset
from trl import SFTConfig, SFTTrainer


def rows(numbers, words):
    return [{"prompt": [{"role": "user", "content": f"Say {n}."}],
             "completion": [{"role": "assistant", "content": words.format(n)}]} for n in numbers]


trainer = SFTTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows(range(8), "I say {}.")),
    eval_dataset=Dataset.from_list(rows(range(20, 28), "It is {}.")),
    args=SFTConfig(output_dir="runs/sft-eval-trl", learning_rate=3e-4, per_device_train_batch_size=4,
                   gradient_accumulation_steps=2, per_device_eval_batch_size=8, max_steps=3,
                   eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1,
                   load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False,
                   use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
trainer.save_model("models/sft-eval-trl")
