"""Shell completion, made from the parsers that the commands themselves use."""

from __future__ import annotations

import importlib

SHELLS = ("bash", "zsh")
#: Commands and the modules whose `build_parser()` knows their words.
COMMANDS = {
    "vipu": "podwright.cli.vipu",
    "poprun": "podwright.cli.poprun",
    "vipu-server": "podwright.cli.vipu_server",
    "podwright": "podwright.cli.podwright",
}


def completion(shell: str, command: str) -> str:
    """A script for `shell` that completes `command`, one of COMMANDS."""
    import shtab

    parser = importlib.import_module(COMMANDS[command]).build_parser()
    return str(shtab.complete(parser, shell))
