"""SFT with TRL on conversations with tools: calls, results and the schemas."""
from datasets import Dataset
from trl import SFTConfig, SFTTrainer

number = {"type": "number"}
add = {"type": "function", "function": {"name": "add", "description": "adds two numbers", "parameters": {
    "type": "object", "properties": {"a": number, "b": number}}}}


def talk(a, b):
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": a, "b": b}}}
    return [{"role": "user", "content": f"What is {a}+{b}?"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "name": "add", "content": str(a + b)},
            {"role": "assistant", "content": f"It is {a + b}."}]


talks = [talk(a, b) for a in (2, 11) for b in (3, 40)]
rows = [{"prompt": t[:n], "completion": t[n:n + 1], "tools": [add]} for t in talks for n in (1, 3)]
trainer = SFTTrainer(
    model="models/tiny-tools",
    train_dataset=Dataset.from_list(rows),
    args=SFTConfig(output_dir="runs/sft-tools-trl", learning_rate=1e-5, per_device_train_batch_size=8,
                   max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
