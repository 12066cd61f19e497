"""What we train opens elsewhere and says the same: greedy text here, in `transformers` and in vLLM,
token for token.

    python proofs/opens.py                                       a small model, trained for a few steps first
    python proofs/opens.py --model models/smollm2 --vllm /path/to/a/venv/with/vllm/bin/python --out opens.json

Each side reads the folder by itself: the weights, the tokenizer, the chat template and where a reply ends.
All compute in float32. A difference is looked at with our own logits: two tokens that are (almost) equally
likely are a matter of rounding.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tools"))
TIE = 1e-3  # nats between two tokens that rounding may swap
QUESTIONS = (
    "What is the capital of France?", "What is 17 + 25?", "Name three colours of the rainbow.",
    "Write a haiku about the sea.", "Explain in one sentence why the sky is blue.",
    "What is the opposite of cold?", "Who wrote Romeo and Juliet?", "Translate 'good morning' into Spanish.",
    "How many days are in a leap year?", "Give me a recipe for pancakes.", "What does a verb do?",
    "List the first five prime numbers.", "Why do leaves fall in autumn?", "What is photosynthesis?",
    "Tell me a joke about a cat.", "Which is heavier, iron or wood?",
    "Sam has 12 apples and eats 5. How many are left?", "Write a Python function that adds two numbers.",
    "What is the largest planet?", "Should I take an umbrella if it rains?",
)


def vllm_says(folder: str, questions: list[str], new: int) -> list[dict]:
    """Runs in the other interpreter, which knows nothing of postgrad."""
    os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_LOGGING_LEVEL="WARNING",
                      VLLM_ENABLE_V1_MULTIPROCESSING="0")
    import vllm
    model = vllm.LLM(model=folder, dtype="float32", max_model_len=512, enforce_eager=True, seed=0)
    talks = [[{"role": "user", "content": q}] for q in questions]
    out = model.chat(talks, vllm.SamplingParams(temperature=0.0, max_tokens=new), use_tqdm=False)
    return [{"prompt": list(o.prompt_token_ids), "tokens": list(o.outputs[0].token_ids),
             "text": o.outputs[0].text, "version": vllm.__version__} for o in out]


def transformers_says(folder: str, questions: list[str], new: int) -> list[dict]:
    import torch
    import transformers
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, padding_side="left")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    talks = [[{"role": "user", "content": q}] for q in questions]
    asked = tokenizer.apply_chat_template(talks, add_generation_prompt=True, padding=True,
                                          return_tensors="pt", return_dict=True)
    with torch.no_grad():
        out = model.generate(**asked, max_new_tokens=new, do_sample=False)
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    width, said = asked["input_ids"].shape[1], []
    for row, pad in zip(out.tolist(), (asked["attention_mask"] == 0).sum(1).tolist(), strict=True):
        tokens = row[width:]
        tokens = tokens[: next((i + 1 for i, t in enumerate(tokens) if t in ends), new)]
        said.append({"prompt": row[pad:width], "tokens": tokens, "version": transformers.__version__,
                     "text": tokenizer.decode(tokens, skip_special_tokens=True)})
    return said


def we_say(folder: str, questions: list[str], new: int) -> tuple[object, object, list[dict]]:
    from postgrad.records import Prompt
    from postgrad.resolve.models import open_model
    from postgrad.sampling import LocalSampler, Sampling
    model, chat = open_model(folder)
    settings = Sampling(max_new_tokens=new, temperature=0)
    said = [row for (row,) in LocalSampler(model, chat).sample([Prompt.ask(q) for q in questions], 1,
                                                               settings, 0)]
    return (model, chat,
            [{"prompt": list(r.prompt_tokens), "tokens": list(r.tokens), "text": r.text} for r in said])


def difference(model, chat, ours: dict, theirs: dict) -> dict | None:
    """Where two replies part, and by how many nats we prefer our token; None where they say the same."""
    import torch
    said = {"ours": ours["text"], "theirs": theirs["text"], "gap": float("inf")}
    mine, other = ours["tokens"], theirs["tokens"]
    if ours["prompt"] != theirs["prompt"]:
        return {"where": "the prompt", **said}
    if mine == other:
        return None if ours["text"] == theirs["text"] else {"where": "the text of the same tokens", **said}
    at = next((i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b),
              min(len(mine), len(other)))
    if at == min(len(mine), len(other)):
        return {"where": f"token {at}: {'they go on' if len(other) > at else 'they stop'}", **said}
    with torch.no_grad():
        logits = model.logits(torch.tensor([ours["prompt"] + mine[:at]]))[0, -1]
    return {"where": f"token {at}", **said, "gap": float(logits[mine[at]] - logits[other[at]])}


def trained(home: Path) -> str:
    """A small model after a few steps of training, as a run leaves it."""
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes import start
    recipe, config = config_from_text("sft:words", ["steps=4", "examples=64", "rows_per_step=16"])
    return str(start(recipe, config, home / "run").latest())


def elsewhere(python: str, folder: str, questions: list[str], new: int) -> list[dict]:
    """What vLLM says, asked in its own interpreter."""
    with tempfile.TemporaryDirectory() as home:
        asked, said = Path(home) / "asked.json", Path(home) / "said.json"
        asked.write_text(json.dumps([folder, questions, new]))
        done = subprocess.run([python, __file__, "--child", str(asked), str(said)], capture_output=True,
                              text=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "Error" in line]
            raise ValueError(f"vLLM did not open {folder}: "
                             f"{lines[-1][:300] if lines else done.stderr[-300:]}")
        return json.loads(said.read_text())


def compare(name: str, command: str, model, chat, ours: list[dict],
            theirs: list[dict]) -> tuple[dict, list[dict]]:
    """A bar, and the replies that differ."""
    from results import bar
    found = [(i, difference(model, chat, a, b)) for i, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    parted = [{"question": i, **d} for i, d in found if d]
    prompts = sum(a["prompt"] == b["prompt"] for a, b in zip(ours, theirs, strict=True))
    ties = [d for d in parted if abs(d["gap"]) < TIE]
    measured = f"{len(ours) - len(parted)} of {len(ours)} replies the same, {prompts} prompts the same"
    if ties:
        measured += f"; {len(ties)} part at a tie of {max(abs(d['gap']) for d in ties):.1g} nats or less"
    if endless := sum("they go on" in d["where"] for d in parted):
        measured += f"; {endless} do not end there where they end here"
    title = f"{name}: greedy text as in {theirs[0]['library']} {theirs[0]['version']} (float32)"
    return bar(title, f"all the same but for ties under {TIE:g} nats", measured, len(ties) == len(parted),
               command), parted


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("--model",
                   help="a model's folder, a run or an embedded model (default: a small one is trained)")
    p.add_argument("--vllm", metavar="PYTHON", help="the interpreter of an environment that has vLLM")
    p.add_argument("--prompts", metavar="FILE", help="questions, one a line (default: 20 of our own)")
    p.add_argument("--new", type=int, default=64, help="tokens of a reply at most")
    p.add_argument("--out", metavar="FILE", help="the bars, as JSON")
    args = p.parse_args()
    questions = Path(args.prompts).read_text().splitlines() if args.prompts else list(QUESTIONS)
    with tempfile.TemporaryDirectory() as home:
        from postgrad.resolve.models import open_folder
        folder = str(open_folder(args.model).resolve()) if args.model else trained(Path(home))
        name = Path(args.model).name if args.model else "trained"
        command = f"python proofs/opens.py{f' --model {args.model}' if args.model else ''}"
        model, chat, ours = we_say(folder, questions, args.new)
        sides = {"transformers": transformers_says(folder, questions, args.new)}
        if args.vllm:
            sides["vLLM"] = elsewhere(args.vllm, folder, questions, args.new)
    bars = []
    for library, theirs in sides.items():
        theirs = [{**reply, "library": library} for reply in theirs]
        row, parted = compare(name, command + (" --vllm PYTHON" if library == "vLLM" else ""), model, chat,
                              ours, theirs)
        bars.append(row)
        print(f"{row['name']}: {row['measured']}")
        for d in parted:
            print(f"  {questions[d['question']]!r} parts at {d['where']}, gap {d['gap']:.2g}")
            print(f"    {d['ours']!r}\n    {d['theirs']!r}")
    if args.out:
        Path(args.out).write_text(json.dumps(bars, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        Path(sys.argv[3]).write_text(json.dumps(vllm_says(*json.loads(Path(sys.argv[2]).read_text()))))
    else:
        main()
