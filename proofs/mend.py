"""What a second look found, and what holds now: each fault's tests, and the corpora that were grown by its
class.

    python proofs/mend.py FOLDER        writes docs/results/mend.json and .md; about an hour on two cores
    python proofs/mend.py renew FOLDER  the same with what FOLDER has; the rest stays as it was measured

Every part leaves its figures in FOLDER, and a part whose figures are there is not measured again.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools")]

import results  # noqa: E402
from results import bar  # noqa: E402

# the number of each fault, what it was, and the tests that failed before and pass now
MENDS = {
    "1 a reward model reads training, examination, audit and judgement at one token": (
        "tests/rewards/model_test.py",),
    "2 rejection keeps a share of the best score": (
        "tests/training/schedule_test.py::test_rejection_keeps_what_reaches_the_tasks_best",
        "tests/training/schedule_test.py::test_rejection_by_a_reward_model_names_what_does_that"),
    "3 rows carry their schedules; without a ratio a second update is refused": (
        "tests/training/schedule_test.py::test_without_a_ratio_a_second_update_is_refused",
        "tests/training/schedule_test.py::test_a_row_says_whether_it_uses_a_ratio",
        "tests/training/schedule_test.py::test_rows_draw_the_same_samples_whatever_their_schedule",
        "tests/training/schedule_test.py::test_the_clip_acts_in_a_run"),
    "4 the KL of an examination is at its own temperature": (
        "tests/training/schedule_test.py::test_an_examination_of_the_start_finds_no_distance",),
    "5 the adaptive KL moves": (
        "postgrad/maths/kl_test.py::test_sixty_collections_at_ten_times_the_target_treble_the_coefficient",
        "tests/training/rlhf_test.py::test_the_kl_coefficient_is_steered_to_its_target"),
    "6 flat groups that are left over are dropped, and none left is no update": (
        "tests/training/schedule_test.py::test_flat_groups_that_are_left_over_are_dropped",
        "tests/training/schedule_test.py::test_where_all_groups_are_flat_nothing_is_updated_and_the_run_goes_on",
        "tests/training/schedule_test.py::test_a_pass_leaves_no_group_out"),
    "7 one language verifier, parts that can be absent": ("tests/rewards/maths_test.py",),
    "8 intervals": ("tests/evaluation/examine_test.py", "postgrad/maths/intervals_test.py"),
    "9 cut replies, scaled rewards, a KL stop, repetition": (
        "tests/training/schedule_test.py::test_a_collection_is_left_after_an_update_that_went_too_far",
        "tests/training/schedule_test.py::test_replies_that_were_cut_are_compared_with_and_not_learned_from",
        "tests/training/schedule_test.py::test_rewards_are_scaled_as_zieglers_code_does",
        "tests/training/schedule_test.py::test_repetition_is_logged_as_it_is_explained"),
    "10 the same bits under load": ("tests/training/same_bits_test.py",),
    "12 generators that pay without a solution": ("tests/data/tasks/gym_test.py",),
    "13, 14 every reply scores, within bounds": ("tests/rewards/totality_test.py",),
    "15 the sandbox: undefined names, loading, modules": (
        "tests/rewards/sandbox/judge_test.py", "tests/rewards/sandbox/hostile_test.py"),
    "16 readers fair to real models": ("tests/rewards/readers_test.py",),
    "17 nothing judged is a failure; a verifier has a wall limit": ("tests/rewards/unjudged_test.py",),
    "18 run folders and files are not trusted": ("tests/models/hostile_files_test.py",
                                                 "tests/recipes/inputs_test.py"),
    "19 full disks": ("tests/system/files_test.py",),
    "20 Ctrl-C": ("tests/system/signals_test.py",),
    "21 resume": ("tests/recipes/running_test.py",),
    "22 the list of runs": ("tests/cli/runs_test.py",),
    "23 progress, held-out figures": ("tests/training/batches/collect_test.py",),
    "24 all faults of a file, skip_bad, truncate": ("tests/data/bad_rows_test.py",),
    "25 messages, ranges, order": ("tests/methods/ranges_test.py", "tests/whole/order_test.py"),
    "26 KL limits, said once": ("tests/recipes/worries_test.py",),
}
LABS = "over-optimisation"
PARTS = {"mistakes": "mistakes.py", "files": "hostile_files.py", "coverage": "interval_coverage.py",
         "replies": "totality.py", "gym": "generators.py"}


def part(folder: Path, name: str, script: str) -> list[dict]:
    """The bars of another proof."""
    path = folder / f"{name}.json"
    if not path.exists():
        subprocess.run([sys.executable, str(HERE / "proofs" / script), "--out", str(path)], cwd=HERE)
    return json.loads(path.read_text())


def mended(counts: dict[str, tuple[int, int]]) -> list[dict]:
    out = []
    for what, names in MENDS.items():
        ran = [counts.get(name, (0, 0)) for name in names]
        total, wrong = sum(n for n, _ in ran), sum(w for _, w in ran)
        out.append(bar(what, "its tests fail before and pass now", f"{total - wrong} of {total} tests pass",
                       all(n and not w for n, w in ran), "pytest " + " ".join(names)))
    return out


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted({name for group in MENDS.values() for name in group})
    bars = [*mended(results.tested(folder / "tests.xml", names)), *labs()]
    for name, script in PARTS.items():
        bars += part(folder, name, script)
    by_hand = folder / "by_hand.json"  # bars that other machines gave: make demo, make test, README
    bars += json.loads(by_hand.read_text()) if by_hand.exists() else []
    tables = {}
    if (schedules := folder / "schedules.json").exists():
        title = "The rows' schedules: one update of a collection, or their own (word problems, H200)"
        tables[title] = json.loads(schedules.read_text())
    show(bars, tables)


def labs() -> list[dict]:
    page = json.loads((results.RESULTS / "rlhf.json").read_text())
    return [row for row in page["bars"] if row["name"].startswith(LABS)]


def renew(folder: Path) -> None:
    """The page with what FOLDER has, measured anew; the rest stays as it was measured."""
    page = json.loads((results.RESULTS / "mend.json").read_text())
    found = mended(results.tested(folder / "tests.xml", [])) if (folder / "tests.xml").exists() else []
    for path in (folder / f"{name}.json" for name in (*PARTS, "by_hand")):
        found += json.loads(path.read_text()) if path.exists() else []
    new = {row["name"]: row for row in found}
    bars = [new.pop(row["name"], row) for row in results.in_place(page["bars"], LABS, labs())]
    show([*bars, *new.values()], page["tables"])


def show(bars: list[dict], tables: dict[str, list[dict]]) -> NoReturn:
    written = results.write("mend", "A second look: what was wrong, and what holds now", bars, seeds=[0],
                            tables=tables, on=results.machine() | {"cpu": platform.machine()})
    print(written.read_text())
    sys.exit(not all(row["holds"] for row in bars))


if __name__ == "__main__":
    renew(Path(sys.argv[2])) if sys.argv[1] == "renew" else main(Path(sys.argv[1]))
