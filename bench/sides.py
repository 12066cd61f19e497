"""The two sides of the speed benchmark, each in its own process, paused after every step.

    python bench/sides.py ours|trl    reads a line of JSON for each request, writes one for each reply

Separate processes isolate process-wide settings (threads, allocator, denormals) and peak memory. Ours runs
the recipe with all its hooks and the run folder, TRL's its trainer with callbacks; both pause inside their
own loop, so a step is everything from one pause to the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

BETA2 = 0.99


@dataclass(frozen=True, kw_only=True)
class Work:
    """One thing to train. kind: grpo, dpo, reward or sft.

    how: what the side may do about precision and packing.

    ours: how = overrides of the recipe ("optim.x=y"); TRL: how = "defaults", "tuned" (float32, no
    checkpointing), "bf16" (bfloat16 weights, no checkpointing), with "packed" or "wrapped" behind it for SFT.
    """

    kind: str
    model: str
    data: str
    steps: int
    how: tuple[str, ...] = ()
    beta: float = 0.0
    prompts: int = 8
    group: int = 8
    new_tokens: int = 48
    passes: int = 1                 # in how many parts the rollouts of a step go through the network
    device: str = "cpu"
    # ours writes its rollouts there, TRL trains on them: for the check that both do the same
    replay: str = ""

    @property
    def rows(self) -> int:
        return self.prompts * self.group

    @property
    def method(self) -> str:
        """Both sides divide by the std of a group, but not by the same one:
        where they are compared, neither does."""
        return "dr_grpo" if self.replay else "grpo"

    @property
    def lr(self) -> float:
        """Large where both sides are to stay together for several steps, next to none where lengths are to
        stay as they are."""
        return 1e-4 if self.replay or self.kind != "grpo" else 1e-7


@dataclass
class Gate:
    """Where a side stands between two steps. `sample` draws once and says how many tokens."""

    say: Callable[[dict], None]
    hear: Callable[[], str | None]
    sample: Callable[[], int] | None = None
    began: tuple[float, float] = field(default_factory=lambda: clock())

    def loaded(self) -> None:
        """Everything is loaded: from here on memory counts."""
        self.before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        if gpu():
            gpu().reset_peak_memory_stats()
        self.began = clock()

    def stepped(self, facts: dict) -> None:
        self.say(self.passed() | facts | {"memory": memory("VmHWM") - self.before,
                                          "gpu": gpu().max_memory_allocated() if gpu() else 0})
        while (asked := self.hear()) == "sample":
            self.began = clock()
            tokens = self.sample()
            self.say(self.passed() | {"tokens": tokens})
        assert asked == "step", asked
        self.began = clock()

    def passed(self) -> dict:
        return {name: now - then
                for name, now, then in zip(("seconds", "cpu"), clock(), self.began, strict=True)}


def clock() -> tuple[float, float]:
    if gpu():
        gpu().synchronize()
    return time.perf_counter(), time.process_time()


def gpu():
    """torch.cuda, where this process is using it."""
    torch = sys.modules.get("torch")
    return (torch.cuda if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized()
            else None)


def memory(name: str) -> int:
    """Bytes, from /proc/self/status."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


class Side:
    """A side's process, as the benchmark sees it."""

    def __init__(self, name: str, how: tuple[str, ...], *, threads: int, log):
        self.how, self.name = how, name
        env = os.environ | {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                            "TOKENIZERS_PARALLELISM": "false"}
        self.began = time.perf_counter()
        command = [sys.executable, str(Path(__file__)), name]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                        text=True, env=env)

    def ask(self, what: str) -> dict:
        print(what, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the side {self.name} {' '.join(self.how)} ended with "
                               f"{self.process.wait()}: see its log.")
        return json.loads(line)

    def start(self, work: Work) -> dict:
        """The first step of a work. What work.how says is for TRL's side alone."""
        how = self.how if self.name == "ours" else (*self.how, *work.how)
        return self.ask(json.dumps(asdict(replace(work, how=how))))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def ours(work: Work, gate: Gate) -> None:
    """A run of the recipe, from the config to the folder."""
    from postgrad.cli.settings import config_from_text
    from postgrad.models.checkpoint import seed_everything
    from postgrad.recipes import running
    from postgrad.recipes.defaults import fill_defaults
    from postgrad.runs import Run
    from postgrad.runs.tracker import Tracker
    from postgrad.sampling import LocalSampler, Sampling
    from postgrad.system.settings import settings_to_json

    recipe, config = config_from_text(*spec(work))
    seed_everything(config.seed)
    config, _ = fill_defaults(config)
    parts = running.build_setup(config, running.model_source(config))
    if work.kind == "grpo":
        from postgrad.data.tasks import load_task
        prompts, turn = load_task(work.data).prompts("train", work.prompts, 0), iter(range(10**9))
        sampler = LocalSampler(parts.models.policy, parts.chat)
        settings = Sampling(max_new_tokens=work.new_tokens)
        gate.sample = lambda: sum(
            len(r.tokens) for g in sampler.sample(prompts, work.group, settings, next(turn)) for r in g)
    drawn: list[list[dict]] = []

    class Steps(Tracker):
        def on_step(self, step: int, metrics: dict) -> None:
            gate.stepped({key: metrics[key] for key in ("loss", "grad_norm", "tokens")})

    class Samples(Tracker):
        def on_samples(self, step: int, rows: list[dict]) -> None:
            drawn.append([{"question": row["prompt"], "prompt": row["prompt_token_ids"],
                          "tokens": list(row["token_ids"])} for row in rows])
            Path(work.replay).write_text(json.dumps(drawn))

    gate.loaded()
    with tempfile.TemporaryDirectory() as folder:
        run = Run.create(Path(folder) / "run", recipe=recipe, config=settings_to_json(config),
                         steps=config.steps)
        trackers = [Steps(), Samples()] if work.replay else [Steps()]
        running.train_to_end(run, parts, config, trackers)


def spec(work: Work) -> tuple[str, list[str], str | None]:
    """What would be typed: recipe, changes, task."""
    changes = [f"model={work.model}", f"device={work.device}", f"steps={work.steps}", "save_every=1000000",
               "evaluation.every=0", f"optim.lr={work.lr}", "optim.schedule=constant", "optim.warmup=0",
               f"optim.beta2={BETA2}", *work.how]
    if work.kind == "grpo":
        changes += [f"kl.coef={work.beta}", f"rollouts.prompts={work.prompts}",
                    f"rollouts.prompts_per_step={work.prompts}", f"rollouts.group_size={work.group}",
                    f"rollouts.max_new_tokens={work.new_tokens}"]
        return work.method, changes, work.data
    per_step = "rows_per_step" if work.kind == "sft" else "pairs.per_step"
    changes += {"reward": ["head.centre=0"], "sft": ["holdout=0"]}.get(work.kind, [])
    return work.kind, [f"data={work.data}", *changes, f"{per_step}={work.prompts}"], None


def trl(work: Work, gate: Gate) -> None:
    """A run of TRL's trainer for the same thing. What its dataset holds is one batch, as ours is."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import trl as library
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast, TrainerCallback
    from transformers.trainer_callback import PrinterCallback

    name = {"grpo": "GRPO", "dpo": "DPO", "reward": "Reward", "sft": "SFT"}[work.kind]
    more = {}
    if work.kind == "grpo":
        more = {"reward_funcs": reward}
        if work.replay:
            more["rollout_func"] = replayed(json.loads(Path(work.replay).read_text()))
    with tempfile.TemporaryDirectory() as folder:
        trainer = getattr(library, f"{name}Trainer")(
            model=work.model, args=getattr(library, f"{name}Config")(output_dir=folder, **trl_settings(work)),
            train_dataset=Dataset.from_list(trl_rows(work)),
            processing_class=PreTrainedTokenizerFast.from_pretrained(work.model), **more)
        trainer.remove_callback(PrinterCallback)
        if work.kind == "grpo":
            asked = [row["prompt"] for row in trl_rows(work) for _ in range(work.group)]
            gate.sample = lambda: trl_sample(trainer, asked)

        class Stop(TrainerCallback):
            seen, logged = 0, {}

            def on_log(self, args, state, control, logs=None, **_):
                # comes late: said with the next step
                Stop.logged = {k: logs[k] for k in ("loss", "grad_norm") if k in logs}

            def on_step_end(self, args, state, control, **_):
                total = state.num_input_tokens_seen if work.kind == "grpo" else trainer._total_train_tokens
                gate.stepped({"tokens": total - Stop.seen, "before": Stop.logged})
                Stop.seen = total

        trainer.add_callback(Stop())
        gate.loaded()
        trainer.train()


def trl_sample(trainer, asked: list) -> int:
    """Draws as a step of the trainer does: from messages to texts."""
    before = trainer.state.num_input_tokens_seen
    tokens = sum(map(len, trainer._generate(asked)[1]))
    trainer.state.num_input_tokens_seen = before
    return tokens


def trl_settings(work: Work) -> dict:
    how = {"defaults": {}, "tuned": {"bf16": False, "gradient_checkpointing": False},
           "bf16": {"bf16": True, "gradient_checkpointing": False,
                    "model_init_kwargs": {"dtype": "bfloat16"}}}[work.how[0]]
    settings = {"max_steps": work.steps, "per_device_train_batch_size": work.prompts,
                "learning_rate": work.lr, "lr_scheduler_type": "constant", "adam_beta2": BETA2,
                "weight_decay": 0.0, "max_grad_norm": 1.0, "logging_steps": 1, "save_strategy": "no",
                "report_to": "none", "disable_tqdm": True, "use_cpu": work.device == "cpu", **how}
    if work.kind == "grpo":
        loss = {"grpo": {"loss_type": "grpo"},
                "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"}}[work.method]
        # its default has the ratio in the KL, which is another loss
        settings |= {"per_device_train_batch_size": work.rows // work.passes,
                     "gradient_accumulation_steps": work.passes, "num_generations": work.group,
                     "beta": work.beta, "max_completion_length": work.new_tokens,
                     "use_bias_correction_kl": False, **loss}
    if work.kind == "sft" and len(work.how) > 1:
        strategy = {"packed": "bfd", "wrapped": "wrapped"}[work.how[1]]
        settings |= {"packing": True, "packing_strategy": strategy, "max_length": 256}
    return settings


def trl_rows(work: Work) -> list[dict]:
    """The rows of the data, as TRL takes them."""
    message = lambda role, content: [{"role": role, "content": content}]  # noqa: E731
    if work.kind == "grpo":
        asked = json.loads((Path(work.data).parent / "questions.json").read_text())["train"]
        return [{"prompt": message("user", q)} for q in asked[: work.prompts]]
    rows = [json.loads(line) for line in Path(work.data).read_text().splitlines()]
    if work.kind == "sft":
        return [{"prompt": row["messages"][:1], "completion": row["messages"][1:]} for row in rows]
    from postgrad.data.preferences import read_pairs, split_rows
    learnt, _ = split_rows(read_pairs(Path(work.data)))  # the recipe holds some out
    return [{"prompt": list(p.messages), "chosen": message("assistant", p.chosen),
             "rejected": message("assistant", p.rejected)} for p in learnt]


def reward(completions, **_) -> list[float]:
    import zlib
    return [zlib.crc32(reply[0]["content"].encode()) % 5 / 4 for reply in completions]


def replayed(steps: list[list[dict]]) -> Callable:
    """A rollout function that gives each step the rollouts that our side drew for it."""
    turn = iter(steps)

    def rollouts(prompts, trainer) -> dict:
        waiting: dict[str, list] = {}
        for row in next(turn):
            waiting.setdefault(row["question"], []).append(row)
        rows = [waiting[p[-1]["content"]].pop() for p in prompts]
        return {"prompt_ids": [r["prompt"] for r in rows], "completion_ids": [r["tokens"] for r in rows],
                "logprobs": [[0.0] * len(r["tokens"]) for r in rows]}

    return rollouts


class Enough(Exception):
    """The work's steps are done."""


def drive(side: str, work: Work, hear: Callable[[int], None] = lambda seen: None) -> list[dict]:
    """A side's reports of its steps, in this process; it stops before it would save the model. hear: called
    with the number of steps done, before the next."""
    seen: list[dict] = []

    def asked() -> str:
        hear(len(seen))
        if len(seen) == work.steps:
            raise Enough
        return "step"

    try:
        {"ours": ours, "trl": trl}[side](work, Gate(seen.append, asked))
    except Enough:
        pass
    return seen


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints does not mix with the answers

    def say(what: dict) -> None:
        print(json.dumps(what), file=out, flush=True)

    side = {"ours": ours, "trl": trl}[sys.argv[1]]
    for line in sys.stdin:
        work = Work(**{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()})
        side(work, Gate(say, lambda: sys.stdin.readline().strip()))
        say({"done": True})


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    main()
