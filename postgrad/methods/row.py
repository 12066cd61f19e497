"""What a row of the table is: a frozen dataclass of functions and constants.

A keyword-only parameter of a row's function is a constant where it has a default or is bound by `partial`.
Any other is a column of the batch, and the function is handed it: COLUMNS lists them. What describes a
constant stands on its parameter, or on the field of the row:

    low: Annotated[float, NOT_NEGATIVE, "what it is", "when to change it"] = 0.2

A row is open: `change(row, high=0.3)` is another row, and whatever can be read off a row can be set. A run
keeps the row it was made with (`describe_row`), and resuming asks that it is still the same.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, partial
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, get_origin, get_type_hints

from torch import Tensor

from postgrad.maths import choice, correction, credit, kl
from postgrad.system.plugins import is_file_spec, load_plugins, loading_plugins
from postgrad.system.renamed import renamed_field
from postgrad.system.settings import COUNT, NOT_NEGATIVE, Configurable, Range, check_range, suggest
from postgrad.system.user_code import GIVEN, function_name, load_file, text_hash

SOURCES = ("conversations", "pairs", "singles", "steps", "outcomes", "rollouts", "rollouts to pairs",
           "rollouts to conversations")
MethodT = TypeVar("MethodT", bound="Method")
Function = Callable[..., object]


class Column(NamedTuple):
    """A column of the batch: what it is, and the fields of a row whose functions may take it."""

    about: str
    functions: tuple[str, ...]


ROLLOUT_FUNCTIONS = ("credit", "choose", "mark", "correction", "surrogate", "kl_estimator")
COLUMNS = {  # [B, T] where no shape is said
    "entropy": Column("of the policy's choice at each token: the present policy's in the surrogate and the "
                      "KL, else that of the policy that sampled", ROLLOUT_FUNCTIONS),
    "sampler_logp": Column("the log-probs that the sampler reported", ROLLOUT_FUNCTIONS),
    "old_logp": Column("the log-probs of the policy as it was when the rollouts were made",
                       ROLLOUT_FUNCTIONS),
    "ref_logp": Column("the reference's log-probs", (*ROLLOUT_FUNCTIONS, "score")),
    "teacher_logp": Column("the teacher's log-probs", ROLLOUT_FUNCTIONS),
    "teacher_kl": Column("KL(policy || teacher) of each choice, over the whole vocabulary, for the surrogate "
                         "alone: it is the present policy's", ("surrogate",)),
    "value": Column("the critic's values when the rollouts were made", ROLLOUT_FUNCTIONS),
    "returns": Column("what the critic learns: advantage plus value, made after credit",
                      ROLLOUT_FUNCTIONS[1:]),
    "lengths": Column("the sampled tokens of each row [B]", (*ROLLOUT_FUNCTIONS, "score", "select")),
    "parts": Column("the scores of the verdict's parts [B, K], for credit alone; one column, the score, "
                    "where it is no sum", ("credit",)),
    "part_weights": Column("what they are summed with [B, K], for credit alone", ("credit",)),
    "marked": Column("the tokens that the row's mark picked, made after credit, for its surrogate alone",
                     ("surrogate",)),
    "group_size": Column("the samples of a prompt, whose rows stand side by side, a number", ("weigh",)),
    "best": Column("the best score there is, a number", ("select",)),
    "chosen_length": Column("the tokens of the chosen reply, at least 1 [U, 1]", ("loss",)),
    "rejected_length": Column("the tokens of the rejected reply, at least 1 [U, 1]", ("loss",)),
    "chosen_logp": Column("the policy's log-prob of the chosen reply, summed [U, 1]", ("loss",)),
    "rejected_logp": Column("the policy's log-prob of the rejected reply, summed [U, 1]", ("loss",)),
    "chosen_ref_logp": Column("the reference's log-prob of the chosen reply, summed [U, 1]", ("loss",)),
    "rejected_ref_logp": Column("the reference's log-prob of the rejected reply, summed [U, 1]", ("loss",)),
    "reply_length": Column("the tokens of a labelled reply, at least 1 [U]", ("loss",)),
    "reply_logp": Column("the policy's log-prob of a labelled reply, summed [U]", ("loss",)),
    "reply_ref_logp": Column("the reference's log-prob of a labelled reply, summed [U]", ("loss",)),
}


# the rows

@dataclass(frozen=True, kw_only=True, eq=False)
class Method(Configurable):
    """A row of the table: what all its kinds have.

    file: FILE.py:NAME where a user's file defines it, so that a run can find its row again.
    """

    kind: ClassVar[str]
    name: str
    source: str
    paper: str = ""
    about: str = ""
    file: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"row {self.name}: its batches come from {self.source!r}, expected one of "
                             f"{', '.join(SOURCES)}.")
        for place in row_functions(self):
            allowed = [name for name, column in COLUMNS.items() if place in column.functions]
            for name in self.columns_of(place):
                if name not in COLUMNS:
                    raise ValueError(f"row {self.name}: its {place} takes {name!r} by keyword, which is no "
                                     f"column of a batch.{suggest(name, allowed)} A constant has a default, "
                                     "or is bound by partial.")
                if name not in allowed or name == "group_size" and self.source != "rollouts":
                    raise ValueError(f"row {self.name}: {place} cannot take {name}: {COLUMNS[name].about}.")

    def columns_of(self, place: str) -> tuple[str, ...]:
        """The columns that one of its functions is handed by keyword: grpo.columns_of("surrogate")"""
        return unbound_keywords(getattr(self, place)) if getattr(self, place) else ()

    @property
    def wanted(self) -> frozenset[str]:
        """The columns that any of its functions is handed."""
        return frozenset(name for place in row_functions(self) for name in self.columns_of(place))

    @property
    def needs_reference(self) -> bool:
        """Whether the reference model's log-probs are computed."""
        return False

    def updates(self, prompts: int) -> int:
        """Optimizer steps that a collection of so many prompts is used for."""
        return 1

    def __eq__(self, other: object) -> bool:
        """Two rows are equal when all their functions and constants are."""
        return type(self) is type(other) and all(
            _same_value(getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.compare)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    # a row in a config: method.high=0.3

    def __str__(self) -> str:
        return self.name

    def settings(self) -> dict[str, object]:
        return constants_of(self)

    def with_setting(self: MethodT, name: str, value: object) -> MethodT:
        return set_constant(self, name, value)

    def saved(self) -> object:
        """Its name, with the constants that were set: "dapo", {"name": "dapo", "high": 0.3}. A row that no
        name resolves to is saved as a record, and has to be passed in again."""
        known = known_row(self)
        if known is None:
            return self.record()
        before = constants_of(known)
        changed = {k: v for k, v in constants_of(self).items() if before.get(k) != v}
        return {"name": self.file or self.name, **changed} if changed else self.file or self.name

    def record(self) -> dict[str, object]:
        return {GIVEN: "row", "name": self.name, **describe_row(self)}

    def words(self, name: str) -> tuple[str, str]:
        meaning = constant_meaning(self, name)
        return meaning.about, meaning.when


@dataclass(frozen=True, kw_only=True, eq=False)
class Supervised(Method):
    """Imitate: -logp on the trained tokens.

    weigh: (mask [B, T], budget) -> weight [B, T]. select: the rollouts to imitate,
    (score [B], group_size, *, columns) -> bool [B]. kl_bound: the most that choosing so among n samples can
    move the policy, in nats, for the log.
    """

    kind: ClassVar[str] = "supervised"
    weigh: Callable[..., Tensor]
    select: Callable[..., Tensor] | None = None
    kl_bound: Callable[[int], float] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Preference(Method):
    """Preference learning: rows to scores, scores to a loss per pair, labelled single or labelled token.

    score: (logp [B, T], mask [B, T], *, columns) -> [B]; None: the scalar head. reference: the reference's
    score is subtracted, so that loss sees log-ratios. loss: of pairs (chosen, rejected, margin, *, columns),
    all [U, K] for K heads; of singles (score, label, baseline, *, columns), all [U]; of steps and outcomes
    (score, label), both [B, T].
    """

    kind: ClassVar[str] = "preference"
    score: Callable[..., Tensor] | None
    reference: Annotated[bool, "scores are log-ratios to the model that the run started from",
                         "leave it: it belongs to the row's loss"]
    loss: Callable[..., Tensor]

    def __post_init__(self) -> None:
        super().__post_init__()
        sides = {"pairs": ("chosen", "rejected"), "rollouts to pairs": ("chosen", "rejected"),
                 "singles": ("reply",)}.get(self.source, ())
        for name in self.columns_of("loss"):
            if name.partition("_")[0] not in sides:
                raise ValueError(f"row {self.name}: {name} is {COLUMNS[name].about}, and it learns from "
                                 f"{self.source}.")
            if name.endswith("logp") and self.score is None:
                raise ValueError(f"row {self.name}: {name} needs log-probs, and its scores are those of a "
                                 "scalar head: set score=..., or leave it out.")
        if not self.reference and (names := [name for name in self.wanted if name.endswith("ref_logp")]):
            raise ValueError(f"row {self.name} takes {sorted(names)[0]} and has no reference: set "
                             "reference=True.")

    @property
    def needs_reference(self) -> bool:
        return self.reference


@dataclass(frozen=True, kw_only=True, eq=False)
class Policy(Method):
    """Policy gradient: rewards to advantages (credit), advantages to a loss per token (surrogate), token
    weights of a step (weigh).

    credit, surrogate and kl_estimator (of kl_in_loss) have one signature each (maths/credit.py, surrogate.py,
    kl.py), and take further columns by keyword.
    choose: the tokens of a step that count, (mask [B, T], adv [B, T], *, columns) -> bool [B, T]; mark: those
    that the surrogate is handed as the column `marked`. Both see the whole step (maths/choice.py), so that
    any split into micro-batches gives the same update.
    correction: importance weights where the sampler is another engine than the trainer, (sampler_logp,
    old_logp, mask) -> weight [B, T] (maths/correction.py).
    compares: credit compares the samples of a prompt: at least two.
    epochs, minibatches: the paper's schedule. ratio: whether further updates on the same samples are sound,
    by a ratio pi/pi_old or because the loss is exact off policy; else they are refused.
    unbiased: on policy, the mean gradient is proportional to the exact gradient of E[reward] - kl_in_reward
    KL(pi||ref).
    A row that takes teacher_logp or teacher_kl has a teacher: a model that the run names, or, where it is
    `shown` a demonstration of each prompt, the model that the run starts from.
    """

    kind: ClassVar[str] = "policy"
    source: str = "rollouts"
    credit: Callable[..., Tensor]
    surrogate: Callable[..., tuple[Tensor, Tensor]]
    choose: Annotated[
        Callable[..., Tensor] | None,
        "the tokens of a step that count: all, or top_entropy, those at which the policy was least decided",
        "top_entropy where long chains are learned: most of their tokens are forced"] = None
    mark: Callable[..., Tensor] | None = None
    correction: Annotated[
        Callable[..., Tensor] | None,
        "how samples of another engine are weighed: none, tis (truncated by token), token_mask or icepop "
        "(dropped by token), sequence or geometric (dropped by reply)",
        "none where the sampler is our own; tis or icepop where mismatch is above 0.01"] = None
    weigh: Callable[..., Tensor]
    kl_in_reward: Annotated[
        float, NOT_NEGATIVE, "the weight of the KL to the start, paid token by token out of the reward",
        "more where the true quality falls while the reward rises (kl.coef sets it too)"] = 0.0
    kl_in_loss: Annotated[
        float, NOT_NEGATIVE, "the weight of the KL to the start, as a part of the loss",
        "0 needs no reference and is usual against a verifier; more where the reward can be gamed (kl.coef "
        "sets it too)"] = 0.0
    kl_estimator: Callable[..., Tensor] = kl.k3
    compares: bool = True
    critic: Annotated[
        bool, "a critic learns the value of every token",
        "leave it: it belongs to the row's credit function"] = False
    value_weight: Annotated[
        float, NOT_NEGATIVE, "the weight of the critic's loss beside the policy's",
        "more where explained_variance stays near 0"] = 0.0
    value_clip: Annotated[
        float, NOT_NEGATIVE,
        "how far a value may move from where it was when the rollouts were made; 0: freely",
        "0 where the critic learns too slowly over several epochs"] = 0.0
    entropy: Annotated[
        float, "the weight of a bonus for undecided choices",
        "a little (0.001 to 0.01) where entropy falls to 0 while the reward has stopped; too much is "
        "babble"] = 0.0
    whiten: Annotated[
        bool, "advantages are brought to mean 0 and spread 1 over the whole step",
        "true with a critic; group methods have compared their samples already"] = False
    resample_flat: Annotated[
        bool, "groups whose samples all score the same are drawn again",
        "true where flat_groups is high: such groups teach nothing; costs the further draws"] = False
    overlong: Annotated[
        bool, "the score falls over the last fifth of the length limit",
        "true where replies run into the limit; false where the task wants long replies"] = False
    mask_truncated: Annotated[
        bool, "replies that were cut at the length limit are compared with, and not learned from",
        "true where many good replies are cut, so that length itself is not punished (DAPO's overlong "
        "filtering)"] = False
    truncated_penalty: Annotated[
        float, NOT_NEGATIVE, "what is taken off the score of a reply that was cut at the length limit",
        "1 or so with a reward model, which may like a reply that never ends"] = 0.0
    shown: bool = False
    scale_rewards: Annotated[
        bool, "rewards, the KL in them too, are divided by their spread over the collection",
        "true with reward models whose scores are large or drift: the critic and the KL see one "
        "scale"] = False
    ratio: bool = True
    epochs: Annotated[
        int, COUNT, "passes over each collection of rollouts",
        "2 to 4 where sampling is slow; watch approx_kl and clip_fraction; steps counts updates, so more of "
        "them draw the same samples"] = 1
    minibatches: Annotated[
        int, COUNT, "optimizer steps per pass, each on its share of the prompts",
        "more: more updates from the same samples, each on fewer of them and further off policy; at most one "
        "for each prompt"] = 1
    kl_stop: Annotated[
        float, NOT_NEGATIVE, "the approx_kl of an update after which a collection is left; 0: never",
        "0.01 to 0.05 where several updates on one collection carry the policy too far"] = 0.0
    unbiased: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_columns(self)
        check_schedule(self)

    def updates(self, prompts: int) -> int:
        return self.epochs * min(self.minibatches, prompts)

    @property
    def needs_reference(self) -> bool:
        return self.kl_in_reward > 0 or self.kl_in_loss > 0 or "ref_logp" in self.wanted

    @property
    def teacher(self) -> bool:
        return bool(self.wanted & {"teacher_logp", "teacher_kl"})


IN_REWARD = ("kl_in_reward", "overlong", "truncated_penalty", "scale_rewards")  # fields that change it
WITHOUT_REWARD = (credit.distil, credit.distil_per_token)  # credit that is made of other columns


def check_schedule(row: Policy) -> None:
    for name in ("epochs", "minibatches"):
        value = getattr(row, name)
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{row.name}: {name} is {value}, and must be a whole number from 1.")
    if max(row.epochs, row.minibatches) > 1 and not row.ratio:
        raise ValueError(f"{row.name} has no ratio to the policy that sampled, so that only the first update "
                         f"on a collection is right: epochs {row.epochs} and minibatches {row.minibatches} "
                         "must both be 1; grpo and ppo can make several.")


def check_shown(row: Policy) -> None:
    if not row.teacher:
        raise ValueError(f"row {row.name}: what is shown is shown to a teacher, and it has none: leave "
                         "shown out, or give it a credit that takes teacher_logp.")
    if "teacher_kl" in row.wanted:
        raise ValueError(f"row {row.name}: teacher_kl is against a teacher that reads what the policy reads: "
                         "for a row whose teacher is shown nothing.")


def check_columns(row: Policy) -> None:
    """Refuses columns that the rest of the row does not provide."""
    if row.wanted & {"value", "returns"} and not row.critic:
        raise ValueError(f"row {row.name} takes the critic's values and has no critic: set critic=True.")
    if row.shown:
        check_shown(row)
    if ("marked" in row.columns_of("surrogate")) != (row.mark is not None):
        raise ValueError(f"row {row.name}: a mark is made for a surrogate that takes it: give both mark=... "
                         "and a surrogate with the keyword-only parameter `marked`, or neither.")
    blind = ("looks at the parts of the verdict" if "parts" in row.wanted else
             "passes the reward over" if unbound(row.credit) in WITHOUT_REWARD else "")
    if blind and (paid := [name for name in IN_REWARD if getattr(row, name)]):
        raise ValueError(f"row {row.name}: its credit {blind}, so that what is put into the reward would "
                         f"have no effect: leave it out ({', '.join(paid)}).")


# functions of a row: their columns, their constants and what these mean

class Meaning(NamedTuple):
    """Range, description and advice of a constant."""

    within: Range | None
    about: str
    when: str


def row_functions(row: Method) -> dict[str, Function]:
    """The functions of a row by field: {"credit": ..., "surrogate": ..., "weigh": ...}"""
    return {f.name: value for f in fields(row) if callable(value := getattr(row, f.name))}


def unbound(function: Function) -> Function:
    """The function itself, without the constants that `partial` bound to it."""
    return function.func if isinstance(function, partial) else function


def _callee(function: Function) -> Function:
    """The function that has the parameters: of a callable object, its class's __call__."""
    inner = unbound(function)
    return inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner).__call__


@lru_cache(maxsize=1000)
def _keyword_only(callee: Function) -> tuple[inspect.Parameter, ...]:
    try:
        parameters = inspect.signature(callee).parameters.values()
    except (TypeError, ValueError):  # built in, without a signature
        return ()
    return tuple(p for p in parameters if p.kind is p.KEYWORD_ONLY)


@lru_cache(maxsize=1000)
def _meanings(owner: Function) -> dict[str, Meaning]:
    """The `Annotated` metadata of a function's parameters, or of a row's fields."""
    try:
        hints = get_type_hints(owner, include_extras=True)
    except (NameError, TypeError, AttributeError):  # a user's annotation that cannot be evaluated
        return {}
    out = {}
    for name, hint in hints.items():
        if get_origin(hint) is Annotated:
            within = next((x for x in hint.__metadata__ if isinstance(x, Range)), None)
            about, when, *_ = *(x for x in hint.__metadata__ if isinstance(x, str)), "", ""
            out[name] = Meaning(within, about, when)
    return out


def unbound_keywords(function: Function) -> tuple[str, ...]:
    """The keyword-only parameters without a value: the columns that a row's function is handed."""
    bound = function.keywords if isinstance(function, partial) else {}
    return tuple(p.name for p in _keyword_only(_callee(function))
                 if p.default is p.empty and p.name not in bound)


def bound_constants(function: Function) -> dict[str, object]:
    """The constants of a function, keyword-only defaults or bound by `partial`: {"low": 0.2, "high": 0.28}"""
    defaults = {p.name: p.default for p in _keyword_only(_callee(function))
                if isinstance(p.default, int | float)}
    return defaults | (function.keywords if isinstance(function, partial) else {})


def constant_meaning(row: Method, name: str) -> Meaning:
    """constant_meaning(dapo, "high"); name as `constants_of` writes it."""
    place, _, key = name.rpartition(".")
    function = next((f for where, f in row_functions(row).items()
                     if key in bound_constants(f) and place in ("", where)), None)
    owner: Function = type(row) if function is None else _callee(function)
    known = _meanings(owner).get(key, Meaning(None, "", ""))
    home = row.name if function is None else function_name(function).rpartition(".")[2]
    return Meaning(known.within, known.about or f"a constant of {home}",
                   known.when or "what it does is in that function's text")


def format_call(name: str, constants: Mapping[str, object]) -> str:
    """A function with its constants: clipped_ratio(low=0.2, high=0.28)"""
    inside = ", ".join(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
                       for key, value in constants.items())
    return f"{name}({inside})" if inside else name


# constants of a row

PARTS: dict[str, dict[str, Callable[..., Tensor] | None]] = {
    # fields of a policy row that are set by a name, method.correction=tis; the function brings its constants
    "choose": {"all": None, "top_entropy": partial(choice.top_entropy, share=0.2)},
    "correction": {"none": None, "tis": partial(correction.truncated, cap=2.0),
                   "icepop": partial(correction.banded, least=0.5, most=5.0),
                   "sequence": partial(correction.sequence_banded, widest=3.0),
                   "token_mask": partial(correction.masked, highest=2.0),
                   "geometric": partial(correction.geometric_banded, apart=1e-3)},
}
NO_CONSTANTS = ("name", "source", "paper", "about", "file", "unbiased", "compares", "ratio", "shown")


def _homes(row: Method) -> dict[str, list[tuple[str, str | None]]]:
    """Where each constant stands: {"high": [("surrogate", "high")], "kl_in_loss": [("kl_in_loss", None)]}"""
    homes: dict[str, list[tuple[str, str | None]]] = {}
    for f in fields(row):
        if isinstance(getattr(row, f.name), int | float) and f.name not in NO_CONSTANTS:
            homes.setdefault(f.name, []).append((f.name, None))
    for place, function in row_functions(row).items():
        for key in bound_constants(function):
            homes.setdefault(key, []).append((place, key))
    return homes


def named_parts(row: Method) -> dict[str, str]:
    """The fields of PARTS by name: {"choose": "all", "correction": "tis"}; functions that are not in PARTS by
    their own names."""
    out = {}
    for place, options in PARTS.items():
        if isinstance(row, Policy):
            function = getattr(row, place)
            own = function_name(function).rpartition(".")[2] if function else ""
            out[place] = next((name for name, option in options.items()
                               if (unbound(option) if option else None)
                               is (unbound(function) if function else None)), own)
    return out


def constants_of(row: Method) -> dict[str, object]:
    """Everything of a row that can be set: parts by their names, and numbers. GRPO: {"correction": "none",
    ..., "kl_in_loss": 0.04, "low": 0.2, ...}. A name in two places has its place: "credit.lam"."""
    out: dict[str, object] = dict(named_parts(row))
    for name, homes in _homes(row).items():
        for place, key in homes:
            value = getattr(row, place) if key is None else bound_constants(getattr(row, place))[key]
            out[name if len(homes) == 1 else place if key is None else f"{place}.{key}"] = value
    return out


def row_title(row: Method, table: Mapping[str, Method]) -> str:
    """A row's name, and the constants that are not those of the table: "dapo(high=0.3)"."""
    before = constants_of(table.get(row.name, row))
    changed = {k: v for k, v in constants_of(row).items() if before.get(k) != v}
    return row.name + (f"({', '.join(f'{k}={v}' for k, v in changed.items())})" if changed else "")


def change(row: MethodT, **values: object) -> MethodT:
    """Another row: change(dapo, high=0.3), change(grpo, name="mine", surrogate=my_surrogate)."""
    names = {f.name for f in fields(row)}
    for name, value in sorted(values.items(), key=lambda x: x[0] not in PARTS):  # a part brings its constants
        by_name = name in PARTS and isinstance(value, str)
        if name in names and not by_name and not isinstance(getattr(row, name), int | float):
            row = _replaced(row, name, value)
        else:
            row = set_constant(row, name, value)
    return row


def _replaced(row: MethodT, name: str, value: Any) -> MethodT:
    return replace(row, **{name: value})


def not_one_home(row: Method, name: str, homes: Sequence[tuple[str, str | None]]) -> ValueError:
    """The error for a constant that a row does not have, or has in several places."""
    if not homes:
        hint = renamed_field(name) or suggest(name, constants_of(row))
        return ValueError(f"{row.name} has no constant {name!r}.{hint}")
    options = " or ".join(f"{where}.{inner}" if inner else where for where, inner in homes)
    return ValueError(f"{row.name} has {name!r} in two places, {options}: write the one that is meant.")


def set_constant(row: MethodT, name: str, value: object) -> MethodT:
    """The row with one constant changed."""
    if name in named_parts(row):
        if value not in PARTS[name]:
            raise ValueError(f"method.{name}={value!r}: there is no such part."
                             f"{suggest(str(value), PARTS[name])}")
        return _replaced(row, name, PARTS[name][str(value)])
    place, _, key = name.rpartition(".")
    homes = [home for home in _homes(row).get(key, ()) if not place or home[0] == place]
    if len(homes) != 1:
        raise not_one_home(row, name, homes)
    (where, inner), = homes
    held = getattr(row, where)
    value = _checked(row, name, value, held if inner is None else bound_constants(held)[inner])
    check_range(f"method.{name}", value, constant_meaning(row, name).within)
    if inner is None:
        return _replaced(row, where, value)
    bound = held.keywords if isinstance(held, partial) else {}
    return _replaced(row, where, partial(unbound(held), **bound | {inner: value}))


def _checked(row: Method, name: str, value: object, before: object) -> object:
    """A number for a number, true or false for a switch."""
    if isinstance(before, bool):
        if not isinstance(value, bool):
            raise ValueError(f"method.{name}={value!r}: {row.name} expects true or false.")
        return value
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"method.{name}={value!r}: {row.name} expects a number, it has {before}.")
    return int(number) if isinstance(before, int) and number.is_integer() else number


def _same_value(a: object, b: object) -> bool:
    """Equal values; functions are equal with the same constants, bound or by default."""
    if isinstance(a, partial) or isinstance(b, partial):
        return (callable(a) and callable(b) and unbound(a) == unbound(b)
                and bound_constants(a) == bound_constants(b))
    return a == b


# what a run keeps of its row

def describe_row(row: Method) -> dict[str, object]:
    """A row as JSON: its texts, constants, functions by name, and a hash of the source of functions that are
    not the package's."""
    functions = row_functions(row)
    names = {place: function_name(f) for place, f in functions.items()}
    texts = {place: text_hash(f) for place, f in functions.items()
             if not names[place].startswith("postgrad.")}
    return {"name": row.name, "kind": row.kind, "source": row.source, "paper": row.paper, "about": row.about,
            "constants": constants_of(row), "functions": names,
            "wants": sorted(row.wanted - {"best"}), "compares": isinstance(row, Policy) and row.compares,
            "shown": isinstance(row, Policy) and row.shown, "texts": texts}


def row_difference(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """The differences of two described rows in words; "" where there is none."""
    out = []
    for part in ("constants", "functions", "texts"):
        old, new = (x if isinstance(x := row.get(part), Mapping) else {} for row in (before, now))
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                out.append(f"the text of {key}" if part == "texts" else
                           f"{key} was {old.get(key)} and is {new.get(key)}")
    facts = ("kind", "source", "wants", "shown")
    out += [f"{key} was {before.get(key)} and is {now.get(key)}" for key in facts
            if (before.get(key) or None) != (now.get(key) or None)]
    return "; ".join(out)


# rows by name

METHODS: dict[str, Method] = {}  # the table, and what `register` added
BUILT_IN: set[str] = set()       # names of the table's own rows
INSTALLED: set[str] = set()      # names that plugins registered


def rows_in(module: ModuleType) -> list[Method]:
    """The rows that a module defines, in its order: single ones, and those in tuples and lists."""
    out: list[Method] = []
    for name, value in vars(module).items():
        if not name.startswith("_"):
            members = value if isinstance(value, tuple | list) else [value]
            out += [row for row in members if isinstance(row, Method) and row not in out]
    return out


def register(row: MethodT) -> MethodT:
    """Registers a row of your own by its name in this process; a name of the table is refused."""
    if not isinstance(row, Method):
        raise ValueError(f"{row!r:.80} is no row: make one with Policy, Preference or Supervised, or by "
                         "changing another.")
    if row.name in BUILT_IN and METHODS[row.name] is not row:
        raise ValueError(f"{row.name} is a row of the table: give yours another name.")
    METHODS[row.name] = row
    if loading_plugins():
        INSTALLED.add(row.name)
    return row


def rows_named(name: str) -> list[Method]:
    """The rows of a name: one of the table, FILE.py:NAME, or all rows of FILE.py."""
    if is_file_spec(name):
        file, _, inside = name.partition(".py:")
        return _from_file(Path(f"{file.removesuffix('.py')}.py"), inside)
    if name not in METHODS:
        load_plugins()
    if name in METHODS:
        return [METHODS[name]]
    raise ValueError(f"there is no method {name!r}.{suggest(name.lower().replace('-', '_'), METHODS)}")


def get_method(name: str) -> Method:
    """The row of a name; FILE.py, or FILE.py:NAME where it defines several, is a row of the user's own."""
    rows = rows_named(name)
    if len(rows) > 1:
        raise ValueError(f"{name} defines several rows: name one, e.g. {name}:{rows[0].name}.")
    return rows[0]


def _from_file(path: Path, name: str) -> list[Method]:
    rows = {row.name: row for row in rows_in(load_file(path, "row")) if METHODS.get(row.name) is not row}
    if not rows:
        raise ValueError(f"{path} defines no row: add one, e.g. row = postgrad.method('grpo', "
                         "name='mine', high=0.3).")
    if name and name not in rows:
        raise ValueError(f"{path} has no row {name!r}.{suggest(name, rows)}")
    taken = [rows[name]] if name else list(rows.values())
    for row in taken:
        if row.name in BUILT_IN:
            raise ValueError(f"{path}: {row.name} is a row of the table: give yours another name.")
    return [change(row, file=f"{path}:{row.name}") for row in taken]


def method(row: str | Method, **changes: object) -> Method:
    """A row or the row of a name, with changes: method("dapo", high=0.3)."""
    return change(get_method(row) if isinstance(row, str) else row, **changes)


def known_row(row: Method) -> Method | None:
    """The named row that this one equals but for its constants and named parts; None where there is none."""
    if not row.file and row.name not in BUILT_IN | INSTALLED:
        return None
    known = get_method(row.file or row.name)
    alike = change(known, **{place: name for place, name in named_parts(row).items() if name in PARTS[place]})
    none: dict[str, object] = {"constants": {}}
    same = constants_of(alike).keys() == constants_of(row).keys()
    differs = row_difference(describe_row(alike) | none, describe_row(row) | none)
    return known if same and not differs else None


def method_from_config(saved: str | Mapping[str, object]) -> Method:
    """The row that a config names: "dapo", or {"name": "dapo", "high": 0.3}, as `Method.saved` writes it."""
    if isinstance(saved, str):
        return get_method(saved)
    if not isinstance(name := saved.get("name"), str):
        raise ValueError(f"{dict(saved)!r:.80} names no row: write its name, as in "
                         "{'name': 'dapo', 'high': 0.3}.")
    return change(get_method(name), **{key: value for key, value in saved.items() if key != "name"})
