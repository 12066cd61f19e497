"""Records what packages of environments say to scripted replies: tests/assets/adapters/NAME.json, on which
tests/data/tasks/adapters_recorded_test.py runs.

    python tests/support/adapters_record.py verifiers|openenv|skyrl FOLDER    FOLDER: for their environments
"""

import json
import random
import sys
from pathlib import Path

sys.path[1:1] = [str(Path(__file__).resolve().parents[2] / "proofs")]


def recorded(door):
    """A slice of what is said between postgrad and the package."""
    from environments import PORT, TASKS

    from postgrad.data.tasks import load_task
    if door == "verifiers":
        task = load_task("env:verifiers:sums-taskset(most=5)")
        prompts = sorted(task.verify.prompts, key=lambda prompt: prompt.id)
        return {"tasks": [{"data": task.verify.tasks[p.id].data.model_dump(mode="json"),
                           "replies": {text: paid(task.verify(p, text)) for text in (
                               f"<answer>{p.answer}</answer>",
                               f"<think>so</think><answer>{p.answer}</answer>", "?")}} for p in prompts]}
    task = load_task(TASKS[door])
    return recorded_server(task, PORT) if door == "openenv" else recorded_steps(task)


def recorded_steps(task) -> dict:
    """Episodes of scripted replies with skyrl-gym: each step of an environment, and the conversation."""

    from postgrad.data.tasks.games import play_game
    make, talks = task.play.make, []

    def listening(name, **given):
        environment = make(name, **given)
        step = environment.step
        environment.step = lambda text: (said := step(text), talks[-1]["steps"].append([text, dict(said)]))[0]
        talks[-1] |= {"name": name, "extras": given["extras"], "max_turns": environment.max_turns}
        return environment

    task.play.make = listening
    for prompt in task.prompts("train", 2, 0):
        for replies in (["?", "#### 1", f"#### {prompt.answer}"], [f"#### {prompt.answer}"], ["1"] * 3):
            talks.append({"prompt": [dict(m) for m in prompt.messages], "replies": replies, "steps": []})
            script = iter(replies)
            messages, said = play_game(prompt, task.play, lambda *_, script=script: next(script),
                                       random.Random(0))
            talks[-1] |= {"conversation": messages, "score": said.score, "per_turn": said.per_turn}
    return {"episodes": talks}


def paid(said) -> dict:
    return {"score": said.score, "rewards": said.parts, "weights": said.weights}


def recorded_server(task, port) -> dict:
    """Episodes of scripted replies with a server: every message of both sides, and the verdict."""

    from postgrad.data.tasks.adapters.openenv import schema_of
    from postgrad.data.tasks.games import play_game
    connect, talks = task.play.connect, []

    def listening(url, **settings):
        connection = connect(url, **settings)
        send, recv = connection.send, connection.recv
        connection.send = lambda text: (talks[-1]["messages"].append([json.loads(text)]), send(text))
        connection.recv = lambda timeout: (text := recv(timeout),
                                           talks[-1]["messages"][-1].append(json.loads(text)))[0]
        return connection

    task.play.connect = listening
    prompt = task.prompts("train", 1, 0)[0]
    for seed, replies in enumerate((["5", "2", "8", "1"], ["x"], ["7", "3", "4", "9"])):
        talks.append({"seed": seed, "replies": replies, "messages": []})
        script = iter(replies)
        messages, said = play_game(prompt, task.play, lambda *_, script=script: next(script),
                                   random.Random(seed))
        talks[-1] |= {"conversation": messages, "score": said.score, "per_turn": said.per_turn}
    return {"action": schema_of(f"http://127.0.0.1:{port}/schema", True), "episodes": talks}


if __name__ == "__main__":
    from environments import HOME, inside
    door, folder = sys.argv[1:]
    found = inside(door, Path(folder).resolve(),
                   f"import json, adapters_record as a; print(json.dumps(a.recorded({door!r})))")
    (HOME / f"tests/assets/adapters/{door}.json").write_text(json.dumps(found, indent=1) + "\n")
