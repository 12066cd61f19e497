import torch

from postgrad.maths.noise import GOLDEN, seed_of, seeds_of, splitmix64, uniform


def unsigned(x):
    return [v % (1 << 64) for v in x.tolist()]


def test_mix_is_splitmix64():
    # the published first outputs of splitmix64 from seed 0
    out = splitmix64(GOLDEN * torch.tensor([1, 2, 3]))
    assert unsigned(out) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def grid(seeds=512, counters=512):
    return uniform(torch.arange(seeds)[:, None], torch.arange(counters)[None, :])


def chi_square(x, cells):
    count = torch.bincount((x.flatten() * cells).long(), minlength=cells).double()
    want = x.numel() / cells
    return ((count - want) ** 2 / want).sum().item()


def test_uniform_within_a_seed_across_seeds_and_over_all():
    x = grid()
    assert 0 <= x.min() and x.max() < 1
    for sample in (x, x[0], x[:, 0], x.diagonal()):
        # 99 degrees of freedom: mean 99, 0.1 % and 99.9 % at 61 and 149
        assert 50 < chi_square(sample, 100) < 160


def test_neighbours_are_independent():
    x = grid()
    for a, b in ((x[:, :-1], x[:, 1:]), (x[:-1], x[1:]), (x[:-1, 1:], x[1:, :-1]), (x[:-1, :-1], x[1:, 1:])):
        joint = (a * 10).long() * 10 + (b * 10).long()
        assert 50 < chi_square((joint.double() + 0.5) / 100, 100) < 160
        assert abs(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]) < 4 / a.numel() ** 0.5


def test_a_number_depends_on_its_own_seed_and_counter_alone():
    x = grid(8, 8)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(uniform(order, torch.full((8,), 3)), x[order, 3])
    ends = uniform(torch.tensor([-(2**63), -1, 0, 2**63 - 1]), torch.tensor([7]))
    assert len(set(ends.tolist())) == 4


def test_every_input_bit_moves_half_of_the_output():
    base = torch.tensor([seed_of("avalanche", i) for i in range(256)])
    for bit in range(63):
        changed = splitmix64(base) ^ splitmix64(base ^ (1 << bit))
        moved = sum(bin(v).count("1") for v in unsigned(changed)) / 256
        assert 28 < moved < 36


def test_seed_of_is_stable_and_tells_parts_apart():
    assert seed_of("rollout", 3, "arithmetic/7") == 8729121205015972073
    assert len({seed_of(1, 2), seed_of(12), seed_of("1", 2), seed_of("1, 2"), seed_of(2, 1), seed_of()}) == 6
    assert all(0 <= seed_of(i) < 2**63 for i in range(1000))


def test_many_seeds_are_those_of_one_by_one():
    for parts in ((3, "a'b\"\n"), ("rollout", 0, "é"), (5,), (True, 2, "x")):
        assert seeds_of(*parts, numbers=range(2, 12)) == [seed_of(*parts, n) for n in range(2, 12)]
