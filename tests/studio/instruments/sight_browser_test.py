"""In a browser: the figure and its sentence are in sight of every control, points can be dragged, a step of
training can be stepped, scrubbed and played, the stages answer a problem of one's own, labels train a model.
"""

import re

import pytest
from studio_browser import Watched, browser, serving, tab  # noqa: F401

from postgrad.studio.instruments import INSTRUMENTS, grpo
from postgrad.studio.instruments import preference_labeller as labeller
from postgrad.studio.instruments import trial as _trial
from postgrad.studio.instruments.label_dpo import LabelTrainings
from postgrad.studio.recordings import recording

expect = pytest.importorskip("playwright.sync_api").expect
SCREENS = {"wide": (1280, 900), "narrow": (390, 844)}
BOXES = """(control) => {
    const of = (e) => e.getBoundingClientRect().toJSON();
    const sight = document.querySelector(".sight");
    document.querySelector(".plate").scrollIntoView({ block: "start", behavior: "instant" });
    control.scrollIntoView({ block: "nearest", behavior: "instant" });
    return { control: of(control), sight: of(sight), insight: of(sight.querySelector(".insight")),
             inside: sight.contains(control) };
}"""


@pytest.fixture(scope="module")
def origin(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("sight") / "runs") as origin:
        yield origin


@pytest.fixture(scope="module", params=SCREENS)
def reader(origin, browser, request):  # noqa: F811
    width, height = SCREENS[request.param]
    watched = Watched(browser, origin, width=width, height=height)
    yield watched, height
    watched.context.close()


@pytest.fixture(scope="module")
def desk(origin, browser):  # noqa: F811
    """One reader at a wide screen, for what does not depend on the width."""
    watched = Watched(browser, origin)
    yield watched.page
    watched.context.close()
    watched.judge()


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_the_figure_and_its_sentence_are_in_sight_of_every_control(reader, name):
    watched, height = reader
    page = watched.page
    page.goto(f"/instruments/{name}")
    expect(page.locator(".insight")).not_to_be_empty()
    assert page.locator(".instrument-head").bounding_box()["height"] <= 150
    controls = page.locator(".plate .control, .sight [data-key]").all()
    assert controls
    for control in controls:
        box = control.evaluate(BOXES)
        for part in ("control", "sight", "insight"):
            assert box[part]["top"] >= -1 and box[part]["bottom"] <= height + 1, (part, box)
        apart = (box["sight"]["bottom"] <= box["control"]["top"] + 1
                 or box["control"]["right"] <= box["sight"]["left"])
        assert box["inside"] or apart, box
    for equation in page.locator("tex-math").all()[:1]:
        assert equation.evaluate("e => e.getBoundingClientRect().top") >= page.locator(".insight").evaluate(
            "e => e.getBoundingClientRect().bottom")
    watched.judge()


def dragged(page, handle, to):
    """Takes a visible handle by its middle to a place on the screen that is `to` of its svg's width."""
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    drawing = handle.evaluate("e => { const { left, width } = e.ownerSVGElement.getBoundingClientRect(); "
                              "return { left, width }; }")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(drawing["left"] + to * drawing["width"], box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()


@pytest.mark.parametrize(("name", "slider"), [("bradley-terry", "chosen"), ("bradley-terry", "rejected"),
                                              ("ppo-clip", "ratio"), ("grpo", "rewards-1")])
def test_a_point_is_dragged_and_its_slider_and_the_picture_follow(reader, name, slider):
    page = reader[0].page
    page.goto(f"/instruments/{name}")
    control = page.locator(f"#{name}-{slider}")
    before = control.input_value()
    handles = page.locator(f"[data-drag={name}-{slider}]")
    handle = next(h for h in handles.all() if h.is_visible())
    dragged(page, handle, 0.75)
    found = handle.evaluate("e => ({...e.closest('[data-from]').dataset})")
    scale = {key: float(found[key]) for key in ("from", "to", "low", "high")}
    width = float(handle.evaluate("e => e.ownerSVGElement.viewBox.baseVal.width"))
    share = (0.75 * width - scale["from"]) / (scale["to"] - scale["from"])
    wanted = scale["low"] + share * (scale["high"] - scale["low"])
    step = float(control.get_attribute("step"))
    assert control.input_value() != before and abs(float(control.input_value()) - wanted) <= step
    expect(page.locator(".picture")).to_have_attribute("data-query", re.compile(slider.partition("-")[0]))
    if name == "grpo":
        said = f"rewards={control.input_value()}".replace("0.80", "0.8")
        expect(page.locator(".picture")).to_have_attribute("data-query", re.compile(re.escape(said)))


@pytest.mark.parametrize(("name", "first", "second"), [
    ("grpo", "Nobody has judged them yet", "A reward for each"), ("dpo-ppo", "Between", "Between"),
    ("reward-hacking", "Before training", "So far both")])
def test_a_step_of_training_is_stepped_and_scrubbed(desk, name, first, second):
    """With reduced motion there is no Play, and stepping is all."""
    page = desk
    page.goto(f"/instruments/{name}")
    slider = page.locator(".slider:has(.transport) input")
    expect(page.locator("[data-play]")).to_be_hidden()
    slider.press("Home")
    expect(page.locator(".insight")).to_contain_text(first)
    low = float(slider.input_value())
    page.get_by_role("button", name="Next").click()
    assert float(slider.input_value()) > low
    expect(page.locator(".insight")).to_contain_text(second)
    page.get_by_role("button", name="Back").click()
    assert float(slider.input_value()) == low
    expect(page.locator(".insight")).to_contain_text(first)


def test_play_goes_through_the_stages_and_stops(origin, browser):  # noqa: F811
    """The clock is the test's own."""
    watched = Watched(browser, origin)
    page = watched.page
    page.emulate_media(reduced_motion="no-preference")
    page.clock.install()
    page.goto("/instruments/grpo")
    slider = page.locator("#grpo-stage")
    page.get_by_role("button", name="Play").click()
    expect(page.locator(".four-stages .now")).to_have_text("Sample")
    for title in ("Score", "Advantage", "Update"):
        page.clock.run_for(1300)
        expect(page.locator(".four-stages .now")).to_have_text(title)
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.clock.run_for(1300)
    expect(page.get_by_role("button", name="Play")).to_be_visible()
    assert slider.input_value() == "4"
    watched.context.close()
    watched.judge()


def test_a_machine_is_toggled_and_its_stages_light_up(desk):
    page = desk
    page.goto("/instruments/dpo-ppo?stage=2")
    expect(page.locator(".stages .now")).to_have_text("Score")
    expect(page.locator(".model.busy")).to_have_text("reward model")
    page.locator("label", has=page.get_by_role("radio", name="DPO")).click()
    expect(page.locator(".stages .now")).to_have_text("Log-probs")
    expect(page.locator(".model.busy")).to_have_text(["policy", "reference"])
    expect(page.locator(".model.none")).to_have_text(["reward model", "critic"])
    expect(page.locator(".stages .lit")).to_have_text("Read a pair")


def test_bars_are_in_the_colours_of_the_legend_and_all_cards_are_marked(reader):
    page = reader[0].page
    for size in ("7B", "70B"):
        page.goto(f"/instruments/algorithms?size={size}")
        for role in ("policy", "reference", "reward", "critic"):
            legend = page.locator(f".legend .role.{role}").evaluate(
                "e => getComputedStyle(e, '::before').backgroundColor")
            part = page.locator(f".part.weights.{role}:visible").first
            bar = part.evaluate("e => getComputedStyle(e).fill")
            assert legend == bar, role
        for drawing in page.locator(".algorithm svg:visible").all():
            assert drawing.locator(".card").count() == 4
            assert re.search(r"12\D+24\D+40\D+80 GB", " ".join(drawing.locator(".small").all_text_contents()))


def test_a_stage_is_clicked_and_a_problem_of_one_s_own_is_answered_by_all(desk):
    page = desk
    page.goto("/instruments/pipeline?prompt=2")
    page.locator(".pipeline label", has_text="Pretrained").click()
    expect(page.locator(".picture")).to_have_attribute("data-query", "stage=base&prompt=2")
    expect(page.locator(".pipeline .now .said")).to_contain_text("right number, wrong form")
    page.get_by_label("A problem of your own").fill("Ana has 3 cats. Ana gets 4 more. How many cats?")
    page.get_by_role("button", name="Ask all stages").click()
    replies = page.locator("#pipeline-own .stage")
    expect(replies).to_have_count(3)
    expect(replies.nth(1)).to_contain_text("</answer>")
    expect(replies.nth(2)).to_contain_text("no model after RL")


def test_the_reader_s_own_trial_is_timed_and_told(origin, tab):  # noqa: F811
    page = tab(origin)
    page.goto("/instruments/preference-labeller?labels=ab")
    page.get_by_role("button", name="Begin").click()
    for number, (kind, _, side) in enumerate(_trial.ORDER, start=1):
        expect(page.locator(".trial")).to_contain_text(f"{number} of {len(_trial.ORDER)}.")
        answer = ("b" if side else "a") if kind == "rank" else "31"[side]
        page.locator(f".trial button[value='{answer}']").click()
    expect(page.locator(".trial .found")).to_contain_text("4 of 4 pairs by ranking, on 4 by rating")
    expect(page.locator(".picture")).to_have_attribute("data-query", re.compile("labels=ab&trial=0.a"))
    expect(page.locator(".labelled tbody tr")).to_have_count(2)


def test_thirty_labels_train_the_model_and_show_before_and_after(origin, tab, monkeypatch):  # noqa: F811
    """The process is a double here: what it finds is told as it comes."""
    look = {"quality": -0.5, "samples": 220, "questions": 55, "answers": [["Where?", "<b>Here.</b>", 1.2]]}
    found = {"pairs": 30, "steps": 16, "before": look, "after": look | {"quality": 0.25}}

    def at_once(self, labels):
        self.found[labels], self.busy = found, ""
    monkeypatch.setattr(LabelTrainings, "_train", at_once)
    page, labels = tab(origin), labeller.others_labels("")["by the true quality"]
    page.goto(f"/instruments/preference-labeller?labels={labels[:29]}")
    assert page.get_by_role("button", name="Train the model").count() == 0
    page.keyboard.press(labels[29])
    page.get_by_role("button", name="Train the model").click()
    expect(page.locator("#label-dpo")).to_contain_text("−0.50 before, 0.25 after")
    expect(page.locator("#label-dpo")).to_contain_text("<b>Here.</b>")


def test_the_sliders_of_a_group_stand_in_the_rows_of_their_answers(desk):
    page = desk
    page.goto("/instruments/grpo")
    rows = page.locator(".group li:not(.names)")
    assert rows.count() == 8 and page.locator(".panel [name=rewards]").count() == 0
    for i in range(8):
        assert rows.nth(i).locator(f"#grpo-rewards-{i}").count() == 1
        expect(rows.nth(i).locator("samp")).to_have_text(recording("group")["completions"][i]["text"])
    rows.nth(2).locator("input").press("End")
    rewards = [*grpo.recorded_verdicts(8)[:2], 1.0, *grpo.recorded_verdicts(8)[3:]]
    wanted = INSTRUMENTS["grpo"].query(grpo.State(rewards=tuple(rewards)))
    expect(page.locator(".picture")).to_have_attribute("data-query", wanted)
