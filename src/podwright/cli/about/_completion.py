"""Shell completion of the commands, and its place in a shell's folder.

While the user types, names of partitions and the like are requested from the server (`podwright
complete`, _complete). The name of an argument determines the kind of words.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from podwright.cli.about._command_parsers import COMMANDS, parser_of
from podwright.errors import InvalidRequest
from podwright.ground.durable_files import user_folder, write_whole
from podwright.ground.option_rows.completion import completion_script

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


def completion(shell: str, command: str) -> str:
    """Return a script for `shell` that completes `command`, one of COMMANDS."""
    return completion_script(shell, command, parser_of(command), _kind)


def install(shell: str, environ: Mapping[str, str]) -> str:
    """Write the completion of all commands to the shell's folder. Returns the path of the file.

    bash: `podwright` in the folder of bash-completion, with a link for each other command, since
    the folder's files are loaded by the name of the command. zsh: `_podwright` in a folder that the
    user's `fpath` must name. Raises InvalidRequest when the file cannot be written.
    """
    data = user_folder("data", environ)
    if shell == "bash":
        path = os.path.join(data, "bash-completion", "completions", "podwright")
    else:
        path = os.path.join(data, "zsh", "site-functions", "_podwright")
    text = "\n".join(completion(shell, command) for command in COMMANDS) + "\n"
    if shell == "zsh":
        text = f"#compdef {' '.join(COMMANDS)}\n{text}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_whole(path, text, 0o644)
        for command in COMMANDS if shell == "bash" else ():
            link = os.path.join(os.path.dirname(path), command)
            if command != "podwright" and not os.path.lexists(link):
                os.symlink("podwright", link)
    except OSError as error:
        raise InvalidRequest(f"cannot write {path}: {(error.strerror or '').lower()}") from None
    return path


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
