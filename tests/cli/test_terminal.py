"""What only a terminal gets: colours, and the characters of its locale."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest

from podwright.cli.shared import _terminal
from podwright.cli.shared._run_to_exit_code import _explain
from podwright.ground.tables import table

ROWS = [("p1", "ACTIVE"), ("p2", "ERROR")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, **environ: str) -> str:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream)
    return table(("Name", "State"), ROWS)


def test_states_have_colours_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, Terminal(), TERM="xterm").splitlines()
    assert lines[0] == "\x1b[1mName | State\x1b[0m"
    assert lines[2:] == ["p1   | \x1b[32mACTIVE\x1b[0m", "p2   | \x1b[31mERROR \x1b[0m"]


@pytest.mark.parametrize(
    ("terminal", "environ"),
    [
        (False, {"TERM": "xterm"}),
        (True, {"TERM": "xterm", "NO_COLOR": "1"}),
        (True, {"TERM": "dumb"}),
        (True, {}),
    ],
)
def test_there_are_no_colours_where_nobody_sees_them(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, environ: dict[str, str]
) -> None:
    stream = Terminal() if terminal else io.StringIO()
    text = shown(monkeypatch, stream, **environ)
    assert text == "Name | State\n-------------\np1   | ACTIVE\np2   | ERROR"


@pytest.mark.parametrize(
    ("environ", "utf8"),
    [
        ({"LANG": "de_DE.UTF-8"}, True),
        ({"LANG": "C.utf8"}, True),
        ({"LANG": "de_DE.UTF-8@euro"}, True),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}, False),
        ({"LC_CTYPE": "en_US.ISO-8859-1", "LANG": "de_DE.UTF-8"}, False),
        ({"LANG": "POSIX"}, False),
        ({}, False),
    ],
)
def test_the_locale_is_what_its_variables_say(environ: dict[str, str], utf8: bool) -> None:
    assert _terminal.utf8(environ) is utf8


@pytest.mark.parametrize(("locale", "said"), [("C", "D, say; ..."), ("C.UTF-8", "D, say; …")])
def test_a_terminal_gets_what_its_locale_has(locale: str, said: str) -> None:
    code = (
        "from podwright.cli.shared._run_to_exit_code import run\n"
        "run(lambda: print('D, say; \\u2026 \\u00fc') or 0, prog='x')"
    )
    ours, theirs = pty.openpty()
    environ = {**os.environ, "LC_ALL": locale}
    subprocess.run([sys.executable, "-c", code], stdout=theirs, env=environ, check=True)
    os.close(theirs)
    shown = os.read(ours, 1000).decode().strip()
    os.close(ours)
    assert shown == said + (" ?" if locale == "C" else " ü")


def test_what_is_piped_is_the_same_everywhere() -> None:
    code = "from podwright.cli.shared._run_to_exit_code import run; "
    code += "run(lambda: print('\\u2026') or 0, prog='x')"
    environ = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environ)
    assert done.stdout.decode() == "…\n"


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("utf-8", b"\xe2\x80\x93 \xc3\xbc \xe9\n"),
        ("latin-1", b"- \xfc \xe9\n"),
        ("ascii", b"- ? \xe9\n"),
    ],
)
def test_whatever_there_is_to_be_said_is_written(encoding: str, said: bytes) -> None:
    """A script in Latin-1 under a locale of UTF-8, which Python's own output refuses to write."""
    code = (
        "from podwright.cli.shared._run_to_exit_code import run\n"
        "raise SystemExit(run(lambda: print('\\u2013 \\u00fc \\udce9') or 0, prog='x'))"
    )
    environ = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environ)
    assert (done.stdout, done.stderr, done.returncode) == (said, b"", 0)


def test_a_closed_standard_output_is_no_fault_of_ours() -> None:
    code = (
        "from podwright.cli.shared._run_to_exit_code import run; "
        "raise SystemExit(run(lambda: 3, prog='x'))"
    )
    done = subprocess.run(["sh", "-c", f'{sys.executable} -c "{code}" >&-'], capture_output=True)
    assert (done.returncode, done.stderr) == (3, b"")


def test_a_module_of_python_itself_is_not_to_be_installed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As below a Python that a service may not read any more once it has given up its rights."""
    missing = ModuleNotFoundError("no module", name="concurrent.futures.thread")
    assert _explain(missing, "podwright", None) == 69
    told = capsys.readouterr().err
    assert "Python cannot load its own module concurrent.futures.thread" in told
    assert "pip install" not in told
