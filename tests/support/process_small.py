"""One problem and its rollouts, for the tests of process models."""

from small import CHAT

from postgrad.records import Prompt, Rollout

ASK = Prompt.ask(
    "Ivy has 5 stamps. A friend gives Ivy 8. Ivy gives away 3. Ivy doubles the pile. How many stamps?", "20",
    start=5, ops=(("+", 8), ("-", 3), ("*", 2)), language="en")
GOLD = "<think>5+8=13, 13-3=10, 10*2=20</think><answer>20</answer>"


# Steps to tokens

def rolled(text, prompt=ASK, tokens=None, finished=True):
    tokens = [*(tokens or CHAT.encode(text)), *([CHAT.stop[0]] if finished else [])]
    return Rollout(prompt=prompt, prompt_tokens=tuple(CHAT.render(prompt.messages)), tokens=tuple(tokens),
                   logp=(-1.0,) * len(tokens), text=CHAT.decode(tokens), finished=finished, seed=0)
