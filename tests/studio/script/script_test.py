"""The site that `postgrad studio export` writes, opened from files: pages stand alone, instruments answer as
Python does, runs can be scrubbed, and what needs a server says so."""

import io
import json
import re
from contextlib import redirect_stdout
from urllib.parse import unquote

import pytest
from markupsafe import escape
from starlette.datastructures import QueryParams
from studio_alive import Picture, apart, by_python, compared, random_states
from studio_browser import TOKEN, browser  # noqa: F401
from studio_small import make

import postgrad
from postgrad.cli import main
from postgrad.studio import export
from postgrad.studio.instruments import INSTRUMENTS, grpo
from postgrad.studio.instruments.prediction import MEASURES, measured
from postgrad.studio.pages import num
from postgrad.studio.script.python import Function, Script
from postgrad.studio.security import EXPORT_POLICY
from postgrad.system.user_code import parse_source

expect = pytest.importorskip("playwright.sync_api").expect
LARGEST = 12_000_000  # bytes of the site
# the forms that a page without a server has: the book's search, what scripts answer, and the list of runs
ANSWERED = re.compile(r'role="search"|hx-get="/(instruments/[\w-]+/figure|runs/-/samples)"|id="list"')


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    make(folder / "runs" / "one", 3)
    with redirect_stdout(io.StringIO()) as out:
        assert main(["studio", "export", str(folder / "site"), "--runs", str(folder / "runs"), "--store",
                     str(folder / "p.db"), "--json"]) == 0
    assert json.loads(out.getvalue())["lost"] == []
    return folder / "site"


@pytest.fixture(scope="module")
def page(browser):  # noqa: F811
    page = browser.new_page(reduced_motion="reduce")
    page.set_default_timeout(20_000)
    page.faults = []
    page.on("console", lambda m: page.faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: page.faults.append(str(e)))
    page.on("request",
            lambda r: None if r.url.startswith(("file:", "data:")) else page.faults.append(r.url))
    yield page
    page.close()


@pytest.fixture
def reader(page):
    """The page, which may say nothing on its console and ask no host."""
    page.faults.clear()
    yield page
    assert page.faults == []


def at(site, place: str) -> str:
    return (site / place / "index.html").as_uri()


def test_exported_pages_stand_alone(site):
    files = list(site.rglob("*.html"))
    assert len(files) > 100 and sum(p.stat().st_size for p in site.rglob("*") if p.is_file()) <= LARGEST
    for file in files:
        text = file.read_text()
        for _, _, address in export.LINK.findall(text):
            assert not address.startswith("/"), f"{file}: {address}"
            if not address.startswith(("#", "http", "?")):
                there = file.parent / unquote(re.split("[?#]", address)[0])
                assert there.is_file(), f"{file}: {address}"
        assert f'<meta http-equiv="Content-Security-Policy" content="{escape(EXPORT_POLICY)}">' in text, file
        assert str(site.parent) not in text, f"{file} says where it was made"
        assert "hx-post" not in text and TOKEN not in text and export.TOKEN not in text
        assert all(ANSWERED.search(form) for form in re.findall(r"<form\b[^>]*>", text)), file
        assert not re.search(r"<(input|button|select|textarea|fieldset)\b[^>]*\sdisabled", text), file
    with pytest.raises(ValueError, match="not an empty folder"):
        export.export_site(site, runs=site)


def test_the_reference_has_a_page_for_every_name(site):
    for name in postgrad.__all__:
        assert f"<h1>{name}</h1>" in (site / "reference" / name / "index.html").read_text()
    assert 'href="reference/index.html"' in (site / "index.html").read_text()


def test_it_opens_as_files(site, reader):
    """Fonts, mathematics, links and search from the disk."""
    reader.goto((site / "index.html").as_uri())
    reader.get_by_role("link", name="Instruments", exact=True).click()
    reader.get_by_role("link", name="A reward is a bet").click()
    expect(reader.locator("tex-math .katex").first).to_be_visible()
    loaded = reader.evaluate("document.fonts.ready.then(all => [...all].filter(f => f.status == "
                             "'loaded').map(f => f.family))")
    assert "Source Serif 4" in {name.strip('"') for name in loaded}
    reader.goto(at(site, "book/4"))
    reader.get_by_label("Search the book").fill("group baseline")
    reader.keyboard.press("Enter")
    reader.wait_for_url("**/search/index.html?q=*")
    expect(reader.locator("#book-results a").first).to_be_visible()


HALVES = {"rewards": (0.9, 0.85, 0.85, 0.5, 0.3, 0.15, 0.1, 0.9)}  # mean 0.56875: a half at four digits


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_script_and_python_agree(site, reader, name):
    """Numbers to 1e-9, sentences and pictures as they are."""
    reader.goto(at(site, f"instruments/{name}"))
    more = [INSTRUMENTS[name].state(**HALVES)] if name == "grpo" else []
    _, faults = compared(reader, name, [*random_states(INSTRUMENTS[name], 8), *more])
    assert faults == []


def test_a_moved_control_moves_the_picture(site, reader):
    """From a file: the sentence, the address, "before", the way back, and a link with a state."""
    reader.goto(at(site, "instruments/bradley-terry"))
    before = reader.locator(".insight").inner_text()
    reader.get_by_label("Reward of the chosen answer").press("End")
    expect(reader.locator(".insight")).to_contain_text("The pair is settled (99.3 %)")
    reader.wait_for_url("**/index.html?chosen=5")
    reader.get_by_role("link", name="Keep as").click()
    expect(reader.locator(".picture")).to_have_attribute("data-held", "chosen=5")
    expect(reader.get_by_label("Reward of the chosen answer")).to_have_value("5")
    reader.get_by_role("link", name="Reset").click()
    expect(reader.locator(".insight")).to_have_text(before)
    reader.goto(at(site, "instruments/ppo-clip"))
    reader.get_by_role("link", name="ρ = 4, A = 1").click()
    expect(reader.locator(".insight")).to_contain_text("its ratio of 4.00 counts as 1.20")


def test_the_instruments_of_a_chapter_move(site, reader):
    """A group of 16 brings its sliders with it; each of those moves the picture too."""
    chapter = next(p.parent for p in sorted(site.glob("book/*/index.html")) if "grpo-form" in p.read_text())
    reader.goto((chapter / "index.html").as_uri())
    figure = reader.locator("#grpo")
    figure.get_by_label("16", exact=True).check(force=True)
    expect(figure.locator("ol.group > li")).to_have_count(17)
    reader.locator("#grpo-rewards-1").press("End")
    state = grpo.settle(grpo.State(size=16, rewards=(1.0, 1.0)))
    expect(figure.locator(".insight")).to_have_text(grpo.insight(grpo.compute(state)))


def test_a_cloud_of_points_is_a_few_marks():
    """A browser lays out every element anew: 250 points of their own take twice the time of the rest."""
    for instrument in INSTRUMENTS.values():
        for state in random_states(instrument, 3):
            drawn = Picture(by_python(instrument, instrument.query(state))[2]).elements
            circles = sum(tag == "circle" for tag, _ in drawn)
            assert circles <= 150, (instrument.name, circles)  # a group of 32 can be dragged by 128


def test_an_equation_that_stays_the_same_is_not_set_again(site, reader):
    """A longer step changes what follows from the advantages; the mean of the group stays as it was set."""
    reader.goto(at(site, "instruments/grpo"))
    equations = reader.locator(".picture tex-math .katex")
    expect(equations.first).to_be_visible()
    equations.evaluate_all("all => all.forEach((e) => { e.seen = e.textContent; })")
    reader.locator("#grpo-step").press("End")
    expect(reader.locator(".picture")).to_have_attribute("data-query", re.compile("step="))
    found = [tuple(pair) for pair in equations.evaluate_all("all => all.map((e) => [e.seen, e.textContent])")]
    kept = [(old, new) for old, new in found if old is not None]
    assert 0 < len(kept) < len(found) and all(old == new for old, new in kept)


def test_labels_train_the_reward_model_in_the_page(site, reader):
    instrument = INSTRUMENTS["preference-labeller"]
    reader.goto(at(site, "instruments/preference-labeller"))
    for at_hand, key in enumerate("abta", start=1):
        reader.keyboard.press(key)
        expect(reader.locator(".picture")).to_have_attribute("data-query", f"labels={'abta'[:at_hand]}")
    expect(reader.locator(".insight")).to_have_text(instrument.insight(instrument.compute(
        instrument.state(labels="abta"))))
    reader.get_by_role("button", name="Begin").click()
    expect(reader.locator(".trial")).to_contain_text("1 of 24.")


def test_every_step_of_a_run_is_there(site, reader):
    reader.goto(at(site, "runs/one"))
    body = reader.locator("#samples-body")
    expect(body).to_have_attribute("data-step", "3")
    reader.get_by_label("Step before").click()
    expect(body).to_have_attribute("data-step", "2")
    reader.get_by_label("Ratio", exact=True).check(force=True)
    expect(body).to_contain_text("Full colour is a factor of 2.00")
    reader.wait_for_url("**/runs/one/index.html?step=2&group=0&sample=0&colour=ratio")
    reader.goto(reader.url)
    expect(body).to_have_attribute("data-step", "2")
    expect(reader.get_by_label("Step", exact=True)).to_have_value("2")


@pytest.mark.parametrize("place", export.NEEDS)
def test_what_needs_a_server_says_so(site, reader, place):
    reader.goto(at(site, place[1:]))
    expect(reader.locator("main .lede")).to_contain_text("the studio on your own machine")
    assert reader.locator("main :is(input, select, textarea, form)").count() == 0
    reader.locator("main .lede a").click()
    expect(reader.locator("h1")).to_be_visible()


def test_numbers_are_written_as_python_writes_them(site, reader):
    """Every kind of format that is used, on numbers of all sizes, halves and both zeros."""
    values = [sign * x for sign in (1, -1) for x in (
        0.0, 0.5, 1.5, 2.5, 0.125, 0.375, 2.675, 1 / 3, 0.05, 99.95, 100.0, 123456.789, 9.9995e-4, 1e-7, 4e6,
        0.5875, 1e15, 12.0)]
    kinds = ("", ".0f", ".1f", ".2f", ".4f", "+.1f", "+.3f", "g", ".6g", "+g")
    texts = {kind: [format(x, kind) for x in values] for kind in kinds if kind}
    reader.goto(at(site, "instruments/grpo"))
    found = reader.evaluate("([values, kinds]) => kinds.map((kind) => values.map((x) => py.format(x, kind)))",
                            [values, list(texts)])
    assert dict(zip(texts, found, strict=True)) == texts
    rounded = reader.evaluate("(values) => [0, 1, 2, 3].map((d) => values.map((x) => py.round(x, d)))",
                              values)
    assert rounded == [[round(x, digits) for x in values] for digits in range(4)]
    shown = reader.evaluate("(values) => [0, 1, 2, 3, 4].map((d) => values.map((x) => py.num(x, d)))",
                            values)
    assert shown == [[num(x, digits) for x in values] for digits in range(5)]


def test_what_has_no_script_is_refused_by_name():
    tree = parse_source("def f(x):\n    with x: pass\n").body[0]
    with pytest.raises(NotImplementedError, match="there is no script for 'with x: pass'"):
        Function(Script(), grpo).define(tree)
    assert apart([1.0, {"a": "b"}], [1.0, {"a": "c"}])[0] == float("inf")


def test_a_guided_tour_from_files(site, reader):
    """The figure is set as the stop says, by its script; the stop is in the address, which opens it again."""
    reader.goto(at(site, "book/1"))
    reader.get_by_role("button", name="Guided tour").click()
    status = reader.locator("#tour-card").get_by_role("status")
    for n in range(2, 7):
        reader.keyboard.press("ArrowRight")
        expect(status).to_have_text(f"{n} of 12")
    figure = reader.locator("#token-mdp")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "reply=wrong&step=12")
    reader.wait_for_url("**/book/1/index.html?tour=6")
    reader.goto(reader.url)
    expect(status).to_have_text("6 of 12")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "reply=wrong&step=12")
    expect(figure.locator(".insight")).to_contain_text("Action 13 of 15")
    reader.keyboard.press("Escape")
    expect(reader.locator("#tour-card")).to_be_hidden()
    reader.goto(at(site, "book/1/mathematics"))
    reader.get_by_role("link", name="Guided tour").click()
    expect(status).to_have_text("1 of 12")


@pytest.mark.parametrize("name", MEASURES)
def test_what_is_foretold_is_measured_as_python_does(site, reader, name):
    reader.goto(at(site, f"instruments/{name}"))
    instrument = INSTRUMENTS[name]
    for state in random_states(instrument, 6):
        query = instrument.query(state)
        found = reader.evaluate("([name, query]) => alive.measure(name, new URLSearchParams(query))",
                                [name, query])
        wanted = measured(name, instrument.numbers(instrument.read(QueryParams(query))))
        assert found["words"] == wanted["words"]
        assert found["value"] == (wanted["value"] if wanted["value"] is None
                                  else pytest.approx(wanted["value"], abs=2e-6))


def test_predict_first_from_files(site, reader):
    """A moved control waits for the reader's word; the score is kept."""
    reader.goto(at(site, "book/2"))
    figure = reader.locator("#bradley-terry")
    figure.get_by_role("button", name="Predict first").click()
    expect(figure.locator(".predict")).to_contain_text("now it is 0.731")
    figure.get_by_label("Reward of the chosen answer").press("End")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "")
    figure.get_by_role("button", name="It rises").click()
    expect(figure.locator(".predict")).to_contain_text("Right: the probability that the first wins went from")
    expect(figure.locator(".predict")).to_contain_text("1 of 1 foretold.")
    expect(figure.locator(".picture")).to_have_attribute("data-query", "chosen=5")
    assert reader.locator("#preference-labeller [data-predict]").count() == 0  # a game keeps its own
