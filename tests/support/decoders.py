"""Decoders with random weights, in small shapes."""

import torch

from postgrad.models import Config, Decoder

SIZES = {
    "plain": dict(num_attention_heads=4, num_key_value_heads=4, head_dim=8, tie_word_embeddings=False),
    "tied": dict(num_attention_heads=4, num_key_value_heads=4, head_dim=8, tie_word_embeddings=True),
    "grouped": dict(num_attention_heads=8, num_key_value_heads=2, head_dim=6, tie_word_embeddings=False,
                    rope_theta=500.0),
    "one key head, tied": dict(num_attention_heads=4, num_key_value_heads=1, head_dim=16,
                               tie_word_embeddings=True),
    "wide heads": dict(num_attention_heads=2, num_key_value_heads=1, head_dim=40, tie_word_embeddings=False,
                       rms_norm_eps=1e-2),
}


def config_of(name="grouped", **changes):
    return Config(**dict(vocab_size=53, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                         max_position_embeddings=40) | SIZES[name] | changes)


def random_model(name="grouped", seed=0, **changes):
    """Large weights, and norms that are not one: a part left out or misplaced shows."""
    model, draw = Decoder(config_of(name, **changes)), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=draw) * 0.15 + (1.0 if p.dim() == 1 else 0.0))
    return model
