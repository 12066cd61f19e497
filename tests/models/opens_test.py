"""A checkpoint as others see it: what they would read as weights,
and how proofs/real_models.py tells a tie from a fault."""

import real_models as opens
import torch
from safetensors.torch import load_file

from postgrad.models import find_model, load_model
from postgrad.models.chat import Chat
from postgrad.models.checkpoint import read_state


def test_a_checkpoint_holds_no_weights_but_the_models_own(tmp_path):
    """vLLM reads every *.safetensors of a folder; the optimizer's state among them is a weight
    that no model has."""
    folder = opens.Path(opens.trained(tmp_path))
    assert [path.name for path in folder.glob("*.safetensors")] == ["model.safetensors"]
    assert (load_file(folder / "model.safetensors").keys()
            == load_file(find_model("tiny") / "model.safetensors").keys())
    state = read_state(folder)
    (folder / "state.tensors").rename(folder / "state.safetensors")  # as version 0.1 named it
    assert torch.equal(read_state(folder)["optim"]["adam"]["0"]["exp_avg"],
                       state["optim"]["adam"]["0"]["exp_avg"])


def test_a_difference_is_told_apart():
    model, chat = load_model("tiny"), Chat.load(find_model("tiny"))
    prompt = chat.render([{"role": "user", "content": "What is 2+3?"}])
    with torch.no_grad():
        logits = model.logits(torch.tensor([prompt]))[0, -1]
    best, second = logits.topk(2).indices.tolist()
    said = {"prompt": prompt, "tokens": [best, 9], "text": "a"}
    tell = lambda **other: opens.difference(model, said, {**said, **other})  # noqa: E731
    assert tell() is None
    assert tell(prompt=prompt[1:])["where"] == "the prompt"
    assert tell(text="b")["where"] == "the text of the same tokens"
    assert (tell(tokens=[best, 9, 8])["where"] == "token 2: they go on"
            and tell(tokens=[best])["where"] == "token 1: they stop")
    parted = tell(tokens=[second, 9])
    assert parted["where"] == "token 0" and parted["gap"] == float(logits[best] - logits[second]) > 0
