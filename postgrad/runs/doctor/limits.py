"""Every threshold of the doctor, and why it stands where it stands.

They were chosen on runs of other seeds than those they are proved on (proofs/truth.py doctor). Each lies well
outside what healthy runs show, for a false alarm costs a reader more than a symptom that is named a few steps
later.
"""

ENOUGH = 8  # steps before a trend is read: thirds of fewer are two noisy points
SHOWN = 4   # steps with samples that vary, before the direction of the updates is judged

# data
LEAKED = 0.02      # of the evaluated problems: one may be a chance of the generator, two in a hundred are not
REPEATED = 0.1     # of the training prompts; generators repeat a few of their smallest problems
ERRORS = 0.01      # of the verdicts: one in a hundred is a fault that comes back, not a hiccup of the machine

# sampler, reference, sign
MISMATCH = {"fp32": 0.003, "bf16": 0.05}  # nats a token; our own engine has 1e-6 and 0.01
FIRST_KL = 0.01    # nats a token at step 1, where policy and reference are one model: rounding gives 1e-5
FIRST_SCORE = 0.1  # nats a reply, the same of a preference row's log-ratio
AGAINST = -0.3     # correlation of advantage and change; healthy runs 0.3 to 0.9, chance over 4 steps +-0.19
MASKED = 0.9       # of a finished reply's tokens that are trained: all of them, in every row of the table
NO_ADVANTAGE = 1e-4  # an advantage that is nothing: the loss pulls nowhere, rightly
STOPS = 0.5        # of the finished replies, whose stop token is trained: all of them; rows may be cut
GROUPS = 3         # groups whose scores differ, before score and advantage are compared ...
CREDITED = 0.4     # ... their correlation: 1 of samples with their own advantage, -1/(G-1) of another's
JUDGED = 16        # pairs that the task's own verifier scores apart, before they can be called swapped
SIGMAS = 2.0       # standard errors over one half; annotators that err still have 70 to 90 % right
SAME = 5           # replies that say the same as another to their prompt ...
CONTRADICTED = 0.1  # ... scored otherwise; a function has none, a coin half
FOLLOWS = 0.02     # of the squared step size: an update of d nats leaves a KL of d^2/2
ROUNDING = 1e-6    # nats a reply of a policy and a reference that are one model

# the update
SKIPPED = 2        # updates that were not finite; one may be an odd batch
STEP_SIZE = 0.45   # nats a token by which an update moves the samples it was made of; healthy 0.02 to 0.2
GOOD_STEP = 0.05   # the middle of these: what a remedy aims at
STILL_STEP = 0.002  # nats a token by the largest update; a tenth of the smallest healthy one
STILL_LOSS = 0.003  # nats by which an update can change a loss without samples; healthy 0.03 to 1
KL_EARLY = 0.1     # nats a token in the first third, of a run that becomes worse; healthy runs gain meanwhile
FALLEN = 0.75      # of the best reward in training is left in the last third
LOSS_SPIKE = 2.5   # times a loss at the start, at any step; odd batches of healthy runs: up to 1.6
LEASH = 0.4        # of the pull at the tokens is the KL's; healthy below 0.1
LEASH_WEIGHT = 0.5  # a KL weight below it is in some paper
LOST = 0.5         # of the groups' spread at the start, by which the reward is lower at the end
LOSS_RISE = 2.0    # times a supervised or preference loss at the start; data that it knew: up to 1.7
KL = 0.5           # nats a token from the reference at the end; healthy 0.02 to 0.2
KL_REPLY = 30.0    # nats a reply, the same of an evaluation; healthy 1 to 10
USED = 1e-6        # an approx_kl above it: the samples were used before, and the policy has moved since
CLIPPED = 0.2      # of the tokens; a clip cuts one side alone, so that half is all. Healthy: up to 0.12
CLIPPED_WHOLE = 0.9  # the same of a row that clips whole replies, which papers report far above tokens'
NEVER = 20         # updates on used samples without one clipped token, before the clip is called idle
GRAD_CLIPPED = 0.95  # of the updates are cut ...
GRAD_RATIO = 20.0    # ... and the usual one is so many times the limit; rows that sum over a reply have 8

# what is learned
FLAT = 0.85        # of the groups score alike in the first third of a run: a reward of 3 % in groups of four
SMALL_GROUP = 4    # samples to compare with; of two, one is the other's whole baseline
COLLAPSED = 0.15   # of the entropy at the start is left ...
UNDECIDED = 0.1    # ... and it is below so many nats a token,
DECIDED = 0.05     # or it was below these from the start (the embedded models begin with 0.2 to 0.4) ...
ALIKE = 0.6        # ... and so many groups score alike
LEARNED = 0.5      # a gain in the groups' own spread at the start; less is no gain that would excuse the fall
LONGER = 1.5       # times the length at the start, where a held-out quality falls meanwhile ...
TWICE = 2.0        # ... and where the reward in training alone says so: a reply grows before it gains
STILL = 0.1        # while the reward gains no more than this, in the groups' spread at the start
TRUNCATED = 0.15   # of the samples hit the limit
FORM = 0.1         # the rise of a form's share, from the first third to the last
CONTENT = 0.25     # of the reward's rise that content should have at least
EXPLAINED = 0.05   # of the returns' variance; a critic that says a constant has 0 ...
LONG = 100         # ... which is to be expected for so many updates
UNMOVED = 0.05     # of the gap to the returns is closed: the critic has not learned even their mean
MARGIN = 0.02      # between chosen and rejected, in units of the score; a living head passes it in ten steps
EVEN = 0.05        # around one half: accuracy that is a coin's

# the guard, during a run
GUARD_START = 4    # steps that are the start: a loss or a reward of fewer is one odd batch
GUARD_WINDOW = 3   # steps whose mean is compared with it: an odd batch is no trouble
GUARD_LOSS = 2.0   # times the loss at the start; data that it knew: up to 1.7
GUARD_GRADIENT = 10.0  # times the usual gradient norm at the start; healthy up to 4
GUARD_ENTROPY = 2.0    # times the entropy at the start ...
GUARD_NATS = 0.5       # ... and so many nats a token above it
GUARD_LEFT = 0.25  # of a reward at the start that is left ...
GUARD_LOST = 0.2   # ... and it fell by so much of the groups' spread,
GUARD_SPREAD = 1.0  # or by so much of it, wherever it stood; healthy runs of 16 samples a step fall by 0.6
GUARD_KL = 3.0     # nats a token, also of a run that gains: a form that it never wrote costs 1 or 2
