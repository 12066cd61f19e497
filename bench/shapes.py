"""Common to the speed benchmarks: model folders of a shape with random weights, their data, floors, and the
two passes of a step: sampling, and forward and backward of training.

A shape's tokenizer has one word a token, so lengths are exact. The weights decide how long samples get, the
same for every reader of the folder: no layer writes into the first entry of the residual stream, every token
puts the same number there, and the rows of the head for the stop and the pad token read nothing else. Their
probability is then the same at every position: `chance` for stop, 0 for pad.

A floor is the time of a work limited by arithmetic or memory alone, from rates measured in the same run.
Training: floating-point operations over the rate of a large matrix product. Decoding, step by step: the bytes
read (weights, and the KV cache of every live row) over the bandwidth, or operations over the same rate,
whichever is longer. Prompts count once for a group, and only sampled positions go through the head.
"""

from __future__ import annotations

import gc
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parent.parent / "proofs")]

import harness  # noqa: E402
import torch  # noqa: E402
from sides import Work  # noqa: E402
from tokenizers import Tokenizer, decoders, pre_tokenizers  # noqa: E402
from tokenizers.models import WordLevel  # noqa: E402

from postgrad import methods  # noqa: E402
from postgrad.maths.weights import sequence_mean  # noqa: E402
from postgrad.models import Config, Decoder, Models, ScalarModel, load_model, save_model  # noqa: E402
from postgrad.models.chat import Chat  # noqa: E402
from postgrad.models.families import Architecture  # noqa: E402
from postgrad.records import Batch, Prompt  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402
from postgrad.system.gc_tuning import seldom_collected  # noqa: E402
from postgrad.training import objectives  # noqa: E402
from postgrad.training.memory.setup import llama, matrices, parameters  # noqa: E402
from postgrad.training.optim import Optim, OptimSettings  # noqa: E402

SPECIAL = ("<|pad|>", "<|bos|>", "<|end|>", "<|user|>", "<|assistant|>")
AROUND = 4  # tokens of the template around a prompt's words: bos, user, end, assistant
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
NEVER = -60.0  # log-odds of a token that is never drawn


def shape(layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int,
          family: str = "llama") -> Config:
    tokens = (("pad_token_id", 0), ("bos_token_id", 1), ("eos_token_id", 2))
    return replace(llama(layers, hidden, ffn, heads, kv, vocab, tied=True), max_position_embeddings=8192,
                   architecture=Architecture(model_type=family, tokens=tokens))


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
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.ByteLevel()  # as in real models
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


# floors


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def matmul_rate(dtype: torch.dtype, device: str = "cpu") -> float:
    """FLOP/s of a square product of a size that suits the machine."""
    n = 1024 if device == "cpu" else 8192
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return 2 * n**3 / harness.best(lambda: a @ b, rounds=20, wait=synchronize)[0]


def read_rate(size: float, device: str = "cpu") -> float:
    """Bytes/s of summing a buffer of so many bytes over and over: what fits a cache is read from there."""
    x = torch.ones(max(1, int(size) // 4), device=device)
    return x.numel() * 4 / harness.best(x.sum, rounds=20, wait=synchronize)[0]


@dataclass(frozen=True, kw_only=True)
class Rates:
    flops: float        # FLOP/s
    bytes: float        # bytes/s
    item: int           # bytes of a weight

    @classmethod
    def measure(cls, config: Config, dtype: torch.dtype, device: str = "cpu") -> Rates:
        item = dtype.itemsize
        return cls(flops=matmul_rate(dtype, device), bytes=read_rate(parameters(config) * item, device),
                   item=item)


def forward_flops(c: Config, tokens: float, headed: float, length: float) -> float:
    """A forward pass over so many tokens, `headed` of them through the head,
    in sequences of about this length."""
    attention = 4 * c.num_hidden_layers * c.num_attention_heads * c.head_dim * length / 2
    return tokens * (2 * matrices(c) + attention) + 2 * headed * c.hidden_size * c.vocab_size


def train_floor(c: Config, rates: Rates, tokens: float, headed: float, length: float,
                looks: int = 0) -> float:
    """Seconds of a forward and a backward pass (twice the forward's work),
    and of `looks` more forward passes."""
    return (3 + looks) * forward_flops(c, tokens, headed, length) / rates.flops


def decode_floor(c: Config, rates: Rates, prompts: int, group: int, prompt: int, new: int,
                 chance: float = 0.0) -> float:
    """Seconds to sample. chance: of stopping after each token."""
    slot = 2 * c.num_hidden_layers * c.num_key_value_heads * c.head_dim * rates.item
    seconds = forward_flops(c, prompts * prompt, prompts, prompt) / rates.flops
    for t in range(new - 1):
        live = prompts * group * (1 - chance) ** (t + 1)
        read = parameters(c) * rates.item + slot * (prompts * prompt + live * (t + 1))
        seconds += max(read / rates.bytes, forward_flops(c, live, live, 2 * (prompt + t + 1)) / rates.flops)
    return seconds


def expected(chance: float, new: int) -> float:
    """The mean length of a sample that stops after each token by this chance, cut at `new`."""
    return (1 - (1 - chance) ** new) / chance if chance else float(new)


# passes


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The sizes of the table, and where its files lie."""

    folder: Path
    ours: tuple[str, ...]
    dtype: torch.dtype
    device: str = "cuda"
    shape: str = "135M"
    big: str = "1B"
    prompts: int = 64
    group: int = 8
    prompt: int = 128
    new: int = 128
    cap: int = 1024
    passes: int = 8                 # 64 rows of 256 tokens at a time, for both sides

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    def model(self, shape: str, chance: float = 0.0) -> Path:
        """The folder of a shape, written when first asked for."""
        folder = self.folder / f"{shape}-{chance:.4f}"
        return folder if folder.exists() else write_model(folder, SHAPES[shape], chance, dtype=torch.bfloat16)

    def work(self, shape: str, how: tuple[str, ...], steps: int = 4, beta: float = 0.0) -> Work:
        task = self.folder / f"task-{shape}" / "task.py"
        if not task.exists():
            write_task(task.parent, self.prompts, self.prompt, SHAPES[shape].vocab_size)
        return Work(kind="grpo", model=str(self.model(shape)), data=str(task), steps=steps, how=how,
                    beta=beta, prompts=self.prompts, group=self.group, new_tokens=self.new,
                    passes=self.passes, device=self.device)

    def recipe(self) -> tuple[str, ...]:
        """The overrides of our side: the same number of tokens at once, all weights (of a large model an
        adapter would be trained, on the other side all of them), and what --ours says."""
        at_once = self.rows * (self.prompt + self.new) // self.passes
        return (f"optim.tokens_per_pass={at_once}", "optim.compile=true", "optim.adapter.lora=0", *self.ours)

    def asked(self) -> list[Prompt]:
        return [Prompt.ask(text, id=str(i)) for i, text in enumerate(
            questions(self.prompts, self.prompt, SHAPES[self.shape].vocab_size))]

    def rates(self, shape: str) -> Rates:
        return Rates.measure(SHAPES[shape], self.dtype, self.device)


def clean() -> None:
    """Frees memory and resets the GPU's peak."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def print_each(key: str, works: Mapping[str, Callable[[], dict]], most: float = math.inf) -> None:
    """A line of JSON for each work. One that fails reports its error; none begins after `most` seconds."""
    began = time.perf_counter()
    for name, work in works.items():
        clean()
        start = time.perf_counter()
        try:
            if start - began > most:
                raise TimeoutError(f"not begun: {most} s are over")
            row = work()
        except Exception as error:  # the others are worth having
            row = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:1500]}
        print(json.dumps({key: name, **row, "part seconds": time.perf_counter() - start}), flush=True)


def timed(work) -> tuple[float, object]:
    synchronize()
    began = time.perf_counter()
    result = work()
    synchronize()
    return time.perf_counter() - began, result


def opened(s: Setting, folder: Path) -> tuple[Models, Optim]:
    """A policy and its optimizer, in the setting's precision."""
    models = Models(policy=load_model(folder, device=s.device))
    precision = {torch.bfloat16: "bf16", torch.float32: "fp32"}[s.dtype]
    at_once = s.rows * (s.prompt + s.new) // s.passes
    return models, Optim(models, OptimSettings(lr=1e-6, precision=precision, tokens_per_pass=at_once),
                         steps=1)


def draw(s: Setting, chance: float, new: int, rounds: int = 3,
         **slots: int) -> tuple[list[float], int, float, object, list]:
    """(seconds of each call, tokens of the last, its tokens/s as the median of the warm ones, the model,
    the rollouts). slots: max_concurrent, where they are not as many as a sampler has by itself."""
    folder = s.model(s.shape, chance)
    model, chat = opened(s, folder)[0].policy, Chat.load(folder)
    sampler, seconds, speeds, rows = LocalSampler(model, chat, **slots), [], [], []
    prompts = s.asked()  # the same objects in each call, as in a run: the sampler renders a prompt once
    with seldom_collected():  # as in a run
        for turn in range(rounds + 1):
            passed, groups = timed(partial(sampler.sample, prompts, s.group, Sampling(max_new_tokens=new),
                                           turn))
            rows = [r for g in groups for r in g]
            seconds.append(passed)
            speeds.append(sum(len(r.tokens) for r in rows) / passed)
    return seconds, sum(len(r.tokens) for r in rows), statistics.median(speeds[1:]), model, rows


def rows(s: Setting, count: int, ragged: bool = False) -> Batch:
    """Groups that share their prompt, with random advantages; ragged: each answer of another length."""
    width, make = s.prompt + s.new, torch.Generator().manual_seed(0)
    tokens = torch.randint(5, SHAPES[s.shape].vocab_size, (count, width), generator=make)
    tokens[:, : s.prompt] = tokens[:: s.group, : s.prompt].repeat_interleave(s.group, 0)
    lengths = torch.full((count,), width)
    if ragged:
        lengths = torch.randint(s.prompt + 1, width + 1, (count,), generator=make)
    column = torch.arange(width)
    mask = (column >= s.prompt) & (column < lengths[:, None])
    ids = tuple(f"{i // s.group}/{i % s.group}" for i in range(count))
    return Batch(ids=ids, tokens=tokens, mask=mask, lengths=lengths, weight=sequence_mean(mask, s.new),
                 adv=torch.randn(mask.shape, generator=make)).to(s.device)


def step(models: Models, optim: Optim, batch: Batch) -> None:
    """The policy's objective and its backward pass over the rows of a step; no optimizer."""
    objective = objectives.build_objective(replace(methods.get_method("grpo"), kl_in_loss=0.0))
    for micro in batch.split(optim.tokens_per_pass):
        (objective(models, micro)[0] * micro.weight).sum().backward()
        optim.gather()


def train(s: Setting, rounds: int = 5) -> dict:
    (models, optim), batch, seconds, width = (opened(s, s.model(s.shape)), rows(s, s.rows), [],
                                              s.prompt + s.new)
    for _ in range(rounds):
        seconds.append(timed(partial(step, models, optim, batch))[0])
        optim.adam.zero_grad()
    floor = train_floor(SHAPES[s.shape], s.rates(s.shape), s.prompts * s.prompt + s.rows * s.new,
                        s.rows * s.new, width)
    return {"tokens/s": s.rows * width / statistics.median(seconds[rounds // 2:]), "seconds": seconds,
            "floor tokens/s": s.rows * width / floor, **peak()}


def peak() -> dict:
    return {"peak GiB": torch.cuda.max_memory_allocated() / 2**30} if torch.cuda.is_available() else {}
