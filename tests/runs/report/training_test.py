"""The report: one page that asks nobody for anything, in which a model's text stays text and the
numbers are those given."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser

import pytest

from postgrad.runs.report import draw_curve, headline, seconds, show, stage_notes, thin, ticks, write_report

EVIL = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</pre></style><svg onload=alert(1)>",
        "{{ 7*7 }}{% raw %}", "javascript:alert(1)", "&lt;b&gt;", "' onmouseover='alert(1)", "<!--",
        "]]>", "</title><base href=//evil>")
VOID = {"meta", "br", "img", "link", "input", "line", "path", "circle"}


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that don't close in order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.attrs, self.text = [], set(), [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attrs += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, f"</{tag}> where {self.open} is open"

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        self.attrs += attrs

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def stage(name, first, interval=None, **more):
    return {"name": name, "pass@1": first, "pass@1_interval": interval or [first - 0.04, first + 0.04],
            "pass@8": first + 0.1, "greedy": first, "format": 0.5, "mean_length": 20.0, "seconds": 12.0,
            **more}


def example(path, text="<think>2+3=5</think>", **changes):
    points = [[s, 0.2 + s / 100] for s in range(1, 41)]
    made = {
        "title": "A title", "summary": {
            "stages": [stage("base", 0.11), stage("sft", 0.24), stage("rl", 0.81)], "seconds_total": 187.0,
            "seed": 3, "problems": 200, "samples": 8, "task": "words", "command": "postgrad demo",
            "machine": {"cores": 2}},
        "curves": [{"name": "reward", "label": "Reward", "unit": "", "points": points},
                   {"name": "pass@1", "label": "Held out", "unit": "", "points": points[::10],
                    "interval": [[s, v - 0.1, v + 0.1] for s, v in points[::10]],
                    "explain": "By the teacher."},
                   {"name": "kl", "label": "KL", "unit": "nats", "points": points},
                   {"name": "grad_norm", "points": points}],
        "answers": [{"question": "2+3?", "gold": "5",
                     "stages": [{"name": "base", "text": text, "correct": False},
                                {"name": "rl", "text": text, "correct": True}]}],
        "over_time": [{"step": s, "text": text, "correct": s > 1, "question": "2+3?"} for s in (1, 20)],
        "commands": ["postgrad chat runs/demo/rl", "postgrad train dapo:words"]} | changes
    return write_report(path, **made).read_text()


def test_it_is_one_sound_page_that_fetches_nothing(tmp_path):
    html = example(tmp_path / "report.html")
    page = Page(html)
    assert html.startswith("<!doctype html>") and {"main", "table", "svg", "pre"} <= page.tags
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a",
                            "image", "use"}
    names = {name for name, _ in page.attrs}
    assert not names & {"src", "href", "xlink:href", "srcset", "action", "data"}
    assert not [name for name in names if name.startswith("on")]
    assert not re.search(r"https?:|//\w|url\(|@import|@font-face", html)
    assert "prefers-color-scheme:dark" in html and "default-src 'none'" in html
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.parametrize("evil", EVIL)
def test_untrusted_text_stays_text(tmp_path, evil):
    plain = Page(example(tmp_path / "plain.html"))
    html = example(tmp_path / "evil.html", text=evil, title=evil, commands=[evil], answers=[
        {"question": evil, "gold": evil, "stages": [{"name": evil, "text": evil, "correct": False}]}],
        curves=[{"name": evil, "label": evil, "unit": evil, "points": [[1, 0.5], [2, 0.6]], "explain": evil}],
        summary={"stages": [stage(evil, 0.2), stage("rl", 0.3)], "machine": {evil: evil}, "command": evil,
                 "task": evil})
    page = Page(html)
    assert page.tags <= plain.tags and {n for n, _ in page.attrs} <= {n for n, _ in plain.attrs}
    text = "".join(page.text)
    assert text.count(evil) >= 10, "and it is shown as it is"


def test_control_characters_and_endless_text_cannot_spoil_the_page(tmp_path):
    html = example(tmp_path / "report.html", text="a\x00\x1b[31m\u202eb\ud800\n\tc" + "x" * 5000)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", html)
    text = "".join(Page(html).text)
    assert "a\ufffd\ufffd[31m\ufffdb?\n\tc" in text and "more characters]" in text and "x" * 1600 not in text
    assert "(nothing)" in "".join(Page(example(tmp_path / "empty.html", text="")).text)


def test_the_headline_says_what_was_measured_and_doubts_what_may_be_chance():
    def say(a, b, **more):
        cut = [{**stage(n, v), "label": n, "interval": (v - 0.04, v + 0.04)}
               for n, v in (("base", a), ("rl", b))]
        return headline(cut, more)

    first, rest = say(0.11, 0.81, problems=200, samples=8, seconds_total=187.2)
    assert first == "Right answers rose from 11\u202f% to 81\u202f%."
    for part in ("200 held-out problems with 8 samples each", "7–15\u202f% and 77–85\u202f%", "3 min 7 s"):
        assert part in rest
    assert "chance" not in rest
    assert (say(0.5, 0.3)[0].startswith("Right answers fell from 50\u202f% to 30")
            and "chance" not in say(0.5, 0.3)[1])
    assert "they overlap, so the change may be chance" in say(0.50, 0.55)[1]
    assert headline([], {}) == [] and headline([{"label": "x", "interval": None}], {}) == []


def test_notes_say_only_what_the_numbers_say():
    low = {"pass@1": 0.24, "pass@8": 0.85, "mean_length": 17.2}
    rise = stage_notes([low, {"pass@1": 0.81, "pass@8": 0.94, "mean_length": 34.1}])
    assert "pass@8 moved less than pass@1 (85\u202f% to 94\u202f%, against 24\u202f% to 81\u202f%)" in rise[0]
    assert rise[1] == "Answers grew from 17 to 34 tokens as they became right more often."
    assert stage_notes([low, {"pass@1": 0.2, "pass@8": 0.94, "mean_length": 34.1}]) == []
    assert stage_notes([low, low]) == [] and stage_notes([low]) == [] and stage_notes([{}, {}]) == []


def test_the_table_holds_the_figures_given_and_leaves_out_what_is_missing(tmp_path):
    text = "".join(Page(example(tmp_path / "a.html")).text)
    for part in ("11\u202f%", "24\u202f%", "81\u202f%", "20–28\u202f%", "Right within 8 tries (pass@8)",
                 "By the teacher.", "nats", "Seed", "Train with dapo on the task words."):
        assert part in text
    bare = [{"name": "base", "pass@1": 0.1, "pass@1_interval": [-math.inf, math.inf]},
            {"name": "rl", "pass@1": 0.2, "pass@4": 0.3}]
    text = "".join(Page(example(tmp_path / "b.html", summary={"stages": bare}, curves=[], answers=[],
                                over_time=[])).text)
    assert "pass@4" in text and "greedy" not in text and not re.search(r"\binf\b", text)
    assert Page(example(tmp_path / "c.html", summary={}, curves=[], answers=[], over_time=[], commands=[]))


def test_one_question_is_asked_once_several_each_time(tmp_path):
    rows = [{"step": s, "text": "t", "correct": True, "question": q}
            for s, q in ((1, "Q-one?"), (2, "Q-two?"))]
    text = "".join(Page(example(tmp_path / "a.html", over_time=rows)).text)
    assert text.count("Q-one?") == text.count("Q-two?") == 1
    text = "".join(Page(example(tmp_path / "b.html", over_time=[rows[0], {**rows[0], "step": 2}])).text)
    assert text.count("Q-one?") == 1


@pytest.mark.parametrize(("value", "name", "said"), [
    (0.2412, "pass@1", "24\u202f%"), (0.999, "format", "99.9\u202f%"), (1.0, "format", "100\u202f%"),
    (0.004, "greedy", "0.4\u202f%"), (0.0, "pass@8", "0\u202f%"), (34.52, "", "34.5"),
    (-0.5, "", "\u22120.500"), (12, "", "12"), (0.00001234, "", "1.2e\u221205"), (math.nan, "", "–"),
    (None, "", "–"), ("0.5", "", "–")])
def test_numbers_for_a_reader(value, name, said):
    assert show(value, name) == said


def test_durations():
    assert ([seconds(x) for x in (0, 7.24, 59, 187.3, 3725, math.inf)]
            == ["0 s", "7.2 s", "59 s", "3 min 7 s", "1 h 2 min", "–"])


@pytest.mark.parametrize(("low", "high", "count", "want"), [
    (0, 0.83, 3, [0, 0.5, 1]), (0, 1, 2, [0, 0.5, 1]), (0, 34, 3, [0, 20, 40]),
    (0, 0.03, 3, [0, 0.01, 0.02, 0.03]), (-1, 1, 4, [-1, -0.5, 0, 0.5, 1]), (0, 40, 4, [0, 10, 20, 30, 40])])
def test_ticks_are_round_and_cover(low, high, count, want):
    assert ticks(low, high, count) == want


def at(chart):
    return [tuple(map(float, pair.split())) for pair in re.findall(r"[ML]([\d. ]+)", chart["path"])]


def test_a_curve_is_drawn_to_scale():
    """Equal steps in the data are equal steps on the page; the axis labels stand where their values are."""
    chart = draw_curve({"name": "loss", "points": [[0, 0.0], [10, 1.0], [20, 2.0], [40, 4.0]]})
    (x0, y0), (x1, y1), (x2, y2), (x4, y4) = at(chart)
    assert (x1 - x0 == pytest.approx((x4 - x0) / 4, abs=0.11)
            and y0 - y1 == pytest.approx((y0 - y4) / 4, abs=0.11))
    assert dict((label, y) for y, label in chart["rows"])["4"] == y4 and chart["base"] == y0
    assert dict((label, x) for x, label in chart["columns"]) == {"0": x0, "10": x1, "20": x2,
                                                                 "30": x2 + x1 - x0, "40": x4}
    assert chart["end"][:2] == (x4, y4) and chart["end"][2] == "4" and chart["change"] == "0 → 4"
    assert 0 <= y4 < y0 <= chart["height"] and 0 <= x0 < x4 <= chart["width"]


def test_what_is_not_finite_is_a_gap_and_is_counted():
    chart = draw_curve({"name": "loss",
                  "points": [[1, 1.0], [2, 2.0], [3, math.nan], [4, math.inf], [5, 2.0], [6, 1.0]]})
    assert chart["path"].count("M") == 2 and chart["lost"] == 2 and len(at(chart)) == 4
    assert (draw_curve({"name": "loss", "points": []}) is None
            and draw_curve({"name": "loss", "points": [[1, math.nan]]}) is None)


def test_intervals_are_drawn_around_their_points_and_rates_stay_in_range():
    chart = draw_curve({"name": "pass@1", "points": [[0, 0.05], [5, 0.6]],
                  "interval": [[0, -0.1, 0.2], [5, 0.5, 1.3]]}, lead=True)
    (_, low, high), (_, second_low, second_high) = chart["bars"]
    assert low == chart["base"] and low > chart["dots"][0][1] > high, "y grows downwards"
    assert second_high == min(y for y, _ in chart["rows"]) and second_low > chart["dots"][1][1]
    flat = draw_curve({"name": "kl", "points": [[1, 0.0]]})
    assert flat["change"] == "0 → 0" and at(flat)[0][1] == flat["base"]


def test_thinning_a_long_curve_keeps_every_spike():
    points = [(float(s), math.sin(s / 50)) for s in range(20_000)]
    points[7_777] = (7_777.0, 99.0)
    points[12_345] = (12_345.0, -99.0)
    kept = thin(points)
    assert len(kept) <= 600 and kept == sorted(kept) and set(kept) <= set(points)
    assert {(7_777.0, 99.0), (12_345.0, -99.0), points[-1]} <= set(kept)
    points[7_770] = (7_770.0, math.nan)  # beside the spike, which must not hide behind it
    assert ([s for s, v in thin(points) if not math.isfinite(v)] == [7_770.0]
            and (7_777.0, 99.0) in thin(points))
