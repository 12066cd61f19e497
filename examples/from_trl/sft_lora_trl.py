"""SFT with TRL and a LoRA adapter on the attention."""
from datasets import Dataset
from peft import LoraConfig
from trl import SFTConfig, SFTTrainer

rows = [{"prompt": [{"role": "user", "content": f"Say {n}."}],
         "completion": [{"role": "assistant", "content": f"I say {n}{' again' * (n % 5)}."}]}
        for n in range(8)]
trainer = SFTTrainer(
    model="models/tiny-chat",
    train_dataset=Dataset.from_list(rows),
    peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
    args=SFTConfig(output_dir="runs/sft-lora-trl", learning_rate=1e-4, per_device_train_batch_size=8,
                   max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
