"""Shell completion, made from what the commands themselves parse with."""

from __future__ import annotations

import argparse
import importlib

from podwright.cli._arguments import Parser

SHELLS = ("bash", "zsh")
#: Commands, and the modules whose `build_parser()` knows their words.
_PARSERS = {
    "vipu": "podwright.cli.vipu",
    "vipu-admin": "podwright.cli.vipu_admin",
    "vipu-agent": "podwright.cli.vipu_agent",
    "vipu-server": "podwright.cli.vipu_server",
    "podwright": "podwright.cli.podwright",
    "gc-info": "podwright.cli.gc_info",
    "gc-monitor": "podwright.cli.gc_monitor",
}
COMMANDS = (*_PARSERS, "poprun")


def completion(shell: str, command: str) -> str:
    """A script for `shell` that completes `command`, one of COMMANDS."""
    import shtab

    if command == "poprun":
        parser = _poprun()
    else:
        parser = importlib.import_module(_PARSERS[command]).build_parser()
    return str(shtab.complete(parser, shell))


def _poprun() -> argparse.ArgumentParser:
    """poprun parses as PopRun does, by a table of its own; here it is as argparse would have it."""
    import shtab

    from podwright.launcher import OPTIONS

    parser = Parser(prog="poprun", add_help=False)
    for option in OPTIONS:
        takes_none = bool(option.flag) and not option.optional
        text = option.help.replace("%", "%%")
        if takes_none:
            parser.add_argument(option.name, help=text, action="store_true")
        else:
            parser.add_argument(option.name, help=text, metavar=option.value)
    program = parser.add_argument("program", nargs="*", help="the program and its arguments")
    program.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser
