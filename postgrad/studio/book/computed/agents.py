"""The numbers of chapter 9: games of several turns, credit over the turns of recorded episodes, bonuses."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

from postgrad.data.tasks.guess import HEED, LARGEST
from postgrad.studio.book.inline import format_value
from postgrad.studio.json_types import JsonDict

REPLIES, REPLY, SHOWN = 3, 2, 4  # of an example: replies, tokens of one, tokens of an answer between two
BONUS, TURNS, FINDS = 0.4, 4, 0.4
BEFORE, AFTER, LAM, NEXT = 0.4, 0.3, 0.5, 0.2  # values around a turn that is paid nothing, and what follows


def values(repository: Path) -> JsonDict:
    def results(name: str) -> JsonDict:
        found: JsonDict = json.loads((repository / "docs" / "results" / f"{name}.json").read_text())
        return found

    kept = results("environments")
    return {**door_values(kept["tables"]), **jail_values(results("real-models")["bars"]),
            **game_values(kept["tables"]["Games"]),
            **render_values(kept["tables"]["extend against render"]),
            **recorded_values(), **bonus_values(), **turn_values()}


def game_values(rows: list[JsonDict]) -> JsonDict:
    """Success before and after GRPO over several turns, game by game."""
    names = {"guess": "guess a number", "animals": "guess an animal",
             "big-numbers": "large products with a calculator"}
    by = {name: sorted((row for row in rows if row["game"] == name), key=lambda row: row["seed"])
          for name in names}

    def spread(name: str, what: str) -> str:
        found = [row[what] for row in by[name]]
        return f"{format_value(min(found), '%')} to {format_value(max(found), '%')}"

    tool = by["big-numbers"]
    return {
        "game_seeds": len(by["guess"]), "guess_form": fmean(r["form"] for r in by["guess"]),
        "guess_grpo": fmean(r["grpo"] for r in by["guess"]), "tool_form": fmean(r["form"] for r in tool),
        "tool_grpo": fmean(r["grpo"] for r in tool), "game_minutes": max(row["minutes"] for row in rows),
        "observed": sum(row["observed tokens"] for row in rows),
        "observed_trained": sum(row["of them in the loss"] for row in rows),
        "games": {
            "caption": f"Episodes won before and after GRPO, {len(by['guess'])} seeds each",
            "columns": ["game", "after SFT on blind play", "after GRPO", "turns at the end"],
            "rows": [[words, spread(name, "form"), spread(name, "grpo"),
                      format_value(fmean(row["turns"] for row in by[name]), "1")]
                     for name, words in names.items()],
        },
    }


def render_values(rows: list[JsonDict]) -> JsonDict:
    """Chat templates that go on from an earlier turn, and those that do not."""
    return {
        "templates": len(rows), "went_on": sum(row["went on"] for row in rows),
        "new_rows": sum(row["new rows"] for row in rows),
        "new_of": ", ".join(row["template"] for row in rows if row["new rows"]),
    }


def recorded_values() -> JsonDict:
    """The recorded group, and the table of one of its episodes by each way to compare."""
    from postgrad.studio.instruments.turn_credit import State, compute
    from postgrad.studio.recordings import recording

    kept = recording("episodes")
    rows = kept["rows"]
    changes = [(compute(State(episode=i + 1, lam=0.0))["turns"], i) for i in range(len(rows))]
    # of the episodes below the mean, the one with the turn that gained most
    lost = [i for i, row in enumerate(rows) if row["score"] < fmean(row["score"] for row in rows)]
    at = max(lost, key=lambda i: max(turn["change"] for turn in changes[i][0]))
    turns, whole = changes[at][0], compute(State(method="episode", episode=at + 1))
    least = min(range(len(turns)), key=lambda k: turns[k]["change"])
    best = max(range(len(turns)), key=lambda k: turns[k]["change"])
    return {
        **group_tables(rows, at, kept["question"]), "group_size": len(rows),
        "group_right": sum(row["score"] >= 1 for row in rows),
        "group_mean": whole["mean"],
        "shown_episode": at + 1, "shown_turns": len(turns), "shown_score": rows[at]["score"],
        "shown_credit": whole["turns"][0]["credit"], "least_turn": least + 1,
        "least_said": turns[least]["said"], "least_change": turns[least]["change"],
        "least_answer": turns[least - 1]["answered"] if least else "1-10",
        "best_turn": best + 1, "best_said": turns[best]["said"], "best_change": turns[best]["change"],
        "continued": kept["continued"], "first_number": 1, "largest": LARGEST, "heed": HEED,
        "replies": REPLIES, "reply_tokens": REPLY, "shown_tokens": SHOWN, "trained_tokens": REPLIES * REPLY,
        "all_tokens": REPLIES * REPLY + (REPLIES - 1) * SHOWN, "between": REPLIES - 1,
        "only_last": REPLY,
    }


def jail_values(bars: list[JsonDict]) -> JsonDict:
    """What was thrown at the jail that runs a model's code."""
    wanted = {"sandbox: hostile programs and judge cheats": "hostile programs, and cheats against the judge",
              "sandbox: reference solutions of HumanEval are paid": "right solutions of HumanEval, paid",
              "sandbox: the same with their answers changed are not": "the same with changed answers, paid",
              "sandbox: their slowest verdict": "slowest verdict on a hostile program",
              "sandbox: cost of an honest verdict": "cost of an honest verdict"}
    by = {bar["name"]: bar["measured"] for bar in bars}
    return {"jail": {"caption": "The jail in which code of a model is judged",
                     "columns": ["what was tried", "what happened"],
                     "rows": [[words, by[name]] for name, words in wanted.items()]}}


def door_values(tables: JsonDict) -> JsonDict:
    """Environments of other libraries, as they were trained."""
    rows = tables["Measured from trees with uncommitted changes: figures, not bars"]
    doors = [row for row in rows if row["what"].endswith("trains unchanged")]
    return {"doors": {
        "caption": "Environments written for other libraries (from a tree with uncommitted changes)",
        "columns": ["what was trained", "what happened"],
        "rows": [[row["what"].removesuffix(" trains unchanged"), row["measured"]] for row in doors]}}


def group_tables(rows: list[JsonDict], at: int, question: str) -> JsonDict:
    """The recorded group, an episode a row; and one episode as a row of texts with who wrote them."""
    texts = [(question, "environment", "–")]
    for turn, reward in zip(rows[at]["turns"], rows[at]["rewards"], strict=True):
        texts.append((turn["said"], "policy", f"{reward:g}"))
        texts += [(turn["answered"], "environment", "–")] if turn["answered"] else []
    return {
        "episode_row": {
            "caption": f"Episode {at + 1} of a recorded group, as the model reads and writes it",
            "columns": ["text", *(text for text, _, _ in texts)],
            "rows": [["written by", *(who for _, who, _ in texts)],
                     ["trained", *("yes" if who == "policy" else "no" for _, who, _ in texts)],
                     ["reward", *(reward for *_, reward in texts)]],
        },
        "group_table": {
            "caption": "The recorded group: guesses with the numbers that remained after them",
            "columns": ["episode", "guesses and answers", "score"],
            "rows": [[str(i), ", ".join(f"{t['said']} ({t['answered']})" if t["answered"] else t["said"]
                                        for t in row["turns"]), f"{row['score']:g}"]
                     for i, row in enumerate(rows, start=1)],
        },
    }


def bonus_values() -> JsonDict:
    """What a game is worth to a player who solves it, and to one who stalls."""
    from postgrad.studio.book.worked import plan_returns

    solve, stall = plan_returns(BONUS, TURNS, FINDS)
    return {"bonus": BONUS, "bonus_turns": TURNS, "finds": FINDS, "solve": solve, "stall": stall,
            "plain": plan_returns(0.0, TURNS, FINDS)[0], "bonus_once": BONUS}


def turn_values() -> JsonDict:
    """Turn by turn in a group of two, and a turn between two values."""
    import torch

    from postgrad.maths.credit import gae, turn_zscore

    reward = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    mask = torch.tensor([[True, False, True]] * 2)
    first, _, second = turn_zscore(reward, mask, 2)[0].tolist()
    paid = torch.tensor([[0.0, NEXT]], dtype=torch.float64)
    value = torch.tensor([[BEFORE, AFTER]], dtype=torch.float64)
    both = torch.ones(1, 2, dtype=torch.bool)
    paid += torch.tensor([[0.0, AFTER]], dtype=torch.float64)
    credit = gae(paid, both, 1, value=value, lam=LAM)[0, 0]
    return {"turn_first": first, "turn_second": second, "v_before": BEFORE, "v_after": AFTER, "lam": LAM,
            "next_credit": NEXT, "turn_delta": AFTER - BEFORE, "turn_credit": round(credit.item(), 12) + 0.0,
            "turn_whole": AFTER - BEFORE + NEXT}
