"""Small models of architectures that have no decoder here."""

import shutil

import torch
from transformers import (
    AutoModelForCausalLM,
    Cohere2Config,
    GPT2Config,
    GPTNeoXConfig,
    MambaConfig,
    PhiConfig,
)

from postgrad.models import find_model
from postgrad.models.chat import Chat

TINY = find_model("tiny-chat")
CHAT = Chat.load(TINY)
ENDS = {"bos_token_id": CHAT.id(CHAT.bos), "eos_token_id": CHAT.stop[0], "pad_token_id": CHAT.id(CHAT.pad)}
SIZES = dict(vocab_size=1024, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
             intermediate_size=48, max_position_embeddings=160, **ENDS)
# learned positions and Conv1D; partly rotated parallel layers; a scale, a window and shared heads;
# a bias on the head
KINDS = {
    "gpt2": lambda: GPT2Config(vocab_size=1024, n_positions=160, n_embd=32, n_layer=2, n_head=2, **ENDS),
    "gpt_neox": lambda: GPTNeoXConfig(**SIZES),
    "cohere2": lambda: Cohere2Config(**SIZES, num_key_value_heads=1, sliding_window=6, logit_scale=0.5,
                                     layer_types=["sliding_attention", "full_attention"]),
    "phi": lambda: PhiConfig(**SIZES),
    "mamba": lambda: MambaConfig(vocab_size=1024, hidden_size=16, num_hidden_layers=1, state_size=4, **ENDS),
}
TOKENS = torch.randint(0, 1024, (3, 24), generator=torch.Generator().manual_seed(0))
TOKENS[1, :6] = TOKENS[0, :6]  # a prompt that two rows share
MASK = (torch.arange(24) > 5) & (torch.arange(24) < torch.tensor([[24], [15], [9]]))


def small_folders(tmp_path_factory):
    """A folder for each kind, made when it is asked for:
    random weights, far from uniform, and tiny-chat's tokenizer."""
    made = {}

    def folder(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            torch.manual_seed(3)
            theirs = AutoModelForCausalLM.from_config(KINDS[kind]())
            with torch.no_grad():
                for p in theirs.parameters():
                    p.mul_(6.0 if p.dim() > 1 else 1.0)
            theirs.save_pretrained(made[kind])
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(TINY / name, made[kind])
        return made[kind]

    return folder
