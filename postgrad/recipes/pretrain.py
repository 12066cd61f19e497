"""Pretraining of the embedded base models: a tokenizer, a corpus of `tasks/corpus.py` or
`tasks/corpus_zero.py`, and next-token prediction.

    postgrad train pretrain:tiny --run runs/tiny device=cuda
    postgrad train pretrain:zero --run runs/zero device=cuda

gave the weights in `postgrad/models/embedded/tiny` and `tiny-zero`. Documents are packed into rows of fixed
length. The tokenizer is trained on the text of `tiny` whatever the corpus, so all models share it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import MISSING, dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from postgrad import methods
from postgrad.data.tasks import corpus, corpus_zero
from postgrad.maths.noise import seed_of
from postgrad.models import Config, Decoder, Models, load_model
from postgrad.models.chat import Chat
from postgrad.recipes.base import DEVICE, SAVE, SEED, STEPS, TrainConfig, TrainingSetup, refuse_adapter
from postgrad.records import Batch, Message
from postgrad.resolve.models import ModelSource
from postgrad.system.settings import COUNT, Settings, setting
from postgrad.training import objectives
from postgrad.training.loop import State
from postgrad.training.optim import Optim, OptimSettings

Tokens = NDArray[np.uint16]
CORPORA: dict[str, Callable[[int, int, int], Iterable[str | Sequence[Message]]]] = {
    "tiny": corpus.documents, "zero": corpus_zero.zero_documents,
    "zero-control": corpus_zero.control_documents}
CONTROL = ("<|pad|>", "<|bos|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
TEMPLATE = ("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
            "{% if add_generation_prompt %}<|assistant|>{% endif %}")
CHUNK = 20_000  # documents of one job


@dataclass(frozen=True, kw_only=True)
class Sizes(Settings):
    """The shape of the new model."""

    vocab_size: int = setting(1024, "tokens of the new tokenizer",
                              "more for a corpus of more words; the embedding grows with it", within=COUNT)
    width: int = setting(192, "of the hidden state", "the first thing to grow; a multiple of heads",
                         within=COUNT)
    layers: int = setting(4, "layers of the network", "more with the width, for tasks of more steps",
                          within=COUNT)
    heads: int = setting(4, "attention heads", "so that width / heads stays at 32 to 128", within=COUNT)
    positions: int = setting(512, "the longest row", "at least the longest prompt and reply together",
                             within=COUNT)

    prefix: ClassVar[str] = "sizes."


@dataclass(frozen=True, kw_only=True)
class PretrainConfig(TrainConfig):
    """One run that pretrains a base model."""

    recipe: ClassVar[str] = "pretrain"
    steps: int = setting(MISSING, *STEPS)
    documents: int = setting(about="documents of the generated corpus",
                             when="so many that no row comes twice: steps x rows_per_step x row_length "
                             "tokens", within=COUNT)
    corpus: str = setting("tiny", f"the text: {', '.join(CORPORA)}",
                          "zero for a base that R1-Zero starts from, zero-control for the same without "
                          "chains that backtrack", choices=tuple(CORPORA))
    sizes: Sizes = setting(group=Sizes)
    row_length: int = setting(256, "tokens in a row",
                              "as long as the texts of later trainings; at most sizes.positions",
                              within=COUNT)
    rows_per_step: int = setting(512, "rows in a step",
                                 "fewer on a CPU or for a smaller corpus; memory is tokens_per_pass",
                                 within=COUNT)
    optim: OptimSettings = setting(about="the optimizer")
    seed: int = setting(0, *SEED)
    device: str = setting("cpu", *DEVICE)
    workers: int = setting(2, "processes that write the corpus",
                           "as many as there are cores: the corpus is the same", within=COUNT)
    save_every: int = setting(1000, *SAVE)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_adapter(self.optim)


def tiny() -> PretrainConfig:
    """The embedded model: about 2M parameters, some 330M tokens."""
    return PretrainConfig(steps=2600, documents=3_600_000, workers=16, optim=OptimSettings(
        lr=3e-3, schedule="cosine", warmup=100, weight_decay=0.1, beta2=0.98, tokens_per_pass=131_072))


def zero() -> PretrainConfig:
    """The base of R1-Zero: the same model on its own text, some 120M tokens read twice."""
    return replace(tiny(), corpus="zero", steps=1800, documents=1_900_000)


def control() -> PretrainConfig:
    """The control of R1-Zero's base: its text without chains that backtrack."""
    return replace(zero(), corpus="zero-control")


def smoke() -> PretrainConfig:
    """A smoke test: a few steps of a smaller model."""
    return PretrainConfig(steps=3, documents=2_000, sizes=Sizes(width=32, layers=1, heads=2), rows_per_step=8,
                          optim=OptimSettings(lr=3e-3))


SETTINGS = {"tiny": tiny, "zero": zero, "control": control, "smoke": smoke}


def make_chat(text: str, vocab_size: int) -> Chat:
    """A byte-level BPE tokenizer that splits numbers into digits, and its chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab_size - len(TAGS), special_tokens=list(CONTROL),
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    for tag in TAGS:  # single tokens already
        text = text.replace(tag, "\n")
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    return Chat(tokenizer, TEMPLATE, bos="<|bos|>", eos="<|end|>", pad="<|pad|>")


def encode_documents(chat: Chat, name: str, seed: int, start: int, count: int) -> Tokens:
    """Documents start .. start + count - 1 of a corpus as one array of tokens, each from <|bos|> to
    <|end|>."""
    texts = [f"<|bos|>{doc}<|end|>" if isinstance(doc, str) else chat.text_of(doc, reply=False)
             for doc in CORPORA[name](seed, start, count)]
    return np.concatenate([np.asarray(e.ids, dtype=np.uint16)
                           for e in chat.tokenizer.encode_batch(texts, add_special_tokens=False)])


class _Worker:
    """A worker process: its tokenizer is sent once, not with each job."""

    chat: ClassVar[Chat]

    @classmethod
    def start(cls, tokenizer_json: str) -> None:
        cls.chat = Chat(Tokenizer.from_str(tokenizer_json), TEMPLATE, bos="<|bos|>", eos="<|end|>",
                        pad="<|pad|>")

    @classmethod
    def encode(cls, job: tuple[str, int, int, int]) -> Tokens:
        return encode_documents(cls.chat, *job)


def encode_corpus(chat: Chat, config: PretrainConfig) -> Tokens:
    """The corpus as tokens, encoded by worker processes; the same whatever their number."""
    jobs = [(config.corpus, config.seed, at, min(CHUNK, config.documents - at))
            for at in range(0, config.documents, CHUNK)]
    if config.workers < 2:
        return np.concatenate([encode_documents(chat, *job) for job in jobs])
    with ProcessPoolExecutor(config.workers, initializer=_Worker.start,
                             initargs=(chat.tokenizer.to_str(),)) as pool:
        return np.concatenate(list(pool.map(_Worker.encode, jobs)))


class BlockBatches:
    """Rows of row_length tokens from one array; the order of each epoch is a function of the seed."""

    def __init__(self, tokens: Tokens, config: PretrainConfig):
        self.config, self.step = config, 0
        count = len(tokens) // config.row_length
        if count < config.rows_per_step:
            raise ValueError(f"the corpus gives {count} rows of {config.row_length}, "
                             f"fewer than rows_per_step {config.rows_per_step}: set more documents.")
        self.rows = torch.from_numpy(tokens[: count * config.row_length].astype(np.int16)).view(
            count, config.row_length)

    def __iter__(self) -> Iterator[Batch]:
        c = self.config
        per_epoch = len(self.rows) // c.rows_per_step
        order, order_epoch = torch.empty(0), -1
        mask = torch.ones(c.rows_per_step, c.row_length, dtype=torch.bool, device=c.device)
        mask[:, 0] = False
        lengths, weight = torch.full((c.rows_per_step,), c.row_length), mask / mask.sum()
        while self.step < c.steps:
            epoch, place = divmod(self.step, per_epoch)
            if epoch != order_epoch:
                generator = torch.Generator().manual_seed(seed_of(c.seed, "rows", epoch))
                order, order_epoch = torch.randperm(len(self.rows), generator=generator), epoch
            rows = self.rows[order[place * c.rows_per_step: (place + 1) * c.rows_per_step]]
            self.step += 1
            yield Batch(ids=("row",) * c.rows_per_step, tokens=(rows.to(c.device).long() & 0xFFFF), mask=mask,
                        lengths=lengths, weight=weight, facts={"tokens": float(rows.numel())})

    def state(self) -> State:
        return {"step": self.step}

    def restore(self, state: State) -> None:
        self.step = state["step"]


def build(config: PretrainConfig, source: ModelSource | None) -> TrainingSetup:
    chat = (Chat.load(source.weights) if source else
            make_chat(corpus.sample_text(40_000, config.seed), config.sizes.vocab_size))
    began = time.perf_counter()
    tokens = encode_corpus(chat, config)
    print(f"corpus: {config.documents:,} documents, {len(tokens):,} tokens, "
          f"{time.perf_counter() - began:.0f} s", flush=True)
    if source:
        model = load_model(source.weights, device=config.device,
                           divide=config.optim.dividing(config.device))
    else:
        z = config.sizes
        shape = Config(vocab_size=z.vocab_size, hidden_size=z.width,
                       intermediate_size=round(z.width * 8 / 3 / 64) * 64, num_hidden_layers=z.layers,
                       num_attention_heads=z.heads, num_key_value_heads=z.heads, head_dim=z.width // z.heads,
                       max_position_embeddings=z.positions, tie_word_embeddings=True)
        model = Decoder(shape).start(torch.Generator().manual_seed(seed_of(config.seed, "weights"))).to(
            config.device)
    trained = Models(policy=model)
    return TrainingSetup(models=trained, chat=chat, batches=BlockBatches(tokens, config),
                         objective=objectives.build_objective(methods.get_method("sft")),
                         optim=Optim(trained, config.optim, config.steps))
