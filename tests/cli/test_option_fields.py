"""Options that are fields of a value: how they are written, read and explained."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import pytest

from podwright.cli.shared._arguments import Parser, positive
from podwright.cli.shared._option_fields import Opt, add_options, read_options


class Arguments(NamedTuple):
    devices: Annotated[int, Opt("how many", "what", "N", read=positive)] = 4
    file: Annotated[str | None, Opt("described in a file", "what", "FILE", rivals="source")] = None
    preset: Annotated[str | None, Opt("a simulated pod", "what", "NAME", rivals="source")] = None
    peer: Annotated[tuple[str, ...], Opt("another pod", metavar="URL", repeated=True)] = ()
    log_format: Annotated[str, Opt("of the log", choices=("text", "json"))] = "text"
    secure: Annotated[bool, Opt("callers show a key")] = False
    verbose: Annotated[int, Opt("say more", short="-v", counted=True)] = 0
    unset: str = "no option"


def parser() -> Parser:
    command_parser = Parser(prog="command")
    command_parser.set_defaults(unset="no option")
    add_options(command_parser, Arguments)
    return command_parser


def parse(*words: str) -> Arguments:
    return read_options(Arguments, parser().parse_args(words))


def test_without_words_every_field_has_its_default() -> None:
    assert parse() == Arguments()


def test_each_kind_of_option() -> None:
    words = [
        "--devices",
        "8",
        "--preset",
        "pod4",
        "--peer",
        "a",
        "--peer",
        "b",
        "--log-format",
        "json",
        "--secure",
        "-vv",
    ]
    assert parse(*words) == Arguments(
        devices=8, preset="pod4", peer=("a", "b"), log_format="json", secure=True, verbose=2
    )


def test_a_repeated_option_does_not_remember_the_last_command() -> None:
    same = parser()
    assert read_options(Arguments, same.parse_args(["--peer", "a"])).peer == ("a",)
    assert read_options(Arguments, same.parse_args(["--peer", "b"])).peer == ("b",)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--devices none", "argument --devices: 'none' is not a whole number above 0"),
        ("--file x --preset y", "argument --preset: not allowed with argument --file"),
        ("--log-format xml", "argument --log-format: not 'xml'; it is one of: text, json"),
    ],
)
def test_refused(words: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(*words.split())
    assert problem in capsys.readouterr().err


def test_help_has_groups_and_metavars() -> None:
    text = parser().format_help()
    assert "what:\n  --devices N" in text
    assert "  -v, --verbose" in text
