"""Shell completion, made from what the commands themselves parse with.

Names of partitions and the like are asked of the server while one types (`podwright complete`,
_complete): by what an argument is called, it is known what belongs there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from podwright.cli._commands import parser_of

SHELLS = ("bash", "zsh")
#: What options and nouns take, by their names: see _complete.KINDS.
_OPTIONS = {
    "--allocation": "allocations",
    "--vipu-allocation": "allocations",
    "--cluster": "clusters",
    "--vipu-partition": "partitions",
    "--job": "jobs",
    "--host": "hosts",
    "--machine": "machines",
}
_NOUNS = ("partition", "allocation", "cluster", "lease", "waiter", "machine")
_MADE = ("create",)

_BASH = """\
_podwright_complete() {{ compgen -W "$(podwright complete "$2" 2>/dev/null)" -- "$1"; }}
{functions}
"""
_ZSH = """\
_podwright_complete() {{
  local -a words; words=(${{(f)"$(podwright complete $1 2>/dev/null)"}}); compadd -a words
}}
{functions}
"""


def completion(shell: str, command: str) -> str:
    """A script for `shell` that completes `command`, one of COMMANDS."""
    import shtab

    parser = parser_of(command)
    found = set()
    for prog, action in _arguments(parser):
        if kind := _kind(prog, action):
            found.add(kind)
            function = f"_podwright_{kind}"
            action.complete = {"bash": function, "zsh": function}  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "FILE" or action.dest == "program":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    kinds = sorted(found)
    bash = [f'_podwright_{kind}() {{ _podwright_complete "$1" {kind}; }}' for kind in kinds]
    zsh = [f"_podwright_{kind}() {{ _podwright_complete {kind} }}" for kind in kinds]
    functions = "\n".join(bash if shell == "bash" else zsh)
    preamble = (_BASH if shell == "bash" else _ZSH).format(functions=functions) if kinds else ""
    return str(shtab.complete(parser, shell, preamble=preamble))


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """All arguments of a parser and of those below it, each with its parser's name."""
    for action in parser._actions:
        yield parser.prog, action
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from _arguments(child)


def _kind(prog: str, action: argparse.Action) -> str:
    """What stands in this argument, if the server or this machine knows; else nothing."""
    for option in action.option_strings:
        if option in _OPTIONS and action.nargs != 0:
            return _OPTIONS[option]
    words = prog.split()
    if action.dest == "name" and not action.option_strings and len(words) > 2:
        noun = words[-1].removesuffix("s")
        if noun in _NOUNS and words[-2] not in _MADE:
            return f"{noun}s"
    return ""
