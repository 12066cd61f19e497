"""Bars of docs/results/environments.* that other scripts measure, from the files that they leave in FOLDER
and in docs/results. What is not there was not measured, and does not hold.

    single-turn.json    python proofs/single_turn.py COMMIT FOLDER
    adapters.json       python proofs/adapters.py out=FOLDER/adapters.json
    serving.json        python proofs/serving.py --out FOLDER/serving.json
    kills.json          python proofs/kills.py games FOLDER
    tests.xml           python -m pytest --junitxml=FOLDER/tests.xml tests/data/environments/rows_test.py
                        tests/serving/limits_test.py tests/serving/tools_test.py
    docs/results/harnesses.json     python proofs/harnesses.py, for tiny-chat on words, and with
                        model=runs/smollm2-gsm8k suite=gsm8k:data/gsm8k tokens=200 ways=eval,chat: SmolLM2
                        after 21 of the 40 steps of postgrad train sft:gsm8k task=gsm8k:data/gsm8k
                        model=models/smollm2 optim.adapter.lora=8 rows_per_step=8 examples=400 steps=40
"""

from __future__ import annotations

import json
from pathlib import Path

import results
from results import bar

ABSENT, KILLS, NOISE, APART = "not measured", 20, 0.05, 1e-8
DOORS = {"trl": "a TRL environment class", "verifiers": "a verifiers taskset", "openenv": "an OpenEnv server"}
SERVED = {"throughput of the endpoint": ">= 0.8", "replies to 64 clients at once": "0 of 256",
          "... that are not, log-probs included": "0 of 8", "echoed log-probs": "<= 1e-5",
          "malformed requests": "1,000 of 1,000",
          "slots free after 100 dropped connections": "all, and alive"}
TESTS = {"of a later turn the tokens computed are those that were added":
             ("tests/data/environments/rows_test.py::test_of_a_later_turn_what_was_added_is_computed",),
         "the openai client: whole and streamed, tools over two turns, log-probs":
             ("tests/serving/limits_test.py::test_the_openai_client",
              "tests/serving/tools_test.py::test_the_openai_client_plays_a_game_with_tiny_tools")}
HARNESSES = {"lm-eval's GSM8K on 200 problems": ("postgrad_gsm8k", "local-chat-completions"),
             "inspect-ai on 200 problems": ("postgrad_words", "inspect-ai")}


def bars(folder: Path) -> list[dict]:
    return [single_turn(folder), *tested(folder), *doors(folder), *served(folder), *harnesses(),
            killed(folder)]


def read(path: Path):
    return json.loads(path.read_text()) if path.exists() else None


def single_turn(folder: Path) -> dict:
    found, said, good = read(folder / "single-turn.json"), ABSENT, False
    if found:
        good = found["same bits"] and found["log-probs apart"] <= APART and abs(found["time"] - 1) <= NOISE
        said = (f"{'the same' if found['same bits'] else 'other'} bits, log-probs up to "
                f"{found['log-probs apart']:.1e} apart, {found['time']:.3f} of the time")
    return bar("rollouts and steps of GRPO of one turn, against the commit before there were several",
               f"tokens and weights the same bits, log-probs within {APART:g}; processor time within "
               f"{NOISE:.0%}", said, good,
               "python proofs/single_turn.py COMMIT FOLDER")


def tested(folder: Path) -> list[dict]:
    path, made = folder / "tests.xml", []
    counts = results.tested(path, ()) if path.exists() else {}
    for what, names in TESTS.items():
        ran, wrong = (sum(counts.get(name, (0, 0))[i] for name in names) for i in (0, 1))
        every = all(counts.get(name, (0, 0))[0] for name in names)
        made.append(bar(what, "tests pass", f"{ran - wrong} of {ran} pass" if ran else ABSENT,
                        every and not wrong, f"python -m pytest {' '.join(names)}"))
    return made


def doors(folder: Path) -> list[dict]:
    command = "python proofs/adapters.py out=FOLDER/adapters.json"
    rows = {row["door"]: row for row in read(folder / "adapters.json") or ()}
    made, rises = [], []
    for door, what in DOORS.items():
        row, said = rows.get(door), ABSENT
        if row:
            said = (f"{row['package']}: {row['collections']} collections, {row['errors']:g} faults, reward "
                    f"{row['reward_first']:.2f} to {row['reward_last']:.2f}, success {row['before']:.2f} to "
                    f"{row['after']:.2f}")
            rises += [door] if row["reward_last"] > row["reward_first"] else []
        made.append(bar(f"{what} trains unchanged", "a short run without a fault", said,
                        bool(row) and row["errors"] == 0, command))
    return [*made, bar("... and the reward rises", "on one at least", ", ".join(rises) or ABSENT, bool(rises),
                       command)]


def served(folder: Path) -> list[dict]:
    """As proofs/serving.py gave them."""
    found = read(folder / "serving.json") or ()
    return [next((row for row in found if row["name"].startswith(name)),
                 bar(name, target, ABSENT, False, "python proofs/serving.py --out FOLDER/serving.json"))
            for name, target in SERVED.items()]


def harnesses() -> list[dict]:
    rows = (read(results.RESULTS / "harnesses.json") or {"tables": {"Figures": ()}})["tables"]["Figures"]
    made = []
    for what, (task, way) in HARNESSES.items():
        row = next((row for row in rows if row["task"] == task and row.get(way) is not None), None)
        apart = row.get("replies that differ", "replies not compared: an unknown number of") if row else None
        said = f"{row[way]:g} and {row['postgrad eval']:g}, {apart} replies differ" if row else ABSENT
        made.append(bar(f"{what} against the server, and postgrad eval", "one figure, and the same replies",
                        said, apart == 0 and row["equal"] and row["problems"] >= 200,
                        "python proofs/harnesses.py"))
    return made


def killed(folder: Path) -> dict:
    rows = read(folder / "kills.json") or ()
    same = sum(not row["differences"] for row in rows)
    return bar("runs over several turns killed at random and resumed", f"{KILLS} of {KILLS} the same bits",
               f"{same} of {len(rows)}" if rows else ABSENT, same == len(rows) >= KILLS,
               "python proofs/kills.py games FOLDER")
