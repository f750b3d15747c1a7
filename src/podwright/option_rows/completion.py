"""A script that completes the words of a command in a shell, made from its parser by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

_BASH = """\
_podwright_complete() {{ compgen -W "$(podwright complete "$2" 2>/dev/null)" -- "$1"; }}
{functions}
"""
#: bash splits `--option=value` into three words; shtab's functions know only `--option value`.
_JOINED = """\
_podwright_joined_{name}() {{
  local words=() current=$COMP_CWORD index
  for index in "${{!COMP_WORDS[@]}}"; do
    if [ "${{COMP_WORDS[index]}}" != = ]; then
      words+=("${{COMP_WORDS[index]}}")
    elif [ "$index" -eq "$COMP_CWORD" ]; then
      words+=("")
    elif [ "$index" -lt "$COMP_CWORD" ]; then
      current=$((current - 1))
    fi
  done
  local COMP_WORDS=("${{words[@]}}") COMP_CWORD=$current
  _shtab_{name}
}}
complete -o bashdefault -F _podwright_joined_{name} {command}
"""
_ZSH = """\
_podwright_complete() {{
  local -a words; words=(${{(f)"$(podwright complete $1 2>/dev/null)"}}); compadd -a words
}}
{functions}
"""


def completion_script(
    shell: str,
    command: str,
    parser: argparse.ArgumentParser,
    kind_of: Callable[[str, argparse.Action], str],
) -> str:
    """Return the script for bash or zsh.

    kind_of: the kind of words of an argument, by the name of its parser; `podwright complete KIND`
    prints these while the user types. It is empty for an argument whose words the parser has.
    """
    import shtab

    names = set()
    for prog, action in _arguments(parser):
        if kind := kind_of(prog, action):
            names.add(kind)
            function = f"_podwright_{kind}"
            action.complete = {"bash": function, "zsh": function}  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "FILE" or action.dest == "program":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    kinds = sorted(names)
    bash = [f'_podwright_{kind}() {{ _podwright_complete "$1" {kind}; }}' for kind in kinds]
    zsh = [f"_podwright_{kind}() {{ _podwright_complete {kind} }}" for kind in kinds]
    functions = "\n".join(bash if shell == "bash" else zsh)
    preamble = (_BASH if shell == "bash" else _ZSH).format(functions=functions) if kinds else ""
    script = str(shtab.complete(parser, shell, preamble=preamble))
    if shell == "bash":
        script += "\n" + _JOINED.format(name=command.replace("-", "_"), command=command)
    return script


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield all arguments of a parser and of the parsers below it, each with its parser's name."""
    for action in parser._actions:
        yield parser.prog, action
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from _arguments(child)
