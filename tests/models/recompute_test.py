"""Activations computed again in the backward pass: the same bits, far less that is kept, nothing in sampling;
and the estimate of what is left."""

import pytest
import torch
from foreign_small import small_folders
from small import small_model

from postgrad.models import Adapted, Adapter, Config, Decoder, Models, ScalarModel, load_model
from postgrad.models.families import Architecture
from postgrad.models.kernels import cpu
from postgrad.training.memory import Setup, layers
from postgrad.training.optim import Optim, OptimSettings

TOKENS = torch.randint(0, 64, (4, 96), generator=torch.Generator().manual_seed(1))
TOKENS[1, :20] = TOKENS[0, :20]  # a prompt that two rows share
MASK = (torch.arange(96) > 19).expand(4, 96)
SMALL = Config(vocab_size=64, hidden_size=64, intermediate_size=160, num_hidden_layers=3,
               num_attention_heads=4, num_key_value_heads=2, head_dim=16)
folder = pytest.fixture(scope="module")(small_folders)


def body(**changes):
    return Decoder(Config(**{**vars(SMALL), **changes})).start(torch.Generator().manual_seed(0))


def adapted():
    made = body()
    worn, other = (Adapter(made, rank=4, generator=torch.Generator().manual_seed(n)) for n in (1, 2))
    for adapter in (worn, other):
        for p in adapter.B.values():
            p.data.normal_(generator=torch.Generator().manual_seed(3))
    return Models(Adapted(made, worn), critic=ScalarModel(Adapted(made, other)))


MADE = {"plain": lambda: Models(body()),
        "olmo": lambda: Models(body(architecture=Architecture(model_type="olmo2"))),
        "a critic beside": lambda: Models(body(), critic=ScalarModel(body())), "adapters": adapted}


def passed(models, recompute, tokens=TOKENS, mask=MASK, precision="fp32"):
    """Loss and gradients of a pass over all that is trained, and the bytes that autograd saved."""
    settings = OptimSettings(lr=1e-3, precision=precision, recompute=recompute)
    optim, saved = Optim(models, settings, steps=1), {}
    mine = {p.untyped_storage().data_ptr() for m in (*models.decoders(), *models.trained().values())
            for p in m.parameters()}

    def keep(x):
        if x.untyped_storage().data_ptr() not in mine:
            saved[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        loss = models.policy.logp(tokens, mask)[0].sum()
        if models.critic is not None:
            models.critic.score_head.weight.data.fill_(0.1)
            loss = loss + models.critic.value(tokens).sum()
    loss.backward()
    return loss.detach(), [p.grad for p in optim.params], sum(saved.values())


@pytest.mark.parametrize(("kind", "precision"), [*((kind, "fp32") for kind in MADE), ("plain", "bf16")])
def test_the_same_bits_and_less_is_kept(kind, precision):
    rows = 4 if precision == "fp32" else 1
    (loss, grads, kept), (again, other, less) = (
        passed(MADE[kind](), recompute, TOKENS[:rows], MASK[:rows], precision) for recompute in (False, True))
    assert torch.equal(loss, again) and less < 0.35 * kept
    assert any(g is not None and g.abs().max() > 0 for g in grads)
    for g, h in zip(grads, other, strict=True):
        assert (g is None) == (h is None) and (g is None or torch.equal(g, h))


def test_through_transformers_too(folder):
    both = []
    for recompute in (False, True):
        model = load_model(folder("cohere2"))
        made = Adapted(model, Adapter(model, rank=2, generator=torch.Generator().manual_seed(1)))
        both.append(passed(Models(made), recompute, TOKENS[:, :24], MASK[:, :24]))
    (loss, grads, kept), (again, other, less) = both
    assert torch.equal(loss, again) and less < 0.5 * kept
    assert all(torch.equal(g, h) for g, h in zip(grads, other, strict=True))


def test_a_network_without_known_layers_says_so(folder, monkeypatch):
    model = load_model(folder("cohere2"))
    monkeypatch.setattr(model.network, "modules", lambda: iter(()))
    with pytest.raises(ValueError, match="does not say what its layers are: leave it out"):
        passed(Models(model), True)


def test_nothing_is_computed_twice_without_a_gradient(monkeypatch):
    """In sampling, and where old log-probs are asked for."""
    model, calls = small_model(), []
    Optim(Models(model), OptimSettings(lr=1e-3, recompute=True), steps=1)
    monkeypatch.setattr("postgrad.models.recompute.checkpoint", lambda *args, **options: calls.append(args))
    with torch.no_grad():
        model.logp(TOKENS[:, :24], MASK[:, :24])
    assert not calls


@pytest.mark.parametrize("lora", [0, 4])
def test_the_estimate_of_what_is_kept_is_what_autograd_saves(lora):
    """Each layer's input, and the last norm's input and output."""
    if cpu.c_library() is None:
        pytest.skip("the C kernels could not be built here; plain torch keeps more")
    model = body(hidden_size=256)
    model = Adapted(model, Adapter(model, rank=lora, generator=torch.Generator())) if lora else model
    *_, saved = passed(Models(model), True, mask=(torch.arange(96) > 0).expand(4, 96))
    said = layers(model.config, Setup(bits=32, on_gpu=False, rows=4, tokens=96, lora=lora, recompute=True))
    assert saved == pytest.approx(said, rel=0.03)
