"""Episodes through the doors: trained, cut short and resumed to the same bits, evaluated and logged, from
objects and from a task file; what is wrong with one is said before any training."""

import json
import re

import pytest
from doors import fit

import postgrad as pg
from postgrad.cli import main
from postgrad.studio.runs import samples as shown
from tests.recipes.resume_test import cut, same

ASK = [{"question": f"Say {n}.", "answer": n} for n in range(12)]


def more(prompt, rng):
    """Two replies; longer ones are better, and a secret of the environment counts too."""
    first = yield [{"role": "user", "content": f"Begin, {rng.randint(0, 9)}."}]
    second = yield [{"role": "user", "content": "More."}]
    letters = len(set(first.text)), len(set(second.text))
    return pg.Verdict(score=sum(letters) / 100, per_turn=(letters[0] / 100,))


def task(play=more, **parts):
    return pg.make_task(ASK, play=play, name="more", tokens=12, turns=2, **parts)


def test_a_run_on_episodes_goes_on_to_the_same_bits(tmp_path):
    """gspo makes two updates of a collection, so that a checkpoint holds episodes that wait."""
    given = {"task": task(), "temperature": 0.7, "rollouts": {"max_new_tokens": 24}}
    whole, run = cut(tmp_path, "gspo", **given)
    same(pg.resume(run, task=task(), display=False), whole)
    row = whole.metrics()[-1]
    assert 1 <= row["turns"] <= 2 and row["new_rows"] == 0 and row["errors"] == 0
    sample = max(whole.samples(), key=lambda sample: len(sample.get("turns", ())))
    roles = [turn["role"] for turn in sample["turns"]]
    assert roles == ["assistant", "user", "assistant"]
    gap = slice(sample["turns"][1]["start"], sample["turns"][1]["end"])
    assert not any(sample["columns"]["mask"][gap]) and not any(sample["columns"]["adv"][gap])
    looks = [token["look"] for token in shown.token_strip(sample, "mask", 1.0)]
    assert looks.count("given") == len(sample["prompt_tokens"]) + gap.stop - gap.start
    with pytest.raises(ValueError, match="the task that was handed in is not the one"):
        pg.resume(run, task=task(lambda prompt, rng: more(prompt, rng)), display=False)


FILE = '''
"""Guess one of three."""
from postgrad import Verdict

prompts = [{"question": f"Guess {n}.", "answer": n % 3} for n in range(30)]
turns = 3


def double(n: int) -> int:
    """Twice a number."""
    return 2 * n


tools = [double]


def play(prompt, rng):
    reply = yield ()
    while reply.tool_calls:
        reply = yield [call.message() for call in reply.tool_calls]
    return Verdict(score=float(reply.text == str(prompt.answer)))


def gold(prompt, messages):
    return str(prompt.answer)
'''


def test_a_task_file_that_plays(tmp_path, capsys):
    (tmp_path / "three.py").write_text(FILE)
    run = fit(tmp_path, "grpo", model="tiny-tools", task=str(tmp_path / "three.py"), steps=1, save_every=1)
    assert run.metrics()[-1]["turns"] >= 1
    main(["eval", "tiny-tools", "--task", str(tmp_path / "three.py"), "--problems", "3", "--samples", "2",
          "--json"])
    row = json.loads(capsys.readouterr().out)
    assert row["task"] == "three" and 0 <= row["pass@1"] <= 1 and row["errors"] == 0


def test_tools_that_the_template_would_not_show_are_refused_before_the_run(tmp_path, capsys):
    (tmp_path / "three.py").write_text(FILE)
    place, said = str(tmp_path / "three.py"), "task three has tools (double), and the model's chat template"
    with pytest.raises(ValueError, match=re.escape(said)):
        fit(tmp_path, "grpo", task=place)
    assert not (tmp_path / "run").exists()
    for command in (["eval", "tiny-chat", "--task", place], ["chat", "tiny-chat", "--task", place]):
        assert main(command) == 2 and said in capsys.readouterr().err


@pytest.mark.parametrize(("change", "said"), [
    (("return str(prompt.answer)", "return '9'"), "three.py, line 17: play pays .* to the gold player"),
    (("tools = [double]", "tools = double"), "three.py, line 14: `tools` must be a list of functions"),
    (("turns = 3", "turns = 'x'"), "three.py, line 6: `turns` must be a whole number"),
    (("reply = yield ()", "reply = yield (); 1 / 0"), "play failed with the silent player"),
    (("reply.text == str(prompt.answer)", "1"), "play pays the full 1 to a player who says nothing"),
    (("def play", "play = 3\n\n\ndef other"), "`play` must be a function"),
    (("def double(n: int)", "def double(*n)"), r"three.py, line 14: tool double: \*n has no schema")])
def test_a_faulty_file_is_named(tmp_path, change, said):
    assert change[0] in FILE
    (tmp_path / "three.py").write_text(FILE.replace(*change))
    with pytest.raises(ValueError, match=said):
        pg.load_task(tmp_path / "three.py")


def test_who_judges_has_to_be_said():
    with pytest.raises(ValueError, match="a task needs who judges: verify, .* or play"):
        pg.make_task(ASK)
    with pytest.raises(ValueError, match="task guess plays over several turns, so it is no part of"):
        pg.load_task("guess+words")
