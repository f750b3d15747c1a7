"""Options as rows of a class: how they are written, read and explained."""

from __future__ import annotations

import pytest

from podwright.cli.shared._arguments import Parser, PassingParser
from podwright.ground import option_rows as opt

WHAT = opt.OptionGroup("what", "and why")


class Arguments(opt.OptionTable):
    devices = opt.value("how many", "N", opt.positive, 4, group=WHAT)
    file = opt.optional("described in a file", "FILE", group=WHAT, rivals="source")
    preset = opt.optional("a simulated pod", "NAME", group=WHAT, rivals="source")
    peer = opt.several("another pod", "URL", str)
    log_format = opt.choice("of the log", ("text", "json"), "text")
    secure = opt.flag("callers show a key")
    verbose = opt.count("say more", name="-v --verbose")
    program = opt.text("what runs", name="--run")


class Inherited(opt.OptionTable, inherited=True):
    timeout = opt.value("how long", "S", opt.positive, None)
    munge = opt.flag("show a credential")


def parser(options: type[opt.OptionTable] = Arguments) -> Parser:
    command_parser = Parser(prog="command")
    options.add_to(command_parser)
    return command_parser


def parse(*words: str) -> Arguments:
    return Arguments(parser().parse_args(words))


def values(arguments: opt.OptionTable) -> dict[str, object]:
    return {field: getattr(arguments, field) for field, _ in arguments.rows()}


DEFAULTS: dict[str, object] = {
    "devices": 4,
    "file": None,
    "preset": None,
    "peer": [],
    "log_format": "text",
    "secure": False,
    "verbose": 0,
    "program": "",
}


def test_without_words_every_field_has_its_default() -> None:
    assert values(parse()) == DEFAULTS


def test_each_kind_of_option_has_its_typed_value() -> None:
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
        "--run",
        "x",
    ]
    assert values(parse(*words)) == {
        "devices": 8,
        "file": None,
        "preset": "pod4",
        "peer": ["a", "b"],
        "log_format": "json",
        "secure": True,
        "verbose": 2,
        "program": "x",
    }


def test_an_inherited_option_before_a_verb_is_not_forgotten_after_it() -> None:
    command_parser = parser(Inherited)
    verb = command_parser.add_subparsers().add_parser("list")
    Inherited.add_to(verb)
    for words in (["--timeout", "3", "list"], ["list", "--timeout", "3"]):
        assert values(Inherited(command_parser.parse_args(words))) == {"timeout": 3, "munge": False}
    assert values(Inherited(command_parser.parse_args(["list"]))) == {
        "timeout": None,
        "munge": False,
    }


def test_words_for_another_program_are_passed_on() -> None:
    passing = PassingParser(prog="command")
    Arguments.add_to(passing)
    words = ["--nodes=2", "--devices", "8", "-n", "4", "--secure", "--preset=pod4"]
    arguments = Arguments(passing.parse_args(words))
    assert arguments.words == ["--nodes=2", "-n", "4"]
    assert (arguments.devices, arguments.secure, arguments.preset) == (8, True, "pod4")


def test_a_repeated_option_does_not_remember_the_last_command() -> None:
    same = parser()
    assert Arguments(same.parse_args(["--peer", "a"])).peer == ["a"]
    assert Arguments(same.parse_args(["--peer", "b"])).peer == ["b"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--devices none", "argument --devices: 'none' is not a whole number above 0"),
        ("--file x --preset y", "argument --preset: not allowed with argument --file"),
        ("--log-format xml", "argument --log-format: not 'xml'; it is one of: text, json"),
    ],
)
def test_a_wrong_word_is_refused_with_its_problem(
    words: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(*words.split())
    assert problem in capsys.readouterr().err


def test_help_has_groups_and_metavars() -> None:
    text = parser().format_help()
    assert "what:\n  and why\n\n  --devices N" in text
    assert "  -v, --verbose" in text


def test_options_that_a_parser_has_already_are_left_out() -> None:
    class Both(Inherited):
        size = opt.value("devices", "N", opt.positive, None)

    command_parser = Parser(prog="command")
    Inherited.add_to(command_parser)
    Both.add_to(command_parser, without=Inherited)
    options = [name for action in command_parser._actions for name in action.option_strings]
    assert options == ["-h", "--help", "--timeout", "--munge", "--size"]
    arguments = Both(command_parser.parse_args(["--size", "4", "--timeout", "2"]))
    assert values(arguments) == {"timeout": 2, "munge": False, "size": 4}
