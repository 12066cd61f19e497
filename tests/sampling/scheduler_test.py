"""The scheduler alone: slots, places of the prompt cache, and the queue."""

from types import SimpleNamespace

import torch

from postgrad.sampling.scheduler import MIN_ROWS, CachedPrompt, Scheduler, SlotSequence


def scheduler_of(rows, prompts):
    read = []
    engine = SimpleNamespace(
        prompts=prompts, least_saved=0, dtype=torch.float32, device=torch.device("cpu"),
        seat=lambda slots, places: None, ops=SimpleNamespace(nudge=lambda x: None),
        prefill=lambda tokens, lengths, places, begun: (
            read.append(places) or torch.tensor(places).float()[:, None]))
    return Scheduler(engine, rows, hidden_size=1), read


def test_sequences_take_slots_in_order_and_a_prompt_is_prefilled_once():
    scheduler, read = scheduler_of(rows=3, prompts=2)
    first, second, third = (CachedPrompt([7] * MIN_ROWS, users) for users in (2, 2, 1))
    sequences = [SlotSequence(prompt) for prompt in (first, first, second, second, third)]
    scheduler.waiting += sequences
    admitted, slots, states = scheduler.admit()
    assert admitted == sequences[:3] and slots.tolist() == [0, 1, 2]
    assert states[:, 0].tolist() == [0, 0, 1] and read == [[0, 1]]  # both prompts in one pass
    assert scheduler.admit() is None
    scheduler.release(admitted[:2])
    assert first.place is None and scheduler.admit()[0] == sequences[3:]
    assert read == [[0, 1], [0]] and scheduler.prefilled_tokens == 3 * MIN_ROWS


def test_the_oldest_cached_sequence_makes_way():
    scheduler, _ = scheduler_of(rows=2, prompts=2)
    old, older, new = (SlotSequence(CachedPrompt([5], 1)) for _ in range(3))
    scheduler.waiting += [older, old]
    scheduler.admit()
    scheduler.cached = {older.slot: older, old.slot: old}
    scheduler.waiting.append(new)
    assert scheduler.admit()[0] == [new] and older.slot is None and [*scheduler.cached.values()] == [old]
    scheduler.reset([old])
    assert old.slot not in scheduler.free_slots and len(scheduler.free_slots) == 1 and not scheduler.cached


def test_new_weights_forget_what_was_prefilled_ahead():
    scheduler, read = scheduler_of(rows=1, prompts=2)
    begun, ahead = CachedPrompt([5], 2), CachedPrompt([6], 1)
    scheduler.waiting += [SlotSequence(begun), SlotSequence(begun), SlotSequence(ahead)]
    scheduler.admit()
    assert (begun.place, ahead.place) == (0, 1)
    scheduler.forget_prefilled()
    assert (begun.place, ahead.place) == (0, None) and len(read) == 1
