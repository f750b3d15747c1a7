"""The pictures in the guide are what the command prints where Slurm 24.11 is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from tests.outer.lab import release

pytestmark = pytest.mark.twin

GUIDE = Path(__file__).parents[3] / "docs" / "slurm" / "gpus.md"
BLOCK = re.compile(r"\$ podwright slurm explain-request (.*)\n((?:(?!```).*\n)+)")
NODES = "--node-gpus 4 --node-cores 16 --cluster-nodes 4 --devices open --slurm-version 24.11"


def test_the_guides_pictures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PODWRIGHT_SLURM_PREFIX", str(release("middle").root or ""))
    blocks = BLOCK.findall(GUIDE.read_text())
    assert len(blocks) >= 6
    for options, picture in blocks:
        assert main(["slurm", "explain-request", *NODES.split(), *options.split()]) == 0
        out = capsys.readouterr().out
        assert out.startswith("Asked Slurm 24.11")
        assert picture.rstrip() in out
