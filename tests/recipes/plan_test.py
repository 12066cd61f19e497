"""The plan against what was measured, and its clock against what can be counted."""

import json
import random
from dataclasses import replace

import pytest
from paths import ROOT
from plan_points import SMALL, points, sampling

from postgrad import methods
from postgrad.cli import main
from postgrad.models import Config
from postgrad.models.families import Architecture, ExpertSizes
from postgrad.recipes.plan import (
    BACKWARD,
    CARDS,
    FLASH2,
    MANY_FLOPS,
    Costs,
    ReplyLengths,
    Work,
    cards_named,
    plan_options,
    sampling_seconds,
    simulate,
)
from postgrad.training.memory import SIZES, Setup

PAGE = ROOT / "docs/scale.md"


def test_the_plan_is_within_15_percent_of_what_was_measured_and_the_page_says_how_far_off():
    found = points()
    assert [point.what for point in found if abs(point.off) > 0.15] == []
    page = PAGE.read_text()
    assert [point.line for point in found if point.line not in page] == []


TINY = Config(vocab_size=32, hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
              num_key_value_heads=1, head_dim=4, max_position_embeddings=64, tie_word_embeddings=True)
H100 = CARDS["H100"]


def test_attention_by_hand():
    """Two rows of 2 tokens on a prompt of 4: 4 * 4 / 2 pairs in the prompt, 2 * 2 * (4 + 1) in the replies;
    each costs 2 FLOPs a number of a query and its key, and 2 of a weight and its value: heads of 8 in all."""
    work = Work(prompts=1, group=2, prompt=4, reply=2)
    costs = Costs(TINY, H100)
    assert work.pairs == 8 + 20 and costs.flops(work)[1] == 4 * 8 * 28 * 2
    alone = Work(prompts=1, group=1, prompt=0, reply=100)
    assert costs.flops(alone)[1] == 2 * (2 * 100**2 * 8)  # of each layer
    windowed = replace(TINY, architecture=Architecture(model_type="mistral", window=3, window_layers=(0,)))
    assert Costs(windowed, H100).flops(work)[1] == 4 * 8 * (28 + 8 * 3)


def test_training_by_hand():
    """One long row: 6 FLOPs a weight and token, 8 recomputed; attention's backward pass is five products, its
    forward two; a forward pass moves a quarter of the bytes."""
    costs, work = Costs(TINY, H100), Work(prompts=1, group=1, prompt=0, reply=1000)
    layers, attention, head = 2 * 2 * (192 + 384) * 1000, 2 * (2 * 1000**2 * 8), 2 * 32 * 8 * 1000
    assert costs.flops(work) == (layers, attention, head)
    moved, headed = costs.traffic(work)
    forward, backward = (BACKWARD**i * attention / rate / H100.flops for i, rate in enumerate(FLASH2))
    assert costs.forward(work) == pytest.approx(
        (layers + head) / H100.reached_flops + (moved + headed) / 4 + forward)
    plain = 3 * (layers + head) / H100.reached_flops + moved + headed + forward + backward
    assert costs.train(work) == pytest.approx(plain)
    assert costs.train(work, recompute=True) == pytest.approx(
        plain + layers / H100.reached_flops + moved / 4 + forward)


def test_many_gpus_by_hand():
    """No faster than Llama 3's training a FLOP, nor than the link takes the weights: two gathers, one sum."""
    shape = SIZES["70B"]
    costs, work = Costs(shape, H100), Work(prompts=64, group=1, prompt=0, reply=1024, tokens_per_pass=2048)
    flops = 3 * sum(costs.flops(work)) / 64
    assert costs.train(work, 64) == pytest.approx(3 * costs.weights / H100.far)
    whole = replace(work, prompts=64 * 256, tokens_per_pass=1 << 18)
    assert costs.train(whole, 64) == pytest.approx(256 * flops / (MANY_FLOPS * H100.flops))


def test_experts_by_hand():
    """Eight of 8 x 4, 4 x 8 and 4 x 8; a token goes to two, and to a router of 8 x 8."""
    sizes = ExpertSizes(count=8, active=2, width=4)
    mixture = replace(TINY, architecture=Architecture(model_type="qwen3_moe", experts=sizes))
    costs = Costs(mixture, H100)
    assert costs.matrices == (2 * (192 + 64 + 2 * 96), 2 * 8 * 96)
    assert costs.read(1) == costs.weights - 2 * 2 * 6 * 96
    assert costs.weights - costs.read(3) == pytest.approx(2 * 2 * 8 * 96 * 0.75**3)


@pytest.mark.parametrize("ahead", [0, 1, 2, 4])
def test_the_clock_of_equal_collections_can_be_counted(ahead):
    """In step the parts add up; ahead, K + 1 collections share that time, and the longer one hides the
    shorter."""
    for sample, train in ((3.0, 2.0), (2.0, 3.0), (2.9, 3.0)):
        found = simulate(lambda rng, s=sample: s, train, 0.5, ahead)
        assert found.step == pytest.approx(max(sample, train, (sample + train + 0.5) / (ahead + 1)))
        assert found.step == pytest.approx(found.waiting + train)


def test_more_ahead_evens_out_collections_that_differ():
    steps = [simulate(lambda rng: rng.choice((1.0, 5.0)), 3.0, 0.0, ahead).step for ahead in (0, 1, 2, 4)]
    assert steps == sorted(steps, reverse=True) and steps[0] > 1.2 * steps[1] and steps[-1] >= 3.0


def test_rows_on_a_sampler_by_hand():
    """Two slots, lengths 3, 1, 2: the third begins when the second has ended."""
    seen = []

    def token(rows, at):
        seen.append((rows, at))
        return 1.0 + rows
    assert sampling_seconds([3, 1, 2], 2, token) == 3.0 * 3 and seen == [(2, 0.5), (2, 1.5)]
    assert sampling_seconds([4], 2, lambda rows, at: 2.0) == 8.0
    assert sampling(SMALL, [64] * 8) < sampling(SMALL, [64] * 512) < 64 * sampling(SMALL, [64] * 8)


def test_lengths_have_their_mean_and_their_end():
    drawn = ReplyLengths(mean=100, longest=400).draw(4000, random.Random(0))
    assert 96 < sum(drawn) / len(drawn) < 104 and max(drawn) == 400 and min(drawn) >= 1
    assert ReplyLengths(mean=1.5, longest=2).stays == pytest.approx(0.5)   # 1 + q
    assert ReplyLengths(mean=1.75, longest=3).stays == pytest.approx(0.5)  # 1 + q + q q
    long = ReplyLengths(mean=300, longest=400).draw(4000, random.Random(0))
    assert 294 < sum(long) / len(long) < 306 and long.count(400) > 1500
    assert ReplyLengths(mean=9, longest=9).draw(2, random.Random(0)) == [9, 9]
    assert ReplyLengths(mean=7, longest=9, kind="equal").draw(3, random.Random(0)) == [7, 7, 7]


def ways(size, gpus, **work):
    count, card = cards_named(gpus)
    asked = Work(**dict(prompts=16, group=4, prompt=64, reply=64) | work)
    return plan_options(SIZES[size], methods.get_method("grpo"), count, card, asked,
                   ReplyLengths(mean=64, longest=128, kind="equal"), Setup(bits=16))


def test_what_does_not_fit_is_no_way_and_what_fits_does():
    assert ways("7B", "1xRTX4090") == [] and ways("70B", "8xH100") == []
    for size, gpus in (("1B", "1xH200"), ("7B", "8xH100")):
        found = ways(size, gpus)
        assert found == sorted(found, key=lambda option: option.times.step)
        room = 0.9 * cards_named(gpus)[1].memory
        for option in found:
            assert sum(option.training.values()) <= room and sum(option.sampling.values()) <= room
            layout = option.layout
            assert (layout.trainers if layout.together else layout.trainers + layout.samplers) \
                == cards_named(gpus)[0]
    wide = [option for option in ways("70B", "64xH100", group=1) if option.layout.tensor > 1]
    assert wide and all("vLLM's" in option.notes[0] for option in wide)


def test_a_sampler_of_a_large_model_splits_its_matrices():
    """70B in bfloat16 is 138 GB: two GPUs of 80 GB have no room beside it, four and eight have; also those
    that train in turn."""
    found = {(option.layout.together, option.layout.tensor): option for option in ways("70B", "64xH100")}
    assert {tensor for _, tensor in found} == {4, 8}
    four, eight = found[True, 4], found[True, 8]
    assert four.layout.words == "64 train and sample in turn, 4 a sampler" and four.layout.engines == 16
    assert four.sampling["weights"] == 2 * eight.sampling["weights"] == Costs(SIZES["70B"], H100).weights / 4
    costs, least = Costs(SIZES["70B"], H100), Costs(SIZES["70B"], H100).fitted.layer * 80
    one, split = ((costs.token(8, 100, n) - talk)**2 - least**2 for n, talk in ((1, 0), (4, 160 * 20e-6)))
    assert one == pytest.approx(16 * split)


def test_activations_are_recomputed_where_it_pays():
    """Weights of 70B are gathered for every pass over the link between nodes: larger passes, recomputed."""
    large, small = ways("70B", "64xH100", prompts=2048, prompt=512)[0], ways("1B", "8xH100")[0]
    assert large.recompute and large.tokens_per_pass > 8192
    assert any("optim.recompute=true" in note for note in large.notes)
    assert not small.recompute and small.tokens_per_pass == 8192 and small.notes == ()


def test_more_ranks_divide_what_stands():
    one, two, four = (next(o for o in ways("1B", f"{n}xH200") if o.layout.together) for n in (1, 2, 4))
    assert four.training["optimizer"] == two.training["optimizer"] / 2 == one.training["optimizer"] / 4
    # divided layers are not compiled, and keep the gate's SiLU
    assert four.training["activations"] == two.training["activations"] > one.training["activations"]
    assert two.parts["sampling"] < one.parts["sampling"]


def test_the_command_says_it(capsys):
    small = ["plan", "1B", "--gpus", "2xH200", "--prompts", "8", "--group", "4", "--reply-tokens", "32",
             "--longest", "64"]
    assert main([*small, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["options"][0]["times"]["step"] <= said["options"][-1]["times"]["step"]
    assert main([*small, "--async-depth", "1"]) == 0
    out = capsys.readouterr().out
    assert "1 train, 1 sample" in out and "memory of a GPU" in out and "nothing past one GPU" in out
    for words, sentence in ((["--gpus", "8xH900"], "such as 8xH100"), (["--prompts", "0"], "at least 1"),
                            (["--method", "dpo"], "postgrad memory"),
                            (["--reply-tokens", "99"], "over --longest")):
        assert main([*small, *words]) == 2 and sentence in capsys.readouterr().err
    assert main(["plan", "70B", "--gpus", "2xA100"]) == 2 and "does not fit" in capsys.readouterr().err
    assert {"H100", "H200"} <= CARDS.keys()
