"""Checks and samples of a machine's own GPUs where it has any, else of the stand-in's.

Nothing here changes a GPU. Where a machine with one is lent: `pytest tests/gpu -k own_gpus`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from podwright.gpu.efficiency._sampler import _gpu_sampler
from podwright.gpu.health import Settings, run
from podwright.hosts.gpus import take_gpus
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from tests.machines.node import HGX


def has_gpus() -> bool:
    return any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd")))


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    if has_gpus():
        return os.environ
    path = tmp_path / "node.toml"
    path.write_text(HGX)
    return {**os.environ, STANDIN_VARIABLE: str(path)}


def test_every_check_can_be_made(environ: Mapping[str, str]) -> None:
    report = run(Settings(), environ)
    assert not [f for f in report.findings if f.check in ("driver", "gpus")], report
    for finding in report.findings:
        assert finding.do.endswith("."), finding


def test_the_sampler_reads_each_gpu_of_this_machine(environ: Mapping[str, str]) -> None:
    found = take_gpus(environ)
    try:
        rows = _gpu_sampler(found.gpus, found.libraries)()
    finally:
        for library in found.libraries:
            library.close()
    assert [row[0] for row in rows] == [gpu.index for gpu in found.gpus]
    for (_, load, memory, _), gpu in zip(rows, found.gpus, strict=True):
        assert 0 <= load <= 100
        assert 0 <= memory <= gpu.memory >> 20
