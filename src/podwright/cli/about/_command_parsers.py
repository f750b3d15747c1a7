"""Every command with its parser, for completion, manual pages and references."""

from __future__ import annotations

import argparse
import importlib

from podwright.cli.shared._arguments import Parser

#: The modules whose `build_parser()` makes a command's parser.
_MODULES = {
    "vipu": "podwright.cli.vipu",
    "vipu-admin": "podwright.cli.vipu_admin",
    "vipu-agent": "podwright.cli.vipu_agent",
    "vipu-server": "podwright.cli.vipu_server",
    "podwright": "podwright.cli.podwright",
    "gc-info": "podwright.cli.gc_info",
    "gc-monitor": "podwright.cli.gc_monitor",
}
COMMANDS = (*_MODULES, "poprun")
#: The section of the manual to which each belongs: 8 has the commands of administrators.
SECTIONS = {
    command: 8 if command in ("vipu-admin", "vipu-agent", "vipu-server") else 1
    for command in COMMANDS
}


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command, one of COMMANDS."""
    if command == "poprun":
        return _poprun()
    parser: argparse.ArgumentParser = importlib.import_module(_MODULES[command]).build_parser()
    return parser


def _poprun() -> argparse.ArgumentParser:
    """Return an argparse parser for poprun, which parses its own arguments by a table."""
    from podwright.launcher import OPTIONS

    summary = "Start a program's instances on a partition, and see them to their end."
    parser = Parser(prog="poprun", description=summary, add_help=False)
    names = dict.fromkeys(option.group for option in OPTIONS)
    groups = {name: parser.add_argument_group(name) for name in names}
    for option in OPTIONS:
        takes_none = bool(option.flag) and not option.optional
        text = option.help.replace("%", "%%")
        add = groups[option.group].add_argument
        if takes_none:
            add(option.name, help=text, action="store_true")
        else:
            add(option.name, help=text, metavar=option.value)
    parser.add_argument("program", nargs="*", help="the program and its arguments")
    return parser


def page(command: str) -> str:
    """Return the manual page of a command, one of COMMANDS."""
    from podwright.ground.option_rows.manual_page import manual_page

    return manual_page(command, parser_of(command), SECTIONS)
