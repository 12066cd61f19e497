"""What the speed benchmarks work on: model folders of a given shape with random weights,
and the data of each work.

A shape's tokenizer has one word a token, so lengths are exact.
How long samples get is in the weights, the same for whoever
reads the folder: no layer writes into the first entry of the residual stream, every token puts the same
number there, and the rows of the head for the stop and the pad token read nothing else. Their probability is
then the same everywhere: `chance` and none at all.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from postgrad.models import Config, Decoder, ScalarModel, save_model
from postgrad.models.chat import Chat
from postgrad.models.families import Architecture

SPECIAL = ("<|pad|>", "<|bos|>", "<|end|>", "<|user|>", "<|assistant|>")
AROUND = 4  # tokens of the template around a prompt's words: bos, user, end, assistant
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
NEVER = -60.0  # log-odds of a token that is never drawn


def shape(layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, tied: bool = True,
          family: str = "llama") -> Config:
    return Config(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads,
                  num_key_value_heads=kv, intermediate_size=ffn, vocab_size=vocab, head_dim=hidden // heads,
                  tie_word_embeddings=tied, max_position_embeddings=8192,
                  architecture=Architecture(model_type=family, tokens=(("pad_token_id", 0), ("bos_token_id",
                                                                                             1),
                                                                       ("eos_token_id", 2))))


SHAPES = {
    "tiny": shape(2, 64, 4, 2, 128, 512),           # for trying the scripts themselves
    "1M": shape(4, 128, 4, 2, 448, 1024),
    "5M": shape(6, 256, 8, 4, 768, 1024),
    "135M": shape(30, 576, 9, 3, 1536, 49152),      # SmolLM2-135M
    "1B": shape(16, 2048, 32, 8, 8192, 32000),      # Llama 3.2 1B, with Llama 2's vocabulary
    "qwen3": shape(4, 512, 8, 4, 1536, 32000, family="qwen3"),  # for its norms of queries and keys
}


def new_chat(vocab: int) -> Chat:
    words = {**{name: i for i, name in enumerate(SPECIAL)},
             **{f"w{i}": i for i in range(len(SPECIAL), vocab)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<|pad|>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.decoder = ByteLevel()  # text is made as the tokenizers of real models make it
    tokenizer.add_special_tokens(list(SPECIAL))
    return Chat(tokenizer, TEMPLATE, bos="<|bos|>", eos="<|end|>", pad="<|pad|>")


@torch.no_grad()
def bake(model: Decoder, stop: int, pad: int, chance: float) -> Decoder:
    """Gives the stop token the same probability after every token; 0 is never. The pad token is never drawn:
    `transformers` has no gradient for it."""
    size, body = model.config.hidden_size, model.model
    body.embed_tokens.weight[:, 0] = 0.02 * math.sqrt(size)  # about half of a fresh embedding's square
    for layer in body.layers:
        layer.self_attn.o_proj.weight[0] = 0.0
        layer.mlp.down_proj.weight[0] = 0.0
    model.head[[stop, pad]] = 0.0
    tokens = torch.randint(len(SPECIAL), model.config.vocab_size, (8, 32),
                           generator=torch.Generator().manual_seed(0))
    hidden = model.hidden(tokens)
    logits = hidden @ model.head.T
    logits[..., [stop, pad]] = -torch.inf
    for token, odds in ((pad, NEVER), (stop, math.log(chance / (1 - chance)) if chance else NEVER)):
        model.head[token, 0] = ((odds + logits.logsumexp(-1)) / hidden[..., 0]).mean()
    return model


def new_model(config: Config, chance: float, seed: int = 0) -> Decoder:
    model = Decoder(config).start(torch.Generator().manual_seed(seed))
    return bake(model, SPECIAL.index("<|end|>"), SPECIAL.index("<|pad|>"), chance)


def write_model(folder: Path, config: Config, chance: float = 0.0, *, scalar: bool = False,
                dtype=torch.float32) -> Path:
    """A model folder that both sides read; with `scalar` a reward model with a head that says something."""
    folder.mkdir(parents=True)
    model = new_model(config, chance)
    if scalar:
        model = ScalarModel(model)
        model.score_head.weight.data.normal_(0.0, 0.02, generator=torch.Generator().manual_seed(1))
    save_model(model, folder, dtype)
    new_chat(config.vocab_size).save(folder)
    return folder


def text(rng: random.Random, words: int, vocab: int) -> str:
    return " ".join(f"w{rng.randrange(len(SPECIAL), vocab)}" for _ in range(words))


def questions(count: int, tokens: int, vocab: int, seed: str = "train") -> list[str]:
    """Texts whose prompts have exactly so many tokens, the template's included."""
    rng = random.Random(f"questions/{seed}")
    return [text(rng, tokens - AROUND, vocab) for _ in range(count)]


TASK = '''
import json, zlib
from pathlib import Path

asked = json.loads((Path(__file__).parent / "questions.json").read_text())


def prompts(split):
    return [{"question": q, "answer": ""} for q in asked[split]]


def verify(prompt, completion):
    return zlib.crc32(completion.encode()) % 5 / 4
'''


def write_task(folder: Path, count: int, tokens: int, vocab: int) -> Path:
    """A task file with prompts of one length; its score depends on the text alone,
    so samples of a group differ."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = {split: questions(count, tokens, vocab, split) for split in ("train", "validation", "test")}
    (folder / "questions.json").write_text(json.dumps(asked))
    (folder / "task.py").write_text(TASK)
    return folder / "task.py"


def write_pairs(path: Path, count: int, prompt: int, longest: int, vocab: int) -> Path:
    """Pairs with answers of 8 to `longest` words, the usual spread of preference data."""
    rng = random.Random("pairs")
    rows = [{"prompt": question,
             **{side: text(rng, rng.randint(8, longest), vocab) for side in ("chosen", "rejected")}}
            for question in questions(count, prompt, vocab, "pairs")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_talks(path: Path, count: int, prompt: int, longest: int, vocab: int) -> Path:
    """Conversations, most of them much shorter than the longest: exponential lengths, cut at both ends."""
    rng = random.Random("talks")
    rows = []
    for question in questions(count, prompt, vocab, "talks"):
        answer = text(rng, min(longest, 4 + int(rng.expovariate(4 / longest))), vocab)
        rows.append({"messages": [{"role": "user", "content": question},
                                  {"role": "assistant", "content": answer}]})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
