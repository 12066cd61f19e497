"""A small model of each family, made by transformers with large random weights, norms and biases."""

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    MistralConfig,
    Olmo2Config,
    OlmoConfig,
    Phi3Config,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
    SmolLM3Config,
    StableLmConfig,
)

from postgrad.models import load_model
from postgrad.models.families import Family

# its three bands all have frequencies in them
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64, "rope_theta": 500.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 1e4}
FAMILIES = {
    "llama 2": (LlamaConfig, {}),
    "llama 3": (LlamaConfig, dict(num_key_value_heads=2, rope_parameters=LLAMA3)),
    "llama, linear": (LlamaConfig,
                      dict(rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 1e4})),
    "llama, dynamic": (LlamaConfig,
                       dict(rope_parameters={"rope_type": "dynamic", "factor": 3.0, "rope_theta": 1e4})),
    "llama, biases": (LlamaConfig, dict(attention_bias=True)),
    "smollm2": (LlamaConfig, dict(num_key_value_heads=1, tie_word_embeddings=True)),
    "mistral": (MistralConfig, dict(num_key_value_heads=2, sliding_window=7)),
    "mistral, no window": (MistralConfig, dict(num_key_value_heads=2, sliding_window=None)),
    "qwen 2": (Qwen2Config, dict(num_key_value_heads=2, tie_word_embeddings=True)),
    "qwen 2, windows": (Qwen2Config, dict(num_key_value_heads=2, use_sliding_window=True, sliding_window=5,
                                          max_window_layers=1)),
    "qwen 3": (Qwen3Config, dict(num_key_value_heads=2, head_dim=12, tie_word_embeddings=True)),
    "qwen 3, windows": (Qwen3Config,
                        dict(num_key_value_heads=2, head_dim=24, attention_bias=True, use_sliding_window=True,
                             sliding_window=6, layer_types=["sliding_attention", "full_attention"])),
    "llama, yarn": (LlamaConfig, dict(num_key_value_heads=2, rope_parameters=YARN)),
    "qwen 3, yarn": (Qwen3Config, dict(head_dim=16, rope_parameters=YARN | {
        "beta_fast": 8.0, "beta_slow": 2.0, "truncate": False, "attention_factor": 0.7})),
    "gemma 2": (Gemma2Config, dict(num_key_value_heads=2, head_dim=12, sliding_window=5,
                                   query_pre_attn_scalar=20, attn_logit_softcapping=2.0,
                                   final_logit_softcapping=3.0)),
    "gemma 3": (Gemma3TextConfig, dict(num_key_value_heads=2, head_dim=16, sliding_window=5,
                                       query_pre_attn_scalar=20, layer_types=[
                                           "sliding_attention", "full_attention"])),
    "gemma 3, linear": (Gemma3TextConfig, dict(
        num_key_value_heads=1, head_dim=16, sliding_window=5, query_pre_attn_scalar=16,
        final_logit_softcapping=3.0, num_hidden_layers=3, sliding_window_pattern=3, rope_parameters={
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0}})),
    "smollm 3": (SmolLM3Config, dict(num_key_value_heads=2, no_rope_layers=[1, 0])),
    "phi 3": (Phi3Config, dict(num_key_value_heads=2, sliding_window=7)),
    "phi 4 mini": (Phi3Config, dict(
        num_key_value_heads=2, tie_word_embeddings=True, max_position_embeddings=256,
        original_max_position_embeddings=128, rope_parameters={
            "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.3, 2.0], "long_factor": [1.0, 4.0, 9.0]})),
    "qwen 3 moe": (Qwen3MoeConfig, dict(num_key_value_heads=2, head_dim=12, moe_intermediate_size=24,
                                        num_experts=8, num_experts_per_tok=3, norm_topk_prob=True)),
    "qwen 3 moe, dense": (Qwen3MoeConfig, dict(num_key_value_heads=2, head_dim=12, moe_intermediate_size=24,
                                               num_experts=4, num_experts_per_tok=2, mlp_only_layers=[0])),
    "granite 3": (GraniteConfig, dict(num_key_value_heads=2, embedding_multiplier=6.0, logits_scaling=2.0,
                                      residual_multiplier=0.4, attention_multiplier=0.2)),
    "olmo 2": (Olmo2Config, {}),
    "olmo 2, biases": (Olmo2Config, dict(num_key_value_heads=2, attention_bias=True,
                                         tie_word_embeddings=True)),
}
# A family is one description: these two, with norms that subtract the mean, are added as such.
ADDED = {
    "stablelm": Family(classes="StableLm", norm="layer", norm_bias=True, eps_key="layer_norm_eps",
                       config_defaults={"max_position_embeddings": 4096, "layer_norm_eps": 1e-5,
                                        "partial_rotary_factor": 0.25, "use_qkv_bias": False},
                       bias_on_qkv=True, fixed={"use_qkv_bias": True, "partial_rotary_factor": 1.0,
                                                "use_parallel_residual": False, "qk_layernorm": False}),
    "olmo": Family(classes="Olmo", norm="layer", norm_weight=False, bias_by_config=True,
                   config_defaults={"max_position_embeddings": 2048, "rms_norm_eps": 1e-5},
                   fixed={"clip_qkv": None}),
}
FAMILIES |= {
    "stablelm": (StableLmConfig, dict(num_key_value_heads=2, use_qkv_bias=True, layer_norm_eps=1e-4,
                                      rope_parameters={"rope_type": "default", "rope_theta": 1e4,
                                                       "partial_rotary_factor": 1.0})),
    "olmo": (OlmoConfig, dict(num_key_value_heads=2)),
}


# sizes that kernels of a GPU take
LARGER = dict(hidden_size=256, intermediate_size=384, std=0.05)
LARGER_HEADS = {"head_dim": 64, "rope_parameters": {"short_factor": [1.0, 1.3, 2.0] * 8,
                                                    "long_factor": [1.0, 4.0, 9.0] * 8}}


def larger(name):
    """What `make` takes for heads of 64 in a family's own form."""
    changes = FAMILIES[name][1]
    sizes = {key: size for key, size in LARGER_HEADS.items() if key in changes}
    if "long_factor" not in changes.get("rope_parameters", {}):
        sizes.pop("rope_parameters", None)
    else:
        sizes["rope_parameters"] = changes["rope_parameters"] | sizes["rope_parameters"]
    return LARGER | sizes


def make(name, folder, std=0.15, **sizes):
    """-> our model, read from the folder; theirs."""
    kind, changes = FAMILIES[name]
    theirs = AutoModelForCausalLM.from_config(kind(**dict(
        vocab_size=1024, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=4, max_position_embeddings=128, pad_token_id=0) | changes | sizes),
        attn_implementation="eager")
    draw, one = torch.Generator().manual_seed(len(name)), 0 if "gemma" in name else 1
    with torch.no_grad():
        for key, p in theirs.named_parameters():
            p.copy_(torch.randn(p.shape, generator=draw) * std + ("norm" in key) * one)
    theirs.save_pretrained(folder)
    return load_model(folder), theirs.eval()


def reopened(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                attn_implementation="eager").eval()


def gradients(model, logits, pull):
    """By the names of weights, of the mean of the logits times pull."""
    slopes = torch.autograd.grad((logits * pull).mean(), model.parameters())
    return dict(zip((name for name, _ in model.named_parameters()), slopes, strict=True))
