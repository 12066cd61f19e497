"""A store of items, and what a page about it says."""

import re
from html import unescape

from postgrad.data.store import Item

TOKEN = "the-token-of-the-owner-of-this-studio"
ITEMS = [Item.of(({"role": "user", "content": f"What is {n}?"},), (f"Yes {n}.", f"No {n}."), "test")
         for n in range(30)]


def field(text, name):
    return unescape(re.search(rf'name="{name}" value="([^"]*)"', text)[1])


def judge(client, text, press, **changed):
    """Presses a button of the pair on a page: "A", "B", "tie" or "skip"."""
    words = {"A is better": "A", "B is better": "B"}
    buttons = {words.get(said.strip(), value): value for value, said in
               re.findall(r'name="choice" value="([^"]*)"[^>]*>([^<]*)<', text)}
    sent = ({name: field(text, name) for name in ("labeller", "item", "was")}
            | {"choice": buttons[press]} | changed)
    return client.post("/label/choose", data=sent)


def labels(store):
    return [said for _, said in store.items() if said]


def found(text):
    return int(re.search(r'data-matching="(\d+)"', text)[1])
