"""The walks through code: each step speaks of lines that are there, in the function that it names."""

import ast
import re

import pytest
from book_small import client
from paths import ROOT

from postgrad.methods import METHODS
from postgrad.recipes.pipelines import r1
from postgrad.studio.book import chapters, inline, walks

WALKS = walks.all_walks()


@pytest.mark.parametrize("name", WALKS)
def test_each_step_stands_in_the_source_as_it_is(name):
    """Read again here, from the file: the lines of a source are its lines, and lie in what it names."""
    walk = WALKS[name]
    files = {source.code: source.file for source in walk.sources}
    for source in walk.sources:
        lines = (ROOT / source.file).read_text().splitlines()
        indent = 4 if source.code.startswith("the row") else 0
        for line in source.lines:
            assert not line.number or lines[line.number - 1][indent:] == line.text
    for step in walk.steps:
        if not step.code.startswith("the row"):
            tree = ast.parse((ROOT / files[step.code]).read_text())
            node = next(n for n in tree.body if getattr(n, "name", "") == step.code.rpartition(".")[2])
            assert node.lineno <= step.first <= step.last <= node.end_lineno
    assert len(walk.steps) >= 8 and len({step.code for step in walk.steps}) >= 4


def test_a_step_that_has_gone_stale_is_named():
    step = {"code": "maths.weights.token_mean", "says": "Words."}
    for change, said in (({"from": "no such line"}, "walk x, step 1: 0 lines of maths.weights.token_mean"),
                         ({"from": "m"}, r"step 1: \d+ lines"),
                         ({"from": "return mask", "to": "def token_mean"}, "stands above"),
                         ({"from": "x", "code": "maths.weights.gone"}, "has no 'gone'"),
                         ({"from": "x", "row": "gone"}, "no row 'gone'")):
        with pytest.raises(LookupError, match=said):
            walks.read_walk("x", {"title": "", "about": "", "step": [step | change]})


def test_a_long_function_is_cut_to_its_head_and_its_steps():
    source = next(s for s in WALKS["nano"].sources if s.code.endswith("RolloutSource"))
    assert source.lines[0].text.startswith("class RolloutSource") and source.lines[1].number == 0
    assert len(source.lines) < 20 and sum(bool(line.steps) for line in source.lines) == 3


def test_what_the_walks_say_is_so():
    """The four stages in their order, each told; and a row without KL, ratio and division."""
    told = [inline.plain_text(step.says) for step in WALKS["r1"].steps]
    stages = [re.match(r"The (\w+) stage[ ,]", text) for text in told]
    assert [m[1] for m in stages if m] == ["first", "first", "second", "third", "fourth"]
    order = [step.name for step in r1.pipeline(r1.R1Config()).steps]
    assert [order.index(name) for name in ("cold", "reasoning", "kept", "sft", "reward", "last")] == sorted(
        order.index(name) for name in ("cold", "reasoning", "kept", "sft", "reward", "last"))
    nano, grpo = METHODS["nano"], METHODS["grpo"]
    assert not nano.kl_in_loss and not nano.kl_in_reward and not nano.needs_reference and not nano.ratio
    assert (nano.credit.__name__, grpo.credit.__name__) == ("group_centre", "group_zscore")
    assert not nano.resample_flat and nano.updates(8) == 1


def test_a_page_holds_its_walk(tmp_path):
    studio = client(tmp_path)
    for name, found in (("r1", chapters.chapter("reasoning")), ("nano", chapters.chapter("workshop"))):
        text = studio.get(found.layer_address("implementation")).text
        assert text.count('id="walk-') == 1 and f'id="walk-{name}-title"' in text and "guide.js" in text
        marks = " ".join(re.findall(r'class="row" data-step="([\d ]+)"', text))
        assert set(map(int, marks.split())) == set(range(1, len(WALKS[name].steps) + 1))
