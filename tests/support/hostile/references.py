"""The reference solutions of MBPP and HumanEval as jobs of the sandbox, right and spoilt."""

import gzip
import json

from paths import DATA

from postgrad.rewards.code import humaneval, mbpp, whole_program
from postgrad.rewards.sandbox import CodeJob

PATHS = (DATA / "mbpp/mbpp.jsonl", DATA / "mbpp/sanitized-mbpp.json", DATA / "humaneval/HumanEval.jsonl.gz")
DATA_IS_HERE = all(path.exists() for path in PATHS)


def references() -> dict[str, list[CodeJob]]:
    """The reference solutions as jobs, by set; empty where the data is not there."""
    if not DATA_IS_HERE:
        return {}
    rows = {
        "MBPP": [json.loads(line) for line in PATHS[0].read_text().splitlines()],
        "MBPP sanitized": json.loads(PATHS[1].read_text()),
        "HumanEval": [json.loads(line) for line in gzip.decompress(PATHS[2].read_bytes()).splitlines()],
    }
    return {
        name: [CodeJob(source=whole_program(row, row["canonical_solution"]), suite=humaneval(row))
               if name == "HumanEval" else CodeJob(source=row["code"], suite=mbpp(row)) for row in group]
        for name, group in rows.items()
    }


def spoilt(job: CodeJob) -> CodeJob:
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
    return CodeJob(source="\n".join(parts), suite=job.suite)


def others(jobs: list[CodeJob]) -> list[CodeJob]:
    """The solution of the task before, under the name that the tests call."""
    made = []
    for before, job in zip([jobs[-1], *jobs[:-1]], jobs, strict=True):
        theirs = [name for name in before.suite.names.values() if " " not in name][-1]
        names = [f"{name} = {theirs}" for name in dict.fromkeys(job.suite.names.values())
                 if " " not in name and name != theirs]
        made.append(CodeJob(source="\n".join([before.source, *names]), suite=job.suite))
    return made
