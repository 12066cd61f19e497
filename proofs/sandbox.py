"""What the sandbox pays, what it refuses, and what a verdict costs.

    python proofs/sandbox.py [FILE]      prints the table, and writes the bars to a file; about a minute and a
                                         half on one core
MBPP and HumanEval are read from the folder $POSTGRAD_DATA (by default ../shared/data beside the repository).
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/support"), str(ROOT / "tools")]

from hostile.arena import HONEST, CHEAT_SUITE, arena, cheat_jobs, family, left_running  # noqa: E402, I001
from hostile.escapes import ESCAPES  # noqa: E402
from postgrad.rewards.code import humaneval, mbpp, whole_program  # noqa: E402
from postgrad.rewards.sandbox import Job, CodeJudge, tier  # noqa: E402
from results import bar  # noqa: E402

DATA = Path(os.environ.get("POSTGRAD_DATA", ROOT.parent / "shared" / "data"))
REFERENCE_SECONDS, HOSTILE_SECONDS = 20.0, 1.0  # MBPP 123 computes for about five seconds


PATHS = (DATA / "mbpp/mbpp.jsonl", DATA / "mbpp/sanitized-mbpp.json", DATA / "humaneval/HumanEval.jsonl.gz")
DATA_IS_HERE = all(path.exists() for path in PATHS)


def references() -> dict[str, list[Job]]:
    """The reference solutions as jobs, by set; empty where the data is not there."""
    if not DATA_IS_HERE:
        return {}
    rows = {
        "MBPP": [json.loads(line) for line in PATHS[0].read_text().splitlines()],
        "MBPP sanitized": json.loads(PATHS[1].read_text()),
        "HumanEval": [json.loads(line) for line in gzip.decompress(PATHS[2].read_bytes()).splitlines()],
    }
    return {
        name: [Job(source=whole_program(row, row["canonical_solution"]), suite=humaneval(row))
               if name == "HumanEval" else Job(source=row["code"], suite=mbpp(row)) for row in group]
        for name, group in rows.items()
    }


def spoilt(job: Job) -> Job:
    """The same solution with its last answer changed: a list around it, a number more,
    a truth turned round."""
    parts = [job.source, "def _spoil(g):\n"
             "    def h(*a, **k):\n"
             "        v = g(*a, **k)\n"
             "        if isinstance(v, bool): return not v\n"
             "        if isinstance(v, (int, float, complex)): return 2 * v + 1\n"
             "        return [v, 'wrong'] if v else 1\n"
             "    return h"]
    parts += [f"{name} = _spoil({name})" for name in sorted(set(job.suite.names.values())) if " " not in name]
    return Job(source="\n".join(parts), suite=job.suite)


def others(jobs: list[Job]) -> list[Job]:
    """The solution of the task before, under the name that the tests call."""
    made = []
    for before, job in zip([jobs[-1], *jobs[:-1]], jobs, strict=True):
        theirs = [name for name in before.suite.names.values() if " " not in name][-1]
        names = [f"{name} = {theirs}" for name in dict.fromkeys(job.suite.names.values())
                 if " " not in name and name != theirs]
        made.append(Job(source="\n".join([before.source, *names]), suite=job.suite))
    return made


def row(name: str, jobs: list[Job], judge: CodeJudge, wanted: str) -> dict:
    start = time.monotonic()
    outcomes = judge.outcomes(jobs)
    kinds = Counter(outcome.kind for outcome in outcomes)
    return {
        "what": name, "jobs": len(jobs),
        **{kind: kinds[kind] for kind in ("pass", "fail", "timeout", "infrastructure")}, "wanted": wanted,
        "ms_median": 1e3 * statistics.median(o.seconds for o in outcomes),
        "slowest_s": max(o.seconds for o in outcomes), "per_s": len(jobs) / (time.monotonic() - start),
    }


def table(*, workers: int = 1) -> list[dict]:
    """One row per set of programs: how many are judged how, the median and slowest verdict,
    and verdicts a second.

    A verdict's time runs from two children in their jails to the outcome, which is what the limit is held
    against; per_s counts everything, the forks and the reaping too.
    """
    rows = []
    with CodeJudge(workers=workers, seconds=REFERENCE_SECONDS) as judge:
        judge.verdicts([Job(source=HONEST, suite=CHEAT_SUITE)] * workers)  # the zygotes start
        rows.append(row("one honest program, over and over", [Job(source=HONEST, suite=CHEAT_SUITE)] * 300,
                        judge, "all paid"))
        for name, jobs in references().items():
            rows.append(row(f"{name}: reference solutions", jobs, judge, "paid"))
            rows.append(row(f"{name}: their answers changed", [spoilt(job) for job in jobs], judge, "0 paid"))
            rows.append(row(f"{name}: solutions of other tasks", others(jobs), judge, "few paid"))
    with (CodeJudge(workers=workers, seconds=HOSTILE_SECONDS) as judge,
          tempfile.TemporaryDirectory() as folder):
        judge.verdicts([Job(source=HONEST, suite=CHEAT_SUITE)] * workers)
        with arena(Path(folder) / "arena") as at:
            before = family()
            rows.append(row("hostile programs", [at.job(source) for source in ESCAPES.values()], judge,
                            "0 paid"))
            rows[-1] |= {"harm": at.harm(), "left_running": len(left_running(before))}
        rows.append(row("judge cheats", cheat_jobs(), judge, "0 paid"))
    return rows


def cost(count: int = 500) -> float:
    """Processor milliseconds of one verdict, all processes together:
    unlike wall time, not a matter of who else is at work."""
    def used():
        return sum(sum(resource.getrusage(who)[:2])
                   for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))

    def spent(jobs):
        start = used()
        with CodeJudge(workers=1) as judge:
            judge.verdicts([Job(source=HONEST, suite=CHEAT_SUITE)] * jobs)
        return used() - start

    return 1e3 * (spent(count + 1) - spent(1)) / count


def bars(rows: list[dict], each: float) -> list[dict]:
    """What issue and README say of the sandbox, from the table."""
    command = "python proofs/sandbox.py"
    named = {row["what"]: row for row in rows}
    told = [(name, named[f"{name}: reference solutions"], named[f"{name}: their answers changed"])
            for name in references()]
    hostile, cheats = named["hostile programs"], named["judge cheats"]
    attacks, late = [hostile, cheats], HOSTILE_SECONDS + 0.5
    return [
        *(bar(f"sandbox: reference solutions of {name} are paid", ">= 99 %",
              f"{good['pass']} of {good['jobs']}", good["pass"] >= 0.99 * good["jobs"], command)
          for name, good, _ in told),
        bar("sandbox: the same with their answers changed are not", "0 paid",
            f"{sum(bad['pass'] for *_, bad in told)} of {sum(bad['jobs'] for *_, bad in told):,}",
            not any(bad["pass"] for *_, bad in told), command),
        bar("sandbox: hostile programs and judge cheats", ">= 60 and >= 20; 0 escapes, 0 paid",
            f"{hostile['jobs']} and {cheats['jobs']}; harm: {hostile['harm'] or 'none'}, left running: "
            f"{hostile['left_running']}, paid: {sum(row['pass'] for row in attacks)}",
            hostile["jobs"] >= 60 and cheats["jobs"] >= 20
            and not (hostile["harm"] or hostile["left_running"]) and not any(row["pass"] for row in attacks),
            command),
        bar("sandbox: their slowest verdict", f"<= {late} s (limit {HOSTILE_SECONDS} s)",
            f"{max(row['slowest_s'] for row in attacks):.2f} s",
            max(row["slowest_s"] for row in attacks) <= late, command),
        bar("sandbox: cost of an honest verdict", ">= 25 verdicts/s per core",
            f"{each:.1f} ms of processor time, {1e3 / each:.0f} verdicts/s per core", 1e3 / each >= 25,
            command)]


def main() -> None:
    print(f"tier: {tier()}; data: {'found' if DATA_IS_HERE else f'none in {DATA}'}")
    each, rows = cost(), table()
    print(f"an honest verdict: {each:.1f} ms of processor time, {1e3 / each:.0f} verdicts/s per core")
    keys = ("jobs", "pass", "fail", "timeout", "infrastructure", "ms_median", "slowest_s", "per_s")
    print(f"{'':<42}" + "".join(f"{key.replace('infrastructure', 'infra'):>11}" for key in keys) + "  wanted")
    for line in rows:
        cells = "".join(f"{line[key]:>11.2f}" if isinstance(line[key], float) else f"{line[key]:>11}"
                        for key in keys)
        more = (f"; harm: {line['harm'] or 'none'}, left running: {line['left_running']}" if "harm" in line
                else "")
        print(f"{line['what']:<42}{cells}  {line['wanted']}{more}")
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(json.dumps(bars(rows, each), indent=1) + "\n")


if __name__ == "__main__":
    main()
