"""Options as fields of a NamedTuple: the parser is made from the class, and returns an instance of
it.

    class Arguments(NamedTuple):
        preset: Annotated[str | None, Opt("a simulated pod", metavar="NAME")] = None
        peer: Annotated[tuple[str, ...], Opt("another pod", repeated=True)] = ()
        secure: Annotated[bool, Opt("callers show a key")] = False

A `bool` takes no value, and all other options take one. Manual page, completion and configuration
file follow from the parser, so an option is written in one place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

_Value = TypeVar("_Value", bound=tuple[object, ...])


class Opt(NamedTuple):
    """The spelling and the help of a field's option.

    group: the heading in --help; none for the common one. read: converts a word to the value; it
    raises argparse.ArgumentTypeError. short: `-a`. rivals: options with the same word here exclude
    each other. counted: the value is how often the option was given. repeated: the option may be
    given several times, and its value is a tuple.
    """

    help: str
    group: str = ""
    metavar: str = ""
    read: Callable[[str], object] = str
    short: str = ""
    choices: tuple[str, ...] = ()
    rivals: str = ""
    counted: bool = False
    repeated: bool = False


def add_options(parser: argparse.ArgumentParser, kind: type[_Value]) -> None:
    """Add the options that the fields of a NamedTuple describe to a parser."""
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    exclusive: dict[str, argparse._ActionsContainer] = {}
    defaults: dict[str, object] = getattr(kind, "_field_defaults", {})
    for field, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is not Annotated:
            continue
        base, option = get_args(hint)
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        place = groups[option.group]
        if option.rivals:
            if option.rivals not in exclusive:
                exclusive[option.rivals] = place.add_mutually_exclusive_group()
            place = exclusive[option.rivals]
        _add(place, field, base, option, defaults[field])


def _add(
    place: argparse._ActionsContainer, field: str, base: object, option: Opt, default: object
) -> None:
    names = [option.short, f"--{field.replace('_', '-')}"]
    names = [name for name in names if name]
    if base is bool:
        place.add_argument(*names, dest=field, help=option.help, action="store_true")
    elif option.counted:
        place.add_argument(*names, dest=field, help=option.help, action="count", default=default)
    elif option.repeated:
        place.add_argument(
            *names,
            dest=field,
            help=option.help,
            metavar=option.metavar,
            type=option.read,
            action="append",
            default=[],
        )
    else:
        place.add_argument(
            *names,
            dest=field,
            help=option.help,
            metavar=option.metavar or None,
            type=option.read,
            choices=option.choices or None,
            default=default,
        )


def read_options(kind: type[_Value], parsed: argparse.Namespace) -> _Value:
    """Return the value of this class from the result of a parser with its options."""
    names: tuple[str, ...] = getattr(kind, "_fields", ())
    values = ((name, getattr(parsed, name)) for name in names)
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in values})
