"""Every path on a device: each row of the table, recipe and pipeline, adapters, a critic, a reward model, a
teacher, games, agents, the endpoint and a resume after a kill, a few steps of the embedded model each.

    python proofs/gpu_paths.py [device=cuda] [precision=fp32,bf16] [processes=8] [only=NAME,NAME]
                               [most=SECONDS] [folder=runs/gpu-paths]

A line of JSON for each: name, ok or the error's first line, seconds, and the largest relative difference of
the first step's loss and gradient norm (of the endpoint: of the log-probs) from the same path on the CPU in
float32 with the same seed. Losses below FLOOR are compared with FLOOR. Both learn from the CPU's rollouts, on
which alone a loss can be compared; the device samples its own as well, and `alike` is the share of its rows
that are the CPU's to the token. A path is a fork of this process, which computes nothing; what has not ended
after `most` seconds is a no. Exit code 1 where a path is.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import shutil
import signal
import sys
import time
import traceback
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import harness
import faults
import kills
from faults import FEW, MORE, NAMED, OTHERS
from remote_small import begin

import postgrad.recipes.launch  # noqa: F401  what a fork has, it need not import
import postgrad.serving.app  # noqa: F401
from postgrad import Run
from postgrad.cli.settings import config_from_text
from postgrad.records import Sampling
from postgrad.sampling import LocalSampler, Request
from postgrad.sampling.remote import RemoteSampler
from postgrad.sampling.sequences import FinishedSequence
from postgrad.system.settings import flat_settings
from postgrad.training.optim import OptimSettings

FLOOR = 0.01
BOUND = {"fp32": 1e-4, "bf16": 0.05}
SMALL = FEW | {"steps": 3, "save_every": 3, "evaluation.every": 3, "optim.compile": "false", "on_look": "off"}
AGENT = '''import json, os, sys, urllib.request
given = json.load(sys.stdin)
said = [{"role": "user", "content": given["question"]}]
for doubt in ("Are you sure?", ""):
    body = json.dumps({"messages": said, "model": "policy", "max_tokens": 12}).encode()
    ask = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {
        "Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    reply = json.load(urllib.request.urlopen(ask))["choices"][0]["message"]["content"]
    said += [{"role": "assistant", "content": reply}, {"role": "user", "content": doubt}]
'''
LETTERS = '''from zlib import crc32

prompts = [{"question": f"Say {n}.", "answer": str(n)} for n in range(40)]


def verify(prompt, completion):
    """More letters, more score: any two replies differ, so that every group has a gradient."""
    letters = min(sum(c.isalpha() for c in completion) / 50, 0.98)
    return letters + crc32(completion.encode()) / 2**32 / 100
'''
PASSES = LETTERS.replace("    return ", "    return crc32(completion.encode()) % 2\n    return ")
GAME = '''from zlib import crc32

from postgrad import Verdict

prompts = [{"question": f"Tom has {n} pears and buys {n + 1} more. How many pears does he have?"}
           for n in range(2, 40)]
tokens, turns = 64, 2


def play(prompt, rng):
    """Both replies are paid for."""
    first = yield ()
    second = yield [{"role": "user", "content": "Are you sure?"}]
    paid = tuple(crc32(reply.text.encode()) / 2**33 for reply in (first, second))
    return Verdict(score=sum(paid), per_turn=paid)
'''
Figures = dict[str, float]


class Shared:
    """What the CPU's side of a path sampled, by prompt and seed, and how many of the device's rows are
    alike."""

    def __init__(self) -> None:
        self.rows = defaultdict[tuple, deque[FinishedSequence]](deque)
        self.seen = self.alike = 0
        self.replays = False

    @contextmanager
    def sampler(self) -> Iterator[None]:
        """The samplers keep their rows here, or give the rows that are here in the place of their own."""
        own = {kind: kind.generate for kind in (LocalSampler, RemoteSampler)}

        def generate(sampler: LocalSampler | RemoteSampler, contexts: list, n: int, seeds: list,
                     sampling: Sampling, after: object = None) -> Iterator[list[FinishedSequence]]:
            for ended in own[type(sampler)](sampler, contexts, n, seeds, sampling, after):
                yield [self.shared(row, (*contexts[row.number // n], seeds[row.number], sampling))
                       for row in ended]

        for kind in own:
            kind.generate = generate
        try:
            yield
        finally:
            for kind, theirs in own.items():
                kind.generate = theirs

    def shared(self, row: FinishedSequence, key: tuple) -> FinishedSequence:
        if not self.replays:
            self.rows[key].append(row._replace(cached=None))
        elif self.rows[key]:
            kept = self.rows[key].popleft()
            self.seen += 1
            self.alike += list(row.tokens) == list(kept.tokens)
            return kept._replace(number=row.number)
        return row


def words_of(spec: str, more: list[str]) -> list[str]:
    """A small training's settings: SMALL, where it has them, then these."""
    known = flat_settings(config_from_text(spec, [m for m in more if m.partition("=")[0] in ("model", "task")
                                                  or ".py" in m])[1])
    keys = {word.partition("=")[0] for word in more}
    small = [f"{k}={v}" for k, v in SMALL.items() if k in known and k not in keys]
    return [*small, *(word for word in more if word.partition("=")[0] in known)]


def first_step(run: Run) -> Figures:
    row = run.metrics()[0]
    figures = {name: row[name] for name in ("loss", "grad_norm")}
    assert all(map(math.isfinite, figures.values())) and figures["grad_norm"] > 0, f"first step: {figures}"
    return figures


# the paths: (folder, settings of the device) -> figures that are compared

def trained(spec: str, *more: str) -> Callable[[Path, list[str]], Figures]:
    def path(folder: Path, how: list[str]) -> Figures:
        return first_step(harness.train(folder / "run", spec, *words_of(spec, [
            *more, *how, *paid(folder, spec)])))
    return path


def paid(folder: Path, spec: str) -> list[str]:
    """The task of rollouts: letters, which any model writes; or a game of two replies."""
    row = spec.partition(":")[0]
    recipe, _ = config_from_text(spec, MORE.get(row, ()))
    games = row == "turn_grpo"
    (folder / "task.py").write_text(GAME if games else PASSES if row == "rejection" else LETTERS)
    words = [f"task={folder / 'task.py'}", *["rollouts.max_new_tokens=64"] * games]
    return words if recipe == "rollouts" and (games or spec.endswith(":words")) else []


def self_distilled(folder: Path, how: list[str]) -> Figures:
    """sdft, which the embedded models are refused for."""
    more = [*faults.copyist_files(folder), *MORE["sdft"], *how]
    return first_step(harness.train(folder / "run", "sdft:words", *words_of("sdft:words", more)))


def judged(folder: Path, how: list[str]) -> Figures:
    """A policy against a reward model that was trained before it."""
    judge = harness.train(folder / "judge", "reward:questions", *words_of("reward:questions", how))
    more = [*how, f"reward={judge.folder}"]
    return first_step(harness.train(folder / "run", "ppo:questions", *words_of("ppo:questions", more)))


def by_agent(folder: Path, how: list[str]) -> Figures:
    (folder / "agent.py").write_text(AGENT)
    more = [*how, f"agent.command={sys.executable} {folder / 'agent.py'}", *paid(folder, "grpo:words")]
    return first_step(harness.train(folder / "run", "grpo:words", *words_of("grpo:words", more)))


def through_endpoint(*more: str) -> Callable[[Path, list[str]], Figures]:
    """A training whose rollouts come from `postgrad serve` on the same device."""
    def path(folder: Path, how: list[str]) -> Figures:
        begin(folder / "weights", "tiny-chat")
        device = next(word.partition("=")[2] for word in how if word.startswith("device="))
        with harness.served("serve", folder / "weights", "--port", 0, "--every", 0.05,
                            "--device", device) as url:
            return first_step(harness.train(folder / "run", "grpo:words", *words_of("grpo:words", [
                *how, *more, *paid(folder, "grpo:words"), f"remote.sampler={url.removesuffix('/v1')}",
                f"remote.weights={folder / 'weights'}"])))
    return path


def pipeline(spec: str, *more: str) -> Callable[[Path, list[str]], Figures]:
    def path(folder: Path, how: list[str]) -> Figures:
        from postgrad.recipes.launch import start_training
        OptimSettings.half = lambda settings, on_gpu: "optim.precision=bf16" in how  # of every stage
        recipe, config = config_from_text(spec, words_of(spec, [*more, *how]))
        start_training(recipe, config, folder / "run")
        runs = sorted((folder / "run").rglob("metrics.jsonl"), key=lambda path: path.stat().st_ctime)
        assert runs, "a pipeline without a training"
        began = min(runs, key=lambda path: json.loads((path.parent / "run.json").read_text())["created"])
        return first_step(Run.open(began.parent))
    return path


def endpoint(folder: Path, how: list[str]) -> Figures:
    """The batch that the endpoint decodes with, over HTTP: log-probs of greedy replies and of a prompt."""
    from starlette.testclient import TestClient

    from postgrad.resolve.models import open_writer
    from postgrad.serving.app import create_app
    from postgrad.serving.decode_worker import ServedModel
    device = next(word.partition("=")[2] for word in how if word.startswith("device="))
    net, chat = open_writer("tiny-chat", device)
    if "optim.precision=bf16" in how and device != "cpu":
        net = net.bfloat16()
    elif device != "cpu":
        net = net.float()
    served = ServedModel.of(net.requires_grad_(False), chat, "small", rows=8, context=256, waiting=64)
    asked = [{"role": "user", "content": "Tom has 3 pears and buys 4 more. How many pears does he have?"}]
    with TestClient(create_app(served), base_url="http://localhost") as web:
        def post(path: str, **body: object) -> dict:
            answer = web.post(path, json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()

        chosen = post("/v1/chat/completions", messages=asked, temperature=0, max_tokens=8, logprobs=True, n=4)
        echo = post("/v1/completions", prompt="Tom has 3 pears.", echo=True, max_tokens=0, logprobs=0)
        many = [post("/v1/chat/completions", messages=[*asked, {"role": "assistant", "content": "7"}, {
            "role": "user", "content": f"Sure? {i}"}], temperature=0, max_tokens=8) for i in range(3)]
    assert all(reply["choices"][0]["message"]["content"] for reply in many)
    first = chosen["choices"][0]["logprobs"]["content"][0]["logprob"]
    scores = echo["choices"][0]["logprobs"]["token_logprobs"]
    return {"first token": first, "prompt": sum(x for x in scores if x is not None)}


def turns(folder: Path, how: list[str]) -> Figures:
    """Kept sequences that are extended, as a batch of requests has them."""
    from postgrad.resolve.models import open_writer
    from postgrad.sampling import RequestBatch
    device = next(word.partition("=")[2] for word in how if word.startswith("device="))
    net, chat = open_writer("tiny-chat", device)
    net = net.bfloat16() if "optim.precision=bf16" in how and device != "cpu" else net.float()
    batch = RequestBatch(net.requires_grad_(False), chat, rows=4, max_prompt_tokens=128, max_new_tokens=128)
    prompt = chat.render([{"role": "user", "content": "Tom has 3 pears and buys 4 more."}])
    greedy = Sampling(max_new_tokens=6, temperature=0)
    sequence, = batch.add(prompt, [Request(sampling=greedy, keep=True)])
    for turn in range(3):
        while sequence.finish_reason is None:
            batch.step()
        if turn < 2:
            batch.extend(sequence, chat.encode(" And then"))
    last = [*prompt, *sequence.tokens]
    score = batch.score(last)[-6:]
    return {"against a pass over all": 1 + max(abs(a.logp - b.logp) for a, b in zip(
        sequence.sampled[-6:], score, strict=True))}


def after_prefixes(folder: Path, how: list[str]) -> Figures:
    """Requests that go on after what is in the prompt cache: log-probs against a pass over all."""
    from postgrad.resolve.models import open_writer
    from postgrad.sampling import RequestBatch
    device = next(word.partition("=")[2] for word in how if word.startswith("device="))
    net, chat = open_writer("tiny-chat", device)
    net = net.bfloat16() if "optim.precision=bf16" in how and device != "cpu" else net.float()
    batch = RequestBatch(net.requires_grad_(False), chat, rows=8, max_prompt_tokens=400, max_new_tokens=400,
                         positions=400)
    text = chat.encode("Tom has 3 pears and buys 4 more. How many pears does he have? " * 12)[:200]
    contexts = [[*text[i:], *text[:i]] for i in range(8)]
    gaps: list[float] = []
    for turn in range(3):
        asked = Request(sampling=Sampling(max_new_tokens=8, temperature=0), raw_logprobs=True,
                        caching="turns")
        rows = [batch.add(context, [asked])[0] for context in contexts]
        while batch.busy:
            batch.step()
        assert all(row.prompt.begun >= 200 for row in rows) == (turn > 0), [row.prompt.begun for row in rows]
        for i, row in enumerate(rows):
            contexts[i] = [*contexts[i], *row.tokens]
            own = batch.score(contexts[i])[-len(row.sampled):]
            gaps += [abs(a.logp - b.logp) for a, b in zip(row.sampled, own, strict=True)]
            contexts[i] += chat.encode(" Are you sure?")
    return {"against a pass over all": 1 + sum(gaps) / len(gaps)}


def resumed(name: str) -> Callable[[Path, list[str]], Figures]:
    """A training killed inside its second save and resumed: the last step is that of one left alone."""
    def path(folder: Path, how: list[str]) -> Figures:
        spec = {"sft": "sft:words", "grpo": "grpo:words"}[name]
        kills.SMALL[name] = (spec, *words_of(spec, ["save_every=1", *how, *paid(folder, spec)]))
        kills.spawn = faults.forked
        kills.left_alone(name, folder / "alone")
        code, said = faults.forked(kills.train_args(name, folder / "killed"), at="save:9")
        assert code == -signal.SIGKILL, f"it was not killed: {said[-300:]}"
        kills.finish(name, folder / "killed")
        alone, killed = (Run.open(folder / which).metrics() for which in ("alone", "killed"))
        assert [row["step"] for row in killed] == [1, 2, 3], "steps are not once each"
        differ = relative({"loss": alone[-1]["loss"]}, {"loss": killed[-1]["loss"]})
        assert differ <= 1e-3, f"the last loss is {differ:.2g} off that of a run left alone"
        return first_step(Run.open(folder / "killed"))
    return path


LORA = "optim.adapter.lora=4"
ADAPTERS = {"LoRA": (LORA,), "QLoRA": (LORA, "optim.adapter.bits=4"),
            "DoRA": (LORA, "optim.adapter.dora=true"),
            "LoRA with trained embeddings": (LORA, "optim.adapter.modules_to_save=embed_tokens")}
FORMS = {"compiled": ("optim.compile=true",), "8-bit moments": ("optim.moments=8",),
         "recomputed": ("optim.recompute=true",), "two epochs": ("method.epochs=2", "method.minibatches=2"),
         "released": ("rollouts.release=true",),
         "filtered": ("rollouts.top_k=6", "rollouts.top_p=0.8", "rollouts.min_p=0.05"),
         "with texts": ("ptx.coef=0.1",), 
         "four lanes": ("optim.virtual_ranks=4",)}
FEW_OF_ALL = ("sft_steps=3", "pairs=32", "reward_steps=3", "collections=1", "problems=4", "samples=2")
PATHS: dict[str, Callable[[Path, list[str]], Figures]] = {
    **{name: trained(spec, *MORE.get(name, ())) for name, spec in (NAMED | OTHERS).items()
       if name not in ("sdft", "remote", "games")},
    "sdft": self_distilled, "opd": trained("opd:words", "model=tiny", "teacher=tiny-chat"),
    **{f"game {name}": trained(f"ppo:{name}") for name in ("guess", "animals", "big-numbers")},
    "game of two turns": trained("turn_grpo:guess", "method=grpo"),
    **{f"{row} {name}": trained(f"{row}:{task}", *words) for name, words in ADAPTERS.items()
       for row, task in (("sft", "words"), ("grpo", "words"), ("dpo", "questions"))},
    **{f"grpo {name}": trained("grpo:words", *words) for name, words in FORMS.items()},
    "sft compiled": trained("sft:words", "optim.compile=true"),
    "ppo KL that is steered": trained("ppo:words", "kl.target=1.0"),
    "ppo LoRA": trained("ppo:words", LORA), "reward LoRA": trained("reward:questions", LORA),
    "sft with noise": trained("sft:words", "neftune=5.0"),
    "reward model, then ppo": judged, "agent": by_agent, "training through the endpoint": through_endpoint(),
    "grpo sampled ahead": through_endpoint("rollouts.async_depth=1"),
    "endpoint": endpoint, "turns that are kept": turns, "turns after prefixes": after_prefixes,
    "sft killed and resumed": resumed("sft"), "grpo killed and resumed": resumed("grpo"),
    "r1-zero": pipeline("r1-zero:quick"), "r1": pipeline("r1:quick"),
    "expert-iteration": pipeline("expert-iteration:quick"), "instruct": pipeline("instruct", *FEW_OF_ALL),
    "align": pipeline("align", *FEW_OF_ALL)}
LONG = ("r1", "align", "instruct", "expert-iteration", "r1-zero", "grpo compiled", "sft compiled", "sdft")


# running them

def relative(a: Figures, b: Figures) -> float:
    return max((abs(a[k] - b[k]) / max(abs(a[k]), abs(b[k]), FLOOR) for k in a), default=0.0)


def compared(name: str, folder: Path, device: str, precision: str) -> dict:
    """The path on the CPU, then on the device."""
    import torch
    torch.set_num_threads(1)
    shared, figures, began = Shared(), [], 0.0
    with shared.sampler():
        for where, how in (("cpu", "fp32"), (device, precision)):
            place = folder / f"{where}-{len(figures)}"
            place.mkdir(parents=True)
            shared.replays, began = bool(figures), time.perf_counter()
            figures.append(PATHS[name](place, [f"device={where}", f"optim.precision={how}"]))
    return {"seconds": round(time.perf_counter() - began, 1), "difference": relative(*figures),
            "alike": shared.alike / shared.seen if shared.seen else None,
            "figures": {key: [one.get(key) for one in figures] for key in figures[0]}}


def forked(name: str, folder: Path, device: str, precision: str, ends: float) -> int:
    """A fork that measures a path and leaves its line in folder/line.json, or, where it has not ended by
    then, its stacks in folder/said.txt."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.setsid()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        out = os.open(folder / "said.txt", os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1)
        os.dup2(out, 2)
        faulthandler.dump_traceback_later(max(1.0, ends - time.monotonic() - 5), file=2)
        try:
            line = compared(name, folder, device, precision)
            line["ok"] = line["difference"] <= BOUND[precision]
        except BaseException as error:
            traceback.print_exc()
            said = str(error).strip().splitlines()[:1] or [type(error).__name__]
            line = {"ok": False, "error": f"{type(error).__name__}: {said[0]:.300}"}
        (folder / "half.json").write_text(json.dumps(line))
        (folder / "half.json").rename(folder / "line.json")
        code = 0
    finally:
        os._exit(code)


def finished(name: str, precision: str, folder: Path, code: int) -> dict:
    line = folder / "line.json"
    said = json.loads(line.read_text()) if line.exists() else {
        "ok": False, "error": "it had not ended" if code == -signal.SIGKILL else f"it ended with {code}"}
    for place in folder.glob("*-[01]") if said["ok"] else ():
        shutil.rmtree(place)
    return {"path": name, "precision": precision} | said


def all_of(jobs: list[tuple[str, str]], folder: Path, device: str, processes: int, most: float) -> list[dict]:
    ends, running, lines = time.monotonic() + most, dict[int, tuple[str, str, Path]](), []
    waiting = list(jobs)
    while waiting or running:
        late = time.monotonic() > ends
        while waiting and len(running) < processes and not late:
            name, precision = waiting.pop(0)
            place = folder / f"{name.replace(' ', '-').replace(',', '')}-{precision}"
            running[forked(name, place, device, precision, ends)] = name, precision, place
        for pid, (name, precision, place) in [*running.items()]:
            if late:
                os.killpg(pid, signal.SIGKILL)
            ended, status = os.waitpid(pid, 0 if late else os.WNOHANG)
            if ended:
                del running[pid]
                lines.append(finished(name, precision, place, os.waitstatus_to_exitcode(status)))
                print(json.dumps(lines[-1]), flush=True)
        if late:
            for name, precision in waiting:
                lines.append({"path": name, "precision": precision, "ok": False, "error": "it was not begun"})
                print(json.dumps(lines[-1]), flush=True)
            break
        time.sleep(0.02)
    return lines


def main() -> None:
    words, given = harness.arguments()
    device, folder = given.get("device", "cuda"), Path(given.get("folder", harness.HOME / "runs/gpu-paths"))
    names = given["only"].split(",") if "only" in given else [*LONG, *(n for n in PATHS if n not in LONG)]
    if unknown := [name for name in names if name not in PATHS]:
        sys.exit(f"{unknown[0]} is no path: {', '.join(PATHS)}.")
    jobs = [(name, precision) for precision in given.get("precision", "fp32,bf16").split(",")
            for name in names]
    began = time.monotonic()
    with ExitStack() as stack:
        if device != "cpu":
            os.environ |= stack.enter_context(harness.shared_gpu())
        lines = all_of(jobs, folder.resolve(), device, int(given.get("processes", 8)),
                       float(given.get("most", 86_400)))
    good = sum(line["ok"] for line in lines)
    print(json.dumps({"paths": len(jobs), "ok": good, "seconds": round(time.monotonic() - began, 1),
                      "largest difference": {p: max((line["difference"] for line in lines if line["ok"]
                                                     and line["precision"] == p), default=None)
                                             for p in BOUND}}), flush=True)
    sys.exit(good < len(jobs))


if __name__ == "__main__":
    main()
