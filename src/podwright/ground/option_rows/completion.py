"""A script that completes the words of a command in a shell, made from its parser by shtab."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

_BASH_TEMPLATE = """\
_podwright_complete() {{ compgen -W "$(podwright complete "$2" 2>/dev/null)" -- "$1"; }}
{functions}
"""
#: bash splits `--option=value` into three words; shtab's functions know only `--option value`.
_BASH_JOINED_TEMPLATE = """\
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
_ZSH_TEMPLATE = """\
_podwright_complete() {{
  local -a words; words=(${{(f)"$(podwright complete $1 2>/dev/null)"}}); compadd -a words
}}
{functions}
"""


def completion_script(
    shell: str,
    command: str,
    parser: argparse.ArgumentParser,
    word_kind_of: Callable[[str, argparse.Action], str],
) -> str:
    """Return the script for bash or zsh.

    word_kind_of: the kind of words of an argument, by the name of its parser; `podwright complete
    KIND` prints these while the user types. It is empty for an argument whose words the parser has.
    """
    import shtab

    used_kinds = set()
    for parser_name, argument in _all_arguments(parser):
        if word_kind := word_kind_of(parser_name, argument):
            used_kinds.add(word_kind)
            shell_function = f"_podwright_{word_kind}"
            argument.complete = {"bash": shell_function, "zsh": shell_function}  # type: ignore[attr-defined]
        elif argument.metavar == "DIR":
            argument.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif argument.metavar == "FILE" or argument.dest == "program":
            argument.complete = shtab.FILE  # type: ignore[attr-defined]
    word_kinds = sorted(used_kinds)
    bash_functions = [
        f'_podwright_{kind}() {{ _podwright_complete "$1" {kind}; }}' for kind in word_kinds
    ]
    zsh_functions = [f"_podwright_{kind}() {{ _podwright_complete {kind} }}" for kind in word_kinds]
    functions = "\n".join(bash_functions if shell == "bash" else zsh_functions)
    preamble = (
        (_BASH_TEMPLATE if shell == "bash" else _ZSH_TEMPLATE).format(functions=functions)
        if word_kinds
        else ""
    )
    script = str(shtab.complete(parser, shell, preamble=preamble))
    if shell == "bash":
        script += "\n" + _BASH_JOINED_TEMPLATE.format(
            name=command.replace("-", "_"), command=command
        )
    return script


def _all_arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield all arguments of a parser and of the parsers below it, each with its parser's name."""
    for argument in parser._actions:
        yield parser.prog, argument
        if isinstance(argument, argparse._SubParsersAction):
            for subparser in dict.fromkeys(argument.choices.values()):
                yield from _all_arguments(subparser)
