"""A reward model from pairs, then PPO against it: InstructGPT's last two stages.

    python examples/reward_then_ppo.py
"""

import postgrad as pg

judge = pg.fit("tiny-chat", "reward", task="questions", steps=10, pairs={"drawn": 320, "held_out": 40},
               run="runs/rlhf/reward")
print(f"reward model: right on {judge.evaluations()[-1]['accuracy']:.0%} of held-out pairs")
ppo = pg.fit("tiny-chat", "ppo", task="questions", reward=judge, steps=3, prompts_per_step=6, group_size=2,
             evaluation={"every": 3, "problems": 8, "samples": 2}, run="runs/rlhf/ppo")
for row in ppo.evaluations():  # what the reward model says, the true quality, and how far the policy went
    print(row["step"], f"proxy {row['proxy']:.2f}, true {row['reward']:.2f}, KL {row['kl_reply']:.2f}")
