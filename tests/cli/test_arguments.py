"""One line for every mistake, with the nearest right word; one exit code for every ending."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from podwright.cli.shared._arguments import Parser, run
from podwright.errors import Held, InvalidRequest, NoCapacity, NotFound, TimedOut, Unavailable
from podwright.ground.option_rows import not_negative, port, positive, seconds
from podwright.ground.pods_extra import install_command


def parser() -> Parser:
    made = Parser(prog="tool")
    made.add_argument("-H", "--api-host")
    verbs = made.add_subparsers(metavar="VERB", required=True)
    create = verbs.add_parser("create")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--size", type=positive, required=True)
    create.add_argument("--routing", choices=("dnc", "swnc"))
    verbs.add_parser("list")
    return made


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", "tool: missing VERB; see --help"),
        ("creat p1 --size 4", "tool: unknown VERB 'creat'; did you mean 'create'?"),
        ("frob", "tool: unknown VERB 'frob'; it is one of: create, list"),
        ("--api-hos x list", "tool: unknown option '--api-hos'; did you mean '--api-host'?"),
        ("create p1", "tool create: missing --size; see --help"),
        ("create", "tool create: missing NAME, --size; see --help"),
        ("create p1 --sise 4", "tool create: unknown option '--sise'; did you mean '--size'?"),
        ("create p1 --sise=4", "tool create: unknown option '--sise'; did you mean '--size'?"),
        ("create p1 --size 4 --q", "tool create: unknown option '--q'; see --help"),
        ("create p1 --siz 4", "tool create: unknown option '--siz'; did you mean '--size'?"),
        ("create p1 p2 --size 4", "tool create: unexpected 'p2'; see --help"),
        ("create p1 --size", "tool create: argument --size: it needs a value"),
        (
            "create p1 --size -4",
            "tool create: argument --size: '-4' is not a whole number above 0",
        ),
        (
            "create p1 --size 4 --routing dnx",
            "tool create: argument --routing: not 'dnx'; did you mean 'dnc'?",
        ),
    ],
)
def test_a_mistake_gets_one_line(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words.split())
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", line + "\n")


def test_short_options_and_values_are_no_mistakes() -> None:
    found = parser().parse_args(["-Hh", "create", "p1", "--size=4"])
    assert (found.api_host, found.name, found.size) == ("h", "p1", 4)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (positive, {"1": 1, "007": 7}, ["0", "-1", "1.5", "x", "", "1_0", "9" * 30, "٣"]),
        (not_negative, {"0": 0}, ["-1", "x"]),
        (port, {"1": 1, "65535": 65535}, ["0", "65536", "http"]),
        (seconds, {"0.5": 0.5, "300": 300.0}, ["0", "-1", "nan", "inf", "soon"]),
    ],
)
def test_numbers_are_read_or_refused(
    kind: Callable[[str], float], good: dict[str, float], bad: list[str]
) -> None:
    import argparse

    for text, value in good.items():
        assert kind(text) == value
    for text in bad:
        with pytest.raises(argparse.ArgumentTypeError, match="is not a"):
            kind(text)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("no"), 2),
        (NotFound("no"), 1),
        (NoCapacity("no"), 75),
        (Held("no"), 75),
        (Unavailable("no"), 69),
        (TimedOut("no"), 69),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
    ],
)
def test_every_ending_has_its_code(
    error: BaseException,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "podwright.cli.shared._run_to_exit_code._silence_standard_output", lambda: None
    )

    def body() -> int:
        raise error

    assert run(body, prog="tool") == code
    assert capsys.readouterr().err in ("tool: no.\n", "")


def test_a_fault_of_our_own_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def body() -> int:
        raise ValueError("two\nlines")

    assert run(body, prog="tool") == 70
    assert capsys.readouterr().err == (
        "tool: this is a fault of tool itself: ValueError: two lines. "
        "PODWRIGHT_TRACEBACK=1 shows where.\n"
    )
    monkeypatch.setenv("PODWRIGHT_TRACEBACK", "1")
    assert run(body, prog="tool") == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--help", "create partition --help"])
def test_a_closed_pipe_is_quiet(words: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m podwright.cli.vipu {words} | true; echo "${{PIPESTATUS[0]}}"',
         sys.executable],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout in ("141\n", "0\n")  # 0: what was said fitted into the pipe before it closed


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("grpc", "grpc is not installed. This brings it: pip install 'podwright[pods]"),
        ("concurrent.futures.thread", "Python cannot load its own module"),
        ("podwright.nowhere", "this is a fault of vipu itself"),
    ],
)
def test_a_module_that_is_not_found_is_told_by_whose_it_is(
    module: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> int:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert run(fail, prog="vipu") != 0
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("", "pip install 'WHEEL[pods]', where WHEEL is the file of the release"),
        ("file:///a/p.whl", "pip install 'podwright[pods] @ file:///a/p.whl'"),
    ],
)
def test_the_packages_for_pods_come_from_where_podwright_came_from(
    source: str, command: str
) -> None:
    assert install_command(source) == command
