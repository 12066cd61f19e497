"""Runs started from a page: the forms, and the processes."""

import fcntl
import json
import os
from pathlib import Path

import pytest
from settings_text import override
from studio_small import Texts, client, make

from postgrad.cli.settings import config_from_text
from postgrad.models import find_model
from postgrad.models.families import Config
from postgrad.models.load import EMBEDDED
from postgrad.runs import Run
from postgrad.studio.pages import format_bytes
from postgrad.studio.runs import forms, processes, traces
from postgrad.studio.runs.launch import shell_path
from postgrad.system.settings import flat_settings
from postgrad.training.memory import Setup, cache, parameters, sampler_bytes

SPECS = [f"{row['name']}:{key}" for row in forms.recipe_menu() for key, _ in row["settings"]]


@pytest.mark.parametrize("spec", SPECS)
def test_an_untouched_form_asks_for_the_setting_itself(spec):
    given = {f["key"]: f["value"] for group in forms.form_sections(spec, {}) for f in group["fields"]}
    plan = forms.plan_command(spec, given, "runs/x")
    assert plan["error"] is None and plan["words"] == ["train", spec, "--run", "runs/x"]
    wanted = flat_settings(config_from_text(spec)[1])
    assert given.keys() == wanted.keys() - {"method"}
    changed = override(config_from_text(spec)[1], [f"{key}={text}" for key, text in given.items()])
    assert flat_settings(changed) == wanted  # every value survives being written into a form and read again


def test_a_changed_value_is_in_the_command_and_an_equal_one_is_not():
    plan = forms.plan_command("grpo:words",
                              {"optim.lr": "none", "steps": "7", "kl.measure": "true", "nonsense": "1"},
                              "runs/x")
    assert plan["command"] == "postgrad train grpo:words steps=7 kl.measure=true --run runs/x"
    own = forms.plan_command("grpo", {"task": "mine.py", "rollouts.group_size": "4"}, "runs/x")
    assert (own["command"] == "postgrad train grpo task=mine.py rollouts.group_size=4 --run runs/x"
            and own["error"] is None)
    data = forms.plan_command("dpo", {"task": "none", "data": "pairs.jsonl"}, "runs/x")
    assert data["command"] == "postgrad train dpo data=pairs.jsonl --run runs/x" and data["error"] is None


def test_the_memory_of_a_form_is_that_of_postgrad_memory(tmp_path):
    """tiny-chat by GRPO on a CPU: all in float32, 16 bytes a trained weight; a cache of 16 prompts x 8
    replies of 64 tokens, and what sampling has beside it."""
    shape = Config.read(find_model("tiny-chat") / "config.json")
    plan = forms.plan_command("grpo", {"task": "words"}, "runs/x")
    needs, n = plan["memory"], parameters(shape)
    # a reference beside the policy
    assert (needs["weights"], needs["gradients"], needs["optimizer"]) == (8 * n, 4 * n, 8 * n)
    writing = Setup(bits=32, tokens=64, samples=128, on_gpu=False)
    assert (needs["cache"], needs["sampler"]) == (cache(shape, writing), sampler_bytes(shape, writing))
    alone = forms.plan_command("grpo", {"task": "words", "kl.coef": "0"}, "runs/x")["memory"]
    assert alone["weights"] == 4 * n
    assert forms.plan_command("dpo", {"task": "questions", "model": "no-such-model"},
                              "runs/x")["memory"] is None
    assert forms.plan_command("align", {}, "runs/x")["memory"] is None
    told = Texts(client(tmp_path).get("/runs/-/plan?recipe=grpo&set.task=words").text).text
    assert f"at most about {format_bytes(needs['peak'])}" in " ".join(told.split())


def test_nothing_is_started_where_other_machines_can_ask(tmp_path):
    """A task may be a file of Python."""
    web = client(tmp_path, loopback=False)
    for act in ("start", "resume"):
        answer = web.post(f"/runs/-/{act}", data={"recipe": "grpo:words", "name": "x", "run": "x"})
        assert answer.status_code == 403 and "switched off" in answer.text
    page = web.get("/runs/new").text
    assert "switched off" in page and ">Start<" not in page and not any(tmp_path.iterdir())


def test_the_form_offers_every_embedded_model(tmp_path, monkeypatch):
    monkeypatch.setitem(EMBEDDED, "tiny-other", find_model("tiny"))
    page = client(tmp_path).get("/runs/new").text
    assert all(f'<option value="{name}">' in page for name in EMBEDDED)


@pytest.mark.parametrize(("key", "text"), [("optim.lr", "-1"), ("optim.lr", "x"), ("steps", "0"),
                                           ("rollouts.group_size", "0"), ("optim.schedule", "cosin"),
                                           ("rollouts.temperature", "0"), ("save_every", "x")])
def test_a_bad_value_gets_the_library_s_own_sentence(tmp_path, key, text):
    with pytest.raises(ValueError) as fault:
        config_from_text("grpo:words", [f"{key}={text}"])
    web = client(tmp_path)
    told = Texts(web.get("/runs/-/plan", params={"recipe": "grpo:words", f"set.{key}": text}).text).text
    assert str(fault.value) in told
    assert (str(fault.value)
            in Texts(web.get("/runs/new", params={"recipe": "grpo:words", f"set.{key}": text}).text).text)
    refused = web.post("/runs/-/start", data={"recipe": "grpo:words", f"set.{key}": text})
    assert (refused.status_code == 400 and str(fault.value) in Texts(refused.text).text
            and not list(tmp_path.iterdir()))


def test_the_form_carries_the_words_of_the_code():
    fields = {f["key"]: f for group in forms.form_sections("grpo:words", {}) for f in group["fields"]}
    wanted = "the rank of low-rank adapters; 0 trains all weights; none: by the model's size"
    assert fields["optim.adapter.lora"]["about"] == wanted
    assert fields["kl.measure"]["yes_no"] and fields["reward"]["optional"] and "method" not in fields


def test_several_faults_have_their_own_sentences_and_a_switch_may_be_open():
    plan = forms.plan_command("grpo:words", {"optim.lr": "fast", "rollouts.min_p": "7", "steps": "5"}, "x")
    assert plan["faults"].keys() == {"optim.lr", "rollouts.min_p"}
    assert "fast" in plan["faults"]["optim.lr"] and "min_p" in plan["faults"]["rollouts.min_p"]
    assert forms.plan_command("grpo", {"task": "none"}, "x")["faults"].keys() == {"task"}
    fields = {f["key"]: f for group in forms.form_sections("grpo:words", {}) for f in group["fields"]}
    assert fields["optim.compile"]["optional"] and fields["optim.compile"]["value"] == "none"


def test_method_and_task_are_chosen_apart():
    assert forms.chosen_spec({"method": "grpo", "setting": "words"}) == "grpo:words"
    assert forms.chosen_spec({"method": "dpo", "setting": "words"}) == "dpo:questions"
    assert forms.chosen_spec({"method": "dpo", "setting": "own"}) == "dpo"
    assert forms.chosen_spec({"method": "r1", "setting": "own"}) == "r1:full"
    for row in forms.recipe_menu():
        for setting in [key for key, _ in row["settings"]]:
            spec = forms.chosen_spec({"method": row["name"], "setting": setting})
            main, folded = forms.split_sections(spec, forms.form_sections(spec, {}))
            assert 2 <= len(main) <= 13, spec


# processes

def finished(root: Path, name: str) -> None:
    """Wait for a process that was started for a run: its lock on what it says goes with it."""
    with open(processes.output_file(root, name)) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def test_a_run_is_started_from_the_page_as_a_process_of_its_own(tmp_path):
    web = client(tmp_path)
    small = {"steps": "2", "rollouts.prompts_per_step": "2", "rollouts.group_size": "2",
             "rollouts.max_new_tokens": "6", "evaluation.every": "0"}
    asked = {"recipe": "grpo:arithmetic", "name": "mine"} | {f"set.{k}": v for k, v in small.items()}
    answer = web.post("/runs/-/start", data=asked)
    assert answer.status_code == 200 and answer.headers["hx-redirect"] == "/runs/mine"
    pid = json.loads((tmp_path / ".output" / "mine.json").read_text())["pid"]
    assert os.getsid(pid) == pid != os.getsid(0) and os.getpriority(os.PRIO_PROCESS, pid) >= processes.NICE
    assert "mine" in web.get("/runs").text and web.get("/runs/mine").status_code == 200
    again = web.post("/runs/-/start", data={"recipe": "grpo:arithmetic", "name": "mine"})
    assert again.status_code == 400 and "taken" in again.text
    finished(tmp_path, "mine")
    run = Run.open(tmp_path / "mine")
    assert run.state()["state"] == "done" and run.state()["pid"] == pid and run.next_step == 3
    page = web.get("/runs/mine").text
    assert "done" in page and "$ postgrad train grpo:arithmetic steps=2" in Texts(page).text
    assert web.post("/runs/-/resume", data={"run": "mine"}).status_code == 400  # it is done
    assert web.post("/runs/-/stop", data={"run": "mine"}).status_code == 400


@pytest.mark.parametrize("asked", [{"set.model": "no-such-model"}, {"set.reward": "no-such-judge"},
                                   {"recipe": "opd:words", "set.teacher": "no-such-teacher"}])
def test_a_model_that_is_not_there_is_refused_before_anything_starts(tmp_path, asked):
    web, (name,) = client(tmp_path), [word for word in asked.values() if word.startswith("no-such")]
    asked = {"recipe": "grpo:words", "name": "lost", **asked}
    assert f"no model at {name}" in Texts(web.get("/runs/-/plan", params=asked).text).text
    refused = web.post("/runs/-/start", data=asked)
    assert refused.status_code == 400 and f"no model at {name}" in refused.text
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_start_says_why(tmp_path):
    web = client(tmp_path)
    web.post("/runs/-/start", data={"recipe": "grpo", "name": "lost", "set.task": "no-such-task.py"})
    finished(tmp_path, "lost")
    page = Texts(web.get("/runs/lost").text)
    assert "It did not start" in page.text and not (tmp_path / "lost").exists()
    assert page.text.index("no-such-task.py") < page.text.index("$ postgrad train")  # why it failed is on top
    assert ("p", {"class": "error", "role": "alert"}) in page.elements
    assert "did not start" in web.get("/runs").text
    assert web.post("/runs/-/forget", data={"run": "lost"}).headers["hx-redirect"] == "/runs"
    assert web.get("/runs/lost").status_code == 404


def test_a_run_can_be_stopped_before_its_first_step(tmp_path):
    web = client(tmp_path)
    web.post("/runs/-/start", data={"recipe": "grpo:words", "name": "soon"})
    assert "Process" in web.post("/runs/-/stop", data={"run": "soon"}).text
    finished(tmp_path, "soon")
    assert not (tmp_path / "soon").exists() and not processes.process_alive(tmp_path, "soon")


def test_a_stage_goes_on_with_its_pipeline(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(processes, "start_process", lambda root, name, words,
                        **how: started.append((name, words)))
    for name in ("lab/ppo", "demo/rl"):
        make(tmp_path / name, 1, done=False).status("stopped")
    (tmp_path / "lab" / "pipeline.json").write_text(
        json.dumps({"recipe": "align", "config": {}, "command": ""}))
    web = client(tmp_path)
    assert ([web.post("/runs/-/resume", data={"run": name}).status_code for name in ("lab/ppo", "demo/rl")]
            == [200, 200])
    assert started == [("lab", ["resume", str(tmp_path / "lab")]),
                       ("demo/rl", ["resume", str(tmp_path / "demo" / "rl")])]


def test_only_a_process_that_trains_there_is_stopped(tmp_path):
    run = make(tmp_path / "a", 1, done=False)
    web = client(tmp_path)
    assert "this very process" in web.post("/runs/-/stop", data={"run": "a"}).text  # the lock is ours
    run.close()
    assert "nobody is training" in web.post("/runs/-/stop", data={"run": "a"}).text
    assert web.post("/runs/-/forget", data={"run": "a"}).status_code == 400 and run.folder.exists()


def test_a_folder_is_written_as_it_is_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert shell_path(tmp_path / "runs" / "x") == "runs/x"
    assert shell_path(Path("/elsewhere/x")) == "/elsewhere/x"


def test_runs_called_like_pages_have_a_page(tmp_path):
    for name in ("new", "compare", "live"):
        make(tmp_path / name, 1)
        assert f'href="{traces.run_address(name)}"' in client(tmp_path).get("/runs").text
        assert f"<bdi>{name}</bdi>" in client(tmp_path).get(traces.run_address(name)).text
