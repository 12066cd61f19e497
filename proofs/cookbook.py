"""The Tinker server against the real SDK and the real cookbook, whose recipes run unedited on a laptop's CPU.

    python proofs/cookbook.py [tests] [methods] [recipes] [kills] [clients]
                              [seeds=0,1,2] [only=sl_loop,rl_loop] [place=/tmp/cookbook]

recipes: an environment of the cookbook's own in PLACE, made from the package index unless it is there; a
working folder with our tokenizer and our rows under the names that the recipes load; `tiny-chat`, brought
into the recipes' form by SFT; the server under an alias from the cookbook's table of models; eight recipes,
each by its command line. A recipe that ran is not run again. The other parts: tinker_clients.py.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from harness import (
    COMPUTES,
    HOME,
    Bars,
    Page,
    Tables,
    bar,
    once,
    postgrad,
    read_lines,
    rooms,
    run_tests,
    started,
    test_bar,
    tests,
    train,
)
from tinker_clients import client_environment, client_python, clients, kills

from postgrad.data.tasks.word_problems import apply_operation, write_problem
from postgrad.models import find_model

ALIAS = "Qwen/Qwen3-8B-Base"  # the cookbook's table gives it the renderer role_colon
MINUTES = 5.0
EPOCHS = {"forms": 1, "boxed": 2, "games": 2}  # of the SFT before
KEPT = 0.4  # of its replies are in the form that the recipe asks for

# Conversations in the recipes' own prompts: their renderer, their environments, our problems and replies.
FORMS = r"""
import asyncio, json, random, sys
from tinker_cookbook import renderers
from tinker_cookbook.recipes.math_rl.arithmetic_env import ArithmeticEnv
from tinker_cookbook.recipes.math_rl.math_env import Gsm8kDataset, MathEnv
from tinker_cookbook.recipes.multiplayer_rl.guess_number.env import GuessNumberEnv
from tinker_cookbook.tokenizer_utils import get_tokenizer

asked = json.load(sys.stdin)
rng, tokenizer = random.Random(asked["seed"]), get_tokenizer(asked["model"])
renderer = renderers.get_renderer("role_colon", tokenizer)
stop = renderer.get_stop_sequences()[0]

def write(prompt, reply, beside):
    reply = reply if rng.random() < asked["kept"] else beside
    tokens = list(prompt.to_ints())
    text = tokenizer.decode(tokens)
    assert tokenizer.encode(text, add_special_tokens=False) == tokens, text
    row = {"prompt": text.removeprefix(tokenizer.bos_token), "completion": f" {reply}{stop}"}
    print(json.dumps(row))

async def game(secret, share):
    env, low, high, done = GuessNumberEnv(secret, renderer), 0, 1023, False
    seen, _ = await env.initial_observation()
    while not done:
        guess = (low + high) // 2
        if rng.random() < share:
            write(seen, f"Guess: {guess}", str(guess))
        step = await env.step(tokenizer.encode(f" Guess: {guess}{stop}", add_special_tokens=False))
        seen, done = step.next_observation, step.episode_done
        low, high = (guess + 1, high) if guess < secret else (low, guess - 1)

shot = MathEnv.standard_fewshot_prefix()
theirs, ours = MathEnv.question_suffix(), Gsm8kDataset.question_suffix()
swapped = [message | {"content": message["content"].replace(theirs, ours)} for message in shot]
for number, (question, answer) in enumerate(asked["problems"]):
    before, suffix = ([(swapped, ours), (shot, theirs)] if number % asked["cycle"] >= asked["cycle"] - 2 else
                      [([], ours), ([], theirs)])[number % 2]
    talk = [*before, {"role": "user", "content": question + suffix}]
    write(renderer.build_generation_prompt(talk), "\\boxed{" + answer + "}", answer)
for x, y in asked["sums"]:
    env = ArithmeticEnv(x, y, renderer, ArithmeticEnv.standard_fewshot_prefix())
    write(asyncio.run(env.initial_observation())[0], env.get_reference_answer(), f"{x} + {y}")
for secret in asked["secrets"]:
    asyncio.run(game(secret, asked["share"]))
"""
TEMPLATE = ("{{ bos_token }}{% for message in messages %}{{ message.content }}"
            "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}")
SPLITS = "\n".join(["---", "configs:", "- config_name: main", "  data_files:",
                    *(f"  - split: {split}\n    path: main/{split}.jsonl" for split in ("train", "test")),
                    "---", ""])


@dataclass(frozen=True)
class Recipe:
    """A recipe of the cookbook, its arguments, and the column of metrics.jsonl that shows what it learned."""

    module: str
    arguments: str
    curve: str
    rises: bool = True
    data: str = "none"
    start: str = "forms"
    later: int = 0  # added to the seeds that prove it: its settings changed after the first were seen

    def learned(self, curve: list[float]) -> tuple[float, float, bool]:
        """The means of the curve's first and last fifth, and whether the last is the better one."""
        fifth = max(1, len(curve) // 5)
        first, last = sum(curve[:fifth]) / fifth, sum(curve[-fifth:]) / fifth
        return first, last, last > first if self.rises else last < first


RECIPES = {
    "sl_loop": Recipe(
        "sl_loop", "batch_size=16 max_length=256 learning_rate=2e-3 lora_rank=16 max_steps=25",
        "train_mean_nll", rises=False, data="HuggingFaceH4/no_robots"),
    "sl_basic": Recipe(
        "sl_basic", "dataset_builder=tinker_cookbook.recipes.chat_sl.chat_datasets:NoRobotsBuilder "
        "dataset_builder.common_config.model_name_for_tokenizer={alias} "
        "dataset_builder.common_config.renderer_name=role_colon dataset_builder.common_config.batch_size=16 "
        "dataset_builder.common_config.max_length=256 learning_rate=2e-3 lora_rank=16 max_steps=25",
        "train_mean_nll", rises=False, data="HuggingFaceH4/no_robots"),
    "rl_loop": Recipe(
        "rl_loop", "batch_size=8 group_size=8 learning_rate=2e-4 lora_rank=16 max_tokens=16 max_steps=25",
        "reward/total", data="openai/gsm8k", start="boxed"),
    "rl_basic": Recipe(
        "rl_basic", "dataset_builder=tinker_cookbook.recipes.math_rl.math_env:Gsm8kDatasetBuilder "
        "dataset_builder.model_name_for_tokenizer={alias} dataset_builder.renderer_name=role_colon "
        "dataset_builder.batch_size=8 dataset_builder.group_size=8 learning_rate=2e-4 lora_rank=16 "
        "max_tokens=16 max_steps=25", "env/all/reward/total", data="openai/gsm8k", start="boxed"),
    "math_rl": Recipe(
        "math_rl.train", "env=arithmetic groups_per_batch=8 group_size=8 learning_rate=1e-3 lora_rank=16 "
        "max_tokens=12 eval_every=0 max_steps=25", "env/all/reward/total"),
    "preference": Recipe(
        "preference.dpo.train", "dataset=hhh batch_size=8 max_length=256 learning_rate=1e-3 max_steps=20",
        "dpo_loss", rises=False, data="Anthropic/hh-rlhf"),
    "distillation": Recipe(
        "distillation.on_policy_distillation", "dataset=deepmath teacher_model={alias} "
        "teacher_checkpoint={teacher} groups_per_batch=6 group_size=4 learning_rate=5e-4 lora_rank=16 "
        "max_tokens=24 eval_every=0 max_steps=25", "teacher_kl", rises=False, data="zwhe99/DeepMath-103K",
        later=3),
    "guess_number": Recipe(
        "multiplayer_rl.guess_number.train", "renderer_name=role_colon batch_size=2 group_size=4 "
        "learning_rate=1e-3 max_tokens=12 eval_every=0 max_steps=15", "env/all/reward/total", start="games"),
}
NO_BASE_URL = ("guess_number",)  # the SDK then asks TINKER_BASE_URL


def problems(rng: random.Random, count: int) -> list[tuple[str, str]]:
    """Word problems of one sum or difference, and their answers."""
    rows = []
    for _ in range(count):
        start = rng.randint(2, 12)
        op, n = rng.choice("+-"), rng.randint(1, 6)
        op = "+" if n > start else op
        rows.append((write_problem(rng, start, ((op, n),)).text, str(apply_operation(start, op, n))))
    return rows


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_sets(place: Path, rng: random.Random) -> None:
    """The folders that the recipes find under the names of the hub's sets: rows of ours in their columns."""
    for split, count in (("train", 600), ("test", 16)):
        rows = problems(rng, count)
        replies = [f"There are {answer} of them." for _, answer in rows]
        write_rows(place / f"HuggingFaceH4/no_robots/{split}.jsonl", [
            {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]}
            for (question, _), reply in zip(rows, replies, strict=True)])
        write_rows(place / f"openai/gsm8k/main/{split}.jsonl", [
            {"question": question, "answer": f"{reply}\n#### {answer}"}
            for (question, answer), reply in zip(rows, replies, strict=True)])
        write_rows(place / f"Anthropic/hh-rlhf/{split}.jsonl", [
            {side: f"\n\nHuman: {question}\n\nAssistant: {reply}"
             for side, reply in (("chosen", f"It is {answer}, I think."), ("rejected", f"{answer}!"))}
            for question, answer in rows])
        write_rows(place / f"zwhe99/DeepMath-103K/{split}.jsonl", [
            {"question": question, "final_answer": answer} for question, answer in rows])
    (place / "openai/gsm8k/README.md").write_text(SPLITS)


def prepare(place: Path, seed: int) -> random.Random:
    """The working folder of a user: the tokenizer under the alias, the sets, and the model before its SFT,
    which reads 1,024 tokens, not 512: ten turns of guess_number fit with every reply refused."""
    rng = random.Random(seed)
    (place / ALIAS).mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(find_model("tiny-chat")) / name, place / ALIAS / name)
    write_sets(place, rng)
    start = shutil.copytree(find_model("tiny-chat"), place / "start", dirs_exist_ok=True)
    config = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
    (place / "role_colon.jinja").write_text(TEMPLATE)
    return rng


def forms(rng: random.Random, kind: str) -> dict:
    """What FORMS writes conversations of: problems and sums, more of the problems, which ask for a box, or
    games alone."""
    nothing: dict = {"problems": [], "cycle": 12, "sums": [], "secrets": []}
    if kind == "boxed":
        return nothing | {"problems": problems(rng, 2400)}
    if kind == "games":
        return nothing | {"secrets": [rng.randrange(1024) for _ in range(600)]}
    number = lambda: rng.randrange(101)  # noqa: E731
    return nothing | {"problems": problems(rng, 800), "cycle": 4,
                      "sums": [(number(), number()) for _ in range(500)]}


def start_model(place: Path, kind: str, python: Path, seed: int) -> Path:
    """`tiny-chat` after SFT on conversations in the recipes' prompts, many of which leave the asked form: no
    box, the sum in place of its value, a number alone for a guess. What earns a reward is left to RL."""
    model, run = place / f"{kind}-model", place / kind
    if model.exists():
        return model
    rng = prepare(place, seed)
    asked = {"model": ALIAS, "seed": seed, "share": 0.3, "kept": KEPT, **forms(rng, kind)}
    rows = subprocess.run([python, "-c", FORMS], input=json.dumps(asked), text=True, check=True, cwd=place,
                          stdout=subprocess.PIPE, env=client_environment()).stdout.splitlines()
    rng.shuffle(rows)
    data = write_rows(place / f"{kind}.jsonl", [json.loads(row) for row in rows])
    train(run, "sft", f"data={data}", f"model={place / 'start'}", f"template={place / 'role_colon.jinja'}",
          "rows_per_step=32", f"epochs={EPOCHS[kind]}", "rows.holdout=0", f"seed={seed}")
    postgrad("export", run, "--out", model)
    return model


def command_line(name: str, url: str, log: Path, teacher: str = "") -> list[str]:
    """What a user types after `python -m`."""
    recipe = RECIPES[name]
    given = shlex.split(recipe.arguments.format(alias=ALIAS, teacher=teacher))
    address = [f"base_url={url}"] if name not in NO_BASE_URL else []
    return [f"tinker_cookbook.recipes.{recipe.module}", *address, f"model_name={ALIAS}", f"log_path={log}",
            *given]


def saved_weights(log: Path) -> str:
    """The address of the last weights for sampling that a recipe's log names."""
    return [row["sampler_path"] for row in read_lines(log / "checkpoints.jsonl") if "sampler_path" in row][-1]


def cpu_seconds(server: int) -> float:
    """Of a process, and of this one's children that have ended."""
    used, ticks = resource.getrusage(resource.RUSAGE_CHILDREN), os.sysconf("SC_CLK_TCK")
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return used.ru_utime + used.ru_stime + (int(fields[11]) + int(fields[12])) / ticks


def recipe_environment(place: Path, url: str) -> dict[str, str]:
    """Of a recipe: `datasets` would take rows of another folder of the same name from its cache."""
    return client_environment(url) | {"HF_DATASETS_CACHE": str(place / "datasets")}


def run_recipe(place: Path, name: str, python: Path, url: str, server: int, teacher: str = "") -> dict:
    """A recipe from its first line to its last: its curve, its minutes, and those of the processors, the
    server's among them."""
    log, recipe = place / "logs" / name, RECIPES[name]
    shutil.rmtree(log, ignore_errors=True)
    log.parent.mkdir(exist_ok=True)
    words = command_line(name, url, log, teacher)
    began, cpu = time.monotonic(), cpu_seconds(server)
    with open(log.with_suffix(".txt"), "w") as output:
        subprocess.run([python, "-m", *words], check=True, cwd=place, env=recipe_environment(place, url),
                       stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    minutes = (time.monotonic() - began) / 60
    curve = [row[recipe.curve] for row in read_lines(log / "metrics.jsonl") if recipe.curve in row]
    return {"curve": curve, "minutes": minutes, "cpu": (cpu_seconds(server) - cpu) / 60,
            "load": os.getloadavg()[1]}


def run_seed(place: Path, seed: int, python: Path, names: list[str]) -> dict[str, dict]:
    """The recipes of one seed, against a server of each model that they begin with."""
    left = [name for name in names if not (place / f"{name}.json").exists()]
    for kind in dict.fromkeys(RECIPES[name].start for name in left):
        model = start_model(place, kind, python, seed)
        words = [sys.executable, "-m", "postgrad", "serve", model, "--tinker", "--name", ALIAS,
                 "--rows", "64", "--port", "0", "--json"]
        with started(words, cwd=place, stdout=subprocess.PIPE, text=True) as server:
            url = json.loads(server.stdout.readline())["tinker"]
            for name in (name for name in left if RECIPES[name].start == kind):
                teacher = saved_weights(place / "logs" / "sl_loop") if name == "distillation" else ""
                once(place / f"{name}.json", run_recipe, place, name, python, url, server.pid, teacher)
    return {name: json.loads((place / f"{name}.json").read_text()) for name in names}


def recipes(folder: Path, seeds: str = "0,1,2", only: str = ",".join(RECIPES),
            place: str = "") -> tuple[Bars, Tables]:
    """The eight recipes with each seed: of the rows, and of the SFT before."""
    python = client_python(Path(place or folder / "cookbook"))
    ran = dict[int, dict[str, dict]]()
    for later in sorted({recipe.later for recipe in RECIPES.values()}):
        names = [name for name in RECIPES if name in only.split(",") and RECIPES[name].later == later]
        for seed in (int(seed) + later for seed in seeds.split(",")):
            first = ["sl_loop"] if "distillation" in names and later else []  # its teacher
            results = run_seed(folder / f"seed-{seed}", seed, python, first + names) if names else {}
            ran[seed] = ran.get(seed, {}) | {name: results[name] for name in names}
    return recipe_bars(ran)


def recipe_bars(ran: dict[int, dict[str, dict]]) -> tuple[Bars, Tables]:
    """ran: seed -> recipe -> its curve and minutes."""
    rows, learned = [], Counter()
    for name, recipe in RECIPES.items():
        for seed, results in ran.items():
            if name in results:
                first, last, better = recipe.learned(results[name]["curve"])
                learned[name] += better
                rows.append({"recipe": name, "seed": seed, "minutes": round(results[name]["minutes"], 1),
                             "CPU minutes": round(results[name]["cpu"], 1),
                             "curve": recipe.curve, "steps": len(results[name]["curve"]),
                             "first step": results[name]["curve"][0], "first fifth": first,
                             "last fifth": last, "learns": "yes" if better else "no",
                             "load of the machine": results[name]["load"]})
    slowest, loads = max(rows, key=lambda row: row["minutes"]), [row["load of the machine"] for row in rows]
    count = sum(len(results) for results in ran.values())
    return [bar("recipes of the cookbook that run unedited, by their arguments alone", "8",
                f"{len(learned)}: {', '.join(learned)}", len(learned) == 8),
            bar("minutes of a recipe on two cores, from its first line to its last", "<= 5, each of 8",
                f"{slowest['minutes']} ({slowest['recipe']}) at most, beside other jobs (load "
                f"{min(loads):.0f} to {max(loads):.0f}); of the processors, recipe and server together, "
                f"{max(row['CPU minutes'] for row in rows)} at most",
                slowest["minutes"] <= MINUTES and len(learned) == 8),
            bar("recipes whose curve's last fifth is better than its first", "8, with each of 3 seeds",
                f"{sum(learned.values())} of {count} runs; distillation at its first rate, 2e-3: 2 of 3, "
                "whose rate was then chosen on other seeds", sum(learned.values()) == 24 == count,
                seeds=sorted(ran))], {"Recipes": rows, "Arguments of the recipes": [
                    {"recipe": name, "arguments": " ".join(command_line(name, "URL", Path("LOG"), "WEIGHTS")),
                     "set of rows of ours": recipe.data} for name, recipe in RECIPES.items()]}


def methods(folder: Path) -> tuple[Bars, Tables]:
    """Every public method of the SDK's clients, and whether it is served."""
    sys.path.insert(1, str(HOME / "tests/serving/tinker"))
    from routes_test import PAIRS, REFUSED, plain
    words = [f"tests/serving/tinker/routes_test.py::{name}" for name in (
        "test_the_table_has_every_public_method", "test_a_method_is_served_or_refused_with_a_sentence")]
    counts = run_tests(folder, words)
    rows = [{"client": kind.__name__, "method": name,
             "here": f"refused: {REFUSED[plain(name)]}" if plain(name) in REFUSED else "served"}
            for kind, name in PAIRS]
    return [test_bar(f"{len(PAIRS)} public methods of the SDK's clients, each called: served, or refused "
                     "with a sentence", "all", words, counts)], {"Methods of the SDK": rows}


PAGE = Page("tinker", "The Tinker server",
            {"tests": tests("tinker"), "methods": methods, "recipes": recipes, "kills": kills,
             "clients": clients}, [0],
            paths=(*COMPUTES, *rooms("serving")))

if __name__ == "__main__":
    PAGE.main()
