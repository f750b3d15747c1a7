"""The umbrella: versions, and completion that a shell can read."""

from __future__ import annotations

import subprocess

import pytest

from podwright import __version__
from podwright.cli.podwright import main


def complete(script: str, *words: str) -> list[str]:
    """What bash would offer for the last of these words."""
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


def test_all_commands_at_once_for_zsh(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    out = capsys.readouterr().out
    for command in ("vipu", "vipu-server", "poprun", "podwright"):
        assert f"#compdef {command}\n" in out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"podwright {__version__}\n"


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["completion", "fish"])
    assert end.value.code == 2
    assert "unknown SHELL 'fish'; it is one of: bash, zsh" in capsys.readouterr().err
