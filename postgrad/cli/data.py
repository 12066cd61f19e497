"""`postgrad data check`: what is understood of a file of rows, before it is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.options import MODEL, TEMPLATE
from postgrad.system.settings import COUNT, NOT_NEGATIVE, setting

if TYPE_CHECKING:
    from postgrad.recipes.data_check import DataReport


@dataclass(frozen=True, kw_only=True)
class CheckOptions(CommandOptions):
    data: str = setting(about="a file (.jsonl, .jsonl.gz, .json, .csv, .parquet), hub:OWNER/NAME[:SPLIT], or "
                        "a task's name", metavar="FILE|NAME", positional=True)
    model: str = setting("tiny-chat", f"whose template renders the rows: {MODEL}", metavar="MODEL")
    template: str | None = setting(None, TEMPLATE[0], metavar="NAME|FILE")
    kind: str | None = setting(None, "what the rows are; default: by the columns of the first",
                               choices=("conversations", "pairs", "labelled", "prompts"))
    rows: int = setting(3, "rows that are rendered, spread over the file", within=NOT_NEGATIVE, metavar="N")
    max_tokens: int | None = setting(None, "the most tokens of a row; default: as many as the model takes",
                                     within=COUNT, metavar="N")


def run_check(options: CheckOptions) -> int:
    """Exits with 1 where rows are bad or over the limit."""
    from postgrad.recipes.data_check import check_data
    report = check_data(options.data, model=options.model, template=options.template, kind=options.kind,
                        show=options.rows, max_tokens=options.max_tokens)
    if options.json:
        print_json(report.as_dict())
    else:
        print_report(report)
    return int(bool(report.bad or report.over_limit))


def print_report(report: DataReport) -> None:
    """A line for each thing, and the rendered rows: what is trained in colour, in brackets where there is
    none."""
    from rich.console import Console
    from rich.text import Text

    from postgrad.data.rows import USES, alike_once
    console = Console(highlight=False, soft_wrap=True)
    unused = "handed to the reward" if report.kind == "prompts" else "ignored"
    share = f" ({report.trained / report.tokens:.0%})" if report.tokens else ""
    trained = "the replies are sampled" if report.kind == "prompts" else f"{report.trained:,} trained{share}"
    lines = {
        "rows": f"{report.rows:,} {report.kind}, for {USES[report.kind]}; {report.bad:,} bad, "
                f"{report.over_limit:,} over the limit of {report.limit:,} tokens of {report.model}",
        "form": ", ".join(f"{form} ({count:,})" for form, count in report.forms.items())
                + (f", {report.turns:,} turns" if report.turns else ""),
        "columns": f"used: {', '.join(report.used)}"
                   + (f"; {unused}: {', '.join(report.unused)}" if report.unused else ""),
        "repeated": f"{report.repeated:,}" + (f"; judged both ways: {report.contradicted:,}"
                                              if report.contradicted else ""),
        "tokens": f"{report.tokens:,}, {trained}; longest row {report.longest:,}"}
    console.print(Text(report.source, style="bold"))
    for name, text in lines.items():
        if report.forms or name not in ("form", "columns"):
            console.print(Text(f"  {name:<9} {text}"))
    for remark, count in report.remarks.items():
        console.print(Text(f"  note      {count:,} rows: {remark}"))
    for name, faults, count in (("bad", report.faults, report.bad),
                                ("too long", report.too_long, report.over_limit)):
        for fault in alike_once(faults):
            console.print(Text(f"  {name:<9} {fault}"))
        if count > len(faults):
            console.print(Text(f"  {name:<9} and {count - len(faults):,} more"))
    for row in report.shown:
        console.print(Text(f"\n{row.where}{f', {row.side}' if row.side else ''}", style="bold"))
        rendered = Text()
        for piece, is_trained in row.spans:
            plain = f"[[{piece}]]" if is_trained and not console.is_terminal else piece
            rendered.append(plain, style="bold green" if is_trained else "dim")
        console.print(rendered)


COMMANDS = (Command("data", "look at data before a training", actions=(
    Command("check", "read a file of conversations, preferences or prompts: form, columns, bad and long "
            "rows, and what is trained", CheckOptions, run_check, """\
examples:
  postgrad data check chats.jsonl --model models/smollm2
  postgrad data check pairs.parquet --rows 1
  postgrad data check hub:openai/gsm8k:main:train
Trained text is shown in colour, and in [[brackets]] where there is none."""),
)),)
