"""The reference of commands, a page for each, from the parsers that manual pages are made of.

Each option has an anchor. `docs/examples` has an example of each verb, below a heading that is the
verb's words; tests type all of them.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from podwright.cli.about._command_parsers import parser_of
from podwright.ground.option_rows.manual_page import verb_parsers

#: Verbs that need more than a page of the reference can start: the page that shows each at work.
SHOWN_ON = {
    "podwright kubernetes operator": "kubernetes.md",
    "podwright kubernetes plan": "kubernetes.md",
    "podwright kubernetes remove": "kubernetes.md",
    "podwright slurm efficiency": "slurm/gpu-efficiency.md",
    "podwright slurm rehearse": "slurm/rehearse.md",
    "podwright slurm serve": "slurm/admin.md",
    "podwright slurm serve-lint": "slurm/gpus.md",
    "podwright slurm twin serve": "slurm/twin.md",
    "podwright slurm twin status": "slurm/twin.md",
}
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"


def reference_page(command: str) -> str:
    """Return a command's page: what it is for, its verbs, and each one's example and options."""
    parser, examples = parser_of(command), all_examples()
    verbs = list(verb_parsers(parser))
    common = {name for action in parser._actions for name in action.option_strings}
    parts = [f"# {command}\n", f"{_text(parser.description or '')}\n"]
    if verbs:
        parts += [f"- [{verb.prog}](#{_anchor(verb.prog)}): {_text(said)}" for verb, said in verbs]
        parts.append("")
    parts += _section(parser, examples.get(command, ""), set())
    if parser.epilog:
        parts.append(f"```text\n{parser.epilog}\n```\n")
    for verb, said in verbs:
        parts.append(f"## {verb.prog}\n\n{_text(said)}\n")
        parts += _section(verb, examples.get(verb.prog, ""), common)
    return "\n".join(parts)


def all_examples() -> dict[str, str]:
    """Return the examples, by the words of their verbs."""
    pages = "".join(page.read_text() for page in sorted(EXAMPLES.glob("*.md")))
    return dict(re.findall(r"^## ([^\n]*)\n\n(.*?\n)(?=\n?^## |\Z)", pages, re.M | re.S))


def verbs_of(command: str) -> list[str]:
    """Return the words of each verb of a command, or the command where it has none."""
    return [verb.prog for verb, _ in verb_parsers(parser_of(command))] or [command]


def _section(parser: argparse.ArgumentParser, example: str, common: set[str]) -> Iterator[str]:
    yield f"```text\n{parser.format_usage().removeprefix('usage: ').rstrip()}\n```\n"
    if example:
        yield example
    elif parser.prog in SHOWN_ON:
        yield f"[Here](../{SHOWN_ON[parser.prog]}) it is shown at work.\n"
    yield f"```{{program}} {parser.prog}\n```\n"
    for action in parser._actions:
        hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction)
        if not hidden and not set(action.option_strings) & common:
            yield f"````{{option}} {_spelling(action)}\n{_help(parser, action)}\n````\n"
    if common:
        command = parser.prog.split()[0]
        yield f"Options that all verbs have: see [{command}](#{_anchor(command)}).\n"


def _spelling(action: argparse.Action) -> str:
    metavar = action.metavar or action.dest
    value = metavar if isinstance(metavar, str) else " ".join(metavar)
    if not action.option_strings:
        return value
    return ", ".join(
        name if action.nargs == 0 else f"{name} {value}" for name in action.option_strings
    )


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    said = parser._get_formatter()._expand_help(action) if action.help else ""
    choices = "" if not action.choices else ", ".join(map(str, action.choices))
    return _text(said or choices or "")


def _text(text: str) -> str:
    """Return text in which nothing but code between backticks means something to Markdown."""
    pieces = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(
        piece
        if piece.startswith("`") and len(piece) > 1
        else re.sub(r"([\\*_<>\[\]{}#$|~`])", r"\\\1", piece)
        for piece in pieces
    )


def _anchor(words: str) -> str:
    return words.replace(" ", "-")
