"""A class plays in TRL's own trainer and through env:trl: the same question, results and pay."""

import random
from pathlib import Path

import pytest
from talks import STYLES

from postgrad.data.tasks import load_task
from postgrad.data.tasks.games import play_game
from postgrad.system.user_code import load_file
from tests.data.tasks.adapters_test import TRL, calls

SAYS = [calls(("later", 1), ("add", 2), ("add", -1)), calls(("add", 1)), "done"]
KEPT = '''
seen = []


def kept(prompts, completions, environments, start, **kwargs):
    seen.append((prompts[0], completions[0], start[0], environments[0].get_reward()))
    return [0.0] * len(prompts)


reward_funcs = [spoken, nobody, kept]
'''


@pytest.fixture
def trl(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    return pytest.importorskip("trl", reason="TRL is the other side of this test: pip install -e '.[test]'")


def scripted_trainer(trl, module, folder):
    """TRL's trainer on a model of random weights, whose replies are those of the script."""
    from datasets import Dataset
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=STYLES["qwen3"]().tokenizer, eos_token="<|im_end|>",
                                        pad_token="<|im_end|>", chat_template=template)
    small = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
             "num_key_value_heads": 1, "max_position_embeddings": 4096}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), **small))
    script = iter(SAYS)

    class Scripted(trl.GRPOTrainer):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            ids = [*tokenizer.encode(next(script), add_special_tokens=False), tokenizer.eos_token_id]
            return [ids] * len(prompt_ids), None

    settings = trl.GRPOConfig(str(folder), use_cpu=True, report_to=[], num_generations=2, bf16=False,
                              per_device_train_batch_size=2, max_completion_length=2000, max_steps=1)
    return Scripted(model, reward_funcs=module.reward_funcs, args=settings, processing_class=tokenizer,
                    train_dataset=Dataset.from_list(module.train_dataset), environment_factory=module.Counter)


def test_the_same_in_trl_s_trainer(trl, tmp_path):
    file = tmp_path / "my_env.py"
    file.write_text(TRL + KEPT)
    module = load_file(file, "theirs")
    trainer = scripted_trainer(trl, module, tmp_path / "out")
    task = load_task(f"env:trl:{file}:Counter")
    prompt = task.prompts("train", 1, 0)[0]
    random.seed(random.Random(0).getrandbits(64))  # what the first draw of an episode with this seed is
    trainer._generate_and_score_completions([dict(prompt.meta["row"])] * 2)
    script = iter(SAYS)
    _, said = play_game(prompt, task.play, lambda prompt, messages: next(script), random.Random(0),
                        task.tools)
    (theirs,), (ours,) = module.seen, task.play.funcs[-1].__globals__["seen"]
    told = [[m for m in side[1] if m["role"] == "tool"] for side in (ours, theirs)]
    assert told[0] == told[1] and len(told[0]) == 4
    called = [("later", 1), ("add", 2), ("add", -1), ("add", 1)]
    assert [[c["function"] for m in side[1] for c in m.get("tool_calls", [])] for side in (ours, theirs)] == [
        [{"name": name, "arguments": {"n": n}} for name, n in called]] * 2
    assert ours[0] == theirs[0] and "Reach the number. It is " in ours[0][0]["content"]
    assert ours[2:] == theirs[2:] and ours[1][-1] == theirs[1][-1]
    paid = {name: trainer._metrics["train"][f"rewards/{name}/mean"][-1] for name in ("spoken", "kept")}
    assert paid == {"spoken": 0.25, "kept": 0.0}
    assert said.parts == {"spoken": 0.25, "kept": 0.0, "Counter": theirs[3]}
    assert [tool.__name__ for tool in trainer.tools] == [tool.__name__ for tool in task.tools]
