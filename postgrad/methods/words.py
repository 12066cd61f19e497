"""What each constant of a row is, and when to change it: one sentence each, for the rows of the table.

A constant is known by its name; where one name means two things, by its function too (gae.lam, orpo.lam).
A constant of a user's own function is named as such: what it does is in that function's text.
"""

from __future__ import annotations

from typing import NamedTuple

from postgrad.methods.constants import bound, functions
from postgrad.methods.row import Method
from postgrad.system.user_code import called


class Words(NamedTuple):
    about: str
    when: str


CONSTANTS = {
    "low": Words("how far the ratio pi/pi_old may fall below 1 before a token's gradient is cut",
                 "lower holds the policy nearer to its samples; it matters with epochs or minibatches above "
                 "1 alone"),
    "high": Words("how far the ratio pi/pi_old may rise above 1 before a token's gradient is cut",
                  "0.28 (DAPO) lets unlikely tokens grow where entropy falls too soon; lower where approx_kl "
                  "jumps"),
    "sequence_ratio.low": Words("how far a whole reply's ratio, per token, may fall below 1 before it is cut",
                                "it is hundreds of times smaller than a token's clip: change both by the "
                                "same factor"),
    "sequence_ratio.high": Words("how far a whole reply's ratio, per token, may rise above 1 before it is "
                                 "cut", "it is hundreds of times smaller than a token's clip: change both by "
                                 "the same factor"),
    "cispo.low": Words("how far below 1 a token's importance weight may fall; 1 is no limit",
                       "leave it: the method has no lower clip"),
    "cispo.high": Words("how far above 1 a token's importance weight may rise; 4 is a largest weight of 5",
                        "lower where ratio_max is often above it and the reward is unsteady"),
    "probability_clip.low": Words("how far a blamed token's probability may fall before it leaves the "
                                  "gradient", "lower holds the policy nearer to its samples; prime-rl takes "
                                  "0.2"),
    "probability_clip.high": Words("how far a praised token's probability may rise before it leaves the "
                                   "gradient", "lower holds the policy nearer to its samples; prime-rl takes "
                                   "0.2"),
    "probability_clip.square": Words("the weight of the squared log-ratio, a pull to the policy that sampled",
                                     "1e-3 (prime-rl) where several updates carry the policy too far"),
    "over_mean.all_wrong": Words("the advantage of every reply in a group without a success: 0, or -1",
                                 "-1 adds the term k = G to the objective, and with it the noise of prompts "
                                 "that are never solved"),
    "soft_gate.praised": Words("how fast a praised token's gradient falls as its ratio leaves 1",
                               "more holds the policy nearer to its samples"),
    "soft_gate.blamed": Words("how fast a blamed token's gradient falls as its ratio leaves 1",
                              "a little above `praised`: blame spreads over all other tokens"),
    "geometric_mean.low": Words("how far a token's log-ratio may fall before it is held",
                                "lower for mixture-of-experts models, where large ratios are noise"),
    "geometric_mean.high": Words("how far a token's log-ratio may rise before it is held",
                                 "lower for mixture-of-experts models, where large ratios are noise"),
    "marked_penalty.penalty": Words("the weight of |log ratio| on the tokens that are held back",
                                    "more where entropy falls to 0 all the same"),
    "top_covariance.share": Words("the share of a step's tokens that is held back, at least one",
                                  "2e-3 in the paper for a 7B model; more where entropy falls to 0"),
    "stale_dropped.far": Words("how much likelier, per token in nats, a blamed reply may have been when it "
                               "was sampled before it is dropped",
                               "lower where clip_fraction is 0 and the run is unsteady with old samples"),
    "choose": Words("the tokens of a step that count: all, or top_entropy, those at which the policy was "
                    "least decided", "top_entropy where long chains are learned: most of their tokens are "
                    "forced"),
    "correction": Words("how samples of another engine are weighed: none, tis (truncated by token), icepop "
                        "(dropped by token), sequence (dropped by reply)",
                        "none where the sampler is our own; tis or icepop where mismatch is above 0.01"),
    "truncated.cap": Words("the most that a token may count for", "lower where effective_share falls"),
    "banded.least": Words("the ratio of trainer to sampler below which a token is dropped",
                          "nearer to 1 drops more"),
    "banded.most": Words("the ratio of trainer to sampler above which a token is dropped",
                         "nearer to 1 drops more"),
    "sequence_banded.widest": Words("the ratio of a whole reply above which it is dropped",
                                    "it grows with the length of replies; lower where effective_share falls"),
    "top_entropy.share": Words("the share of a step's tokens that count, at least one",
                               "0.2 in the paper; 1 is all"),
    "kl_in_loss": Words("the weight of the KL to the start, as a part of the loss",
                        "0 needs no reference and is usual against a verifier; more where the reward can be "
                        "gamed (kl.coef sets it too)"),
    "kl_in_reward": Words("the weight of the KL to the start, paid token by token out of the reward",
                          "more where the true quality falls while the reward rises (kl.coef sets it too)"),
    "critic": Words("a critic learns the value of every token",
                    "leave it: it belongs to the row's credit function"),
    "value_weight": Words("the weight of the critic's loss beside the policy's",
                          "more where explained_variance stays near 0"),
    "value_clip": Words("how far a value may move from where it was when the rollouts were made; 0: freely",
                        "0 where the critic learns too slowly over several epochs"),
    "entropy": Words("the weight of a bonus for undecided choices", "a little (0.001 to 0.01) where entropy "
                     "falls to 0 while the reward has stopped; too much is babble"),
    "whiten": Words("advantages are brought to mean 0 and spread 1 over the whole step",
                    "true with a critic; group methods have compared their samples already"),
    "resample_flat": Words("groups whose samples all score the same are drawn again",
                           "true where flat_groups is high: such groups teach nothing; costs the further "
                           "draws"),
    "overlong": Words("the score falls over the last fifth of the length limit",
                      "true where replies run into the limit; false where the task wants long replies"),
    "mask_truncated": Words("replies that were cut at the length limit are compared with, and not learned "
                            "from", "true where many good replies are cut, so that length itself is not "
                            "punished (DAPO's overlong filtering)"),
    "truncated_penalty": Words("what is taken off the score of a reply that was cut at the length limit",
                               "1 or so with a reward model, which may like a reply that never ends"),
    "scale_rewards": Words("rewards, the KL in them too, are divided by their spread over the collection",
                           "true with reward models whose scores are large or drift: the critic and the KL "
                           "see one scale"),
    "epochs": Words("passes over each collection of rollouts",
                    "2 to 4 where sampling is slow; watch approx_kl and clip_fraction; steps counts "
                    "updates, so more of them draw the same samples"),
    "minibatches": Words("optimizer steps per pass, each on its share of the prompts",
                         "more: more updates from the same samples, each on fewer of them and further off "
                         "policy; at most one for each prompt"),
    "kl_stop": Words("the approx_kl of an update after which a collection is left; 0: never",
                     "0.01 to 0.05 where several updates on one collection carry the policy too far"),
    "gae.gamma": Words("how much a later reward counts for an earlier token",
                       "leave it at 1: a reply is one short episode"),
    "gae.lam": Words("how far a reward is passed back without the critic's word: 1 all the way, 0 a token",
                     "1 where the critic is poor (explained_variance near 0): less bias, more noise"),
    "distil.gamma": Words("how much of what follows a token answers for: 0 itself alone, 1 all of it",
                          "above 0 where a choice is right by itself and leads astray later; more noise"),
    "beta": Words("the weight of the KL to the start that is in the loss: how much a log-ratio counts as "
                  "reward",
                  "lower lets the policy go further from the start; higher where replies lose their sense"),
    "simpo.beta": Words("how much a reply's mean log-prob counts as reward",
                        "2 to 10, tuned with gamma for each model"),
    "simpo.gamma": Words("the margin by which the chosen reply's reward should lead",
                         "from 0.3 to 1.6 in the paper; more separates the pairs further"),
    "cdpo.eps": Words("the share of labels that are taken to be wrong",
                      "about what annotators disagree by; 0 is DPO"),
    "orpo.lam": Words("the weight of the odds-ratio penalty beside imitation",
                      "0.1 to 0.25 in the paper; more where rejected replies stay as likely as chosen ones"),
    "cpo.alpha": Words("the weight of imitating the chosen reply",
                       "0 where the chosen replies are not worth imitating"),
    "kto.wanted": Words("the weight of a good answer",
                        "set by the recipe, so that good and bad answers count alike"),
    "kto.unwanted": Words("the weight of a bad answer",
                          "set by the recipe, so that good and bad answers count alike"),
    "reference": Words("scores are log-ratios to the model that the run started from",
                       "leave it: it belongs to the row's loss"),
    "reward.smoothing": Words("the share of labels that are taken to be wrong",
                              "the recipe sets it: head.smoothing"),
    "reward.centre": Words("how strongly scores are drawn towards 0", "the recipe sets it: head.centre"),
    "passing.threshold": Words("the share of the best score that a reply needs to be imitated",
                               "lower where no reply reaches it"),
}


def words_of(row: Method, name: str) -> Words:
    """The sentence of a constant of a row: words_of(dapo, "high"); name as `constants` writes it."""
    place, _, key = name.rpartition(".")
    home = next((function for field, function in functions(row).items()
                 if key in bound(function) and place in ("", field)), None)
    module, _, function = called(home).rpartition(".") if home else ("postgrad", "", "")
    if not module.startswith("postgrad"):
        return Words(f"a constant of {function}", "what it does is in that function's text")
    known = CONSTANTS.get(f"{function}.{key}") or CONSTANTS.get(key)
    return known or Words(f"a constant of {function or row.name}", "what it does is in that function's text")
