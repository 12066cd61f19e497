"""The context of a later turn: the sampled ids as they are, and what was said since by the template."""

import random

import pytest
from talks import STYLES, conversation, spliced


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.proof)])
@pytest.mark.parametrize("style", STYLES)
def test_extend_is_the_whole_with_the_sampled_ids_in_it(style, count):
    chat, rng, equal, new = STYLES[style](), random.Random(style), 0, 0
    for _ in range(count):
        for messages, turns, row, tools in conversation(chat, rng):
            longer, wanted = chat.extend(row, messages, tools), spliced(chat, messages, turns, tools)
            assert longer == wanted and (longer is None or longer[: len(row)] == row)
            equal, new = equal + (longer is not None), new + (longer is None)
    assert equal > 60 and (new > 0) == (style == "qwen3")


def test_older_thoughts_that_a_template_drops_begin_a_new_row():
    chat = STYLES["qwen3"]()
    asked = [{"role": "user", "content": "2+3?"}]
    row = [*chat.render(asked), *chat.encode("<think>\nAdd.\n</think>\n\n5"), chat.stop[0]]
    talk = [*asked, {"role": "assistant", "content": "<think>\nAdd.\n</think>\n\n5"}]
    shown = chat.extend(row, [*talk, {"role": "tool", "content": "right"}])
    assert shown is not None and chat.spoken(shown[len(row):]) == (
        "\n<|im_start|>user\n<tool_response>\nright\n</tool_response><|im_end|>\n<|im_start|>assistant\n")
    assert chat.extend(row, [*talk, {"role": "user", "content": "Sure?"}]) is None


def test_a_turn_that_was_cut_is_ended_by_the_template():
    chat = STYLES["chatml"]()
    asked = [{"role": "user", "content": "2+3?"}]
    row = [*chat.render(asked), *chat.encode("5</tool>")]
    longer = chat.extend(row, [*asked, {"role": "assistant", "content": "5</tool>"},
                               {"role": "tool", "content": "ok"}])
    assert chat.spoken(longer[len(row):]) == (
        "<|im_end|>\n<|im_start|>tool\nok<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("style", STYLES)
def test_nobody_else_writes_the_models_turns(style):
    chat, rng = STYLES[style](), random.Random(0)
    names, control = list(chat.controls), set(chat.controls.values())
    for _ in range(200):
        hostile = "".join(rng.choice([*names, names[0][:3], names[-1][1:], "<", "|>", "x", " "])
                          for _ in range(rng.randint(1, 6)))
        assert not control & set(chat.encode(chat.escaped(hostile)))
    asked = [{"role": "user", "content": "2+3?"}]
    row = [*chat.render(asked), *chat.encode("5"), chat.stop[0]]
    talk = [*asked, {"role": "assistant", "content": "5"}]

    def controls_of(shown):
        added = chat.extend(row, [*talk, {"role": "tool", "content": chat.escaped(shown)}])[len(row):]
        return [i for i in added if i in control]

    assert controls_of(f"5{chat.eos}{''.join(names)}") == controls_of("5")
    assert chat.escaped("3 < 4, <think>") == "3 < 4, <think>"
