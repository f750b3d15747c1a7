"""The pictures in the guide are what the command prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podwright.cli.podwright import main

GUIDE = Path(__file__).parents[4] / "docs" / "slurm" / "gpus.md"
_BLOCK = re.compile(r"\$ podwright slurm explain-request (.*)\n((?:(?!```).*\n)+)")
_NODES = "--node-gpus 4 --node-cores 16 --cluster-nodes 4 --devices open --slurm-version 24.11"


def test_the_guides_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = _BLOCK.findall(GUIDE.read_text())
    assert len(blocks) >= 6
    for options, shown in blocks:
        assert main(["slurm", "explain-request", *_NODES.split(), *options.split()]) == 0
        assert shown.rstrip() in capsys.readouterr().out
