"""The models inside the package are the ones their origin describes, and good for what the demo needs."""

import hashlib
import json

import pytest

from postgrad.data.tasks import load_task
from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import tool_schema
from postgrad.models.load import EMBEDDED
from postgrad.sampling import LocalSampler, Sampling


@pytest.mark.parametrize("name", EMBEDDED)
def test_hash_size_and_origin(name):
    folder = find_model(name)
    origin = json.loads((folder / "origin.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == origin["sha256"] and len(weights) <= 8e6
    losses = [loss for _, loss in origin["loss_curve"]]
    assert losses[-1] < losses[0] and origin["config"]["seed"] == 0
    assert sum(p.numel() for p in load_model(name).parameters()) == origin["parameters"]


def test_the_shipped_curves_show_what_they_are_for():
    """Proxy and true reward of real runs, for the instrument on reward hacking:
    made by `proofs/rlhf.py ship`."""
    runs = json.loads((find_model("tiny").parent / "overoptimise" / "curves.json").read_text())["runs"]
    assert [run["seed"] for run in runs] == [26, 27, 28]
    for run in runs:
        policies = {p["name"]: p for p in run["policies"]}
        off, on = policies["ppo-kl-0"], policies["ppo-kl-0.3"]
        assert off["turning"]["fall"] > 0.15 and on["turning"]["fall"] < 0.05
        assert off["turning"]["proxy_at_end"] > off["turning"]["proxy_at_peak"]
        for policy in (off, on):
            assert [p["step"] for p in policy["points"]] == list(range(0, 241, 10))
            assert abs(policy["points"][0]["kl"]) < 1e-3 and all(p["distance"] >= 0 for p in policy["points"])
        assert [p["n"] for p in run["best_of_n"]] == [1, 2, 4, 8, 16, 32, 64]


def test_the_base_can_write_steps_and_cannot_do_without():
    """What makes the demo honest: the skill is there when it is asked for,
    and answering at once mostly fails."""
    folder = find_model("tiny")
    model, chat = load_model(folder), Chat.load(folder)
    sampler, greedy = LocalSampler(model, chat), Sampling(temperature=0.0, max_new_tokens=64)
    problems = load_task("words").prompts("test", 60, 0)

    def right(template: str) -> float:
        prompts = [chat.encode(template.format(p.question)) for p in problems]
        texts = [chat.decode(row.tokens) for row in sampler.reply(prompts, [0] * 60, greedy)]
        hits = [t.split("Answer:")[-1].strip() == str(p.answer) for t, p in zip(texts, problems, strict=True)]
        return sum(hits) / len(hits)

    assert right("<|bos|>Problem: {}\nSteps:") > 0.95
    assert right("<|bos|>Problem: {}\nAnswer:") < 0.35


def test_the_model_with_tools_has_tokens_and_a_template_for_them():
    """Each mark of a call and of a result is one token; every other text has tiny-chat's tokens."""
    folder = find_model("tiny-tools")
    chat, plain, task = Chat.load(folder), Chat.load(find_model("tiny-chat")), load_task("big-numbers")
    talk = [{"role": "user", "content": "2*3?"}, {"role": "assistant", "content": "<tool>calc 2*3</tool>"},
            {"role": "tool", "content": "6"}, {"role": "assistant", "content": "6"}]
    tokens, mask = chat.conversation(talk, tools=[tool_schema(tool) for tool in task.tools])
    text = ("<|bos|><|tools|>calc expression<|end|><|user|>2*3?<|end|><|assistant|>"
            "<tool>calc 2*3</tool><|end|><|tool|>6<|end|><|assistant|>6<|end|>")
    assert chat.tokenizer.decode(tokens, skip_special_tokens=False) == text
    assert chat.pieces([t for t in tokens if t >= plain.vocab_size]) == ["<|tools|>", "<tool>", "</tool>",
                                                                         "<|tool|>"]
    assert chat.decode([t for t, on in zip(tokens, mask, strict=True) if on]) == "<tool>calc 2*3</tool>6"
    asked = {"function": {"name": "calc", "arguments": {"expression": "2*3"}}}
    called = [talk[0], {"role": "assistant", "content": "", "tool_calls": [asked]}, *talk[2:]]
    assert chat.conversation(called)[0] == chat.conversation(talk)[0]
    assert chat.render(talk[:1]) == plain.render(talk[:1])
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 4e6
