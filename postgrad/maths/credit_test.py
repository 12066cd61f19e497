import math

import pytest
import torch

from postgrad.maths import credit

D = torch.float64
GROUPS = [credit.group_zscore, credit.group_centre, credit.leave_one_out, credit.batch_scaled,
          credit.over_mean, credit.length_weighted, credit.turn_zscore]


def rows(*scores):
    """One row per score, three columns, the middle one sampled in every row,
    the last one in every other row."""
    mask = torch.zeros(len(scores), 3, dtype=torch.bool)
    mask[:, 1], mask[::2, 2] = True, True
    return credit.place_reward(torch.tensor(scores, dtype=D), mask), mask


def per_row(adv):
    return [round(x, 4) for x in adv[:, 1].tolist()]


def test_turns_are_compared_with_the_same_turn_of_the_group():
    mask = torch.tensor([[0, 1, 1, 0, 1], [0, 1, 0, 1, 0], [0, 1, 1, 0, 0], [0, 0, 0, 0, 0]]).bool()
    reward = torch.tensor([[0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], dtype=D)
    adv = credit.turn_zscore(reward, mask, 4)
    up, down = 2**-0.5, -(2**0.5)  # the first turns lead to 1, 1 and 0, the second ones to 0 and 1
    wanted = [[0, up, up, 0, -1], [0, up, 0, 1, 0], [0, down, down, 0, 0], [0, 0, 0, 0, 0]]
    torch.testing.assert_close(adv, torch.tensor(wanted, dtype=D))


def test_place_reward_on_the_last_sampled_token():
    mask = torch.tensor([[0, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]]).bool()
    reward = credit.place_reward(torch.tensor([2.0, 3.0, 5.0]), mask)
    assert reward.tolist() == [[0, 0, 2, 0], [0, 0, 0, 3], [0, 0, 0, 0]]


def test_kl_penalty_by_hand():
    mask = torch.tensor([[False, True, True]])
    reward = credit.kl_penalty(
        torch.tensor([[0.0, 0.0, 1.0]]), torch.tensor([[9.0, -1.0, -2.0]]), torch.tensor([[0.0, -1.5, -1.0]]),
        mask, 0.1
    )
    assert reward.tolist() == [[0.0, pytest.approx(-0.05), pytest.approx(1.1)]]


def test_overlong():
    lengths = torch.tensor([10, 16, 17, 18, 20, 25])
    assert credit.overlong(lengths, budget=20, cache=4).tolist() == [0, 0, -0.25, -0.5, -1, -1]


def test_zscore_by_hand():
    assert credit.group_zscore(*rows(1, 0, 0, 1), 4)[:, 1].tolist() == [1, -1, -1, 1]  # exactly
    assert (credit.group_zscore(*rows(1, 0, 1, 1, 0, 0, 1, 0), 8)[:, 1].tolist()
            == [1, -1, 1, 1, -1, -1, 1, -1])
    assert per_row(credit.group_zscore(*rows(1, 0, 0, 0, 0, 0, 0, 0), 8)) == [2.6458] + [-0.378] * 7
    assert per_row(credit.group_zscore(*rows(1, 0, 5, 3), 2)) == [1, -1, 1, -1]


def test_batch_scaled_by_hand():
    got = credit.batch_scaled(*rows(1, 0, 0, 0), 2)  # mean 1/4, std sqrt(3)/4; +-1/2 in the first group
    assert per_row(got) == [1.1547, -1.1547, 0, 0]
    wide = credit.batch_scaled(*rows(1, 0, 0.1, 0), 2)  # std 0.420565: a narrow group stays narrow
    assert per_row(wide) == [1.1889, -1.1889, 0.1189, -0.1189]
    one = rows(0.3, 2.0, -1.0, 0.7)
    torch.testing.assert_close(credit.batch_scaled(*one, 4), credit.group_zscore(*one, 4))


def test_over_mean_by_hand():
    assert per_row(credit.over_mean(*rows(1, 0, 0, 0), 4)) == [3, -1, -1, -1]
    assert per_row(credit.over_mean(*rows(1, 1, 1, 0), 4)) == [0.3333, 0.3333, 0.3333, -1]
    assert per_row(credit.over_mean(*rows(0, 0, 1, 0), 2)) == [0, 0, 1, -1]
    assert per_row(credit.over_mean(*rows(0, 0, 1, 0), 2, all_wrong=-1.0)) == [-1, -1, 1, -1]


def test_each_reward_by_hand():
    mask = torch.ones(4, 1, dtype=torch.bool)
    parts = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]])
    one, none = torch.ones(4, 2), torch.zeros(4, 1, dtype=D)
    two = math.sqrt(2)  # the sums 0, 0, -2 and 2 by their std
    got = credit.each_reward(none, mask, 4, parts=parts, part_weights=one)[:, 0].tolist()
    assert got == pytest.approx([0, 0, -two, two])
    large = parts * torch.tensor([1.0, 10.0])
    got = credit.each_reward(none, mask, 4, parts=large, part_weights=one)[:, 0].tolist()
    assert got == pytest.approx([0, 0, -two, two])
    half = credit.each_reward(none, mask, 4, parts=parts, part_weights=one * torch.tensor([1.0, 0.5]))
    assert half[:, 0].tolist() == pytest.approx([x / math.sqrt(1.25) for x in (0.5, -0.5, -1.5, 1.5)])
    parts[3, 1] = torch.nan  # not judged: the second reward is compared among three, mean 1/3, std sqrt(2)/3
    got = credit.each_reward(none, mask, 4, parts=parts, part_weights=one)[:, 0].tolist()
    root = math.sqrt(0.5)
    sums = [1 - root, -1 + 2 * root, -1 - root, 1]
    assert got == pytest.approx([x / math.sqrt(sum(y * y for y in sums) / 4) for x in sums])


def test_each_reward_counts_a_rollout_once_whatever_its_length():
    """Two groups, lengths 1 to 4: mean 0 and std 1 over the eight rollouts, not over tokens."""
    mask = torch.arange(5) < torch.tensor([1, 4, 2, 3, 4, 1, 1, 2])[:, None] + 1
    mask[:, 0] = False
    parts = torch.tensor([[1, 0], [0, 1], [0, 0], [1, 1], [1, 0], [0, 0], [0, 1], [0, 0]], dtype=D)
    weights = torch.tensor([[1.0, 0.3]], dtype=D).expand(8, 2)
    adv = credit.each_reward(torch.zeros(mask.shape, dtype=D), mask, 4, parts=parts, part_weights=weights)
    rows = [{round(x, 9) for x in row[there].tolist()} for row, there in zip(adv, mask, strict=True)]
    assert all(len(row) == 1 for row in rows)
    rows = [row.pop() for row in rows]
    assert sum(rows) == pytest.approx(0, abs=1e-6) and sum(x * x for x in rows) == pytest.approx(8)
    assert abs(adv[mask].mean()) > 0.05


def test_advantage_scaled_by_hand():
    mask = torch.ones(4, 1, dtype=torch.bool)
    reward = torch.tensor([[1.0], [0.0], [0.0], [0.0]], dtype=D)
    scaled = lambda reward: credit.advantage_scaled(reward, mask, 2)[:, 0].tolist()  # noqa: E731
    root = math.sqrt(2)
    assert scaled(reward) == pytest.approx([root, -root, 0, 0])
    shifted = reward + torch.tensor([[0.0], [0.0], [7.0], [7.0]])  # what differs between prompts has no say
    assert scaled(shifted) == pytest.approx([root, -root, 0, 0])
    assert scaled(reward * 0 + 3) == [0, 0, 0, 0]
    mask[1] = False  # a row kept out of the loss does not count, in its group or in the std
    assert scaled(reward) == [0, 0, 0, 0]


def test_length_weighted_by_hand():
    mask = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]]).bool()
    reward = credit.place_reward(torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=D), mask)
    adv = credit.length_weighted(reward, mask, 2)  # 3 tokens of 1 and 1 of 0: 3/4; then 1/2
    assert per_row(adv) == [0.25, -0.75, 0.5, -0.5] and adv[0].tolist() == [0, 0.25, 0.25, 0.25]
    level = torch.tensor([[0, 1], [0, 1], [0, 1]]).bool()
    reward = credit.place_reward(torch.tensor([0.3, 2.0, -1.0], dtype=D), level)
    alike = credit.group_centre(reward, level, 3)
    torch.testing.assert_close(credit.length_weighted(reward, level, 3), alike)


def test_distil_by_hand():
    """Two rows; the second has a gap, a token that it was shown."""
    mask = torch.tensor([[0, 1, 1, 1], [0, 1, 0, 1]]).bool()
    teacher = torch.tensor([[9.0, -1.0, -0.5, -2.0], [9.0, -1.0, 9.0, -3.0]])
    old = torch.tensor([[0.0, -2.0, -0.5, -1.0], [0.0, -1.5, 0.0, -1.0]])
    reward = credit.place_reward(torch.tensor([1.0, 1.0]), mask)  # has no say

    def of(gamma):
        return credit.distil(reward, mask, 1, teacher_logp=teacher, old_logp=old, gamma=gamma).tolist()

    assert of(0.0) == [[0, 1, 0, -1], [0, 0.5, 0, -2]]
    assert of(1.0) == [[0, 0, -1, -1], [0, -1.5, 0, -2]]
    assert of(0.5) == [[0, 0.75, -0.5, -1], [0, -0.5, 0, -2]]
    assert not credit.distil(reward, mask, 1, teacher_logp=old, old_logp=old).any()


@pytest.mark.parametrize("function", GROUPS)
def test_equal_rewards_give_exactly_zero(function):
    assert not function(*rows(0.1, 0.1, 0.1), 3).any()  # 0.1 * 3 / 3 != 0.1 in floating point
    assert not function(*(x.float() if x.dtype == D else x for x in rows(0.3, 0.3, 0.3, 0.7, 0.7, 0.7)),
                        3).any()


def test_leave_one_out_by_hand_and_as_a_multiple_of_centre():
    assert per_row(credit.leave_one_out(*rows(1, 0, 0), 3)) == [1, -0.5, -0.5]
    assert per_row(credit.group_centre(*rows(1, 0, 0, 0), 4)) == [0.75, -0.25, -0.25, -0.25]
    case = rows(0.3, 2.0, -1.0, 0.7, 0.1, 0.2, 0.9, 4.0)
    torch.testing.assert_close(credit.leave_one_out(*case, 4), 4 / 3 * credit.group_centre(*case, 4))


def test_zscore_is_shift_and_scale_invariant():
    reward, mask = rows(0.3, 2.0, -1.0, 0.7)
    other, _ = rows(7 + 100 * 0.3, 7 + 100 * 2.0, 7 - 100 * 1.0, 7 + 100 * 0.7)
    torch.testing.assert_close(credit.group_zscore(reward, mask, 4), credit.group_zscore(other, mask, 4))


@pytest.mark.parametrize("function", GROUPS)
def test_a_row_without_tokens_is_not_in_its_group(function):
    reward, mask = rows(1, 0, 0, 99)
    mask[3] = False
    three = function(*rows(1, 0, 0), 3)
    with_empty = function(reward, mask, 4)
    assert torch.equal(with_empty[:3], three) and not with_empty[3].any()


def test_a_row_left_alone_has_no_advantage():
    reward, mask = rows(1, 0)
    mask[1] = False
    assert not credit.leave_one_out(reward, mask, 2).any()
    with pytest.raises(ValueError, match="set it to 2 or more"):
        credit.leave_one_out(reward, mask, 1)


def test_groups_that_do_not_divide():
    with pytest.raises(ValueError,
                       match="30 rows cannot be split into groups of 8: set .* to a divisor, e.g. 6"):
        credit.group_centre(torch.zeros(30, 2), torch.ones(30, 2).bool(), 8)


def test_flat_groups():
    assert (credit.flat_groups(torch.tensor([1.0, 1.0, 0.0, 1.0, 0.1 + 0.2, 0.3]), 2).tolist()
            == [True, False, True])


def random_case(seed=0):
    draw = torch.Generator().manual_seed(seed)
    reward, value = torch.randn(6, 9, generator=draw, dtype=D), torch.randn(6, 9, generator=draw, dtype=D)
    mask = torch.rand(6, 9, generator=draw) > 0.4
    mask[:, 0], mask[5] = False, False
    return reward * mask, mask, value


def gae_of_one_row(reward, value, gamma, lam):
    """The definition: a sum of discounted deltas, on the sampled tokens alone."""
    ahead = [*value[1:], 0.0][: len(value)]
    delta = [r + gamma * n - v for r, n, v in zip(reward, ahead, value, strict=True)]
    return [sum((gamma * lam) ** k * d for k, d in enumerate(delta[t:])) for t in range(len(delta))]


@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 0.95), (0.9, 0.5), (1.0, 1.0), (1.0, 0.0)])
def test_gae_is_its_definition_and_gaps_do_not_leak(gamma, lam):
    reward, mask, value = random_case()
    # absurd values where the mask is off
    adv = credit.gae(reward, mask, 1, value=value + 100 * ~mask, gamma=gamma, lam=lam)
    for i in range(len(mask)):
        want = gae_of_one_row(reward[i][mask[i]].tolist(), value[i][mask[i]].tolist(), gamma, lam)
        assert adv[i][mask[i]].tolist() == pytest.approx(want)
    assert not adv[~mask].any()


def test_gae_reduces():
    reward, mask, value = random_case()
    returns = credit.reward_to_go(reward, mask, 1)
    torch.testing.assert_close(credit.gae(reward, mask, 1, value=value, lam=1.0), (returns - value) * mask)
    torch.testing.assert_close(credit.gae(reward, mask, 1, value=0 * reward, lam=1.0), returns)
    terminal = credit.place_reward(torch.arange(6, dtype=D), mask)
    torch.testing.assert_close(credit.gae(terminal, mask, 1, value=0 * reward, lam=1.0),
                               credit.raw(terminal, mask, 1))


def test_gae_by_hand():
    # r = (0, 1), V = (0.5, 0.4): delta_2 = 0.6, delta_1 = 0.4 - 0.5 = -0.1, A_1 = -0.1 + 0.95 * 0.6 = 0.47
    mask = torch.tensor([[False, True, True]])
    adv = credit.gae(torch.tensor([[0.0, 0.0, 1.0]], dtype=D), mask, 1,
                     value=torch.tensor([[9.0, 0.5, 0.4]], dtype=D))
    assert adv.tolist() == [[0.0, pytest.approx(0.47), pytest.approx(0.6)]]


def test_raw_gives_every_token_the_whole_reward():
    mask = torch.tensor([[False, True, True]])
    assert credit.raw(torch.tensor([[0.0, -0.25, 1.0]]), mask, 1).tolist() == [[0, 0.75, 0.75]]
    assert credit.reward_to_go(torch.tensor([[0.0, -0.25, 1.0]]), mask, 1).tolist() == [[0, 0.75, 1]]


def test_whiten():
    mask = torch.tensor([[False, True, True], [False, True, False]])
    adv = credit.whiten(torch.tensor([[50.0, 1.0, 2.0], [50.0, 3.0, 50.0]], dtype=D), mask)
    root = math.sqrt(1.5)  # mean 2, population std sqrt(2/3)
    assert adv.tolist() == [[0, pytest.approx(-root), pytest.approx(0)], [0, pytest.approx(root), 0]]
    assert not credit.whiten(torch.ones(2, 3), mask).any()
    assert not credit.whiten(torch.ones(2, 3), torch.zeros(2, 3).bool()).any()
