"""Manual pages and completion are made from every parser, and agree with the commands."""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.cli.about._command_parsers import COMMANDS, SECTIONS, page, parser_of
from podwright.cli.about._complete import words
from podwright.cli.podwright import main
from tests.whole.conftest import Pod
from tests.whole.conftest import make_pod as make_pod
from tests.whole.conftest import pod16 as pod16


@pytest.mark.parametrize("command", COMMANDS)
def test_a_page_names_every_option_and_verb(command: str) -> None:
    text = page(command)
    assert text.splitlines()[0].startswith(f".TH {command.upper()} {SECTIONS[command]} ")
    assert text.splitlines()[1:3] == [".SH NAME", text.splitlines()[2]]
    assert " \\- " in text.splitlines()[2]
    shown = text.replace("\\-", "-")
    for action in parser_of(command)._actions:
        for option in action.option_strings:
            assert f"\\fB{option}\\fR" in shown or action.help == "==SUPPRESS=="


def test_verbs_stand_once_with_their_own_options() -> None:
    text = page("vipu").replace("\\-", "-")
    assert text.count('.SS "vipu create partition"') == 1
    assert '.SS "vipu create partitions"' not in text  # an alias
    assert text.count("\\fB--num-gcds\\fR") == 2  # create, explain
    assert text.count("\\fB--api-port\\fR") == 1
    assert '.SS "podwright complete"' not in page("podwright")


def _all_parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser, and those of its verbs and nouns."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb in {id(verb): verb for verb in action.choices.values()}.values():
                yield from _all_parsers(verb)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_fits_80_columns(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in _all_parsers(parser_of(command)):
        lines = parser.format_help().splitlines()
        assert [line for line in lines if len(line) > 80] == [], parser.prog


@pytest.mark.parametrize("words", [(), ("slurm",)], ids=["podwright", "podwright-slurm"])
def test_every_listed_verb_stands_once_under_a_heading_for_its_reader(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    parser = parser_of("podwright")
    for word in words:
        parser = _verbs_of(parser).choices[word]
    assert "positional arguments" not in shown
    for verb in _verbs_of(parser)._choices_actions:
        assert len(re.findall(rf"^  {verb.dest}  ", shown, re.M)) == 1, verb.dest


def _verbs_of(
    parser: argparse.ArgumentParser,
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return verbs


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_of_a_page_is_an_order_to_roff_by_chance(command: str) -> None:
    orders = {line.split()[0] for line in page(command).splitlines() if line.startswith((".", "'"))}
    assert orders <= {".TH", ".SH", ".SS", ".TP", ".PP", ".nf", ".fi"}
    assert not re.search(r"[^\x00-\x7f]", page(command))


def test_groff_has_nothing_to_say() -> None:
    groff = shutil.which("groff")
    if groff is None:  # it is part of the outer ring's packages
        assert not Path("/usr/bin/man").exists()
        return
    for command in COMMANDS:
        done = subprocess.run(
            [groff, "-man", "-ww", "-z", "-Tutf8"],
            input=page(command),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command


def test_man_prints_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man", "poprun"]) == 0
    assert capsys.readouterr().out == page("poprun")


def test_words_are_those_of_the_server(pod16: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    pod16.good("vipu", "create", "partition", "mine", "--size", "2")
    _patiently(monkeypatch)
    assert words("partitions", pod16.environ) == ["mine"]
    assert words("clusters", pod16.environ) == ["pod16"]
    assert len(words("machines", pod16.environ)) == 4
    script = pod16.good("podwright", "completion", "bash", "--command", "vipu")
    line = "COMP_WORDS=(vipu get partition m); COMP_CWORD=3; _shtab_vipu; echo ${COMPREPLY[@]}"
    patient = script.replace("podwright complete", "echo mine; : ")
    assert pod16.good("bash", "-c", f"{patient}\n{line}") == "mine\n"


def _patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow more time, since a machine may be busy with tests."""
    monkeypatch.setattr("podwright.cli.about._complete.LIMIT", 60.0)


def test_a_server_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "silent"))
    listener.listen()
    taken: list[socket.socket] = []
    threading.Thread(target=lambda: taken.append(listener.accept()[0]), daemon=True).start()
    begin = time.monotonic()
    assert words("partitions", {"PODWRIGHT_SOCKET": str(tmp_path / "silent")}) == []
    assert time.monotonic() - begin < 60  # and not the 120 s that a command would wait
    listener.close()
    for connection in taken:
        connection.close()


def test_where_there_is_no_server_none_is_started(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(tmp_path), "HOME": str(tmp_path)}
    assert words("partitions", {**environ, "PODWRIGHT_SOCKET": str(tmp_path / "none")}) == []
    assert list(tmp_path.iterdir()) == []


def test_hosts_are_those_of_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host n1 n2 *.lab\n  User x\nHost=login\n")
    (tmp_path / ".ssh/known_hosts").write_text("|1|abc= ssh-rsa A\nn3,10.0.0.3 ssh-rsa A\n")
    assert words("hosts", {}) == ["10.0.0.3", "login", "n1", "n2", "n3"]


def test_jobs_are_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _patiently(monkeypatch)
    squeue = tmp_path / "squeue"
    squeue.write_text("#!/bin/sh\n[ \"$1\" = --me ] && printf '12\\n7\\n'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert words("jobs", {}) == ["12", "7"]
    squeue.unlink()
    assert words("jobs", {}) == []


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_asks_for_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    out = capsys.readouterr().out
    for kind in ("partitions", "allocations", "machines", "jobs", "hosts"):
        assert f"_podwright_{kind}" in out
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=out, text=True, check=True)
