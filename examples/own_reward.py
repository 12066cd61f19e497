"""A reward of your own: any function of (prompt, text). Here the model learns to answer in few words.

    python examples/own_reward.py
"""

import postgrad as pg

prompts = [f"Tell me about the number {n}." for n in range(200)]


def brief(prompt, text):
    """1 for a reply of up to 12 characters, less the longer it is; nothing for none at all."""
    return min(1.0, 12 / len(text)) if text else 0.0


run = pg.fit("tiny-chat", "grpo", task=prompts, reward=brief, steps=30, lr=1e-3, prompts_per_step=6,
             group_size=8, rollouts={"max_new_tokens": 32}, evaluation={"every": 0}, run="runs/brief")
before, after = pg.compare("tiny-chat", run, task=prompts, reward=brief, problems=10, samples=2,
                           max_new_tokens=32)
print(f"reward {before['reward']:.2f} -> {after['reward']:.2f}:", run.chat("Tell me about the number 7."))
