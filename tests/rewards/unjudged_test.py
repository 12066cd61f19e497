"""Replies that cannot be judged: a run with none that can be stops, and a verifier that does not come back is
an error within its limit."""

import re
import signal
import threading

import pytest
from small import CHAT

import postgrad as pg
from postgrad.cli import main
from postgrad.data.tasks import Task, load_task
from postgrad.evaluation.audit import answers_of_task
from postgrad.recipes.chat_session import ChatReply, ChatSession
from postgrad.recipes.process import label_replies, unlabelled_note
from postgrad.records import Conversation, Prompt, Rollout, Verdict
from postgrad.rewards.base import VerifierReward, check_verifier, guarded
from postgrad.rewards.function import own_verifier
from postgrad.runs import Run
from postgrad.system.limit import SECONDS, TimeLimit, within_limit

FAILS = """
prompts = [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in range(12)]

def verify(prompt, completion):
    return {"": 0.0}[completion]
"""
SMALL = ["steps=2", "rollouts.prompts=4", "rollouts.prompts_per_step=2", "rollouts.group_size=2",
         "rollouts.max_new_tokens=4", "evaluation.problems=2", "evaluation.samples=2"]
SAID = r"none of \d+ replies could be judged: infrastructure: fails.py, line 5: KeyError"
PROMPTS = [Prompt.ask(f"{n}?", str(n)) for n in range(12)]


@pytest.fixture
def fails(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text(FAILS)
    return str(path)


@pytest.mark.parametrize("words", [
    ["grpo:questions", "reward=judge:tiny-chat", "evaluation.every=0"],
    ["grpo:questions", "reward=judge:tiny-chat", "evaluation.every=1"],
    ["dapo:questions", "reward=judge:tiny-chat", "evaluation.every=0"],
    ["best_of_n:questions", "reward=judge:tiny-chat", "evaluation.every=0"],
], ids=["in a collection", "in an evaluation", "resampled", "chosen"])
def test_a_run_that_no_judge_can_judge_has_failed(words, tmp_path, capsys):
    assert main(["train", *words, *SMALL, "--run", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "replies could be judged: infrastructure: the grader gave no score but" in said
    assert "name another judge with reward=" in said and "Traceback" not in said
    state = Run.open(tmp_path / "run").state()
    assert state["state"] == "failed" and "could be judged" in state["error"]


@pytest.mark.parametrize("line", [
    "train grpo --task {task} evaluation.every=0 --run {out} " + " ".join(SMALL),
    "train outcome --task {task} replies.problems=2 replies.samples=2 evaluation.every=0 --run {out}",
    "eval tiny-chat --task {task} --problems 2 --samples 2 --max-new-tokens 4",
    "pick tiny-chat --task {task} --prompts 2 --samples 2 --max-new-tokens 4 --out {out}",
], ids=lambda line: " ".join(line.split()[:2]))
def test_every_command_that_judges_stops_where_nothing_can_be_judged(line, fails, tmp_path, capsys):
    assert main(line.format(task=fails, out=tmp_path / "out").split()) == 2
    assert re.search(SAID, capsys.readouterr().err)


def test_the_python_door_stops_too(fails):
    small = {"problems": 2, "samples": 2, "max_new_tokens": 4}
    for measure in (lambda: pg.evaluate("tiny-chat", fails, **small),
                    lambda: pg.compare("tiny-chat", "tiny-chat", task=fails, **small)):
        with pytest.raises(ValueError, match=SAID):
            measure()


def rollout(text, number=0):
    tokens = tuple(CHAT.encode(text))
    return Rollout(prompt=PROMPTS[number], prompt_tokens=(1,), tokens=tokens, logp=(0.0,) * len(tokens),
                   text=text, finished=True, seed=0)


def raises(prompt, text):
    if text != prompt.answer:
        raise KeyError(text)
    return Verdict(score=1.0)


BARE = Task(name="bare", about="", prompts=lambda split, count, seed: PROMPTS[:count], verify=raises,
            gold=lambda prompt: prompt.answer,
            demonstrations=lambda split, count, seed: [
                Conversation(id=p.id, messages=(*p.messages, {"role": "assistant", "content": "no"}))
                for p in PROMPTS])


def test_a_verifier_that_raises_is_an_error_wherever_it_is_asked():
    """In a chat, an audit, the labels of an outcome model, and the proof on gold."""
    class ChatModel:
        name, made_by = "one", ""

        class sampler:
            @staticmethod
            def stream(*_):
                yield "?"
                return True

    reply = ChatReply(ChatModel(), PROMPTS[0], PROMPTS[0])
    assert list(ChatSession([], None, task=BARE).sample(reply)) == ["?"]
    assert reply.verdict.error.startswith("infrastructure: the verifier raised KeyError")
    answers, truth = answers_of_task(BARE, 4, 0)
    with pytest.raises(ValueError, match="the verifier of task bare failed on 4 answers: infrastructure: "):
        truth(answers)
    marked = label_replies(False, BARE, [rollout("0"), rollout("?"), rollout("1", 1)], CHAT)
    assert [row.id for row in marked] == [PROMPTS[0].id, PROMPTS[1].id], "an error is no wrong answer"
    assert unlabelled_note(3, len(marked)) == ("1 of 3 replies could not be judged, and are left out.",)
    assert unlabelled_note(3, 3) == ()
    with pytest.raises(ValueError, match="pays 0 instead of 1 .* the verifier raised KeyError"):
        check_verifier(raises, [(PROMPTS[0], "?")])


# a verifier that does not come back

def forever(prompt, text):
    while True:
        pass


def waits(prompt, text):
    threading.Event().wait()


def stubborn(prompt, text):
    """Holds on to every Exception, and to the first interrupt of any kind."""
    try:
        while True:
            try:
                waits(prompt, text)
            except Exception:
                continue
    except BaseException:
        waits(prompt, text)


@pytest.mark.parametrize("verify", [forever, waits, stubborn], ids=lambda f: f.__name__)
def test_a_verifier_that_hangs_is_an_error_that_names_the_limit(verify, monkeypatch):
    monkeypatch.setattr("postgrad.system.limit.AGAIN", 0.05)
    said = own_verifier(verify, seconds=0.05)(PROMPTS[0], "")
    assert "unjudged_test.py, line" in said.error
    assert ("verify took over 0.05 s; `seconds = N` in the task's file, or verify.seconds = N, allows more"
            in said.error)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_the_verdicts_of_many_share_a_timer_and_each_keeps_its_limit(monkeypatch):
    monkeypatch.setattr("postgrad.system.limit.AGAIN", 0.05)

    def alarms(prompt, text):  # as verifiers do that limit their own time
        before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
        signal.alarm(5)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before if text != "2" else signal.SIG_DFL)
        return True

    def verify(prompt, text):
        return {"0": forever, "1": alarms, "2": alarms, "3": stubborn}.get(text, lambda *_: 0.5)(prompt, text)

    reward = VerifierReward(own_verifier(verify, seconds=0.05))
    for texts in ("0x1x0", "2x0", "x3x0x", "10", "xx"):
        said = reward.score([rollout(text) for text in texts])
        late = [bool(verdict.error) and "verify took over 0.05 s" in verdict.error for verdict in said]
        assert late == [text in "03" for text in texts]
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_in_another_thread_the_call_is_left_behind():
    free, said = threading.Event(), []
    judge = guarded(lambda prompt, text: free.wait() and Verdict(score=1.0), seconds=0.05)
    thread = threading.Thread(target=lambda: said.append(judge(PROMPTS[0], "")))
    thread.start()
    thread.join()
    free.set()
    assert "verify took over 0.05 s" in said[0].error


def test_in_another_thread_a_loop_ends():
    judge, before = guarded(forever, seconds=0.05), set(threading.enumerate())
    thread = threading.Thread(target=judge, args=(PROMPTS[0], ""))
    thread.start()
    thread.join()
    for left in set(threading.enumerate()) - before:
        left.join(60)
        assert not left.is_alive()


def test_what_a_call_raises_or_returns_comes_through_in_any_thread():
    def here(call):
        try:
            return within_limit(60, call)
        except KeyError as error:
            return repr(error)

    there = []
    for call, want in ((lambda: 3, 3), (lambda: {}["x"], "KeyError('x')"), (lambda: None, None)):
        thread = threading.Thread(target=lambda call=call: there.append(here(call)))
        thread.start()
        thread.join()
        assert here(call) == there.pop() == want
    assert within_limit(float("inf"), lambda: 5) == 5


def test_a_limit_inside_another_leaves_the_outer_one_standing():
    def outer():
        for _ in range(3):
            with pytest.raises(TimeLimit):
                within_limit(0.01, lambda: forever(None, None))
        return signal.getitimer(signal.ITIMER_REAL)[0]

    assert 0 < within_limit(60, outer) < 60


def test_where_the_limit_is_set(tmp_path, monkeypatch):
    """In the task's file, on the function, by make_task; else SECONDS."""
    limits = []
    monkeypatch.setattr("postgrad.rewards.base.within_limit",
                        lambda seconds, call: limits.append(seconds) or call())
    path = tmp_path / "slow.py"
    text = "prompts = [{'question': str(n)} for n in range(9)]\ndef verify(p, c): return 0.5\n"
    path.write_text(text + "seconds = 7\n")
    load_task(str(path))

    def verify(prompt, text):
        return 0.5

    pg.make_task(PROMPTS, verify, seconds=8)
    pg.make_task(PROMPTS, verify)
    verify.seconds = 9
    pg.make_task(PROMPTS, verify)
    VerifierReward(own_verifier(verify)).score([rollout("")])
    VerifierReward(verify).score([rollout("")])
    VerifierReward(verify, waits=True).score([rollout("")])
    assert limits == [7, 8, SECONDS, 9, 9, 9, float("inf")]
    for bad in ("0", "-1", "'5'", "float('nan')"):
        path.write_text(text + f"seconds = {bad}\n")
        with pytest.raises(ValueError, match="slow.py, line 3: `seconds` must be a number above 0"):
            load_task(str(path))


def test_a_function_written_for_trl_has_a_limit_too():
    def slow(completions, **columns):
        waits(None, None)

    slow.seconds = 0.05
    said = pg.from_trl(slow).score([rollout("a"), rollout("b")])
    assert len(said) == 2 and all("verify took over 0.05 s" in v.error for v in said)


def test_a_run_with_a_verifier_that_hangs_on_some_replies_goes_on(tmp_path):
    path = tmp_path / "hangs.py"
    path.write_text("""
import threading
seconds = 0.05
prompts = [{"question": f"What is {n}+1?", "answer": str(n + 1)} for n in range(12)]
asked = []

def verify(prompt, completion):
    asked.append(completion)
    if len(asked) == 3:
        threading.Event().wait()
    return len(completion) / 100
""")
    assert main(["train", "grpo", "--task", str(path), *SMALL, "evaluation.every=0", "--run",
                 str(tmp_path / "run")]) == 0
    rows, _ = Run.open(tmp_path / "run").rows("metrics")
    assert [row["errors"] for row in rows] == [1, 0]
