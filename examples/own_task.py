"""A task of your own in a file: prompts, a verifier, and a gold answer that proves the verifier.

    postgrad train grpo --task examples/own_task.py
    python examples/own_task.py                        the same from Python, small
"""

name = "reversed"
prompts = [{"question": f"Write {n} backwards.", "answer": str(n)[::-1]} for n in range(100, 999)]


def verify(prompt, completion):
    """Half for a number of the right length, all for the right number."""
    said = "".join(c for c in completion if c.isdigit())
    return 1.0 if said == prompt.answer else 0.5 * (len(said) == len(prompt.answer))


def gold(prompt):
    return f"<think></think><answer>{prompt.answer}</answer>"


if __name__ == "__main__":
    import postgrad as pg

    run = pg.fit("tiny-chat", "grpo", task=__file__, steps=5, prompts_per_step=6, group_size=4,
                 rollouts={"max_new_tokens": 24}, evaluation={"every": 5, "problems": 16},
                 run="runs/reversed")
    for row in run.evaluations():
        print(row["step"], f"pass@1 {row['pass@1']:.2f}, reward {row['reward']:.2f}")
