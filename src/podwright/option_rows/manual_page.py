"""The manual page of a command, made from its parser, as man reads it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from podwright._version import __version__


def manual_page(command: str, parser: argparse.ArgumentParser, sections: Mapping[str, int]) -> str:
    """Return the page. sections: that of each command which has a page, of this one, too."""
    title = f'.TH {command.upper()} {sections[command]} "" "Podwright {__version__}" "Podwright"'
    summary = _line(parser.description or "").rstrip(".")
    lines = [title, ".SH NAME", f"{_text(command)} \\- {_text(summary[:1].lower() + summary[1:])}"]
    lines += [".SH SYNOPSIS", *_usage(parser)]
    if len((parser.description or "").split("\n\n")) > 1:
        lines += [".SH DESCRIPTION", *_prose(parser.description or "")]
    lines += [".SH OPTIONS", *_options(parser, set())]
    verbs = list(_verbs(parser))
    shared = {option for action in parser._actions for option in action.option_strings}
    if verbs:
        lines.append(".SH COMMANDS")
        for verb, words in verbs:
            lines += [f'.SS "{_text(verb.prog)}"', *_prose(words), *_usage(verb)]
            lines += _options(verb, shared)
    if parser.epilog:
        lines += [".SH NOTES", ".nf", *map(_text, parser.epilog.splitlines()), ".fi"]
    other_pages = [(other, number) for other, number in sections.items() if other != command]
    see_also = ", ".join(f"\\fB{_text(other)}\\fR({number})" for other, number in other_pages)
    return "\n".join([*lines, ".SH SEE ALSO", see_also, ""])


def _verbs(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Return the verbs below a parser that are actions of their own, each with its words."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        listed = {choice.dest: choice.help or "" for choice in action._choices_actions}
        documented = [(name, child) for name, child in action.choices.items() if name in listed]
        for name, child in documented:
            below = list(_verbs(child))
            if below:
                yield from below
            else:
                yield child, child.description or listed[name]


def _usage(parser: argparse.ArgumentParser) -> list[str]:
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    return [".nf", *map(_text, usage.splitlines()), ".fi"]


def _options(parser: argparse.ArgumentParser, shared: set[str]) -> list[str]:
    """Return the arguments of a parser, without those that the parser above lists for all."""
    lines: list[str] = []
    for action in parser._actions:
        hidden = action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction)
        if hidden or set(action.option_strings) & shared:
            continue
        lines += [".TP", _name(parser, action)]
        text = action.help or ""
        if text:
            text = parser._get_formatter()._expand_help(action)
        if action.choices and not text:
            text = ", ".join(map(str, action.choices))
        lines.append(_text(_line(text)) or "\\&")
    return lines


def _name(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    value = action.metavar or action.dest
    value = " ".join(value) if isinstance(value, tuple) else value
    if not action.option_strings:
        return f"\\fI{_text(value)}\\fR"
    names = ", ".join(f"\\fB{_text(name)}\\fR" for name in action.option_strings)
    return names if action.nargs == 0 else f"{names} \\fI{_text(value)}\\fR"


def _prose(text: str) -> list[str]:
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [".PP", *map(_text, paragraph.splitlines())]
    return lines


def _line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _text(text: str) -> str:
    """Return text for roff, with everything escaped that roff would take as an order."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(c if ord(c) < 128 else f"\\[u{ord(c):04X}]" for c in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
