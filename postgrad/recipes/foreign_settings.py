"""Names of settings that people bring from other libraries, and where each is here.

A name has the settings that take its place, separated by spaces, the first that a recipe has counts; and a
sentence, which without one is "It is called NAME here.". A user of such a name is answered so, and
docs/coming-from-trl.md is made of it. ALL to REWARD are the arguments of TRL's configs, each in the first
group of those that have it: tests/recipes/foreign_settings_test.py holds them against TRL's dataclasses.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

Names = dict[str, tuple[str, str]]

STEP_SIZE = ("rows_per_step pairs.per_step prompts_per_step",
             "A step is so many rows whatever the devices: rows_per_step=64 of sft, pairs.per_step=32, or "
             "prompts_per_step=16 and group_size=8 samples of each; memory is tokens_per_pass.")
MICRO = ("tokens_per_pass", "A step is cut into micro-batches by tokens, tokens_per_pass=4096: memory "
    "against "
         "speed, never the result.")
CLIP = ("method.low method.high", "The clip of the ratio is method.low and method.high here.")
KL = ("kl.coef method.beta", "The weight of the KL to the start is kl.coef=0.04 here; beta is a constant of "
      "the preference methods, method.beta.")
REPLY = ("rollouts.max_new_tokens", "")
LENGTH = ("rows.max_tokens pairs.max_tokens rollouts.max_new_tokens", "")
PRECISION = ("precision", "It is precision=bf16 or precision=fp32 here; on a GPU bf16 is the default.")
NO_FP16 = ("precision", "There is no float16: precision=bf16 needs no loss scaling; fp32 is exact.")
LOADER = ("", "There is no data loader: rows are tokenized before the first step and batches are made in "
    "this "
          "process.")
PLACE = ("", "The run's folder is --run FOLDER on the command line and run= in Python.")
LOG = ("", "Every step is logged, to metrics.jsonl in the run's folder, the terminal and every tracker.")
TRACK = ("", "Trackers are --track FILE|NAME on the command line and trackers=[...] in Python "
         "(docs/trackers.md); the run's folder has every figure without one.")
HUB = ("", "Nothing is uploaded: `postgrad export RUN --out FOLDER` writes the model and its card, and the "
       "`hf upload` command sends the folder.")
DDP = ("", "Processes are torchrun's: each computes its share of a step, which is summed in a fixed order; "
       "there is nothing to set.")
FSDP = ("shard", "It is shard=true here, FSDP2 over the processes that torchrun starts.")
LOADED = ("model", "A model is opened by its name or folder, model=NAME; precision and device are settings, "
          "and code that comes with weights is not run.")
EVAL_SHAPE = ("", "Evaluations count exactly, whatever the batches: there is nothing to set.")
KERNELS = ("", "The kernels of a layer are chosen by the model and the device: there is nothing to set.")
TOKENS = ("", "The tokenizer and its special tokens are the model folder's own.")
PADDING = ("", "Rows are computed without padding, packed into micro-batches of tokens_per_pass: there is "
    "nothing "
           "to set.")
REFERENCE = ("", "The reference is the model that the run began with and stays as it is.")
ADAPTIVE = ("method.entropy", "The entropy bonus has a fixed weight, method.entropy=0.001; kl_cov is a row "
            "that holds the entropy up by itself.")
VLLM = ("sampler", "vLLM in this process is sampler=vllm; behind an address it is sampler=http://HOST:PORT "
        "remote.weight_sync=vllm.")
VLLM_SERVER = ("sampler", "A server's own options are given where it is started; here is its address, "
               "sampler=http://HOST:PORT remote.weight_sync=vllm.")
VLLM_SIZE = ("sampler", "vLLM in this process, sampler=vllm, takes 0.4 of the GPU and the model's context; "
             "start a server for other sizes, and name it with sampler=http://HOST:PORT.")
CORRECTION = ("method.correction", "The mismatch of sampler and trainer is weighed by method.correction=tis, "
              "token_mask, icepop, sequence or geometric; their bounds are method.cap, method.highest, "
              "method.least and method.most, method.widest, method.apart.")
OWN_SAMPLER = ("", "Replies are decoded by the engine of this process, with continuous batching and a KV "
               "cache; sampler=vllm or an address takes its place.")
SAMPLES = ("", "Every sample is in samples.jsonl of the run's folder, with its score and its tokens: "
    "`postgrad "
           "studio` shows them.")
ROWS = ("data task", "Rows are data=... for conversations and pairs, and task=... for prompts.")
OTHER_LOSS = ("method", "It belongs to a loss that the table does not have: a row of your own is "
              "pg.method(\"dpo\", name=\"mine\", loss=my_loss), or surrogate= of a policy row.")

ALL: Names = {  # in all four configs, most of them from TrainingArguments
    # the run
    "output_dir": PLACE,
    "run_name": PLACE,
    "do_train": ("", "`postgrad train` and fit train; `postgrad eval` measures."),
    "do_eval": ("evaluation.every", "Evaluations are evaluation.every=10; `postgrad eval` measures a model."),
    "do_predict": ("", "`postgrad eval` measures a model on a task; run.chat and `postgrad chat` ask it."),
    "resume_from_checkpoint": ("", "`postgrad resume RUN`, in Python resume(run), goes on to the same bits."),
    "ignore_data_skip": ("", "A resumed run goes on with the rows that an uninterrupted one would have had."),
    "restore_callback_states_from_checkpoint": ("", "A tracker is started again when a run is resumed, and "
                                                "can read the run's folder."),
    "seed": ("seed", ""),
    "data_seed": ("seed", "One seed is behind everything random: seed=0."),
    "full_determinism": ("", "A run on a CPU has the same bits each time, and on one GPU where its kernels "
                         "do: there is nothing to set."),
    "use_cpu": ("device", "It is device=cpu here, the default."),
    "debug": ("", "A step with a non-finite loss is skipped, counted and named; `postgrad doctor RUN` says "
              "what is wrong with a run."),
    "auto_find_batch_size": ("tokens_per_pass", "Where memory runs out the error says which tokens_per_pass "
                             "to take; `postgrad memory` says it before."),
    # length and batches
    "max_steps": ("steps", "It is called steps here: steps=100, which counts optimizer steps."),
    "num_train_epochs": ("epochs", "It is called epochs here, of sft, preference and reward methods: "
                         "epochs=3; methods that sample are counted in optimizer steps: steps=100."),
    "per_device_train_batch_size": STEP_SIZE,
    "gradient_accumulation_steps": MICRO,
    "torch_empty_cache_steps": ("release", "Where memory is short: fewer tokens_per_pass, recompute=true, "
                                "and of methods that sample release=true."),
    "average_tokens_across_devices": ("", "The weights of tokens are those of the whole step, over all "
                                      "micro-batches and devices: always exact."),
    "train_sampling_strategy": ("", "Rows come in an order that the seed shuffles, each once before one "
        "comes "
                                "again."),
    "length_column_name": ("", "Lengths are counted when the rows are tokenized."),
    "remove_unused_columns": ("", "Columns reach the reward by their names: prompt.meta, or the arguments of "
                              "a function in from_trl."),
    "label_names": ("", "Columns are found by the form of the row: messages, prompt and completion, chosen "
                    "and rejected, label."),
    "dataloader_drop_last": ("", "No row is dropped: the last rows of a pass share a step with the first of "
                             "the next."),
    "dataloader_in_order": LOADER, "dataloader_multiprocessing_context": LOADER,
    "dataloader_num_workers": LOADER, "dataloader_persistent_workers": LOADER,
    "dataloader_pin_memory": LOADER, "dataloader_prefetch_factor": LOADER,
    # optimizer
    "learning_rate": ("lr", "It is called lr here: lr=1e-4."),
    "lr_scheduler_type": ("schedule", "It is called schedule here: schedule=constant, linear or cosine."),
    "lr_scheduler_kwargs": ("schedule", "The schedules constant, linear and cosine have no options but "
                            "warmup=10."),
    "warmup_steps": ("warmup", "It is called warmup here: warmup=10, in steps."),
    "optim": ("optim.moments", "The optimizer is AdamW, with moments=8 in 8 bits (adamw_bnb_8bit); its "
              "settings are lr, beta1, beta2, weight_decay and max_grad_norm."),
    "optim_args": ("lr", "AdamW's settings are lr, beta1, beta2, weight_decay and max_grad_norm."),
    "optim_target_modules": ("targets", "GaLore and its kin are not here; lora=16 targets=q_proj,v_proj "
                             "trains a part of the layers."),
    "adam_beta1": ("beta1", ""),
    "adam_beta2": ("beta2", "It is called beta2 here: beta2=0.999; the default is 0.99."),
    "adam_epsilon": ("", "AdamW's epsilon is 1e-8, as everywhere."),
    "weight_decay": ("weight_decay", "It has the same name; biases and norms are decayed too."),
    "max_grad_norm": ("max_grad_norm", ""),
    "label_smoothing_factor": ("", "The loss of sft is not smoothed; of pairs it is the row cdpo "
        "(method.eps) "
                               "and head.smoothing of a reward model."),
    # precision, memory, devices
    "bf16": PRECISION, "bf16_full_eval": PRECISION, "fp16": NO_FP16, "fp16_full_eval": NO_FP16,
    "tf32": ("precision", "It is torch's own switch, torch.set_float32_matmul_precision; bf16 is faster."),
    "gradient_checkpointing": ("recompute", "It is called recompute here: recompute=true."),
    "gradient_checkpointing_kwargs": ("recompute", "recompute=true has no options: each layer keeps its "
        "input "
                                      "alone, and the bits stay."),
    "torch_compile": ("compile", "It is called compile here: compile=true."),
    "torch_compile_backend": ("compile", "compile=true has torch's own backend and mode."),
    "torch_compile_mode": ("compile", "compile=true has torch's own backend and mode."),
    "use_liger_kernel": KERNELS, "liger_kernel_config": KERNELS,
    "use_cache": ("", "Training has no KV cache, and sampling always has one."),
    "fsdp": FSDP, "fsdp_config": FSDP,
    "deepspeed": ("shard", "Models are sharded by shard=true, FSDP2 under torchrun: torchrun "
                  "--nproc-per-node 8 -m postgrad train ... shard=true."),
    "accelerator_config": ("", "Processes are torchrun's and need no accelerate: torchrun --nproc-per-node 8 "
                           "-m postgrad train ..."),
    "parallelism_config": ("shard", "There is data parallelism, under torchrun, and FSDP2 with "
        "shard=true; no "
                           "tensor, context or pipeline parallelism."),
    "local_rank": DDP, "ddp_backend": DDP, "ddp_broadcast_buffers": DDP, "ddp_bucket_cap_mb": DDP,
    "ddp_find_unused_parameters": DDP, "ddp_static_graph": DDP, "ddp_timeout": DDP,
    # evaluation
    "eval_strategy": ("evaluation.every", "It is evaluation.every=10 here, in steps; 0 is none."),
    "eval_steps": ("evaluation.every", "It is called evaluation.every here."),
    "eval_delay": ("evaluation.every", "Evaluations begin before the first step, and come every "
                   "evaluation.every steps."),
    "eval_on_start": ("evaluation.every", "The first evaluation is always before the first step."),
    "per_device_eval_batch_size": ("tokens_per_pass", "Evaluations are cut by tokens_per_pass too; how much "
                                   "is measured is evaluation.problems and evaluation.samples."),
    "eval_accumulation_steps": EVAL_SHAPE, "eval_do_concat_batches": EVAL_SHAPE,
    "eval_use_gather_object": EVAL_SHAPE, "batch_eval_metrics": EVAL_SHAPE,
    "prediction_loss_only": EVAL_SHAPE,
    "include_for_metrics": ("evaluation.panel", "Further figures are tasks, evaluation.panel=NAME,NAME, or a "
                            "tracker's on_eval."),
    "metric_for_best_model": ("evaluation.metric", "It is called evaluation.metric here: "
                              "evaluation.metric=loss."),
    "greater_is_better": ("evaluation.metric", "evaluation.metric=loss, ece and kl_reply are best where they "
                          "are lowest, any other where it is highest."),
    "load_best_model_at_end": ("keep", "RUN@best names the best checkpoint wherever a model is named, and it "
                               "is never deleted; keep=best saves each that an evaluation finds."),
    # checkpoints
    "save_strategy": ("save_every", "It is save_every=20 here, in steps; the last step is always saved."),
    "save_steps": ("save_every", "It is called save_every here."),
    "save_total_limit": ("keep", "It is called keep here: keep=5, all, or best; the best one stays besides."),
    "save_only_model": ("save_optimizer", "It is save_optimizer=false here; such a run cannot be resumed."),
    "save_on_each_node": ("", "The first process writes the run's folder, which all of them read."),
    "enable_jit_checkpoint": ("", "SIGTERM and Ctrl-C always leave a checkpoint."),
    # logging
    "logging_steps": LOG, "logging_strategy": LOG, "logging_first_step": LOG,
    "logging_nan_inf_filter": ("", "Nothing is filtered: a non-finite step is skipped, counted and named."),
    "log_level": ("", "display=False in Python and --json on the command line turn the display off."),
    "log_level_replica": ("", "Of several processes the first alone prints."),
    "log_on_each_node": ("", "Of several processes the first alone prints."),
    "disable_tqdm": ("", "display=False in Python and --json on the command line turn the display off."),
    "report_to": TRACK, "project": TRACK, "trackio_space_id": TRACK, "trackio_bucket_id": TRACK,
    "trackio_static_space_id": TRACK,
    "include_num_input_tokens_seen": ("", "Rows and tokens are counted in the run's folder: `postgrad "
        "runs RUN`."),
    "skip_memory_metrics": ("", "`postgrad memory` estimates a run's memory before it is started."),
    # hub
    "push_to_hub": HUB, "hub_model_id": HUB, "hub_strategy": HUB, "hub_token": HUB, "hub_private_repo": HUB,
    "hub_always_push": HUB, "hub_revision": HUB,
    # models
    "model_init_kwargs": LOADED, "trust_remote_code": LOADED,
    "neftune_noise_alpha": ("neftune", "It is called neftune here: neftune=5, for SFT."),
    "pad_to_multiple_of": PADDING,
}
SEVERAL: Names = {  # in two or three of them
    "max_length": LENGTH,
    "truncation_mode": ("rows.truncate pairs.truncate", "Long rows are refused; truncate=right cuts their "
                        "end, left their start, drop leaves them out."),
    "beta": KL,
    "loss_type": ("method", "The loss is the row: method=dr_grpo, dapo, cispo ... in place of grpo, ipo, "
        "simpo "
                  "... in place of dpo; `postgrad methods` lists them."),
    "disable_dropout": ("", "Models are trained without dropout."),
    "dataset_num_proc": ("", "Rows are tokenized in this process."),
    "shuffle_dataset": ("", "Rows always come in an order that the seed shuffles."),
    "chat_template_path": ("template", "template=chatml, llama3, plain or FILE; without it the model's own."),
    "eos_token": TOKENS, "pad_token": TOKENS,
    "padding_free": PADDING,
    "activation_offloading": ("recompute", "Activations are not moved to the CPU: recompute=true drops them "
                              "and computes them again."),
    "router_aux_loss_coef": ("", "The routers of experts are trained by the loss alone: there is no "
                             "load-balancing term."),
    "sync_ref_model": REFERENCE, "ref_model_mixup_alpha": REFERENCE, "ref_model_sync_steps": REFERENCE,
}
SFT: Names = {
    "packing": ("tokens_per_pass", "Rows are always packed, and none attends to another: "
        "tokens_per_pass=8192 is "
                "the size of a micro-batch."),
    "packing_strategy": ("tokens_per_pass", "Whole rows are packed into micro-batches of tokens_per_pass; "
                         "none is cut for it."),
    "eval_packing": ("tokens_per_pass", "Evaluations are packed as training is, by tokens_per_pass."),
    "assistant_only_loss": ("turns", "The assistant's turns alone are trained, turns=all or turns=last; "
                            "turns=prompts trains every token, as false does in TRL."),
    "completion_only_loss": ("turns", "The completion alone is trained; turns=prompts trains the prompt "
                             "too, as false does in TRL."),
    "dataset_text_field": ("data", "A row has messages, or prompt and completion: rename the column."),
    "dataset_kwargs": ("data", "Rows are read as they are: data=FILE.jsonl, or rows from Python."),
}
DPO: Names = {
    "label_smoothing": ("method.eps", "DPO with wrong labels is the row cdpo, with the constant method.eps."),
    "precompute_ref_log_probs": ("", "The reference's log-probs are computed once for each step's rows; an "
                                 "adapter's reference is its body, which costs no memory."),
    "precompute_ref_batch_size": ("tokens_per_pass", "The reference computes tokens_per_pass at a time."),
    "loss_weights": ("method", "A sum of losses is a row of your own: pg.method(\"dpo\", name=\"mine\", "
                     "loss=my_loss); rpo (DPO and SFT), orpo and cpo are such sums."),
    "use_weighting": OTHER_LOSS, "ld_alpha": OTHER_LOSS, "discopop_tau": OTHER_LOSS,
    "f_divergence_type": OTHER_LOSS, "f_alpha_divergence_coef": OTHER_LOSS,
}
GRPO: Names = {
    # rollouts
    "num_generations": ("group_size", "It is called group_size here: group_size=8, samples of each prompt."),
    "num_generations_eval": ("evaluation.samples", ""),
    "max_completion_length": REPLY,
    "generation_batch_size": ("prompts_per_step", "A collection is prompts_per_step=16 prompts with "
                              "group_size=8 samples of each; max_concurrent bounds what is decoded at once."),
    "steps_per_generation": ("method.minibatches", "It is method.minibatches here: optimizer steps per pass "
                             "over a collection."),
    "num_iterations": ("method.epochs", "It is called epochs here: method.epochs=2, passes over a collection "
                       "of rollouts."),
    "temperature": ("rollouts.temperature", ""),
    "top_p": ("rollouts.top_p", ""),
    "top_k": ("rollouts.top_k", ""),
    "min_p": ("rollouts.min_p", ""),
    "repetition_penalty": ("", "The sampled distribution is the trained one, without penalties: judge "
                           "repetition in the reward."),
    "generation_kwargs": ("rollouts.temperature", "Sampling is rollouts.temperature, .top_p, .top_k, .min_p "
                          "and .max_new_tokens."),
    "chat_template_kwargs": ("", "The chat template is rendered with its own defaults."),
    "max_tool_calling_iterations": ("rollouts.turns", "It is called rollouts.turns here, the most replies of "
                                    "an episode."),
    "cache_implementation": OWN_SAMPLER, "use_transformers_continuous_batching": OWN_SAMPLER,
    "use_transformers_paged": OWN_SAMPLER, "transformers_continuous_batching_config": OWN_SAMPLER,
    "ds3_gather_for_generation": ("shard", "With shard=true the weights are gathered for sampling."),
    # vLLM
    "use_vllm": VLLM, "vllm_mode": VLLM,
    "vllm_server_base_url": VLLM_SERVER, "vllm_server_host": VLLM_SERVER, "vllm_server_port": VLLM_SERVER,
    "vllm_server_timeout": VLLM_SERVER, "vllm_group_port": VLLM_SERVER, "vllm_model_impl": VLLM_SERVER,
    "vllm_tensor_parallel_size": VLLM_SIZE, "vllm_gpu_memory_utilization": VLLM_SIZE,
    "vllm_max_model_length": VLLM_SIZE,
    "vllm_enable_sleep_mode": ("release", "release=true gives the sampler's cache and weights back while the "
                               "policy is trained, for the engine of this process."),
    "vllm_structured_outputs_regex": ("", "Replies are not constrained while they are sampled: pay for the "
                                      "form in the reward: reward=number+0.2*think."),
    "vllm_importance_sampling_correction": CORRECTION, "vllm_importance_sampling_mode": CORRECTION,
    "vllm_importance_sampling_cap": CORRECTION, "vllm_importance_sampling_clip_max": CORRECTION,
    "vllm_importance_sampling_clip_min": CORRECTION,
    # the objective
    "epsilon": CLIP,
    "epsilon_high": ("method.high", "The upper clip of the ratio is method.high here."),
    "delta": ("method", "A bound on the ratio where the advantage is negative is a surrogate of your own: "
              "pg.method(\"grpo\", name=\"mine\", surrogate=my_surrogate)."),
    "importance_sampling_level": ("method", "One ratio per sequence is the row gspo; the others have one per "
                                  "token."),
    "scale_rewards": ("method", "The std of the group belongs to grpo, none to dr_grpo, that of the "
        "collection "
                      "to lite_ppo: name the row; method.scale_rewards is another thing, rewards divided by "
                      "their spread before they are compared."),
    "reward_weights": ("reward", "Weights stand with the rewards: reward={f: 1.0, g: 0.2}, or "
                       "reward=number+0.2*think."),
    "multi_objective_aggregation": ("method", "Rewards that are normalised before they are summed are the "
        "row "
                                    "gdpo."),
    "mask_truncated_completions": ("method.mask_truncated", ""),
    "top_entropy_quantile": ("method.choose", "It is method.choose=top_entropy method.share=0.2 here."),
    "use_bias_correction_kl": ("method", "The KL times the ratio is the row deepseek_v32; the others have "
        "k3."),
    "off_policy_mask_threshold": ("method.far", "It is the constant method.far of the row deepseek_v32."),
    "entropy_coef": ("method.entropy", "It is called method.entropy here."),
    "use_adaptive_entropy": ADAPTIVE, "entropy_coef_delta": ADAPTIVE, "entropy_coef_max": ADAPTIVE,
    "entropy_coef_min": ADAPTIVE, "entropy_target": ADAPTIVE,
    "sapo_temperature_pos": ("method.praised", "It is the constant method.praised of the row sapo."),
    "sapo_temperature_neg": ("method.blamed", "It is the constant method.blamed of the row sapo."),
    "vespo_k_neg": OTHER_LOSS, "vespo_k_pos": OTHER_LOSS, "vespo_lambda_neg": OTHER_LOSS,
    "vespo_lambda_pos": OTHER_LOSS,
    "cast_lm_head_to_fp32": ("precision", "The log-probs of bf16 models are summed in float32; "
        "precision=fp32 "
                             "computes everything so."),
    # logging
    "log_completions": SAMPLES, "num_completions_to_print": SAMPLES, "log_unique_prompts": SAMPLES,
    "log_completions_hub_repo": SAMPLES,
    "log_multimodal": ("", "Models read and write text alone."),
}
REWARD: Names = {
    "center_rewards_coefficient": ("head.centre", "It is called head.centre here, by default 0.01."),
}
TRAINERS: Names = {  # arguments of TRL's trainers and scripts, and of peft
    "args": ("", "There is no config object: its values are arguments of fit, lr=1e-4, steps=100."),
    "model_name_or_path": ("model", "It is called model here: model=NAME."),
    "train_dataset": ROWS,
    "dataset_name": ("data task", "It is called task, or data=FILE.jsonl for conversations and pairs."),
    "eval_dataset": ("eval_data eval_task", "Rows are eval_data=..., in the forms of data; prompts that the "
                     "model is asked are eval_task=...."),
    "early_stopping_patience": ("evaluation.patience", "It is called evaluation.patience here: "
                                "evaluation.patience=3."),
    "early_stopping_threshold": ("evaluation.patience", "Any better evaluation counts: "
                                 "evaluation.patience=3."),
    "early_stopping": ("evaluation.patience", "It is evaluation.patience=3 here, in evaluations."),
    "rpo_alpha": ("method", "DPO with the likelihood of the chosen reply is the row rpo, "
                  "pg.method(\"rpo\", alpha=1.0)."),
    "processing_class": ("", "The tokenizer is the model folder's own."),
    "tokenizer": ("", "The tokenizer is the model folder's own."),
    "ref_model": REFERENCE,
    "teacher_model_name_or_path": ("teacher", "It is called teacher here: teacher=NAME."),
    "reward_funcs": ("reward", "It is called reward here; functions written for TRL are "
                     "reward=from_trl(function)."),
    "callbacks": ("", "They are trackers here, trackers=[...] with the hooks of Tracker, or "
                  "callback=function(step, metrics)."),
    "compute_metrics": ("", "Figures of an evaluation come from the task; a tracker's on_eval sees them."),
    "data_collator": ("", "Batches are made from the rows, packed and masked, by the method."),
    "formatting_func": ("data", "Write the rows as messages, or as prompt and completion: data=ROWS."),
    "optimizers": ("lr", "The optimizer is AdamW; its settings are lr, beta1, beta2, weight_decay."),
    "peft_config": ("lora", "Adapters are settings: lora=16 alpha=32 targets=q_proj,v_proj."),
    "quantization_config": ("bits", "It is bits=4 here, beside a rank: lora=16 bits=4."),
    "load_in_4bit": ("bits", "It is bits=4 here, beside a rank: lora=16 bits=4."),
    "load_in_8bit": ("bits", "There is bits=4 (NF4) beside a rank, lora=16 bits=4, and 16."),
    "use_peft": ("lora", "A rank is enough: lora=16."),
    "lora_r": ("lora", "It is called lora here: lora=16, the rank."),
    "lora_rank": ("lora", "It is called lora here: lora=16, the rank."),
    "lora_alpha": ("optim.adapter.alpha", "It is called alpha here: alpha=32."),
    "lora_target_modules": ("targets", "They are called targets here: targets=q_proj,v_proj."),
    "use_rslora": ("rslora", "It is called rslora here: lora=64 rslora=true."),
    "use_dora": ("dora", "It is called dora here: lora=8 dora=true."),
    "lora_dropout": ("optim.adapter.dropout", "It is called dropout here: lora=16 dropout=0.05."),
    "target_modules": ("targets", "They are called targets here: targets=q_proj,v_proj."),
    "dtype": PRECISION, "torch_dtype": PRECISION,
    "attn_implementation": KERNELS,
    "warmup_ratio": ("warmup", "It is counted in steps here: warmup=10."),
    "train_batch_size": STEP_SIZE, "batch_size": STEP_SIZE, "mini_batch_size": MICRO,
    "max_tokens": LENGTH, "max_seq_length": LENGTH, "max_prompt_length": LENGTH,
    "cliprange": CLIP, "clip_range": CLIP,
    "clip": ("method.low method.high", "It may be method.low and method.high, the clip of a policy row's "
             "ratio, or max_grad_norm, the largest norm of the gradient: write the one that is meant."),
    "kl_coef": KL, "init_kl_coef": KL,
    "dataset": ROWS, "train_data": ROWS, "train_file": ROWS, "data_path": ROWS,
    "wandb": TRACK, "wandb_project": TRACK, "logging_dir": TRACK,
    "r": ("lora", "It is called lora here: lora=16, the rank."),
    "rank": ("lora", "It is called lora here: lora=16, the rank."),
    "train_on_inputs": ("turns", "It is turns=prompts here, which trains every token; by default the "
                        "assistant's turns alone are trained."),
}
TRL = {"In all four configs": ALL, "In two or three of them": SEVERAL, "SFTConfig": SFT, "DPOConfig": DPO,
       "GRPOConfig": GRPO, "RewardConfig": REWARD}
OTHER_MEANING = ("scale_rewards",)  # a constant of rows has the name, and is another thing
OTHER_NAMES: Names = {name: entry for group in (*TRL.values(), TRAINERS) for name, entry in group.items()}


def foreign_answer(name: str, has: Callable[[str], bool] = lambda setting: True, recipe: str = "") -> str:
    """Where another library's setting is here, in one sentence. has: whether the recipe has a setting."""
    ours, sentence = OTHER_NAMES[name]
    there = [setting for setting in ours.split() if has(setting)]
    if not sentence:
        sentence = f"It is called {' or '.join(there[:1] if recipe else there) or ours.split()[0]} here."
    return sentence if there or not ours else f"{sentence[:-1]}, which {recipe} does not have."


def near_foreign_name(name: str, own: Iterable[str]) -> str:
    """The name of another library that a misspelt one is closest to, closer than to all our own; else ""."""
    ours = {*own}
    near = difflib.get_close_matches(name, [*OTHER_NAMES, *ours], n=1, cutoff=0.8)
    return near[0] if near and near[0] not in ours else ""
