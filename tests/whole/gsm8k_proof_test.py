"""The proof on GSM8K: what travels comes together again, what is said follows from the figures."""

import hashlib
import json

import gsm8k
import pytest

WITHIN = {"pass@1_interval": [0.1, 0.2], "greedy_interval": [0.1, 0.2], "pass@8": 0.3, "problems": 1319}


def figures(sampled, greedy):
    return {"pass@1": sampled, "greedy": greedy, "lenient": sampled, "greedy_lenient": greedy, **WITHIN}


def test_a_file_in_parts_comes_together_again(tmp_path):
    whole = tmp_path / "model.gguf"
    whole.write_bytes(bytes(range(256)) * 9 + b"end")
    parts = gsm8k.cut(whole, tmp_path / "carried", most=200)
    assert len(parts) == 12 and all((part / "model.gguf").stat().st_size <= 200 for part in parts)
    found = gsm8k.joined(tmp_path / "carried", "model.gguf", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == whole.read_bytes()
    assert found == hashlib.sha256(whole.read_bytes()).hexdigest()


def test_settings_that_are_named_win(tmp_path):
    assert gsm8k.given(tmp_path, "1", ()) == ["task=gsm8k", "model=models/smollm2", "device=cuda", "seed=1"]
    (tmp_path / "model").mkdir()
    (tmp_path / "data").mkdir()
    assert gsm8k.given(tmp_path, "1", ("device=cpu", "lengths.last=2")) == [
        f"task=gsm8k:{tmp_path}/data", f"model={tmp_path}/model", "device=cpu", "seed=1", "lengths.last=2"]


@pytest.mark.parametrize("greedy, holds", [(0.15, True), (0.12, False)])
def test_bars_hold_by_the_mean_of_three_seeds(tmp_path, greedy, holds):
    assert not any(bar["holds"] for bar in gsm8k.bars(tmp_path))
    for number, (seed, sampled) in enumerate(zip(gsm8k.SEEDS, (0.11, 0.12, 0.14), strict=True)):
        (tmp_path / f"gsm8k-{seed}").mkdir()
        measured = {"sft": figures(0.06, 0.09), "grpo": figures(0.09, 0.11), "last": figures(sampled, greedy)}
        (tmp_path / f"gsm8k-{seed}/summary.json").write_text(json.dumps({"measured": measured}))
        (tmp_path / f"clock-{seed}.json").write_text(json.dumps({"began": 60.0 * number, "ended": 1400.0}))
    first, *reported, minutes = gsm8k.bars(tmp_path)
    assert first["holds"] is holds
    assert first["measured"].startswith(f"12.3% and {greedy:.1%}: seed {gsm8k.SEEDS[0]}: pass@1 11.0%")
    assert all(bar["holds"] for bar in reported) and "9.0% and 11.0%" in reported[1]["measured"]
    assert (minutes["measured"], minutes["holds"]) == ("23.3", True)
