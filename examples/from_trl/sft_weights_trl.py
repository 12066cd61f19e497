"""SFT with TRL on OpenAI's rows, whose turns of weight 0 are not trained: TRL has no such column, so the
script tokenizes the rows and makes the mask."""
from datasets import Dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

rows = [{"messages": [{"role": "user", "content": f"What is {n}+1?"},
                      {"role": "assistant", "content": f"It is {n}.", "weight": 0},
                      {"role": "user", "content": "Are you sure?"},
                      {"role": "assistant", "content": f"No, it is {n + 1}.", "weight": 1}]}
        for n in range(8)]
tokenizer = AutoTokenizer.from_pretrained("models/tiny-chat")


def encode(row):
    ids, mask = [], []
    for n, message in enumerate(row["messages"], start=1):
        asked = message["role"] == "user"
        shown = tokenizer.apply_chat_template(row["messages"][:n], add_generation_prompt=asked,
                                              return_dict=False)
        mask += [int(not asked and message["weight"] == 1)] * (len(shown) - len(ids))
        ids = shown
    return {"input_ids": ids, "completion_mask": mask}


trainer = SFTTrainer(
    model="models/tiny-chat",
    processing_class=tokenizer,
    train_dataset=Dataset.from_list(rows).map(encode, remove_columns=["messages"]),
    args=SFTConfig(output_dir="runs/sft-weights-trl", completion_only_loss=True, learning_rate=1e-5,
                   per_device_train_batch_size=8, max_steps=2, use_cpu=True, bf16=False, report_to="none"),
)
trainer.train()
