"""A GRPO step of 128 samples of 62 tokens through transformers, part by part:
rows in slots, with and without a CUDA graph, against rows laid out anew at every token.

python bench/foreign_steps.py [--device cuda] [--kinds gpt2,llama,gemma2] [--rows 128] [--new 62]

One line of JSON for each part of each network of about a million parameters (random weights; a few rows end
early). A part that fails says so in its line, and the others go on. Seconds are the best of `--rounds` calls
after a first one; those of whole runs (`postgrad train grpo`, the first network alone) are listed by steps.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Gemma2Config, GPT2Config, LlamaConfig

from postgrad.models import find_model
from postgrad.models.chat import Chat
from postgrad.models.hf_cache import RepackedCache, SlotCache
from postgrad.models.hf_engine import HFEngine
from postgrad.models.hf_model import HFModel
from postgrad.recipes import rollouts
from postgrad.recipes.running import start_run
from postgrad.records import pad_rows
from postgrad.runs import Run
from postgrad.sampling import LocalSampler, Sampling
from postgrad.system.settings import replace_settings

GROUP = 8
TASK = '''
prompts = [{"question": f"Tom has {n} apples and buys {n + 3} more.", "answer": str(n)} for n in range(640)]

def verify(prompt, completion):
    return min(sum(c.isalpha() for c in completion) / 500, 0.99)
'''
SIZES = dict(vocab_size=1024, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, intermediate_size=352, max_position_embeddings=2048)
KINDS = {
    "gpt2": lambda: GPT2Config(vocab_size=1024, n_positions=2048, n_embd=128, n_layer=4, n_head=4,
                               bos_token_id=1, eos_token_id=2),
    "llama": lambda: LlamaConfig(**SIZES),
    "gemma2": lambda: Gemma2Config(**SIZES, head_dim=32, sliding_window=32),
}


@contextmanager
def as_before():
    """No network is right about slots: rows are laid out anew at every token."""
    right, SlotCache.is_right = SlotCache.is_right, lambda *_: False
    try:
        yield
    finally:
        SlotCache.is_right = right


@contextmanager
def without_graphs():
    def refuse(engine):
        engine.graphs = False

    rehearse, HFEngine.rehearse = HFEngine.rehearse, refuse
    try:
        yield
    finally:
        HFEngine.rehearse = rehearse


class Bench:
    def __init__(self, kind: str, args):
        self.args, self.device, self.seconds = args, args.device, {}
        # on a CPU the seconds of this process, whoever else works there
        self.clock = time.perf_counter if self.device == "cuda" else time.process_time
        chat = Chat.load(find_model("tiny-chat"))
        torch.manual_seed(0)
        network = AutoModelForCausalLM.from_config(KINDS[kind](), attn_implementation="eager"
                                                   if kind == "gemma2" else "sdpa")
        with torch.no_grad():
            for p in network.parameters():
                p.mul_(3.0 if p.dim() > 1 else 1.0)  # far from uniform
        self.model = HFModel(network.to(self.device))
        self.chat = Chat(chat.tokenizer, chat.template, bos=chat.bos, eos=chat.eos, pad=chat.pad,
                         ends=range(0, 1024, 256))
        count, long = args.rows // GROUP, args.prompt
        made = torch.Generator().manual_seed(1)
        # of several lengths, half as long to as long
        self.prompts = [torch.randint(6, 1024, (long - i % (long // 2),), generator=made).tolist()
                        for i in range(count)]
        self.seeds = list(range(count * GROUP))

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    def timed(self, work, rounds: int) -> tuple[float, float]:
        """The first call and the best of the others, in seconds."""
        times = []
        for _ in range(rounds + 1):
            self.wait()
            began = self.clock()
            work()
            self.wait()
            times.append(self.clock() - began)
        return times[0], min(times[1:])

    def sampled(self, name: str, rounds: int) -> dict:
        sampler, settings = LocalSampler(self.model, self.chat), Sampling(max_new_tokens=self.args.new)
        rows = {}

        def work():
            for together in sampler.generate(self.prompts, GROUP, self.seeds, settings):
                rows.update((row.request, row) for row in together)

        first, best = self.timed(work, rounds)
        self.seconds[name] = best
        self.rows = [rows[i] for i in range(len(self.seeds))]
        tokens, engine = sum(len(row.tokens) for row in self.rows), sampler._decoder.engine
        return {"first_s": first, "seconds": best, "tokens": tokens, "tokens_per_s": tokens / best,
                "graphs": len(sampler._decoder.graphs), "kept": type(engine.memory).__name__}

    def slots(self) -> dict:
        return self.sampled("slots", self.args.rounds) | {"tokens_hash": hash(self.written())}

    def written(self) -> tuple:
        return tuple(tuple(row.tokens) for row in self.rows)

    def logp(self) -> dict:
        """What the sampler said of its tokens against what training says of them."""
        tokens, mask = self.batch()
        with torch.no_grad():
            said = self.model.logp(tokens, mask)[0][mask].cpu()
        wrote = torch.tensor([x for row in self.rows for x in row.logp])
        gap = (said - wrote).abs()
        return {"largest": gap.max().item(), "mean": gap.mean().item(), "tokens": len(gap)}

    def batch(self):
        whole = [[*self.prompts[i // GROUP], *row.tokens] for i, row in enumerate(self.rows)]
        first = torch.tensor([len(self.prompts[i // GROUP]) for i in range(len(self.rows))])[:, None]
        last = torch.tensor([len(row) for row in whole])[:, None]
        tokens = pad_rows(whole)
        column = torch.arange(tokens.shape[1])[None]
        return tokens.to(self.device), ((column >= first) & (column < last)).to(self.device)

    def without(self) -> dict:
        graphed = self.written()
        with without_graphs():
            said = self.sampled("without", self.args.rounds)
        same = sum(a == b for a, b in zip(graphed, self.written(), strict=True))
        return said | {"same_rows": same, "of": len(graphed)}

    def laid(self) -> dict:
        """As Laid has it: what networks get that know nothing of slots."""
        slots = self.written()
        with as_before():
            said = self.sampled("laid", 1)
        assert said["kept"] == RepackedCache.__name__
        same = sum(a == b for a, b in zip(slots, self.written(), strict=True))
        return said | {"same_rows": same, "of": len(slots)}

    def training(self) -> dict:
        tokens, mask = self.batch()
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)

        def work():
            optimizer.zero_grad()
            (-self.model.logp(tokens, mask)[0].sum() / mask.sum()).backward()
            optimizer.step()

        first, best = self.timed(work, self.args.rounds)
        self.seconds["training"] = best
        return {"first_s": first, "seconds": best}

    def run(self) -> dict:
        """A whole run of `postgrad train grpo` on this network: seconds of its last steps."""
        with tempfile.TemporaryDirectory() as home:
            folder, task = Path(home, "model"), Path(home, "task.py")
            self.model.network.save_pretrained(folder)
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(find_model("tiny-chat") / name, folder)
            task.write_text(TASK)
            config = replace_settings(rollouts.RolloutConfig(task=str(task), method="grpo"), {
                "steps": 4, "rollouts.prompts_per_step": self.args.rows // GROUP, "evaluation.every": 0,
                "rollouts.group_size": GROUP, "rollouts.max_new_tokens": self.args.new,
                "model": str(folder), "device": str(self.device)})
            began = time.perf_counter()
            start_run(config, Path(home, "run"))
            whole, steps = time.perf_counter() - began, Run.open(Path(home, "run")).rows("metrics")[0]
        times = [name for name in steps[-1] if name.startswith("time/")]
        return {"whole_s": whole, "mismatch": max(row["mismatch"] for row in steps)} | {
            name: [rounded(row.get(name)) for row in steps] for name in times}

    def run_laid(self) -> dict:
        with as_before():
            return self.run()

    def step(self) -> dict:
        """Sampling and training together, and how many times faster than with rows laid out anew."""
        part = self.seconds
        mine, before = (part[name] + part["training"] for name in ("slots", "laid"))
        return {"seconds": mine, "laid_s": before, "ratio": before / mine,
                "sampling_ratio": part["laid"] / part["slots"]}


def rounded(value):
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--kinds", default=",".join(KINDS))
    for name, default in (("rows", 128), ("new", 62), ("prompt", 50), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--parts", default="slots,logp,without,training,laid,step,run,run_laid")
    args = parser.parse_args()
    first = args.kinds.split(",")[0]
    for kind in args.kinds.split(","):
        bench = Bench(kind, args)
        for part in args.parts.split(","):
            if part.startswith("run") and kind != first or part == "without" and args.device == "cpu":
                continue
            try:
                said = getattr(bench, part)()
            except Exception as error:  # the other parts go on
                said = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps({"kind": kind, "part": part} | {k: rounded(v) for k, v in said.items()}),
                  flush=True)


if __name__ == "__main__":
    main()
