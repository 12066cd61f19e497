"""`postgrad explain`: what a metric, a method or a setting means, and when to worry or to change it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from difflib import get_close_matches

from postgrad.cli.methods import print_methods
from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.cli.settings import explain_settings, find_settings, known_settings
from postgrad.system.settings import setting


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(CommandOptions):
    name: str | None = setting(None, "without it: all metrics", metavar="METRIC|METHOD|SETTING",
                               positional=True)


def run_explain(options: ExplainOptions) -> None:
    """A metric, a method or a setting. Metrics come first; a setting of the same name is shown beside."""
    from postgrad.runs.explain import METRICS, explain
    if options.name is None:
        meanings = {name: metric.meaning for name, metric in METRICS.items()}
        return (print_json(meanings) if options.json else
                print_table([{"metric": name, "meaning": text} for name, text in meanings.items()]))
    settings = find_settings(options.name)
    try:
        metric = asdict(explain(options.name))
    except ValueError:
        if settings:
            return (print_json({"name": options.name, "settings": settings}) if options.json
                    else explain_settings(settings))
        return explain_method(options.name, METRICS, options.json)
    if options.json:
        return print_json(metric | ({"settings": settings} if settings else {}))
    print_table([{"": key, options.name: text} for key, text in metric.items()
                 if key not in ("name", "limit")])
    return explain_settings(settings)


def explain_method(name: str, metrics: Iterable[str], as_json: bool) -> None:
    """A method of the table or of a file; else what is near the name, among metrics, methods and settings."""
    from postgrad.methods import METHODS
    from postgrad.system.plugins import is_file_spec
    if name in METHODS or is_file_spec(name):
        return print_methods(name, as_json)
    settings = [row["setting"] for row in known_settings()]
    names = dict.fromkeys([*metrics, *METHODS, *(key.rpartition(".")[2] for key in settings), *settings])
    near = get_close_matches(name.lower().replace("-", "_"), names, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"metrics are: {', '.join(metrics)}"
    raise ValueError(f"no metric, method or setting is called {name!r}; {hint}")


COMMAND = Command("explain", "what a metric, a method or a setting means, and when to worry or to change it",
                  ExplainOptions, run_explain)
