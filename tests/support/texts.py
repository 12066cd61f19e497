"""Texts that no verifier should stumble over."""

import random

from postgrad.data.tasks.base import think


def hostile_texts(count=2000, seed=5):
    """Texts that a model, or somebody behind it, might write: tags, digits, operators, code and odd
    characters at random."""
    rng = random.Random(seed)
    pieces = ["<think>", "</think>", "<answer>", "</answer>", "9" * 500, "9", "0", "1/0", "**", "//",
              "(" * 40, ")" * 40, "+", "-", "*", "/", "(", ")", "^", "{", "\\frac{1}{2}",
              "__import__('os').system('id')", "eval(", "lambda:0", "%s", "{0}", "\x00", "\ud800", "\u202e",
              "٣", "²", "½", "１２", "∞", "é", "🙂", "\u200b", "\n", "\t", " ", "nan", "inf", "1e999", "0x1F",
              "Hello!", "meat", "true", "None", ",", ".", "<", "=", "-" * 300, "1," * 100, "İ", "ß"]
    made = ["", "9" * 10**5, "(" * 10**5, "<answer>" * 10**4, think("", "9" * 10**5),
            think("", "(" * 5000 + "1" + ")" * 5000), think("9" * 10**5, "1+" * 10**4 + "1"),
            think("", "9**9**9**9"), "a " * 10**5]
    while len(made) < count:
        inside = "".join(rng.choices(pieces, k=rng.randint(1, 12)))
        made.append(think(inside, "".join(rng.choices(pieces, k=rng.randint(0, 6)))) if rng.random() < 0.5
                    else inside)
    return made
