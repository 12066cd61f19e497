"""Real models and real tasks: SmolLM2 by GRPO, SFT and DPO; its files here, in transformers and in vLLM; what
verifiers and the sandbox hold against (verifiers.py).

    python proofs/real_models.py [tests] [verifiers] [sandbox] [gym] [opens-tiny]   some minutes on one core
    python proofs/real_models.py perplexity gguf=FILE.gguf     models/smollm2 against transformers' GGUF load
    python proofs/real_models.py opens model=RUN [vllm=PYTHON]     greedy text here and elsewhere
    python proofs/real_models.py sums [seeds=0,1,10]               (a) reasoning-gym's chain_sum: GRPO
    python proofs/real_models.py gsm8k data=DATA [seeds=0,1,2]     (b) SFT, then GRPO, published test problems
    python proofs/real_models.py dpo data=DATA [seeds=0]           (c) from (b)'s SFT, outside the pairs

(a) to (c) want a GPU and models/smollm2 (`postgrad fetch smollm2`), minutes each. Two tokens that
are almost equally likely are a matter of rounding: where greedy replies part, our logits say whether it was a
tie.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import mend
import torch
import torch.nn.functional as F
import verifiers
from harness import FIGURES, HOME, TRAINS, Bars, Page, Tables, bar, once, percent, tests, train

from postgrad.data.tasks import load_task
from postgrad.evaluation import evaluate_task
from postgrad.models import load_model
from postgrad.models.chat import Chat
from postgrad.records import Prompt
from postgrad.resolve.models import open_folder, open_model
from postgrad.sampling import LocalSampler, Sampling

MODEL = "models/smollm2"
GRPO = ("kl=0", "steps=110", "save_every=110", "rollouts.prompts=20000", "prompts_per_step=128",
        "group_size=16", "rollouts.max_new_tokens=64", "lr=1e-5", "schedule=constant", "warmup=5",
        "evaluation.every=25", "evaluation.problems=256")
TOKENS, PROBLEMS = {"sums": 64, "gsm8k": 256}, {"sums": 250, "gsm8k": 1319}


# (a) to (c)

def measured(name: str, task, kind: str, seed: int, prompts: list | None = None) -> dict:
    """pass@1 and pass@8 at temperature 1, and greedy, on test problems; in bfloat16, as it was trained."""
    folder = open_folder(name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sampler = LocalSampler(load_model(folder, device=device, dtype=torch.bfloat16), Chat.load(folder))
    return evaluate_task(task, sampler, prompts or task.prompts("test", PROBLEMS[kind], 0), samples=8,
                    settings=Sampling(max_new_tokens=TOKENS[kind]), seed=seed)


def stages(folder: Path, task, kind: str, seed: int, steps: list[tuple],
           prompts: list | None = None) -> list[dict]:
    """A model before and after each of some trainings: (its name, its recipe, changes); the first is measured
    alone. The model of a training is that of the one before."""
    rows, model = [], ""
    for name, recipe, *changes in steps:
        run = train(folder / f"{name}-{seed}", recipe, f"model={model}", f"seed={seed}", "device=cuda",
                    *changes) if model else None
        model = str(run.folder) if run else recipe
        figures = once(folder / f"{name}-{seed}.json", measured, model, task, kind, seed, prompts)
        rows.append(figures | {"seed": seed, "stage": name, "run": run})
    return rows


def described(found: list[list[dict]], letter: str, title: str, curve: str, key: str = "pass@1") -> Tables:
    """The stages of every seed, the evaluations while the last one trained, and its command."""
    minutes = lambda run: round(sum(row["time/step"] or 0 for row in run.metrics()) / 60, 1)  # noqa: E731
    rows = [{"seed": row["seed"], "stage": row["stage"],
             "pass@1 (95 % interval)": percent(row["pass@1"], row["pass@1_interval"]),
             "pass@8": f"{row['pass@8']:.1%}", "greedy": f"{row['greedy']:.1%}",
             "lenient": f"{row.get('reward/lenient', row['reward']):.1%}", "mean length": row["mean_length"],
             "problems": row["problems"], "minutes of training": minutes(row["run"]) if row["run"] else ""}
            for stages in found for row in stages]
    evals = zip(*(stages[-1]["run"].evaluations() for stages in found), strict=True)
    return {f"({letter}) {title}": rows,
            f"({letter}) {curve}": [{"step": at[0]["step"], **{
                f"seed {stages[0]['seed']}": row[key] for stages, row in zip(found, at, strict=True)}}
                for at in evals],
            f"({letter}) Command": [{"stage": row["stage"], "command": row["run"].info["command"]}
                                    for row in found[0] if row["run"]]}


def stages_text(found: list[list[dict]]) -> str:
    return "; ".join(" -> ".join(f"{row['pass@1']:.1%}" for row in stages) for stages in found)


def longest(found: list[list[dict]], letter: str) -> dict:
    minutes = max(sum(row["time/step"] or 0 for row in stage["run"].metrics()) / 60
                  for stages in found for stage in stages if stage["run"])
    return bar(f"({letter}): minutes of the longest run", "<= 10", f"{minutes:.1f}", minutes <= 10)


def sums(folder: Path, seeds: str = "0,1,10") -> tuple[Bars, Tables]:
    import reasoning_gym

    path = folder / "sums.jsonl"
    entries = reasoning_gym.create_dataset("chain_sum", size=20_000, seed=0, min_terms=2, max_terms=3,
                                           min_digits=1, max_digits=1)
    answers = {entry["question"]: entry["answer"] for entry in entries}
    path.write_text("".join(json.dumps({"question": q, "answer": a}) + "\n" for q, a in answers.items()))
    task = load_task(str(path))  # the last number of a reply counts, in whatever form
    steps = [("before", MODEL), ("GRPO", "grpo", f"task={path}", *GRPO)]
    found = [stages(folder, task, "sums", int(seed), steps) for seed in seeds.split(",")]
    gains = [100 * (after["pass@1"] - before["pass@1"]) for before, after in found]
    return [bar("(a) GRPO on sums of two or three one-digit numbers: pass@1 on held-out problems",
                "+30 points", f"{stages_text(found)}: +{min(gains):.0f} at least, {len(found)} seeds",
                min(gains) >= 30), longest(found, "a")], described(
        found, "a", "Sums: chain_sum of reasoning-gym, two or three terms of one digit",
        "pass@1 on validation problems while it trains")


def gsm8k(folder: Path, data: str, seeds: str = "0,1,2") -> tuple[Bars, Tables]:
    name = f"gsm8k:{data}"
    steps = [("before", MODEL), ("SFT", "sft:gsm8k", f"task={name}"),
             ("GRPO", "grpo:gsm8k", f"task={name}", "kl=0")]
    found = [stages(folder, load_task(name), "gsm8k", int(seed), steps) for seed in seeds.split(",")]
    last = [rows[-1] for rows in found]
    return [bar("(b) GSM8K test, before / SFT / GRPO: pass@1, strict",
                "> 4.8 %, twice the 2.4 % published for this size",
                f"{stages_text(found)}; greedy {min(row['greedy'] for row in last):.1%} at least, "
                f"{len(found)} seeds", min(row["pass@1"] for row in last) > 2 * 0.024),
            longest(found, "b")], described(
        found, "b", "GSM8K, the 1,319 published test problems",
        "pass@1 on validation problems while GRPO trains")


def dpo(folder: Path, data: str, seeds: str = "0") -> tuple[Bars, Tables]:
    name = f"gsm8k:{data}"
    task, found = load_task(name), []
    inside = {p.messages[-1]["content"] for p in task.preferences("train", 10_000, 0)}
    outside = [p for p in task.prompts("test", 10_000, 0) if p.question not in inside]
    for seed in map(int, seeds.split(",")):
        start = str(folder.parent / f"gsm8k/SFT-{seed}")
        steps = [("SFT", start), ("DPO", "dpo:gsm8k", f"task={name}")]
        found.append(stages(folder, task, "gsm8k", seed, steps, outside))
    held = [rows[-1]["run"].evaluations() for rows in found]
    accuracy = "; ".join(f"{first['accuracy']:.1%} -> {percent(last['accuracy'], last['accuracy_interval'])}"
                         for first, *_, last in held)
    figures = [{"what": "(c) DPO on right and wrong answers: pairs of held-out problems told apart",
                "measured": f"{accuracy}, {len(found)} seed; pass@1 on problems outside the pairs "
                            f"{stages_text(found)}"}]
    return [longest(found, "c")], {FIGURES: figures} | described(
        found, "c", "DPO from the SFT model, test problems outside the pairs",
        "pairs of held-out problems told apart while it trains", "accuracy")


# files, here and elsewhere

ASKED = {"What is the capital of France?": "Paris", "What is the opposite of hot?": "cold",
         "Who wrote Romeo and Juliet?": "Shakespeare",
         "Name the largest planet of the solar system.": "Jupiter",
         "Which language is spoken in Brazil?": "Portuguese"}


def perplexity(folder: Path, gguf: str, model: str = MODEL) -> Bars:
    """SmolLM2's GGUF file, converted here, against `transformers`' own reading of it, on 1,000 tokens of this
    repository's LICENSE; and whether it answers sensibly. Needs the gguf package."""
    from transformers import AutoModelForCausalLM

    net, chat = open_model(model)
    ids = torch.tensor([chat.encode((HOME / "LICENSE").read_text())[:1000]])
    theirs = AutoModelForCausalLM.from_pretrained(Path(gguf).parent, gguf_file=Path(gguf).name,
                                                  dtype=torch.float32)
    with torch.no_grad():
        ours, other = (F.cross_entropy(logits[0, :-1].float(), ids[0, 1:]).exp().item()
                       for logits in (net.logits(ids), theirs(ids).logits))
    texts = [row["text"] for row in we_say(model, list(ASKED), 512)[1]]
    right = sum(word in text for word, text in zip(ASKED.values(), texts, strict=True))
    apart = abs(ours / other - 1)
    return [bar("SmolLM2's GGUF: perplexity of a fixed text, ours and transformers' GGUF load",
                "within 0.5 %", f"{ours:.3f} and {other:.3f}: {apart:.4%} apart", apart <= 0.005),
            bar("SmolLM2's GGUF: it answers sensibly (greedy)", f"most of {len(ASKED)} plain questions right",
                f"{right}: " + "; ".join(f"{text.strip().splitlines()[0]:.60}" for text in texts),
                2 * right > len(ASKED))]


TIE = 1e-3  # nats between two tokens that rounding may swap
QUESTIONS = """What is the capital of France? | What is 17 + 25? | Name three colours of the rainbow.
Write a haiku about the sea. | Explain in one sentence why the sky is blue. | What is the opposite of cold?
Who wrote Romeo and Juliet? | Translate 'good morning' into Spanish. | How many days are in a leap year?
Give me a recipe for pancakes. | What does a verb do? | List the first five prime numbers.
Why do leaves fall in autumn? | What is photosynthesis? | Tell me a joke about a cat.
Which is heavier, iron or wood? | Sam has 12 apples and eats 5. How many are left?
Write a Python function that adds two numbers. | What is the largest planet?
Should I take an umbrella if it rains?""".replace("\n", " | ").split(" | ")
VLLM = """
import json, os, sys
os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_LOGGING_LEVEL": "WARNING",
               "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
import vllm
folder, questions, new = json.load(sys.stdin)
model = vllm.LLM(model=folder, dtype="float32", max_model_len=512, enforce_eager=True, seed=0)
out = model.chat([[{"role": "user", "content": q}] for q in questions],
                 vllm.SamplingParams(temperature=0.0, max_tokens=new), use_tqdm=False)
print(json.dumps([{"prompt": list(o.prompt_token_ids), "tokens": list(o.outputs[0].token_ids),
                   "text": o.outputs[0].text, "version": f"vLLM {vllm.__version__}"} for o in out]))
"""


def vllm_says(python: str, folder: str, new: int) -> list[dict]:
    """In another interpreter, which knows nothing of postgrad."""
    done = subprocess.run([python, "-c", VLLM], input=json.dumps([folder, QUESTIONS, new]), text=True,
                          capture_output=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    if done.returncode:
        raise ValueError(f"vLLM did not open {folder}: {done.stderr[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def transformers_says(folder: str, new: int) -> list[dict]:
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    asked = tokenizer.apply_chat_template([[{"role": "user", "content": q}] for q in QUESTIONS], padding=True,
                                          add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.no_grad():
        out = model.generate(**asked, max_new_tokens=new, do_sample=False)
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    width, replies = asked["input_ids"].shape[1], []
    for row, pad in zip(out.tolist(), (asked["attention_mask"] == 0).sum(1).tolist(), strict=True):
        tokens = row[width:]
        tokens = tokens[: next((i + 1 for i, t in enumerate(tokens) if t in ends), new)]
        replies.append({"prompt": row[pad:width], "tokens": tokens,
                        "version": f"transformers {transformers.__version__}",
                        "text": tokenizer.decode(tokens, skip_special_tokens=True)})
    return replies


def we_say(folder: str, questions: list[str], new: int) -> tuple[object, list[dict]]:
    model, chat = open_model(folder)
    groups = LocalSampler(model, chat).sample([Prompt.ask(q) for q in questions], 1,
                                              Sampling(max_new_tokens=new, temperature=0), 0)
    return model, [{"prompt": list(r.prompt_tokens), "tokens": list(r.tokens), "text": r.text}
                   for (r,) in groups]


def difference(model, ours: dict, theirs: dict) -> dict | None:
    """Where two replies part, and by how many nats we prefer our token; None where they say the same."""
    mine, other, gap = ours["tokens"], theirs["tokens"], float("inf")
    at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
              min(len(mine), len(other)))
    if ours["prompt"] != theirs["prompt"]:
        where = "the prompt"
    elif mine == other:
        if ours["text"] == theirs["text"]:
            return None
        where = "the text of the same tokens"
    elif at == min(len(mine), len(other)):
        where = f"token {at}: {'they go on' if len(other) > at else 'they stop'}"
    else:
        with torch.no_grad():
            logits = model.logits(torch.tensor([ours["prompt"] + mine[:at]]))[0, -1]
        where, gap = f"token {at}", float(logits[mine[at]] - logits[other[at]])
    return {"where": where, "ours": ours["text"], "theirs": theirs["text"], "gap": gap}


def compared(name: str, model, ours: list[dict], theirs: list[dict]) -> dict:
    parted = [d for a, b in zip(ours, theirs, strict=True) if (d := difference(model, a, b))]
    prompts = sum(a["prompt"] == b["prompt"] for a, b in zip(ours, theirs, strict=True))
    ties = [d for d in parted if abs(d["gap"]) < TIE]
    result = f"{len(ours) - len(parted)} of {len(ours)} replies the same, {prompts} prompts the same"
    if ties:
        result += f"; {len(ties)} part at a tie of {max(abs(d['gap']) for d in ties):.1g} nats or less"
    if endless := sum("they go on" in d["where"] for d in parted):
        result += f"; {endless} do not end there where they end here"
    print(*parted, sep="\n")
    return bar(f"{name}: greedy text as in {theirs[0]['version']} (float32)",
               f"all the same but for ties under {TIE:g} nats", result, len(ties) == len(parted))


def opens(folder: Path, model: str, vllm: str = "", name: str = "SmolLM2 after SFT", new: int = 64) -> Bars:
    """What we train opens elsewhere: each side reads the folder by itself, the weights, the tokenizer, the
    chat template and where a reply ends."""
    place = str(open_folder(model).resolve())
    net, ours = we_say(place, QUESTIONS, new)
    sides = [transformers_says(place, new), *([vllm_says(vllm, place, new)] if vllm else [])]
    return [compared(name, net, ours, theirs) for theirs in sides]


def opens_tiny(folder: Path, vllm: str = "") -> Bars:
    """The same of a small model, trained for a few steps first."""
    return opens(folder, trained(folder), vllm, "tiny after SFT")


def trained(folder: Path) -> str:
    return str(train(folder / "run", "sft:words", "steps=4", "examples=64", "rows_per_step=16").latest())


PARTS: dict[str, Callable] = {"tests": tests("real-models"), "sums": sums, "gsm8k": gsm8k, "dpo": dpo,
                              "perplexity": perplexity, "opens": opens, "opens-tiny": opens_tiny,
                              "sandbox": verifiers.programs, "verifiers": verifiers.text,
                              "compared": verifiers.compared, "gym": mend.gym}
PAGE = Page("real-models", "Real models and real tasks", PARTS, [0, 1, 2, 10],
            apart=("sums", "gsm8k", "dpo", "perplexity", "opens"), paths=TRAINS)

if __name__ == "__main__":
    PAGE.main()
