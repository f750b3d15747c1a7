"""The manual page of a command, made from its parser, as man reads it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from podwright._version import __version__


def manual_page(
    command: str, parser: argparse.ArgumentParser, manual_sections: Mapping[str, int]
) -> str:
    """Return the page. manual_sections: that of each command which has a page, of this one, too."""
    title_line = (
        f'.TH {command.upper()} {manual_sections[command]} "" "Podwright {__version__}" "Podwright"'
    )
    summary = _first_paragraph_line(parser.description or "").rstrip(".")
    lines = [
        title_line,
        ".SH NAME",
        f"{_escaped_roff_text(command)} \\- "
        f"{_escaped_roff_text(summary[:1].lower() + summary[1:])}",
    ]
    lines += [".SH SYNOPSIS", *_usage_lines(parser)]
    if len((parser.description or "").split("\n\n")) > 1:
        lines += [".SH DESCRIPTION", *_roff_paragraphs(parser.description or "")]
    lines += [".SH OPTIONS", *_option_lines(parser, set())]
    verbs = list(verb_parsers(parser))
    shared_options = {option for argument in parser._actions for option in argument.option_strings}
    if verbs:
        lines.append(".SH COMMANDS")
        for verb_parser, description in verbs:
            lines += [
                f'.SS "{_escaped_roff_text(verb_parser.prog)}"',
                *_roff_paragraphs(description),
                *_usage_lines(verb_parser),
            ]
            lines += _option_lines(verb_parser, shared_options)
    if parser.epilog:
        lines += [".SH NOTES", ".nf", *map(_escaped_roff_text, parser.epilog.splitlines()), ".fi"]
    other_pages = [
        (other_command, number)
        for other_command, number in manual_sections.items()
        if other_command != command
    ]
    see_also = ", ".join(
        f"\\fB{_escaped_roff_text(other_command)}\\fR({number})"
        for other_command, number in other_pages
    )
    return "\n".join([*lines, ".SH SEE ALSO", see_also, ""])


def verb_parsers(parser: argparse.ArgumentParser) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Return the verbs below a parser that are actions of their own, each with its words."""
    for subparsers_action in parser._actions:
        if not isinstance(subparsers_action, argparse._SubParsersAction):
            continue
        help_texts = {
            choice_action.dest: choice_action.help or ""
            for choice_action in subparsers_action._choices_actions
        }
        documented_verbs = [
            (name, verb_parser)
            for name, verb_parser in subparsers_action.choices.items()
            if name in help_texts
        ]
        for verb_name, verb_parser in documented_verbs:
            nested_verbs = list(verb_parsers(verb_parser))
            if nested_verbs:
                yield from nested_verbs
            else:
                yield verb_parser, verb_parser.description or help_texts[verb_name]


def _usage_lines(parser: argparse.ArgumentParser) -> list[str]:
    usage = parser.format_usage().removeprefix("usage: ").rstrip()
    return [".nf", *map(_escaped_roff_text, usage.splitlines()), ".fi"]


def _option_lines(parser: argparse.ArgumentParser, shared_options: set[str]) -> list[str]:
    """Return the arguments of a parser, without those that the parser above lists for all."""
    lines: list[str] = []
    for argument in parser._actions:
        is_hidden = argument.help == argparse.SUPPRESS or isinstance(
            argument, argparse._SubParsersAction
        )
        if is_hidden or set(argument.option_strings) & shared_options:
            continue
        lines += [".TP", _argument_name_text(parser, argument)]
        help_text = argument.help or ""
        if help_text:
            help_text = parser._get_formatter()._expand_help(argument)
        if argument.choices and not help_text:
            help_text = ", ".join(map(str, argument.choices))
        lines.append(_escaped_roff_text(_first_paragraph_line(help_text)) or "\\&")
    return lines


def _argument_name_text(parser: argparse.ArgumentParser, argument: argparse.Action) -> str:
    metavar = argument.metavar or argument.dest
    metavar = " ".join(metavar) if isinstance(metavar, tuple) else metavar
    if not argument.option_strings:
        return f"\\fI{_escaped_roff_text(metavar)}\\fR"
    option_names = ", ".join(
        f"\\fB{_escaped_roff_text(name)}\\fR" for name in argument.option_strings
    )
    return (
        option_names
        if argument.nargs == 0
        else f"{option_names} \\fI{_escaped_roff_text(metavar)}\\fR"
    )


def _roff_paragraphs(description: str) -> list[str]:
    lines: list[str] = []
    for paragraph in description.strip().split("\n\n"):
        lines += [".PP", *map(_escaped_roff_text, paragraph.splitlines())]
    return lines


def _first_paragraph_line(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _escaped_roff_text(text: str) -> str:
    """Return text for roff, with everything escaped that roff would take as an order."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = "".join(
        character if ord(character) < 128 else f"\\[u{ord(character):04X}]" for character in escaped
    )
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
