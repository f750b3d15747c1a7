"""Options as rows of a class: the parser is made from the rows, and an instance has the values.

    class ServeOptions(OptionTable):
        socket = optional("where it answers", "PATH")
        workers = value("scripts read at a time (2)", "N", positive, 2)
        dry_run = flag("change nothing")

A row is an option with its help. It is called `--dry-run` after its attribute, unless `name` says
otherwise. Manual page, completion and configuration file follow from the parser, so an option is
written in one place. A type checker sees the value of a row, as it does with a field of a data
class: above `str | None`, `int` and `bool`.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from pathlib import Path
    from typing import TypedDict, Unpack

    class _RowFields(TypedDict, total=False):
        """What every kind of option can have: see OptionRow."""

        nargs: str
        const: object
        group: OptionGroup
        rivals: str
        name: str
        dest: str
        required: bool
        inherited: bool

    class _AllRowFields(_RowFields, total=False):
        """All that a row has beside its help and its action."""

        metavar: str | None
        read: Callable[[str], object]
        default: object
        choices: Sequence[str] | None


_Value = TypeVar("_Value")
_Default = TypeVar("_Default")


class OptionGroup:
    """A heading in --help, and a sentence below it."""

    def __init__(self, title: str, description: str | None = None) -> None:
        self.title, self.description = title, description


class OptionRow:
    """How an option is written, read and explained.

    metavar: the name of the value in --help. read: converts a word to the value, and raises
    argparse.ArgumentTypeError. name: the spellings with blanks between them, such as `-o --output`,
    if it has another than that of its attribute. dest: the same for the name of the value, which
    completion shows. rivals: options with the same word here exclude each other. const: the value
    of an option without a word, where nargs is `?`. inherited: the option may stand before and
    after a verb, so its parser sets no default.

    It is not a NamedTuple, which would cost each command 3 ms to make.
    """

    action = "store"
    metavar: str | None = None
    read: Callable[[str], object] = str
    default: object = None
    choices: Sequence[str] | None = None
    nargs: str | None = None
    const: object = None
    group: OptionGroup | None = None
    rivals = ""
    name = ""
    dest = ""
    required = False
    inherited = False

    def __init__(self, help: str, action: str = "store", **fields: Unpack[_AllRowFields]) -> None:
        self.help = help
        self.action = action
        vars(self).update(fields)

    def of_class(self, group: OptionGroup | None, inherited: bool) -> OptionRow:
        """Return the row with what its class says of all rows."""
        row = OptionRow(self.help)
        vars(row).update(vars(self), group=group, inherited=inherited)
        return row


def flag(help: str, **fields: Unpack[_RowFields]) -> bool:
    """Return an option without a value."""
    return cast("bool", OptionRow(help, "store_true", default=False, **fields))


def count(help: str, **fields: Unpack[_RowFields]) -> int:
    """Return an option without a value, which counts how often it is given."""
    return cast("int", OptionRow(help, "count", default=0, **fields))


def text(
    help: str, metavar: str | None = None, default: str = "", **fields: Unpack[_RowFields]
) -> str:
    """Return an option whose value is a word."""
    return cast("str", OptionRow(help, metavar=metavar, default=default, **fields))


def optional(help: str, metavar: str | None = None, **fields: Unpack[_RowFields]) -> str | None:
    """Return an option whose value is a word, and None where it is not given."""
    return cast("str | None", OptionRow(help, metavar=metavar, **fields))


def path(help: str, metavar: str, **fields: Unpack[_RowFields]) -> Path | None:
    """Return an option whose value is the path of a file, and None where it is not given."""
    return value(help, metavar, _read_path, None, **fields)


def names(help: str, metavar: str, **fields: Unpack[_RowFields]) -> Sequence[str]:
    """Return an option whose value is words with commas between them."""
    return value(help, metavar, lambda text: tuple(filter(None, text.split(","))), (), **fields)


def value(
    help: str,
    metavar: str | None,
    read: Callable[[str], _Value],
    default: _Default,
    **fields: Unpack[_RowFields],
) -> _Value | _Default:
    """Return an option whose value is read from a word."""
    row = OptionRow(help, metavar=metavar, read=read, default=default, **fields)
    return cast("_Value | _Default", row)


def choice(
    help: str,
    choices: Sequence[str],
    default: _Default,
    metavar: str | None = None,
    read: Callable[[str], str] = str,
    **fields: Unpack[_RowFields],
) -> str | _Default:
    """Return an option whose value is one of a few words."""
    row = OptionRow(help, metavar=metavar, read=read, default=default, choices=choices, **fields)
    return cast("str | _Default", row)


def several(
    help: str, metavar: str, read: Callable[[str], _Value], **fields: Unpack[_RowFields]
) -> list[_Value]:
    """Return an option that may be given several times."""
    row = OptionRow(help, "append", metavar=metavar, read=read, default=[], **fields)
    return cast("list[_Value]", row)


def argument(help: str, metavar: str | None = None, choices: Sequence[str] | None = None) -> str:
    """Return a word that is not an option."""
    return cast("str", OptionRow(help, "argument", metavar=metavar, choices=choices))


def optional_argument(
    help: str, metavar: str, default: _Default, choices: Sequence[str] | None = None
) -> str | _Default:
    """Return a word that is not an option, and may be left out."""
    row = OptionRow(help, "argument", metavar=metavar, default=default, choices=choices, nargs="?")
    return cast("str | _Default", row)


def arguments(help: str, metavar: str, nargs: str) -> list[str]:
    """Return words that are no options. nargs: `*`, `+`, or `...` for all that follow."""
    return cast("list[str]", OptionRow(help, "argument", metavar=metavar, nargs=nargs))


#: The option of each command that prints JSON beside text.
JSON = flag("print JSON")


class OptionTable:
    """A class whose attributes are rows; a subclass has the rows of its base first.

    An instance has the values, taken from what a parser with these options returned. group and
    inherited: those of all rows of the class. words: those for another program (PassingParser).
    """

    def __init__(self, parsed: argparse.Namespace | OptionTable) -> None:
        self.words: list[str] = getattr(parsed, "words", [])
        for field, row in self.rows():
            setattr(self, field, getattr(parsed, row.dest or field, row.default))

    def __init_subclass__(cls, group: OptionGroup | None = None, inherited: bool = False) -> None:
        for field, row in list(vars(cls).items()):
            if isinstance(row, OptionRow) and (group or inherited):
                setattr(cls, field, row.of_class(group, inherited))

    @classmethod
    def rows(cls) -> Iterator[tuple[str, OptionRow]]:
        """Yield each attribute with its row, in the order in which they are written."""
        for base_class in reversed(cls.__mro__):
            for field, row in vars(base_class).items():
                if isinstance(row, OptionRow):
                    yield field, row

    @classmethod
    def add_to(
        cls, parser: argparse.ArgumentParser, without: type[OptionTable] | None = None
    ) -> None:
        """Add the options to a parser. without: a base whose options it has already."""
        existing_rows = {row for _, row in without.rows()} if without else set()
        groups: dict[OptionGroup, argparse._ActionsContainer] = {}
        rival_groups: dict[str, argparse._ActionsContainer] = {}
        for field, row in cls.rows():
            if row in existing_rows:
                continue
            container: argparse._ActionsContainer = parser
            if row.group is not None:
                if row.group not in groups:
                    groups[row.group] = parser.add_argument_group(
                        row.group.title, row.group.description
                    )
                container = groups[row.group]
            if row.rivals:
                if row.rivals not in rival_groups:
                    rival_groups[row.rivals] = container.add_mutually_exclusive_group()
                container = rival_groups[row.rivals]
            _add_row_to_parser(container.add_argument, field, row)


def _add_row_to_parser(
    add_argument: Callable[..., argparse.Action], field: str, row: OptionRow
) -> None:
    default = argparse.SUPPRESS if row.inherited else row.default
    keywords: dict[str, object] = {"help": row.help or None}
    if row.action == "argument":
        keywords |= {"default": default} if row.nargs == "?" else {}
        add_argument(field, metavar=row.metavar, choices=row.choices, nargs=row.nargs, **keywords)
        return
    spellings = row.name.split() or [f"--{field.replace('_', '-')}"]
    keywords |= {"dest": row.dest or field, "action": row.action, "default": default}
    if row.action in ("store", "append"):
        keywords |= {"metavar": row.metavar, "type": row.read}
    if row.action == "store":
        keywords |= {"choices": row.choices, "nargs": row.nargs, "const": row.const}
        keywords["required"] = row.required
    add_argument(*spellings, **keywords)


def _read_path(text: str) -> Path | None:
    from pathlib import Path

    return Path(text) if text else None


def positive(text: str) -> int:
    """Parse a whole number above 0, as an argparse type."""
    return _parse_integer(text, 1, None, "a whole number above 0")


def not_negative(text: str) -> int:
    """Parse a whole number, 0 or more, as an argparse type."""
    return _parse_integer(text, 0, None, "a whole number, 0 or more")


def port(text: str) -> int:
    """Parse a TCP port, 1 to 65535, as an argparse type."""
    return _parse_integer(text, 1, 65535, "a port from 1 to 65535")


def any_port(text: str) -> int:
    """Parse a TCP port, or 0 for any that is free, as an argparse type."""
    return 0 if text.strip() == "0" else port(text)


def number(text: str) -> float:
    """Parse a number, with or without a decimal point, as an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def seconds(text: str) -> float:
    """Parse a time above 0 in seconds, with or without a decimal point, as an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time in seconds above 0")
    return value


def _parse_integer(text: str, minimum: int, maximum: int | None, description: str) -> int:
    is_integer = re.fullmatch(r"[+-]?[0-9]{1,18}", text.strip())
    value = int(text) if is_integer else minimum - 1
    if value < minimum or (maximum is not None and value > maximum):
        raise argparse.ArgumentTypeError(f"{text!r} is not {description}")
    return value
