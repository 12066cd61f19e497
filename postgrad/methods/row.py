"""What a row of the table is: frozen dataclasses of functions and constants, and how a row is opened.

A row is open: `change(row, high=0.3)` is another row, whatever can be read off one can be set.
A run keeps the row
it was made with (`described`), and going on asks that it is still the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import ClassVar

from postgrad.maths import credit, kl
from postgrad.methods.constants import constants, same, set_constant
from postgrad.system.settings import Configurable, suggest
from postgrad.system.user_code import GIVEN

SOURCES = ("conversations", "pairs", "singles", "steps", "outcomes", "rollouts", "rollouts to pairs",
           "rollouts to conversations")


@dataclass(frozen=True, kw_only=True, eq=False)
class Row(Configurable):
    """What all rows have.

    file: FILE.py:NAME where a user's file defines it, so that a run can find its row again.
    """

    name: str
    source: str
    paper: str = ""
    about: str = ""
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self):
        if self.source not in SOURCES:
            raise ValueError(f"row {self.name}: its batches come from {self.source!r}, expected one of "
                             f"{', '.join(SOURCES)}.")

    def updates(self, prompts: int) -> int:
        """Optimizer steps that a collection of so many prompts is used for."""
        return 1

    def __eq__(self, other: object) -> bool:
        """Two rows are one when all their functions and constants are:
        partials with the same keywords are the same."""
        return type(self) is type(other) and all(same(getattr(self, f.name), getattr(other, f.name))
                                                 for f in fields(self) if f.compare)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    # a row in a config: method.high=0.3

    def __str__(self) -> str:
        return self.name

    def settings(self) -> dict[str, object]:
        return constants(self)

    def with_setting(self, name: str, value: object) -> Row:
        return set_constant(self, name, value)

    def saved(self) -> object:
        """Its name, with the constants that were set: "dapo", {"name": "dapo", "high": 0.3}. A row without a
        name that finds it again is kept as a record, and has to be handed in again."""
        from postgrad import methods
        assert isinstance(self, Method)
        found = methods.find(self)
        if found is None:
            return self.record()
        changed = {k: v for k, v in constants(self).items() if constants(found).get(k) != v}
        return {"name": self.file or self.name, **changed} if changed else self.file or self.name

    def record(self) -> dict:
        from postgrad import methods
        return {GIVEN: "row", "name": self.name, **methods.described(self)}

    def words(self, name: str) -> tuple[str, str]:
        from postgrad.methods.words import words_of
        assert isinstance(self, Method)
        return words_of(self, name)


@dataclass(frozen=True, kw_only=True, eq=False)
class Supervised(Row):
    """Imitate: -logp on the trained tokens.

    select: the rollouts to imitate, (score [B], group_size, **select_wants) -> bool [B]; it may want `best`,
    the best score there is. kl_bound: the most that choosing so among n samples can move the policy, in nats,
    for the log.
    """

    kind: ClassVar[str] = "supervised"
    reference: ClassVar[bool] = False
    weigh: Callable
    select: Callable | None = None
    select_wants: tuple[str, ...] = ()
    kl_bound: Callable[[int], float] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Preference(Row):
    """Prefer: rows to scores, scores to a loss per pair, labelled single or labelled token.

    score None: the scalar head.

    reference: the reference's score is subtracted, so that loss sees log-ratios.
    """

    kind: ClassVar[str] = "preference"
    score: Callable | None
    reference: bool
    loss: Callable


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy(Row):
    """Reinforce: rewards to advantages (credit), advantages to a loss per token (surrogate),
    tokens to a step (weigh).

    credit and surrogate have one signature each (maths/credit.py, maths/surrogate.py);
    what else they want of the batch a row names, and they are handed it by keyword: credit_wants=("value",),
    surrogate_wants=("entropy",); kl, the estimator of kl_in_loss, likewise.
    choose: which tokens of a step count, (mask [B, T], adv [B, T], **choose_wants) -> bool [B, T]; mark:
    which ones its surrogate treats otherwise, handed to it as the column `marked`. Both see the whole step
    and are asked once (maths/choice.py), so that any split into passes gives the same update.
    correction: how much a token counts where the sampler is another engine than the trainer, (sampler_logp,
    old_logp, mask) -> weight [B, T] (maths/correction.py); None where it is our own.
    epochs, minibatches: the paper's schedule, how many passes are made over a collection of rollouts and how
    many optimizer steps a pass has. ratio: whether a second update on the same samples is sound, by a weight
    pi/pi_old of each token or because the loss is exact wherever the samples led; else it is refused.
    unbiased: on policy, the mean gradient is a constant times the exact gradient of E[reward] -
    kl_in_reward KL(pi||ref).
    A row that wants teacher_logp or teacher_kl has a teacher: a model that the run names, or, shown a
    demonstration of each prompt, the model that the run starts from.
    """

    kind: ClassVar[str] = "policy"
    source: str = "rollouts"
    credit: Callable
    credit_wants: tuple[str, ...] = ()
    surrogate: Callable
    surrogate_wants: tuple[str, ...] = ()
    choose: Callable | None = None
    choose_wants: tuple[str, ...] = ()
    mark: Callable | None = None
    mark_wants: tuple[str, ...] = ()
    correction: Callable | None = None
    weigh: Callable
    kl_in_reward: float = 0.0
    kl_in_loss: float = 0.0
    kl: Callable = kl.k3          # the estimator of kl_in_loss
    kl_wants: tuple[str, ...] = ()
    compares: bool = True         # credit compares the samples of a prompt, so it needs two of them at least
    critic: bool = False
    value_weight: float = 0.0
    value_clip: float = 0.0
    entropy: float = 0.0          # the weight of the entropy bonus
    whiten: bool = False          # advantages to mean 0, std 1 over the step
    resample_flat: bool = False   # groups with equal scores are sampled again
    overlong: bool = False        # the score falls towards the length limit
    mask_truncated: bool = False  # replies that were cut at the limit are compared with and not learned from
    truncated_penalty: float = 0.0  # taken off the score of such a reply
    shown: bool = False           # the teacher is the model that the run starts from, shown a demonstration
    scale_rewards: bool = False   # rewards, the KL in them too, to std 1 over the collection, the mean kept
    ratio: bool = True
    epochs: int = 1
    minibatches: int = 1
    kl_stop: float = 0.0          # an approx_kl after which a collection gets no further update; 0: none
    unbiased: bool = False

    def __post_init__(self):
        super().__post_init__()
        check_wants(self)
        check_schedule(self)

    def updates(self, prompts: int) -> int:
        return self.epochs * min(self.minibatches, prompts)

    @property
    def reference(self) -> bool:
        return self.kl_in_reward > 0 or self.kl_in_loss > 0 or "ref_logp" in self.wanted

    @property
    def teacher(self) -> bool:
        return bool(self.wanted & {"teacher_logp", "teacher_kl"})

    @property
    def wanted(self) -> frozenset[str]:
        """The further columns that any of its functions is handed."""
        return frozenset((*self.credit_wants, *self.surrogate_wants, *self.choose_wants, *self.mark_wants,
                          *self.kl_wants))


Method = Supervised | Preference | Policy

IN_REWARD = ("kl_in_reward", "overlong", "truncated_penalty", "scale_rewards")  # what changes it alone
WITHOUT_REWARD = (credit.distil, credit.told)  # credit that is made of other columns

COLUMNS = {  # what a row may want of a batch, all [B, T] but for lengths [B]
    "entropy": "of the policy's choice at each token: the present one in the surrogate, the "
               "sampling one elsewhere",
    "sampler_logp": "the log-probs that the sampler reported",
    "old_logp": "the log-probs of the policy as it was when the rollouts were made",
    "ref_logp": "the reference's log-probs",
    "teacher_logp": "the teacher's log-probs",
    "teacher_kl": "KL(policy || teacher) of each choice, over the whole vocabulary, for the surrogate alone",
    "value": "the critic's values when the rollouts were made",
    "returns": "what the critic learns: advantage plus value",
    "lengths": "the sampled tokens of each row",
    "parts": "the scores of the verdict's parts [B, K], for credit alone; one column, the score, where "
             "it is no sum",
    "part_weights": "what they are summed with [B, K]",
    "marked": "the tokens that the row's mark picked, for its surrogate alone",
}


def check_schedule(row: Policy) -> None:
    for name in ("epochs", "minibatches"):
        value = getattr(row, name)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{row.name}: {name} is {value}, and must be a whole number from 1.")
    if max(row.epochs, row.minibatches) > 1 and not row.ratio:
        raise ValueError(f"{row.name} has no ratio to the policy that sampled, so that only the first update "
                         f"on a collection is right: epochs {row.epochs} and minibatches {row.minibatches} "
                         "must both be 1; grpo and ppo can make several.")


def check_wants(row: Policy) -> None:
    for name in sorted(row.wanted - COLUMNS.keys()):
        raise ValueError(f"row {row.name} wants a column {name!r}.{suggest(name, COLUMNS)}")
    if row.wanted & {"value", "returns"} and not row.critic:
        raise ValueError(f"row {row.name} wants the critic's values and has no critic: set critic=True.")
    if row.shown and not row.teacher:
        raise ValueError(f"row {row.name}: what is shown is shown to a teacher, and it wants none: leave "
                         "shown out, or name teacher_logp among what its credit wants.")
    if "teacher_kl" in {*row.credit_wants, *row.choose_wants, *row.mark_wants, *row.kl_wants} or (
            row.shown and "teacher_kl" in row.wanted):
        raise ValueError(f"row {row.name}: teacher_kl is the present policy's, against a teacher that reads "
                         "what the policy reads: for the surrogate of a row whose teacher is shown nothing.")
    if "marked" in {*row.credit_wants, *row.choose_wants, *row.mark_wants}:
        raise ValueError(f"row {row.name}: marked is made after credit, for the surrogate alone.")
    if ("marked" in row.surrogate_wants) != (row.mark is not None):
        raise ValueError(f"row {row.name}: a mark is made for a surrogate that wants it: give both mark=... "
                         "and surrogate_wants=('marked',), or neither.")
    apart = {"parts", "part_weights"}
    if apart & {*row.surrogate_wants, *row.choose_wants, *row.mark_wants, *row.kl_wants}:
        raise ValueError(f"row {row.name}: the parts of a verdict are for credit alone.")
    blind = ("looks at the parts of the verdict" if apart & {*row.credit_wants} else
             "passes the reward over" if getattr(row.credit, "func", row.credit) in WITHOUT_REWARD else "")
    if blind and (paid := [name for name in IN_REWARD if getattr(row, name)]):
        raise ValueError(f"row {row.name}: its credit {blind}, so that what is put into the reward would "
                         f"have no say: leave it out ({', '.join(paid)}).")
    if "returns" in row.credit_wants:
        raise ValueError(f"row {row.name}: returns are made of what credit gives, so credit "
                         "cannot want them.")
