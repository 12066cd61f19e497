"""What the tests against TRL stand on: a model that both sides can call,
and trainers of TRL that were never initialised."""

from __future__ import annotations

import importlib
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import torch
from toy import every_choice

from postgrad.maths.logprob import align, logp_of_logits
from postgrad.records import Batch
from postgrad.training import objectives

V, PROMPT, BUDGET = 7, 3, 5
HOMES = dict.fromkeys(("DPOTrainer", "KTOTrainer", "RewardTrainer", "GRPOTrainer", "RLOOTrainer"), "trl") | {
    "CPOTrainer": "trl.experimental.cpo", "ORPOTrainer": "trl.experimental.orpo",
    "GMPOTrainer": "trl.experimental.gmpo",
}
ALONE = SimpleNamespace(  # one process, no device: what TRL asks of accelerate
    device=torch.device("cpu"), num_processes=1, process_index=0, is_main_process=True, autocast=nullcontext,
    gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x,
)


class Bigram:
    """A random model with logits[t] = table[t, token_t].

    TRL calls it as one of `transformers`, postgrad by logp and scores.
    """

    # what TRL and accelerate look for in a module
    training, is_gradient_checkpointing, _modules = True, False, {}

    def __init__(self, seed, near=None, by=0.3):
        noise = torch.randn(PROMPT + BUDGET, V, V, generator=torch.Generator().manual_seed(seed),
                            dtype=torch.float64)
        self.table = (noise.requires_grad_() if near is None
                      else (near.table.detach() + by * noise).requires_grad_())

    def logits(self, tokens):
        return self.table[torch.arange(tokens.shape[1]), tokens]

    def __call__(self, input_ids, labels=None, **_):
        logits = self.logits(input_ids)
        if labels is None:
            return SimpleNamespace(logits=logits)
        logp = logp_of_logits(logits, labels.clamp(min=0))
        zero = torch.zeros(len(labels), labels.shape[1] - 1)
        kept = torch.where(labels == -100, 0.0, logp)[:, 1:]
        return SimpleNamespace(log_probs=kept, entropy=zero, mean_logits=zero, is_top1=zero.bool())

    def logp(self, tokens, mask, temperature=1.0, packed=None):
        return torch.where(mask, logp_of_logits(self.logits(tokens), tokens), 0.0), torch.zeros(mask.shape)

    def choices(self, tokens, mask, packed=None):
        return every_choice(align(self.logits(tokens)), mask)

    def scores(self, tokens, lengths, packed=None):
        return self.logits(tokens)[torch.arange(len(tokens)), lengths - 1, :1]


POLICY = Bigram(0)
OLD, REFERENCE = Bigram(1, POLICY, by=1.0), Bigram(2, POLICY)  # so far from OLD that every clip is at work


def load(name):
    return getattr(importlib.import_module(HOMES[name]), name)


def trainer(name, **attributes):
    """A trainer of TRL with these attributes and no others: one that its loss reads and that is missing
    here is an error."""
    made = object.__new__(load(name))
    vars(made).update(
        accelerator=ALONE, model=OLD, ref_model=REFERENCE, aux_loss_enabled=False, _total_train_tokens=0,
        _tp_size=1, _metrics=defaultdict(lambda: defaultdict(list)), **attributes,
    )
    return made


def answers(lengths, seed=0, **columns):
    """A batch of random prompts of PROMPT tokens and answers of these lengths."""
    lengths = torch.tensor(lengths)
    draw = torch.Generator().manual_seed(seed)
    place = torch.arange(PROMPT + BUDGET)
    tokens = torch.randint(1, V, (len(lengths), PROMPT + BUDGET), generator=draw)
    mask = (place >= PROMPT) & (place < PROMPT + lengths[:, None])
    tokens = torch.where(place < PROMPT + lengths[:, None], tokens, 0)
    ids = tuple(map(str, range(len(lengths))))
    return Batch(ids=ids, tokens=tokens, mask=mask, lengths=PROMPT + lengths, **columns)


def ours(method, batch):
    loss, _ = objectives.build_objective(method)(SimpleNamespace(policy=POLICY, teacher=REFERENCE), batch)
    return (loss * batch.weight).sum()


def agree(a, b, within=1e-9):
    """Two losses and their gradients are the same, the gradients are not zero,
    and all of it to less than the bar of 1e-6."""
    assert abs(a.item() - b.item()) < within < 1e-6
    (left,), (right,) = (torch.autograd.grad(x, POLICY.table, retain_graph=True) for x in (a, b))
    assert left.abs().max() > 1e-3 and (left - right).abs().max() < within


def seen(batch):
    return (torch.arange(batch.tokens.shape[1]) < batch.lengths[:, None]).long()


# Pairs: ours are chosen, rejected, chosen, rejected, ...; TRL has all the chosen ones first.


def dpo_loss(batch, *loss_types, loss_weights=(1.0,), **attributes):
    """What DPOTrainer makes of a batch of pairs, POLICY and REFERENCE."""
    made = trainer(
        "DPOTrainer", ld_alpha=None, precompute_ref_logps=False, f_divergence_type="reverse_kl",
        loss_types=loss_types, loss_weights=loss_weights, use_weighting=False,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None), **attributes,
    )
    order = torch.arange(len(batch)).view(-1, 2).T.flatten()
    columns = {"input_ids": batch.tokens, "attention_mask": seen(batch), "completion_mask": batch.mask.long()}
    return made._compute_loss(POLICY, {name: x[order] for name, x in columns.items()}, return_outputs=False)


def cpo_inputs(batch):
    columns = {"input_ids": batch.tokens, "attention_mask": seen(batch)}
    columns["labels"] = torch.where(batch.mask, batch.tokens, -100)
    return {f"{side}_{name}": x[i::2] for i, side in enumerate(("chosen", "rejected"))
            for name, x in columns.items()}


def cpo_trainer(**attributes):
    return trainer("CPOTrainer", alpha=0.0, is_encoder_decoder=False, pad_token_id=0, **attributes)


def policy_trainer(name, batch, reward, group_size, passes=1, args=None, **attributes):
    """GRPO's, GMPO's or RLOO's. passes: micro-batches in a step. args: further ones of its config.

    Its doors to the world are closed: what it "generates" is the batch, what its reward function says is
    reward [B]. All that is between the rewards and the loss is its own.
    """
    settings = SimpleNamespace(
        per_device_train_batch_size=len(batch) // passes, steps_per_generation=passes,
        gradient_accumulation_steps=passes, gradient_checkpointing_kwargs=None, delta=None,
        **{"use_bias_correction_kl": False} | (args or {}),
    )
    usual = dict(
        args=settings, num_generations=group_size, num_iterations=2,
        current_gradient_accumulation_steps=passes, use_vllm=False, environment_factories=None,
        environments=None, tools=None, pad_to_multiple_of=None, mask_truncated_completions=False,
        _tokenizer=SimpleNamespace(pad_token_id=0), reward_weights=torch.ones(1),
        multi_objective_aggregation="sum_then_normalize", reward_func_names=["given"],
        max_completion_length=BUDGET, top_entropy_quantile=1.0, off_policy_mask_threshold=None,
        _entropy_bonus_enabled=False, log_multimodal=False,
        _logs=defaultdict(list, rewards=defaultdict(list)), _pending_extra_logs={}, _pending_metrics={},
    )
    made = trainer(name, **usual | attributes)
    answer = [row[PROMPT:n].tolist() for row, n in zip(batch.tokens, batch.lengths.tolist(), strict=True)]
    rest = (answer,) if name == "RLOOTrainer" else (None, answer, None, {}, None, [])  # no tools, no images
    made._generate = lambda prompts: (batch.tokens[:, :PROMPT].tolist(), answer, *rest)
    made._calculate_rewards = lambda *_: reward[:, None]
    return made


def scored(made, batch):
    return made._generate_and_score_completions([{"prompt": "?"}] * len(batch))
