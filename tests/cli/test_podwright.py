"""The command `podwright`: versions, and completion that a shell can read."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from podwright import __version__
from podwright.cli.about._command_parsers import COMMANDS
from podwright.cli.podwright import main


def test_lists_that_no_server_has_take_the_formats_of_all_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("lab10", "lab2"):
        assert main(["config", "set-context", name, "--api-host", "head1:8090"]) == 0
    capsys.readouterr()
    listing = ["config", "get-contexts"]
    assert main([*listing, "-o", "name", "--sort-by", "name"]) == 0
    assert capsys.readouterr().out == "lab2\nlab10\n"
    assert main([*listing, "-o", "json"]) == 0
    assert [context["name"] for context in json.loads(capsys.readouterr().out)] == ["lab10", "lab2"]
    assert main(["plugins", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []
    assert main(["plugins"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Group | Name | Package | State\n")
    assert "no other package adds anything" in shown.err


def complete(script: str, *words: str) -> list[str]:
    """Return what bash would offer for the last of these words."""
    command = words[0].replace("-", "_")
    asked = " ".join(f"'{word}'" for word in words)
    tail = f"COMP_WORDS=({asked}); COMP_CWORD={len(words) - 1}; _shtab_{command}; "
    done = subprocess.run(
        ["bash", "-c", script + tail + 'printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["vipu", "re"], ["reset", "remove"]),
        (["vipu", "create", "partition", "--siz"], ["--size"]),
        (["vipu", "create", "partition", "p1", "--routing", "dn"], ["dnc"]),
        (["podwright", "comp"], ["completion"]),
        (["vipu-admin", "dra"], ["drain"]),
        (["vipu-admin", "set", "quota", "--dev"], ["--devices"]),
        (["vipu-admin", "drain", "machine", "--dry"], ["--dry-run"]),
        (["gc-monitor", "--li"], ["--live"]),
        (["poprun", "--num-rep"], ["--num-replicas"]),
    ],
)
def test_bash_completes(
    words: list[str], offered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", "bash", "--command", words[0]]) == 0
    assert complete(capsys.readouterr().out, *words) == offered


def test_completion_for_zsh_has_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    for command in ("vipu", "vipu-server", "poprun", "podwright"):
        assert f"#compdef {command}\n" in out


@pytest.mark.parametrize(
    ("words", "current"),
    [
        (["poprun", "--vipu-partition", "=", "p"], 3),
        (["poprun", "--vipu-partition", "="], 2),
        (["poprun", "--num-replicas", "=", "4", "--vipu-partition", "p"], 5),
    ],
)
def test_bash_completes_a_value_behind_an_equals_sign(
    words: list[str], current: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """bash cuts `--vipu-partition=p` into three words, of which the last is to be completed."""
    assert main(["completion", "bash", "--command", "poprun"]) == 0
    script = capsys.readouterr().out
    script += 'podwright() { if [ "$*" = "complete partitions" ]; then echo "p1 p2"; fi; }\n'
    typed = " ".join(f"'{word}'" for word in words)
    script += f"COMP_WORDS=({typed}); COMP_CWORD={current}\n"
    script += "$(complete -p poprun | grep -o '_podwright_joined_[a-z]*')\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == ["p1", "p2"]


def test_completion_is_installed_where_bash_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    folder = tmp_path / "bash-completion" / "completions"
    for _ in range(2):  # installing it again is not an error
        assert main(["completion", "install"]) == 0
        assert str(folder / "podwright") in capsys.readouterr().out
    assert {path.name for path in folder.iterdir()} == set(COMMANDS)
    assert "_shtab_poprun" in (folder / "poprun").read_text()
    monkeypatch.setenv("SHELL", "/bin/fish")
    assert main(["completion", "install"]) == 2
    assert "SHELL=bash podwright completion install" in capsys.readouterr().err


def test_version_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "-o", "json", "--client"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["client"]["version"] == __version__
    assert re.fullmatch(r"[0-9a-f]{12,}|", found["client"]["commit"])
    assert found["server"] is None


def test_plugins_prints_an_empty_list_where_there_are_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_version_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    printed = capsys.readouterr().out
    assert re.fullmatch(rf"podwright {re.escape(__version__)}( \([0-9a-f]{{12}}\))?\n", printed)


def test_completion_refuses_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", "fish"])
    assert end.value.code == 2
    assert "unknown SHELL 'fish'; it is one of: bash, zsh" in capsys.readouterr().err
