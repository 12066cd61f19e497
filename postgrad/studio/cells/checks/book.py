"""Invariants of the small experiments of the book."""

import math

from postgrad.studio.cells.checks.base import Function, assert_close, invariant_of

TRUE = [2.0, 1.0, 0.0, -1.0]


@invariant_of("recover")
def the_ranking_comes_back(f: Function) -> None:
    """600 noisy comparisons give the four items their order back."""
    found = f(TRUE, 600)
    order = sorted(range(4), key=lambda i: -found[i])
    assert order == [0, 1, 2, 3], f"the order is {order}"


@invariant_of("recover")
def so_do_the_distances(f: Function) -> None:
    """Centred, each reward is within 0.5 of the true one."""
    assert_close(f(TRUE, 600), [x - 0.5 for x in TRUE], 0.5)


@invariant_of("recover")
def a_shift_cannot_be_seen(f: Function) -> None:
    """Add 3 to all true rewards: the comparisons, and so the result, are the same."""
    assert_close(f([x + 3 for x in TRUE], 200), f(TRUE, 200))


@invariant_of("clip-plot")
def the_raw_objective_is_a_line(f: Function) -> None:
    """The raw objective is ratio times advantage."""
    assert_close(f([0.5, 2.0], 1.5, 0.2)[1], [0.75, 3.0])


@invariant_of("clip-plot")
def flat_past_the_edge_of_a_good_token(f: Function) -> None:
    """A > 0: past 1 + clip the clipped objective no longer rises."""
    assert_close(f([1.0, 1.2, 2.0, 4.0], 1.0, 0.2)[0], [1.0, 1.2, 1.2, 1.2])


@invariant_of("clip-plot")
def the_way_back_is_open(f: Function) -> None:
    """A < 0 and a ratio above 1: nothing is held, the token can be pushed down."""
    assert_close(f([2.0, 0.1], -1.0, 0.2)[0], [-2.0, -0.8])


@invariant_of("token-reward")
def the_score_stands_on_the_last_token(f: Function) -> None:
    """Without a KL, or where policy and reference agree, the last token has the score, the others nothing."""
    assert_close(f([-0.5, -1.0, -0.2], [-0.9, -0.8, -0.2], 1.0, 0.0), [0.0, 0.0, 1.0])
    assert_close(f([-0.5, -1.0], [-0.5, -1.0], 2.0, 0.7), [0.0, 2.0])


@invariant_of("token-reward")
def each_token_pays_for_itself(f: Function) -> None:
    """Beta times the log-ratio: (0.4, -0.2, 0) at 0.1 cost 0.04, bring 0.02, and cost nothing."""
    assert_close(f([-0.5, -1.0, -0.2], [-0.9, -0.8, -0.2], 1.0, 0.1), [-0.04, 0.02, 1.0])


@invariant_of("token-reward")
def the_sum_is_the_answers(f: Function) -> None:
    """Summed over the tokens: the score minus beta times the log-ratio of the whole answer."""
    assert_close(sum(f([-0.5, -1.0, -0.2, -0.4], [-0.9, -0.8, -0.2, -2.4], 3.0, 0.5)), 3.0 - 0.5 * 2.2)


@invariant_of("ppo-loss")
def the_policy_s_term_is_the_clipped_surrogate(f: Function) -> None:
    """A ratio of 1 costs minus the advantage; past 1 + clip a good token gains no more."""
    for p, wanted in ((0.5, -2.0), (0.55, -2.2), (0.6, -2.4), (0.9, -2.4)):
        assert_close(f([p, 1 - p], [0.5, 0.5], 2.0, 0.0, 0.0, 0.0)[0], wanted)


@invariant_of("ppo-loss")
def a_value_past_its_clip_gains_nothing(f: Function) -> None:
    """A value that leaps from 0 to its goal of 1 costs what it costs at the clip, half of (1 - 0.2)²."""
    for value, error in ((0.1, 0.9), (0.2, 0.8), (0.6, 0.8), (1.0, 0.8)):
        assert_close(f([0.5, 0.5], [0.5, 0.5], 0.0, value, 0.0, 1.0, value_weight=1.0)[1], 0.5 * error**2)


@invariant_of("ppo-loss")
def the_bonus_is_largest_where_nothing_is_decided(f: Function) -> None:
    """Even chances of n tokens lower the loss by the weight times log n, a certain token by nothing."""
    assert_close(f([0.25] * 4, [0.25] * 4, 0.0, 0.0, 0.0, 0.0, entropy_weight=0.1)[2], -0.1 * math.log(4))
    assert_close(f([1.0, 0.0], [0.5, 0.5], 0.0, 0.0, 0.0, 0.0, entropy_weight=0.1)[2], 0.0)


@invariant_of("sharpen")
def the_likelier_of_two_right_answers_gains(f: Function) -> None:
    """Without a KL, of two answers that are equally right the likelier one grows faster."""
    first, second, _ = f([0.3, 0.2, 0.5], [1.0, 1.0, 0.0], 0.0, 600)[-1]
    assert first / second > 2, f"their ratio went from 1.5 to {first / second:.3g}"


@invariant_of("sharpen")
def equals_stay_equal(f: Function) -> None:
    """Two right answers that begin alike end alike."""
    first, second, _ = f([0.2, 0.2, 0.6], [1.0, 1.0, 0.0], 0.0, 300)[-1]
    assert_close(first, second)


@invariant_of("sharpen")
def with_a_kl_it_ends_at_the_closed_form(f: Function) -> None:
    """With beta 0.5 the end is the start times exp(reward / beta), rescaled to sum to one."""
    weights = [0.3 * math.exp(2), 0.2 * math.exp(2), 0.5]
    assert_close(f([0.3, 0.2, 0.5], [1.0, 1.0, 0.0], 0.5, 2000)[-1], [w / sum(weights) for w in weights],
                 1e-3)


@invariant_of("simplified")
def what_is_paid_becomes_likely(f: Function) -> None:
    """A right answer with a chance of 0.2 is nearly certain after 200 steps with groups of 8."""
    path = f([0.2, 0.5, 0.3], [1.0, 0.0, 0.0], 8, 200, 0.5)
    assert abs(path[0] - 0.2) < 1e-9 and path[-1] > 0.9, f"it went from {path[0]:.3g} to {path[-1]:.3g}"


@invariant_of("simplified")
def a_group_of_one_teaches_nothing(f: Function) -> None:
    """Alone, an answer is its own mean: nothing moves."""
    assert_close(f([0.2, 0.8], [1.0, 0.0], 1, 20, 0.5), [0.2] * 20)


@invariant_of("simplified")
def a_bonus_for_everybody_changes_nothing(f: Function) -> None:
    """Add 3 to every reward: the policy takes the same way, 3 higher."""
    plain, raised = (f([0.2, 0.8], [1.0 + more, more], 8, 40, 0.5) for more in (0.0, 3.0))
    assert_close([x - 3 for x in raised], plain, 1e-9)


@invariant_of("coverage")
def counted_by_problem_it_holds(f: Function) -> None:
    """With 8 samples of each of 40 problems, at least 90 of 100 intervals over problems hold the truth."""
    held = f([0.05, 0.2, 0.9], 40, 8, True)
    assert held >= 0.9, f"{100 * held:.0f} of 100"


@invariant_of("coverage")
def counted_by_sample_it_does_not(f: Function) -> None:
    """Over samples, fewer than 80 of 100 do: samples of one problem are no news of each other."""
    held = f([0.05, 0.2, 0.9], 40, 8, False)
    assert held < 0.8, f"{100 * held:.0f} of 100"


@invariant_of("coverage")
def one_sample_is_one_problem(f: Function) -> None:
    """With a single sample of each problem the two ways to count are the same."""
    assert_close(f([0.05, 0.2, 0.9], 40, 1, True), f([0.05, 0.2, 0.9], 40, 1, False))


@invariant_of("coverage")
def equal_problems_make_no_difference(f: Function) -> None:
    """Where every problem is equally hard, 8 samples of 20 problems tell as much as 160 problems."""
    held = f([0.3], 20, 8, False)
    assert held >= 0.9, f"{100 * held:.0f} of 100"


@invariant_of("on-path")
def without_a_way_back_slips_multiply(f: Function) -> None:
    """A slip of 0.02 and no way back: after n tokens the chance is 0.98 to the power of n."""
    assert_close(f(0.02, 0.0, 50)[-1], 0.98**50)


@invariant_of("on-path")
def with_a_way_back_it_settles(f: Function) -> None:
    """With a way back it settles at recovers / (recovers + slip)."""
    assert_close(f(0.02, 0.5, 400)[-1], 0.5 / 0.52)


@invariant_of("on-path")
def the_first_token_is_the_slip_alone(f: Function) -> None:
    """The first token starts on the path: it is left with the chance of one slip, whatever comes back."""
    assert_close([f(0.1, x, 1)[0] for x in (0.0, 0.5, 1.0)], [0.9, 0.9, 0.9])


@invariant_of("turn-bonus")
def without_a_bonus_only_the_answer_pays(f: Function) -> None:
    """No bonus: the solver is paid as often as it finds the answer, the other player nothing."""
    assert_close(list(f(0.0, 4, 0.4)), [1 - 0.6**4, 0.0])


@invariant_of("turn-bonus")
def a_large_bonus_makes_stalling_pay(f: Function) -> None:
    """With a bonus of 0.6 a turn, four turns without an answer are worth more than looking for it."""
    solve, stall = f(0.6, 4, 0.4)
    assert stall > solve, f"solving is worth {solve:.3g}, stalling {stall:.3g}"


@invariant_of("turn-bonus")
def taken_back_it_changes_nothing(f: Function) -> None:
    """Taken back at the end, a bonus of any size leaves both returns as they were."""
    assert_close(list(f(0.6, 4, 0.4, True)), [1 - 0.6**4, 0.0])
