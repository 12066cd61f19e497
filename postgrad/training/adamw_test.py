import pytest
import torch

from postgrad.training.adamw import AdamW


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_the_bits_are_those_of_torchs_class(weight_decay):
    """Over rates that change, and a parameter that has a gradient only now and then."""
    draw = torch.Generator().manual_seed(0)
    first = [torch.randn(shape, generator=draw) for shape in ((5, 3), (7,), ())]
    ours, theirs = ([torch.nn.Parameter(x.clone()) for x in first] for _ in range(2))
    adam = AdamW(ours, betas=(0.9, 0.95), weight_decay=weight_decay)
    theirs_adam = torch.optim.AdamW(theirs, betas=(0.9, 0.95), weight_decay=weight_decay, fused=True)
    for step in range(12):
        lr = 1e-2 / (1 + step)
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            if i != 1 or step % 3 == 2:
                p.grad = torch.randn(p.shape, generator=draw)
                q.grad = p.grad.clone()
        theirs_adam.param_groups[0]["lr"] = lr
        adam.step(lr)
        theirs_adam.step()
        adam.zero_grad()
        theirs_adam.zero_grad(set_to_none=True)
        assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))
    for i, moments in theirs_adam.state_dict()["state"].items():
        assert all(torch.equal(adam.state[i][name], x) for name, x in moments.items())


def test_moments_that_are_given_back_go_on_as_they_were():
    gradient = torch.tensor([1.0, -2.0, 3.0])

    def one(moments=None):
        p = torch.nn.Parameter(torch.ones(3))
        adam = AdamW([p], betas=(0.9, 0.999), weight_decay=0.0)
        if moments is not None:
            adam.restore(moments, lambda whole, like: whole)
        p.grad = gradient.clone()
        adam.step(0.1)
        return p, {str(i): {k: x.clone() for k, x in s.items()} for i, s in adam.state.items()}

    (first, moments), (fresh, _) = one(), one()
    assert torch.equal(first, fresh)
    again, after = one(moments)
    assert after["0"]["step"] == 2 and torch.equal(moments["0"]["step"], torch.tensor(1.0))
    torch.testing.assert_close(after["0"]["exp_avg"], 0.9 * moments["0"]["exp_avg"] + 0.1 * gradient)
