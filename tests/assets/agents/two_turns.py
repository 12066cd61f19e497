"""An agent with OpenAI's client: it asks, doubts, and is content with a long first reply."""
import json
import sys

from openai import OpenAI

game, client = json.load(sys.stdin), OpenAI()
talk = game["messages"]
first = client.chat.completions.create(model=game["model"], messages=talk, max_tokens=24).choices[0].message
talk += [first.model_dump(exclude_none=True), {"role": "user", "content": "Are you sure?"}]
with client.chat.completions.create(model=game["model"], messages=talk, stream=True) as said:
    second = "".join(part.choices[0].delta.content or "" for part in said)
print("played", file=sys.stderr)
print(json.dumps({"score": len(first.content + second) % 5 / 5, "reason": second[:9]}))
