"""`postgrad completion bash`: a script that completes commands, options, recipes, settings and runs.

The script holds all names and looks for runs itself, so a completion starts no Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.settings import known_settings
from postgrad.system.settings import setting

SHELLS = ("bash", "zsh", "fish")
RUNS = "runs/*/run.json runs/*/pipeline.json runs/*/*/run.json"

BASH = """\
_postgrad() {
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words="" file
    if [ "$COMP_CWORD" = 1 ]; then
        words="%(commands)s"
    else
        case "$command:$word" in
%(options)s
        train:*)
            if [ "$COMP_CWORD" = 2 ]; then
                words="%(recipes)s"
            else
                words="%(settings)s"
                compopt -o nospace 2>/dev/null
            fi ;;
%(actions)s
        *)
            for file in %(runs)s; do
                [ -e "$file" ] && words="$words ${file%%/*}"
            done ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}
complete -o default -F _postgrad postgrad
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\nsetopt nonomatch\n"


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(CommandOptions):
    shell: str = setting(about="the shell that the script is for", choices=SHELLS, positional=True)


def command_parsers(top: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """What each command does, and its parser, by its name. top: the parser of `postgrad`."""
    group = next(a for a in top._actions if isinstance(a, argparse._SubParsersAction))
    return {entry.dest: (entry.help or "", group.choices[entry.dest]) for entry in group._choices_actions}


def actions_of(parser: argparse.ArgumentParser) -> list[str]:
    """The actions of a command that has some."""
    return [name for a in parser._actions if isinstance(a, argparse._SubParsersAction) for name in a.choices]


def flags_of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """The long options of a command and of its actions, each with its sentence."""
    seen: dict[str, str] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inside in action.choices.values():
                seen |= dict(flags_of(inside))
        seen |= {flag: action.help or "" for flag in action.option_strings if flag.startswith("--")}
    yield from seen.items()


def setting_words() -> list[str]:
    """Every setting by its whole name and by its last part, with the = that follows."""
    names = {row["setting"] for row in known_settings()}
    return sorted(f"{name}=" for name in names | {name.rpartition(".")[2] for name in names})


def bash_script(top: argparse.ArgumentParser, *, zsh: bool = False) -> str:
    from postgrad.recipes.registry import recipe_names
    parsers = command_parsers(top)
    options = [f'        {name}:-*) words="{" ".join(flag for flag, _ in flags_of(parser))}" ;;'
               for name, (_, parser) in parsers.items()]
    actions = [f'        {name}:*) [ "$COMP_CWORD" = 2 ] && words="{" ".join(actions_of(parser))}" ;;'
               for name, (_, parser) in parsers.items() if actions_of(parser)]
    return (ZSH if zsh else "") + BASH % {
        "commands": " ".join(parsers), "options": "\n".join(options), "actions": "\n".join(actions),
        "recipes": " ".join(recipe_names()), "settings": " ".join(setting_words()), "runs": RUNS}


def fish_script(top: argparse.ArgumentParser) -> str:
    from postgrad.recipes.registry import recipe_names

    def quoted(text: str) -> str:
        return "'" + text.replace("%%", "%").replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = []
    for name, (about, parser) in command_parsers(top).items():
        lines.append(f"complete -c postgrad -n __fish_use_subcommand -f -a {name} -d {quoted(about)}")
        inside = f"complete -c postgrad -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{inside} -l {flag.removeprefix('--')} -d {quoted(sentence)}"
                  for flag, sentence in flags_of(parser)]
        words = (" ".join([*recipe_names(), *setting_words()]) if name == "train"
                 else " ".join(actions_of(parser)))
        lines.append(f"{inside} -a {quoted(words)}" if words
                     else f"{inside} -a '(for f in {RUNS}; string replace -r \"/[^/]*$\" \"\" $f; end)'")
    return "\n".join(lines) + "\n"


def completion_command(parser: Callable[[], argparse.ArgumentParser]) -> Command:
    """parser: makes the parser of `postgrad`, whose commands the script completes."""
    def run(options: CompletionOptions) -> None:
        print(fish_script(parser()) if options.shell == "fish"
              else bash_script(parser(), zsh=options.shell == "zsh"), end="")

    return Command("completion", "print the script that completes postgrad's commands, options, recipes, "
                   "settings and runs in a shell", CompletionOptions, run,
                   'bash: eval "$(postgrad completion bash)" in ~/.bashrc\n'
                   'zsh:  eval "$(postgrad completion zsh)" in ~/.zshrc\n'
                   "fish: postgrad completion fish > ~/.config/fish/completions/postgrad.fish")
