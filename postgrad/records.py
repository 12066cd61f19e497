"""The records that travel between the parts. Frozen; shapes and a worked example in each docstring.

Legend of shapes, everywhere: B rows, T tokens, U units (a unit is what a loss is taken over: one row, or the
two rows of a pair), P prompts, G samples per prompt, V vocabulary. Everything about token t sits in column t.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch import device as Device

from postgrad.maths.packing import Packed, common_prompts, pack, split_passes, to_cpu, to_device
from postgrad.maths.packing import pad_rows as pad_rows

Message = Mapping[str, Any]  # {"role": "user", "content": "What is 2+3?"}; further keys go to the template
Completion = str | tuple[Message, ...]  # one reply, or several turns that the assistant ends
SET = {"hashed": "set"}  # a field that counts in a hash of rows where it is set (system/user_code.rows_hash)


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What the model is asked, and what a verifier needs in order to judge the answer.

    Prompt(id="arithmetic/7", messages=({"role": "user", "content": "What is 2+3?"},), answer="5")
    where: the file and line that it comes from, for messages. conversational: its row had messages, not a
    text.
    """

    id: str
    messages: tuple[Message, ...]
    answer: object = None
    meta: Mapping[str, object] = field(default_factory=dict)
    where: str = field(default="", compare=False)
    conversational: bool = field(default=True, compare=False)

    @property
    def place(self) -> str:
        """What it is called in a message."""
        return self.where or f"prompt {self.id}"

    @classmethod
    def ask(cls, question: str, answer: object = None, *, id: str | None = None, system: str | None = None,
            **meta: object) -> Prompt:
        """One question as a prompt; without an id, the id is a hash of the text."""
        before = ({"role": "system", "content": system},) if system else ()
        messages = (*before, {"role": "user", "content": question})
        name = id or hashlib.sha256(f"{system}\n{question}".encode()).hexdigest()[:12]
        return cls(id=name, messages=messages, answer=answer, meta=meta)

    @property
    def question(self) -> str:
        return str(self.messages[-1]["content"])


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Messages to imitate: the assistant's turns are trained, but those of `"weight": 0`. `label` is for
    methods on labelled singles (KTO); `tools` are those that the assistant is shown, as JSON schemas. text: a
    rendered text in place of messages, trained whole.

    Conversation(id="1", messages=({"role": "user", "content": "Hi"}, {"role": "assistant",
        "content": "Hello!"}))
    """

    id: str
    messages: tuple[Message, ...]
    label: bool | None = None
    tools: tuple[dict[str, Any], ...] = ()
    text: str = field(default="", metadata=SET)
    where: str = field(default="", compare=False)  # the file and line that it comes from, for messages

    @property
    def place(self) -> str:
        """What it is called in a message."""
        return self.where or f"conversation {self.id}"

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What stands before the last turn; of a text, the text."""
        return ({"role": "text", "content": self.text},) if self.text else self.messages[:-1]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two answers to one prompt, the first preferred, optionally by a margin. An answer is a text, or the
    messages of several turns (or of one with more than content). tools: as of a Conversation.

    A tie is two pairs, swapped, of half the weight.

    Pair(id="1", messages=({"role": "user", "content": "Hi"},), chosen="Hello!", rejected="What?")
    """

    id: str
    messages: tuple[Message, ...]
    chosen: Completion
    rejected: Completion
    margin: float = 0.0
    weight: float = 1.0
    tie: bool = False               # one of the two halves of a tie
    tools: tuple[dict[str, Any], ...] = field(default=(), metadata=SET)
    where: str = field(default="", compare=False)

    @property
    def place(self) -> str:
        return self.where or f"pair {self.id}"

    @property
    def replies(self) -> tuple[tuple[tuple[Message, ...], str], ...]:
        """Of chosen and rejected: what stands before the last reply, and its text."""
        turns = [completion_messages(side) for side in (self.chosen, self.rejected)]
        return tuple(((*self.messages, *side[:-1]), side[-1]["content"]) for side in turns)


def completion_messages(completion: Completion) -> tuple[Message, ...]:
    """A completion as messages."""
    return ({"role": "assistant", "content": completion},) if isinstance(completion, str) else completion


def without_training(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages as context alone: the assistant's get weight 0."""
    return tuple({**m, "weight": 0} if m["role"] == "assistant" else m for m in messages)


COLDEST = 1e-4  # temperature but 0: logits divided by less are no numbers of float32


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How tokens are sampled. temperature 0 is greedy.

    top_k 0, top_p 1 and min_p 0 leave the distribution as it is. stop: texts that end a reply, beside the
    model's own stop tokens; the tokens that complete one stay in the reply.
    """

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}: a reply needs at least 1 token.")
        if not (self.temperature == 0 or COLDEST <= self.temperature < math.inf):
            raise ValueError(f"temperature is {self.temperature}: use 0 for greedy, 1 for the model's "
                             f"own distribution, and nothing between 0 and {COLDEST:g}.")
        if not (self.top_k >= 0 and 0 < self.top_p <= 1 and 0 <= self.min_p < 1):
            raise ValueError(f"top_k {self.top_k}, top_p {self.top_p}, min_p {self.min_p}: "
                             "expected top_k >= 0, 0 < top_p <= 1, 0 <= min_p < 1.")
        if isinstance(self.stop, str) or not all(self.stop):
            raise ValueError(f"stop is {self.stop!r}: give the texts that end a reply as a tuple, none "
                             "of them empty.")

    @property
    def unfiltered(self) -> bool:
        """Whether every token can be sampled."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A span of a rollout's tokens, start up to end, with who wrote it; policy_step: the step of the policy
    that did, None of what it was shown."""

    start: int
    end: int
    role: str = "assistant"
    policy_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What came after a prompt: tokens that the policy sampled (stop tokens included) and, over several
    turns, tokens that it was shown between them; text is that of the last reply.

    Rollout(prompt=p, prompt_tokens=(1, 5, 9), tokens=(7, 2), logp=(-0.1, -0.7), text="5", finished=True,
        seed=3, policy_step=0)
    logp: log-probs of the distribution that was sampled from, one per token, 0 for observed tokens. finished:
    a stop token ended it, not the length. mask: the tokens that were sampled; None: all of them. turns:
    () where one reply is all. episode: the same of all rows of one episode. earlier: rows of the episode
    before this one, where the chat template would not go on from them. verdict: what the environment said.
    routes: [T, L, K] int16, the experts of prompt and reply (models/experts.py), of a mixture that our own
    sampler sampled.
    """

    prompt: Prompt
    prompt_tokens: tuple[int, ...]
    tokens: Sequence[int]  # like logp a tuple, or what reads as one (sampling.sequences.ArrayTuple)
    logp: Sequence[float]
    text: str
    finished: bool
    seed: int
    policy_step: int = 0
    mask: tuple[bool, ...] | None = None
    turns: tuple[Turn, ...] = ()
    episode: str = ""
    earlier: tuple[Rollout, ...] = ()
    verdict: Verdict | None = None
    routes: Tensor | None = field(default=None, compare=False, repr=False)

    @classmethod
    def made(cls, **said: Any) -> Rollout:
        """Rollout(**said), in less than half the time: a GPU waits for hundreds of them. A frozen record's
        own __init__ sets field by field past the lock on it; what is not said is found in the class."""
        rollout = object.__new__(cls)
        rollout.__dict__.update(said)
        return rollout

    @property
    def rows(self) -> tuple[Rollout, ...]:
        """The episode row by row, this one last."""
        return (*self.earlier, self)

    @property
    def sampled(self) -> Sequence[int]:
        """The tokens that the policy wrote, over all rows of the episode."""
        if self.mask is None and not self.earlier:
            return self.tokens
        masks = [(row.tokens, row.mask or (True,) * len(row.tokens)) for row in self.rows]
        return tuple(token for tokens, mask in masks for token, own in zip(tokens, mask, strict=True) if own)

    @property
    def reply(self) -> slice:
        """Where the last reply stands among the tokens."""
        return slice(self.turns[-1].start, self.turns[-1].end) if self.turns else slice(0, len(self.tokens))


@runtime_checkable
class Sampler(Protocol):
    """n samples of each of P prompts. A row depends on the model, its prompt and the seed, not on its
    neighbours."""

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        """[P][n] rollouts; their logp is that of the distribution that was sampled from."""
        ...


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A verifier's judgement: a score, why, and the parts it was summed from.

    Verdict(score=1.0, reason="20 is the answer", parts={"correct": 1.0, "lenient": 1.0, "format": 1.0})
    Parts that have a meaning everywhere: correct (right, by the reading that is paid: what pass@1 counts),
    lenient (right by a kinder reading), format (in the form that was asked for).
    weights: of the parts that the score is the weighted sum of; empty where it is no sum of parts.
    per_token: the score spread over the sampled tokens, a reward for each, with the score as their sum; None:
    all of it stands on the last token. per_turn: what an environment pays for each reply; the rest of the
    score stands on the last, and together they become per_token.
    error names a fault that is not the model's ("infrastructure"):
    such a rollout is counted and kept out of the loss.
    absent: nothing in the reply is what this verifier judges (the language of "2+3=5"); a sum leaves it out.
    metrics: figures for the run's metrics, averaged over the replies that have them, failed ones too.
    extra: further fields for the sample's row.
    """

    score: float
    reason: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict, compare=False)
    error: str | None = None
    per_token: tuple[float, ...] | None = None
    per_turn: tuple[float, ...] | None = None
    absent: bool = False
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)
    extra: Mapping[str, object] = field(default_factory=dict, compare=False)

    @classmethod
    def failed(cls, why: str) -> Verdict:
        """The verdict where something other than the reply failed."""
        return cls(score=0.0, error=f"infrastructure: {why}")

    @property
    def given(self) -> bool:
        """Whether it says anything of the reply: neither failed nor absent.

        What is not given has no part in the loss.
        """
        return self.error is None and not self.absent


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a written chain: where it ends in the text (one past its last character),
    and whether all is right so far.

    "<think>5+8=13, 13-3=11</think>..." -> Step(end=13, right=True), Step(end=22, right=False,
    reason="13-3 is 10, not 11")
    kind: how it looks back at steps before it: turn_back, restart or recheck; "" where it goes on.
    solves: with it the answer is worked out.
    """

    end: int
    right: bool
    reason: str = ""
    kind: str = ""
    solves: bool = False


@runtime_checkable
class Reward(Protocol):
    """Scores rollouts: one verdict each, in order. `resolve.rewards.parse_reward` turns whatever stands for a
    reward into one; nothing below it asks which kind it is."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]: ...

    def prefetch(self, rollout: Rollout) -> None:
        """Called when a rollout ends while others are still sampled: a reward that waits for other processes
        may start on it."""
        return None


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A rollout with its verdict: the two travel together, so scores can't shift against samples."""

    rollout: Rollout
    verdict: Verdict


def require_verdicts(verdicts: Sequence[Verdict]) -> None:
    """A ValueError where every verdict is an error; it quotes the most frequent one."""
    errors = Counter(v.error for v in verdicts if v.error)
    if verdicts and errors.total() == len(verdicts):
        raise ValueError(f"none of {len(verdicts)} replies could be judged: {errors.most_common(1)[0][0]}. "
                         "Mend the verifier, or name another judge with reward=.")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The rows of one optimizer step, right-padded.

    The loss of the step is (loss * weight).sum(), whatever the split.

    tokens  [B, T] int64     mask [B, T] bool: tokens we train        lengths [B] int64: tokens that are not
                                                                      padding
    weight  [B, T] or [U]    fixed once for the whole step
    rows_per_unit            1, or 2 for pairs (chosen, rejected, chosen, rejected, ...); a split never parts
                             a unit
    Two prompts of two tokens, answers of two and one:
    tokens [[1, 5, 7, 2], [1, 6, 2, 0]]  mask [[0, 0, 1, 1], [0, 0, 1, 0]]  lengths [4, 3]  token mean: weight
        = mask / 3
    The optional columns are filled by the assembly line of the method:
    what a method does not need stays None.
    """

    ids: tuple[str, ...]
    tokens: Tensor
    mask: Tensor
    lengths: Tensor
    weight: Tensor
    rows_per_unit: int = 1
    adv: Tensor | None = None           # [B, T]
    # [B, T] the policy that the ratio is taken against; None: the current one (ratio 1)
    old_logp: Tensor | None = None
    ref_logp: Tensor | None = None      # [B, T]
    teacher_logp: Tensor | None = None  # [B, T]
    sampler_logp: Tensor | None = None  # [B, T]
    value: Tensor | None = None         # [B, T] the critic's values when the rollouts were made
    returns: Tensor | None = None       # [B, T]
    entropy: Tensor | None = None       # [B, T] of the policy that sampled, where a row of the table wants it
    # [B, T] what a token counts for, where the sampler is another engine; None: 1
    correction: Tensor | None = None
    marked: Tensor | None = None        # [B, T] bool: the tokens that the row's mark picked
    routes: Tensor | None = None        # [B, T, L, K] experts by which the rollouts were made, plus 1
    margin: Tensor | None = None        # [U]
    votes: Tensor | None = None         # [U, K] how often each head of an ensemble sees the unit
    label: Tensor | None = None         # [U] or [B, T] +1 wanted, -1 unwanted
    # [U] bool: rows that are imitated beside the reinforced ones (PPO-ptx)
    imitate: Tensor | None = None
    baseline: Tensor | None = None      # [U]
    # [B] the rows of one episode have one number, side by side; None: every row is an episode
    episode: Tensor | None = None
    scored: tuple[Scored, ...] = ()     # the rows' origin, for the log
    # the rows without padding, as the models compute them; made by `split`
    packed: Packed | None = None
    # measured while the batch was made, logged with the step: numbers, or stats.Later
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def units(self) -> int:
        return len(self) // self.rows_per_unit

    def to(self, device: str | Device) -> Batch:
        moved: dict[str, Any] = {f.name: to_device(getattr(self, f.name), device) for f in fields(self)
                                 if isinstance(getattr(self, f.name), Tensor)}
        return replace(self, **moved)

    def take(self, start: int, stop: int, width: int | None = None) -> Batch:
        """The units [start, stop), trimmed to their own longest row."""
        rows, units = slice(start * self.rows_per_unit, stop * self.rows_per_unit), slice(start, stop)
        width = width or int(self.lengths[rows].max())
        cut: dict[str, Any] = {}
        for f in fields(self):
            x = getattr(self, f.name)
            if isinstance(x, Tensor):
                part = x[rows] if f.name == "lengths" or x.shape[:2] == self.tokens.shape else x[units]
                cut[f.name] = part[:, :width] if x.shape[:2] == self.tokens.shape else part
        return replace(self, ids=self.ids[rows], scored=self.scored[rows], **cut)

    def split(self, tokens_per_pass: int) -> Iterator[Batch]:
        """Micro-batches of whole units, packed, about equal:
        at most tokens_per_pass tokens to compute, at least one unit."""
        # looked at here once, not at each cut
        tokens, mask, lengths = to_cpu(self.tokens), to_cpu(self.mask), to_cpu(self.lengths)
        prompts = common_prompts(tokens.numpy(), mask.numpy())
        for start, stop in split_passes(lengths.tolist(), prompts, self.rows_per_unit, tokens_per_pass):
            rows = slice(start * self.rows_per_unit, stop * self.rows_per_unit)
            width = int(lengths[rows].max())
            packed = pack(lengths[rows], tokens[rows, :width], mask[rows, :width])
            yield replace(self.take(start, stop, width), packed=packed.to(self.tokens.device))
