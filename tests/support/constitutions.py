"""A question, two replies and the shipped rules."""

from postgrad.records import Prompt
from postgrad.rewards.constitution import read_constitution

ASK = Prompt.ask("What does a cow eat?", id="cow")
POLITE = "Hello! A cow eats grass. I hope this helps!"
RUDE = "What a silly question. A cow eats grass."
SHIPPED = read_constitution()
