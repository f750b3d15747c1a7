"""Checks, samples and rates of a machine's own GPUs where it has any, else of the stand-in's.

Nothing here changes a GPU. Where a machine with one is lent: `pytest tests/slurm/gpus -k own_gpus`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from podwright.agents.gpu import may_have_gpus
from podwright.hosts.gpus import take_gpus
from podwright.hosts.gpus._standin import VARIABLE
from podwright.slurm.gpus.efficiency._sampler import _asker
from podwright.slurm.gpus.health import Settings, run
from podwright.slurm.gpus.nodebench._measures import within
from tests.gpus.node import HGX


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    if may_have_gpus(os.environ):
        return os.environ
    path = tmp_path / "node.toml"
    path.write_text(HGX)
    return {**os.environ, VARIABLE: str(path)}


def test_every_check_can_be_made(environ: Mapping[str, str]) -> None:
    report = run(Settings(), environ)
    assert not [f for f in report.findings if f.check in ("library", "gpus")], report
    for finding in report.findings:
        assert finding.means.endswith("."), finding


def test_a_sample_of_each(environ: Mapping[str, str]) -> None:
    found = take_gpus(environ)
    try:
        rows = _asker(found.gpus, found.libraries)()
    finally:
        for library in found.libraries:
            library.close()
    assert [row[0] for row in rows] == [gpu.index for gpu in found.gpus]
    for (_, load, memory, _), gpu in zip(rows, found.gpus, strict=True):
        assert 0 <= load <= 100
        assert 0 <= memory <= gpu.memory >> 20


def test_rates_inside_the_node(environ: Mapping[str, str]) -> None:
    """By torch where torch is; the stand-in's GPUs compute nothing."""
    count = 0 if VARIABLE in environ else len(take_gpus(environ).gpus)
    rates = within(count, 0.2, environ)
    assert rates["memory copy"] > 0
    assert all(rate > 0 for rate in rates.values())
