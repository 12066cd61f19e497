"""A class as TRL's environment_factory takes it: products, and a calculator that has to be asked."""

import random

turns, tokens = 3, 32
train_dataset = [{"prompt": [{"role": "user", "content": f"What is {a}*{b}?"}], "answer": a * b}
                 for a, b in ((random.Random(i).randint(1000, 9999), 11 + i % 89) for i in range(2000))]


class Calculator:
    """Products too large to work out, and a calculator."""

    def reset(self, answer, **row):
        self.answer, self.asked = answer, []

    def calc(self, expression: str) -> str:
        """Multiplies two whole numbers.

        Args:
            expression: for example 12*34
        """
        a, b = map(int, expression.split("*"))
        self.asked.append(a * b)
        return str(a * b)


def right(completions, environments, answer, **kwargs):
    """Paid for the answer itself."""
    return [float(said[-1]["content"].strip() == f"<answer>{wanted}</answer>")
            for said, wanted in zip(completions, answer, strict=True)]


reward_funcs = [right]
