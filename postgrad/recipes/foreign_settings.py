"""Names of settings that people bring from other libraries: what each is called here, and a sentence on it.

The first is the setting that takes the same value, "" where none does.
"""

from __future__ import annotations

BATCH = ("", "A step is so many prompts and samples of each, prompts_per_step=16 and group_size=8 (of pairs: "
         "pairs.per_step; of conversations: rows_per_step); memory is tokens_per_pass.")
LENGTH = ("rollouts.max_new_tokens", "It is called max_new_tokens here: rollouts.max_new_tokens=64.")
CLIP = ("", "The clip of the ratio is method.low and method.high here.")

OTHER_NAMES = {
    "learning_rate": ("lr", "It is called lr here: lr=1e-4."),
    "num_generations": ("group_size", "It is called group_size here: group_size=8, samples of each prompt."),
    "max_completion_length": LENGTH,
    "max_tokens": LENGTH,
    "max_length": LENGTH,
    "max_steps": ("steps", "It is called steps here: steps=100, which counts optimizer steps."),
    "num_train_epochs": ("", "It is called epochs here, of sft, preference and reward methods: epochs=3; "
                         "methods that sample are counted in optimizer steps: steps=100."),
    "per_device_train_batch_size": BATCH,
    "train_batch_size": BATCH,
    "batch_size": BATCH,
    "gradient_accumulation_steps": ("", "A step is cut by tokens, tokens_per_pass=4096: memory against "
                                    "speed, never the result."),
    "gradient_checkpointing": ("recompute", "It is called recompute here: recompute=true."),
    "num_iterations": ("epochs", "It is called epochs here: epochs=2, passes over a collection of rollouts."),
    "epsilon": CLIP,
    "epsilon_high": ("method.high", "The upper clip of the ratio is method.high here."),
    "cliprange": CLIP,
    "clip_range": CLIP,
    "clip": ("", "It may be method.low and method.high, the clip of a policy row's ratio, or max_grad_norm, "
             "the largest norm of the gradient: write the one that is meant."),
    "beta": ("kl.coef", "The weight of the KL to the start is kl.coef=0.04 here; beta is a constant of "
             "the preference methods."),
    "kl_coef": ("kl.coef", "The weight of the KL to the start is kl.coef=0.04 here."),
    "init_kl_coef": ("kl.coef", "The weight of the KL to the start is kl.coef=0.04 here."),
    "lora_r": ("lora", "It is called lora here: lora=16, the rank."),
    "lora_rank": ("lora", "It is called lora here: lora=16, the rank."),
    "lora_alpha": ("alpha", "It is called alpha here: alpha=32."),
    "lora_target_modules": ("targets", "They are called targets here: targets=q_proj,v_proj."),
    "load_in_4bit": ("", "It is bits=4 here, beside a rank: lora=16 bits=4."),
    "output_dir": ("", "The run's folder is --run FOLDER on the command line and run= in Python."),
    "model_name_or_path": ("model", "It is called model here: model=NAME."),
    "dataset_name": ("task", "It is called task, or data=FILE.jsonl for conversations and pairs."),
    "warmup_steps": ("warmup", "It is called warmup here: warmup=10."),
    "warmup_ratio": ("", "It is counted in steps here: warmup=10."),
    "lr_scheduler_type": ("schedule", "It is called schedule here: schedule=linear."),
    "eval_steps": ("evaluation.every", "It is called evaluation.every here."),
    "save_steps": ("save_every", "It is called save_every here."),
    "bf16": ("", "It is precision=bf16 here; on a GPU that is the default."),
    "teacher_model_name_or_path": ("teacher", "It is called teacher here: teacher=NAME."),
    "reward_funcs": ("reward", "It is called reward here."),
}
