"""Sampling and GRPO of one turn, by an earlier commit and by this checkout: the same bits, and the time.

    python proofs/single_turn.py COMMIT FOLDER      writes FOLDER/single-turn.json

Both sides run turn by turn, each round in a process of its own; the time is processor time, the least of each
side's rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE, ROUNDS = Path(__file__).resolve().parent.parent, 3
RUN = """
import hashlib, json, tempfile, time
from pathlib import Path
from safetensors.torch import load_file
from postgrad import fit
from postgrad.models.chat import Chat
from postgrad.models import find_model, load_model
from postgrad.sampling import LocalSampler, Sampling
from postgrad.data.tasks import load_task
model, chat = load_model("tiny-chat").requires_grad_(False), Chat.load(find_model("tiny-chat"))
sampler, prompts = LocalSampler(model, chat), load_task("words").prompts("test", 32, 0)
settings = Sampling(max_new_tokens=64)
sampler.sample(prompts[:4], 4, settings, 1)
began = time.process_time()
made = [r for group in sampler.sample(prompts, 8, settings, 7) for r in group]
took = time.process_time() - began
with tempfile.TemporaryDirectory() as folder:
    run = fit("tiny-chat", "grpo", task="words", steps=2, seed=3, run=Path(folder) / "run", watch=None,
              evaluation={"every": 0}, rollouts={"prompts_per_step": 4, "group_size": 4})
    files = sorted(Path(run.folder).glob("checkpoints/*/model.safetensors"))
    weights = b"".join(x.numpy().tobytes() for path in files for _, x in sorted(load_file(path).items()))
print(json.dumps({"seconds": took, "weights": hashlib.sha256(weights).hexdigest(),
                  "tokens": [r.tokens for r in made], "logp": [x for r in made for x in r.logp]}))
"""


def once(place: Path) -> dict:
    env = os.environ | {"PYTHONPATH": str(place), "OMP_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", RUN], cwd=place, check=True, text=True, env=env,
                          stdout=subprocess.PIPE).stdout
    return json.loads(said.splitlines()[-1])


def main(commit: str, folder: Path) -> None:
    before = folder / "before"
    before.mkdir(parents=True, exist_ok=True)
    files = subprocess.run(["git", "-C", HERE, "archive", commit], check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", before], input=files, check=True)
    sides = {"before": [], "now": []}
    for _ in range(ROUNDS):
        for name, place in (("before", before), ("now", HERE)):
            sides[name].append(once(place))
    least = {name: min(row["seconds"] for row in rows) for name, rows in sides.items()}
    first, *others = [row for rows in sides.values() for row in rows]
    found = {"commit": commit, "rollouts": len(first["tokens"]),
             "same bits": all((row["tokens"], row["weights"]) == (first["tokens"], first["weights"])
                              for row in others),
             "log-probs apart": max(abs(a - b) for row in others
                                    for a, b in zip(first["logp"], row["logp"], strict=False)),
             "time": least["now"] / least["before"], "seconds": least}
    (folder / "single-turn.json").write_text(json.dumps(found, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]).resolve())
