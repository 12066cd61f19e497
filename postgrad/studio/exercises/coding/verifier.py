"""A verifier that cannot be cheated."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.json_types import Values

START = "Answer: "
DIGITS = set("0123456789")

HONEST = (
    ("7 and 5 are 12.\nAnswer: 12", 12), ("Answer: 0", 0), ("Answer: -3", -3),
    ("So:\n  Answer: 41  \n\n", 41),
    ("Answer: 007", 7), ("Answer: +5", 5), ("Answer: 8\n\n \n", 8), ("  Answer: 8 ", 8),
    ("Answers can differ.\nAnswer: 6", 6), ("My Answer: 1\nAnswer: 6", 6), ("Answer\nanswer: 1\nAnswer: "
                                                                            "6", 6),
    (f"Answer: {10 ** 17 + 3}", 10 ** 17 + 3),
)
CHEATS = (
    ("", 4), ("4", 4), ("The result is 4.", 4), ("Answer: 14", 4), ("Answer: 41", 4),
    ("Answer: 3\nAnswer: 4", 4),
    ("Answer: 4\nAnswer: 3", 4), ("Answer: 4\nor maybe 5", 4), ("Answer: 4 or 5", 4), ("Answer: 5 or 4", 4),
    ("Answer: 2+2", 4), ("Answer: 4.0", 4), ("Answer: four", 4), ("Answer: ٤", 4), ("Answer: 4_0", 40),
    ("Answer: nan", 4), ("Answer:", 4), ("Answer: ", 0), ("Answer: --4", 4), ("Answer: " + "9" * 5000, 4),
    ("0 1 2 3 4 5 6 7 8 9", 4), ("answer: 4", 4), ("The Answer: 4", 4), ("\n\n\n", 4), ("Answer: 4 ²", 4),
    ("Answer: -", 4), ("Answer: 4\x00", 4), ("Answer: 3\n4", 4),
    ("Answer: it depends\nAnswer: 4", 4), ("Answer: 4", -4), (f"Answer: {10 ** 17 + 3}", 10 ** 17 + 4),
    (f"Answer: {'0' * 19}4", 4), ("Answer: 4", 5),
)


def cases(random: Random) -> Iterator[Values]:
    yield from HONEST
    yield from CHEATS
    for _ in range(6):
        gold = random.randint(-99, 99)
        yield f"{random.randint(0, 9)} then {gold}\nAnswer: {gold}", gold
        yield f"{gold} and {gold}\nAnswer: {gold + random.choice((-1, 1, 10))}", gold


def right(text: str, gold: int) -> object:
    """By the words of the statement, without a regular expression."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    claims = [line for line in lines if line.startswith(START.strip())]
    if not lines or len(claims) != 1 or claims[0] != lines[-1] or not lines[-1].startswith(START):
        return 0.0
    number = lines[-1].removeprefix(START)
    digits = number[1:] if number[:1] in ("+", "-") else number
    if not digits or len(digits) > 18 or not set(digits) <= DIGITS:
        return 0.0
    return float(int(number) == gold)


def two_claims(answer: Answer, text: str, gold: int) -> bool:
    return not any(answer(f"Answer: {first}\nAnswer: {gold}", gold)
                   for first in (gold - 1, gold, "it depends", "4 or 5", ""))


def no_claims(answer: Answer, text: str, gold: int) -> bool:
    """Lines that speak of answers and do not begin with `Answer:`."""
    return all(answer(f"{line}\nAnswer: {gold}", gold) == 1
               for line in ("Answers can differ.", "Answer", "answer: 1", "My Answer: 1", "The line Answer:"))


def long_numbers(answer: Answer, text: str, gold: int) -> bool:
    """Eighteen digits, more than a float holds."""
    gold += 10 ** 17
    return answer(f"Answer: {gold}", gold) == 1 and not any(
        answer(f"Answer: {gold + step}", gold) for step in (-1, 1))


EXERCISE = Exercise(
    name="verifier", title="A verifier that cannot be cheated", chapter=4, function="verify",
    statement="""
A policy in training finds whatever a verifier pays for. Write `verify(text, gold)`: 1.0 where the reply
`text` gives the whole number `gold` as its answer, otherwise 0.0. What is paid for:

First: the last line that is not empty reads `Answer: N` and nothing else; spaces around the line do not
matter.

Second: it is the only line that begins with `Answer:`. Who gives two answers has given none.

Third: N is a sign or none, then up to 18 digits from 0 to 9. It is the value that counts: 007 is 7, and
+5 is 5.

Fourth: the text may be anything that a model could write. There is a score for each: nothing may raise
an error.

    verify("7 and 5 are 12.\\nAnswer: 12", 12) -> 1.0
    verify("Answer: 4 or 5", 4) -> 0.0
""",
    starter="""
def verify(text, gold):
    ...
""",
    hints=(
        "Cut the text into lines, strip them and drop the empty ones; look at the last, and count the "
        "claims.",
        "A regular expression has to match the whole line (`re.fullmatch`), or `Answer: 4 or 5` slips "
        "through.",
        "`\\d` and `str.isdigit` know other digits than 0 to 9, and int() refuses very long ones: name "
        "[0-9].",
    ),
    solution=r"""
import re


def verify(text, gold):
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    claims = [line for line in lines if line.startswith("Answer:")]
    if len(claims) != 1 or lines[-1] != claims[0]:
        return 0.0
    found = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", lines[-1])
    return float(found is not None and int(found[1]) == gold)
""",
    mistakes=(
        Mistake(says="You looked for the number anywhere in the text: a reply that lists all numbers is "
                     "paid.",
                old="    lines = [", new="    return float(str(gold) in text)\n    lines = ["),
        Mistake(says="You took the last number of the text, whatever stands around it: no answer need be "
                     "claimed.",
                old="    lines = [", new="    numbers = re.findall(r'[+-]?[0-9]+', text)\n"
                "    return float(bool(numbers) and len(numbers[-1]) < 20 and int(numbers[-1]) == gold)\n   "
                " lines = ["),
        Mistake(says="You accept two answers as long as the last one is right: that pays for guessing.",
                old="if len(claims) != 1 or lines[-1] != claims[0]:",
                new="if not claims or lines[-1] != claims[-1]:"),
        Mistake(says="You accept an answer that is not the last line: what follows may take it back.",
                old=" or lines[-1] != claims[0]:",
                new=":\n        return 0.0\n    lines = claims\n    if not lines:"),
        Mistake(says="You matched the beginning of the line: `Answer: 4 or 5` is paid for 4.",
                old="re.fullmatch(", new="re.match("),
        Mistake(says="You compared texts: 007 and +5 are the numbers 7 and 5.",
                old="int(found[1]) == gold", new="found[1] == str(gold)"),
        Mistake(says="You take digits of other scripts: `\\d` and `isdigit` know more than 0 to 9.",
                old="[0-9]{1,18}", new=r"\d{1,18}"),
        Mistake(says="It raises an error on some replies: there has to be a score for any text.",
                old="found is not None and int(found[1]) == gold", new="int(found[1]) == gold"),
        Mistake(says="It raises an error where no answer is claimed: there has to be a score for any text.",
                old="    if len(claims) != 1 or lines[-1] != claims[0]:\n        return 0.0\n",
                new="    if len(claims) > 1 or claims[0] != lines[-1]:\n        return 0.0\n"),
        Mistake(says="You evaluated the reply as code: `2+2` is paid, and worse can be run.",
                old="""    found = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", lines[-1])
    return float(found is not None and int(found[1]) == gold)""",
                new="""    try:
        return float(eval(lines[-1].removeprefix("Answer:")) == gold)
    except Exception:
        return 0.0"""),
        Mistake(says="You let int() decide what a number is: it also takes digits of other scripts, and "
                     "underscores.",
                old="""    found = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", lines[-1])
    return float(found is not None and int(found[1]) == gold)""",
                new="""    try:
        return float(int(lines[-1].removeprefix("Answer: ")) == gold)
    except ValueError:
        return 0.0"""),
        Mistake(says="You let float() decide what a number is: 4.0 is paid where a whole number is asked "
                     "for.",
                old="""    found = re.fullmatch(r"Answer: ([+-]?[0-9]{1,18})", lines[-1])
    return float(found is not None and int(found[1]) == gold)""",
                new="""    try:
        return float(float(lines[-1].removeprefix("Answer: ")) == gold)
    except ValueError:
        return 0.0"""),
        Mistake(says="The sign is lost: an answer of -3 is a number too.", old="[+-]?", new=""),
        Mistake(says="You looked for a claim anywhere in the text, in any spelling: it has to be the last "
                     "line, and "
                     "begin with `Answer:`.",
                old="    lines = [", new="    found = re.search(r'answer: ([+-]?[0-9]{1,18})', text, re.I)\n"
                "    return float(found is not None and int(found[1]) == gold)\n    lines = ["),
        Mistake(says="You took the last claim of the text, wherever it stands: it has to be the last line, "
                     "and the "
                     "only one.",
                old="    lines = [", new="    found = re.findall(r'Answer: ([+-]?[0-9]{1,18})', text)\n"
                "    return float(bool(found) and int(found[-1]) == gold)\n    lines = ["),
        Mistake(says="You took all digits of the last line together: `Answer: 4 or 1` is not 41.",
                old="    found = re.fullmatch(r\"Answer: ([+-]?[0-9]{1,18})\", lines[-1])\n",
                new="    digits = re.sub(r'[^0-9+-]', '', lines[-1])\n"
                    "    found = re.fullmatch(r'([+-]?[0-9]{1,18})', digits)\n"),
        Mistake(says="You did not strip the lines: spaces around the last line do not matter.",
                old="[line.strip() for line in text.split(\"\\n\") if line.strip()]",
                new="[line for line in text.split(\"\\n\") if line.strip()]"),
        Mistake(says="You kept empty lines: the last line that is not empty counts.",
                old="[line.strip() for line in text.split(\"\\n\") if line.strip()]",
                new="[line.strip() for line in text.split(\"\\n\")]"),
        Mistake(says="You counted every line with `Answer` in it as a claim: a claim begins with `Answer:`.",
                old="line.startswith(\"Answer:\")", new="\"Answer\" in line"),
        Mistake(says="You counted every line with `Answer:` in it as a claim: it has to begin so.",
                old="line.startswith(\"Answer:\")", new="\"Answer:\" in line"),
        Mistake(says="You counted only claims of a number: `Answer: it depends` is an answer too, and then "
                     "there "
                     "are two.", old="line.startswith(\"Answer:\")",
                new="re.fullmatch(r\"Answer: ([+-]?[0-9]+)\", line)"),
        Mistake(says="You read any number of digits: N has up to 18.", old="{1,18}", new="+"),
        Mistake(says="You read one digit only: N has up to 18.", old="{1,18}", new=""),
        Mistake(says="You compared the numbers as floats: of 17 digits the last ones are lost.",
                old="int(found[1]) == gold", new="float(found[1]) == float(gold)"),
        Mistake(says="You compared with the number without its sign.", old="int(found[1]) == gold",
                new="abs(int(found[1])) == abs(gold)"),
        Mistake(says="It is turned round: a right answer is worth 1, a wrong one 0.",
                old="int(found[1]) == gold", new="int(found[1]) != gold"),
        Mistake(says="You pay for any whole number that is claimed: it has to be `gold`.",
                old=" and int(found[1]) == gold", new=""),
        Mistake(says="You pay where no answer is claimed, or two: these are worth 0.",
                old="        return 0.0\n    found", new="        return 1.0\n    found"),
        Mistake(says="You pay nothing at all.",
                old="return float(found is not None and int(found[1]) == gold)",
                new="return 0.0"),
        Mistake(says="You looked at the first line: the claim is the last one.", old="fullmatch(r\"Answer: "
                "([+-]?[0-9]{1,18})\", lines[-1])",
                new="fullmatch(r\"Answer: ([+-]?[0-9]{1,18})\", lines[0])"),
        Mistake(says="You take a claim in any case: the line begins with `Answer:`.",
                old="    lines = [line.strip()", new="    text = text.replace('answer:', 'Answer:')\n"
                "    lines = [line.strip()"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="A reply without any claim is worth 0.",
                 holds=lambda answer, text, gold: answer(f"{gold}", gold) == 0),
        Property(says="The bare claim of the right number is worth 1.",
                 holds=lambda answer, text, gold: answer(f"Answer: {gold}", gold) == 1),
        Property(says="Two claims are worth 0.", holds=two_claims),
        Property(says="A line that begins otherwise is no claim.", holds=no_claims),
        Property(says="Long numbers are compared to the last digit.", holds=long_numbers),
    ),
)
