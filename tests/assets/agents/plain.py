"""Agents without a library, each a function by the name in the prompt."""
import json
import os
import sys
import time
import urllib.error
import urllib.request

game = json.load(sys.stdin)


def ask(messages, **more):
    body = json.dumps({"messages": messages, **more}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {
        "Content-Type": "application/json", "Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]})
    try:
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["error"]["message"])


def pay(score):
    with open(os.environ["POSTGRAD_SCORE"], "w") as file:
        json.dump({"score": score}, file)


def user(text):
    return {"role": "user", "content": text}


def two(talk):
    first = ask(talk)
    ask([*talk, first, user("Are you sure?")])
    pay(len(first["content"]) % 3 / 2)


def judged(talk):
    ask(talk)
    print("no score")


def forgets(talk):
    """Four requests: two go on, one says otherwise what was said, one asks again where it had asked."""
    first = ask(talk)
    ask([*talk, first, user("Sure?")])
    ask([*talk, {**first, "content": first["content"] + " well"}, user("Sure?")])
    ask([*talk, first, user("Really?")])
    pay(1)


def echoes(talk):
    """What the policy says is printed, and would be a score."""
    ask(talk)
    print(json.dumps({"score": 1000000}))


def leaves(talk):
    """A process that has left the session and the parent, and is ready once it has written its number."""
    ask(talk)
    read, write = os.pipe()
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        os.write(write, str(os.getpid()).encode())
        time.sleep(600)
    with open(game["meta"]["kept"], "wb") as file:
        file.write(os.read(read, 20))
    pay(1)


def looks(talk):
    """What it was given of the environment."""
    ask(talk)
    with open(game["meta"]["kept"], "w") as file:
        json.dump(dict(os.environ), file)
    pay(1)


def greedy(talk):
    ask(talk)
    pay(1000000)


def crashes(talk):
    ask(talk)
    raise RuntimeError("the tool is broken")


def hangs(talk):
    ask(talk)
    time.sleep(600)


def silent(talk):
    pay(1)


def unsound(talk):
    ask(talk)
    pay(float("nan"))


def cold(talk):
    ask(talk, temperature=0)


def stranger(talk):
    os.environ["OPENAI_API_KEY"] = "another"
    ask(talk)


def endless(talk):
    while True:
        ask(talk)


globals()[game["meta"].get("plays", "two")](game["messages"])
