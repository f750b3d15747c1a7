"""Shell completion, made from the commands' own parsers.

While the user types, names of partitions and the like are requested from the server (`podwright
complete`, _complete). The name of an argument determines the kind of words.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping

from podwright.cli.about._commands import COMMANDS, parser_of
from podwright.errors import InvalidRequest

SHELLS = ("bash", "zsh")
#: The kind of words for each option and noun: see _complete.KINDS.
_OPTIONS = {
    "--allocation": "allocations",
    "--vipu-allocation": "allocations",
    "--cluster": "clusters",
    "--context": "contexts",
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


def completion(shell: str, command: str) -> str:
    """Return a script for `shell` that completes `command`, one of COMMANDS."""
    import shtab

    parser = parser_of(command)
    names = set()
    for prog, action in _arguments(parser):
        if kind := _kind(prog, action):
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


def install(shell: str, environ: Mapping[str, str]) -> str:
    """Write the completion of all commands to the shell's folder. Returns the path of the file.

    bash: `podwright` in the folder of bash-completion, with a link for each other command, since
    the folder's files are loaded by the name of the command. zsh: `_podwright` in a folder that the
    user's `fpath` must name. Raises InvalidRequest when the file cannot be written.
    """
    home = environ.get("HOME") or os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or os.path.join(home, ".local", "share")
    if shell == "bash":
        path = os.path.join(data, "bash-completion", "completions", "podwright")
    else:
        path = os.path.join(data, "zsh", "site-functions", "_podwright")
    text = "\n".join(completion(shell, command) for command in COMMANDS) + "\n"
    if shell == "zsh":
        text = f"#compdef {' '.join(COMMANDS)}\n{text}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        temporary = f"{path}.new"
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
        for command in COMMANDS if shell == "bash" else ():
            link = os.path.join(os.path.dirname(path), command)
            if command != "podwright" and not os.path.lexists(link):
                os.symlink("podwright", link)
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {(error.strerror or '').lower()}") from None
    return path


def _arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.Action]]:
    """Yield all arguments of a parser and of the parsers below it, each with its parser's name."""
    for action in parser._actions:
        yield parser.prog, action
        if isinstance(action, argparse._SubParsersAction):
            for child in dict.fromkeys(action.choices.values()):
                yield from _arguments(child)


def _kind(prog: str, action: argparse.Action) -> str:
    """Return the kind of words for this argument; empty when neither server nor machine knows
    them.
    """
    for option in action.option_strings:
        if option in _OPTIONS and action.nargs != 0:
            return _OPTIONS[option]
    words = prog.split()
    if action.dest == "name" and words[-1] in ("use-context", "set-context", "delete-context"):
        return "contexts"
    if action.dest == "name" and not action.option_strings and len(words) > 2:
        noun = words[-1].removesuffix("s")
        if noun in _NOUNS and words[-2] not in _MADE:
            return f"{noun}s"
    return ""
