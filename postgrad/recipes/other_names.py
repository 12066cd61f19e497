"""Names of settings that people bring from other libraries, and what they are called here."""

from __future__ import annotations

OTHER_NAMES = {
    "learning_rate": "It is called lr here: lr=1e-4.",
    "num_generations": "It is called group_size here: group_size=8, the samples of each prompt.",
    "max_completion_length": "It is called max_new_tokens here: rollouts.max_new_tokens=64.",
    "max_tokens": "It is called max_new_tokens here: rollouts.max_new_tokens=64.",
    "max_steps": "It is called steps here: steps=100, which counts optimizer steps.",
    "num_train_epochs": "Runs are counted in optimizer steps here: steps=100.",
    "per_device_train_batch_size": "A step is so many prompts and samples of each, prompts_per_step=16 and group_size=8 (of "
                                   "pairs: pairs.per_step; of conversations: rows_per_step); memory is tokens_per_pass.",
    "batch_size": "A step is so many prompts and samples of each, prompts_per_step=16 and group_size=8 (of pairs: "
                  "pairs.per_step; of conversations: rows_per_step); memory is tokens_per_pass.",
    "gradient_accumulation_steps": "A step is cut by tokens, tokens_per_pass=4096: memory against speed, never the result.",
    "num_iterations": "It is called epochs here: epochs=2, passes over each collection of rollouts.",
    "epsilon": "The clip of the ratio is method.low and method.high here.",
    "epsilon_high": "The upper clip of the ratio is method.high here.",
    "clip": "The clip of the ratio is method.low and method.high; the largest norm of the gradient is max_grad_norm.",
    "cliprange": "The clip of the ratio is method.low and method.high here.",
    "beta": "The weight of the KL to the start is anchor.kl=0.04 here; beta is a constant of the preference methods.",
    "kl_coef": "The weight of the KL to the start is anchor.kl=0.04 here.",
    "lora_r": "It is called lora here: lora=16, the rank.",
    "lora_alpha": "It is called alpha here: alpha=32.",
    "lora_target_modules": "They are called targets here: targets=q_proj,v_proj.",
    "output_dir": "The run's folder is --run FOLDER on the command line and run= in Python.",
    "model_name_or_path": "It is called model here: model=NAME.",
    "dataset_name": "It is called task, or data=FILE.jsonl for conversations and pairs.",
    "warmup_steps": "It is called warmup here: warmup=10.",
    "lr_scheduler_type": "It is called schedule here: schedule=linear.",
    "eval_steps": "It is called evaluation.every here.",
    "save_steps": "It is called save_every here.",
    "bf16": "It is precision=bf16 here; on a GPU that is the default.",
    "reward_funcs": "It is called reward here.",
}
