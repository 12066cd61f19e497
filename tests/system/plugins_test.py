"""Names that an installed package registers, and the seams by object, by file and by plugin name."""

import subprocess
import sys

import pytest

import postgrad as pg
from postgrad.resolve.rewards import parse_reward
from postgrad.system import plugins

PLUGIN = '''
import postgrad as pg

def short(prompt, text):
    """shorter replies"""
    return 1 / (1 + len(text))

def load_reverse(name):
    rows = [{"question": f"Reverse: {word}", "answer": word[::-1]} for word in ("abc", "xyz", "hat")]
    return pg.make_task(rows, lambda prompt, text: prompt.answer == text.strip(), name=name,
                        gold=lambda prompt: prompt.answer)

def register():
    pg.register_reward("short", short)
    pg.register_task("reverse", load_reverse)
    pg.register(pg.method("grpo", name="grpo_wide", high=0.5))
'''


def install(folder, name, text, entry):
    """A distribution with one plugin, as pip leaves it on sys.path."""
    (folder / f"{name}.py").write_text(text)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[postgrad.plugins]\n{name} = {entry}\n")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    install(tmp_path, "broken_pack", "import missing_module\n", "broken_pack")
    install(tmp_path, "good_pack", PLUGIN, "good_pack:register")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins._Loaded, "done", False)
    yield tmp_path
    pg.METHODS.pop("grpo_wide", None)
    for registry in (sys.modules["postgrad.data.tasks"]._REGISTERED,
                     sys.modules["postgrad.rewards.named"]._REGISTERED):
        registry.entries.clear()


def test_names_of_a_plugin_are_found_and_a_broken_one_is_named(installed, capsys):
    task = pg.load_task("reverse")
    assert task.name == "reverse" and {p.answer for p in task.prompts("train", 9, 0)} <= {"cba", "zyx", "tah"}
    wide = pg.method("grpo_wide", low=0.1)
    assert wide.saved() == {"name": "grpo_wide", "low": 0.1}  # so that a run finds it again
    assert parse_reward("number+0.2*short").best_score(task) == 1.2
    assert parse_reward("short").verifier(pg.Prompt.ask("Hi"), "abc").score == 0.25
    assert pg.load_task("words+reverse").meta["parts"] == ("words", "reverse")
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "ModuleNotFoundError: No module named 'missing_module'" in told
    with pytest.raises(ValueError, match=r"no task 'revers': did you mean 'reverse'\?"):
        pg.load_task("revers")


def test_plugins_are_loaded_when_a_name_is_unknown_and_not_before(installed):
    code = ("import sys, postgrad as pg; task = pg.load_task('words'); pg.method('grpo'); "
            "assert 'good_pack' not in sys.modules; pg.load_task('reverse'); "
            "assert 'good_pack' in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=installed, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize(("register", "name", "why"), [
    (pg.register_task, "words", "built-in task 'words'"), (pg.register_task, "a b", "letters, digits"),
    (pg.register_reward, "number", "built-in reward 'number'")])
def test_a_name_that_is_taken_or_no_name_is_refused(register, name, why):
    with pytest.raises(ValueError, match=why):
        register(name, lambda *args: 0.0)


def test_a_reward_of_a_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def reward(prompt, text): return 1.0\ndef half(prompt, text): return 0.5\n")
    for spec, score in ((str(file), 1.0), (f"{file}:half", 0.5)):
        assert parse_reward(spec).verifier(pg.Prompt.ask("Hi"), "").score == score
    with pytest.raises(ValueError, match="defines no `third`"):
        parse_reward(f"{file}:third")
