"""explain-request against real Slurm: a hundred requests ordinarily, all under soak."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace

import pytest

from tests.outer.gpu.truth import gpu_lab, granted, gres, make_gpus
from tests.outer.lab import SlurmLab, release
from tests.slurm.gpus.requests.any_request import some_requests
from tests.slurm.gpus.requests.bound import SEEN
from tests.slurm.gpus.requests.outcome import SHAPE, expected
from tests.slurm.gpus.requests.shapes import LAYOUTS
from tests.slurm.gpus.requests.test_granted import RELEASES, Seen, record

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))


def cases(version: str, layout: str) -> list[Seen]:
    """What is asked of this release on these nodes: all, or without soak some that do not wait."""
    some = [case for case in record(version) if case.layout == layout]
    return [
        case for case in some if SOAK or (_few(case) and case.outcome not in ("waits", "hangs"))
    ]


def _few(case: Seen) -> bool:
    return zlib.crc32(" ".join(case[:3]).encode()) % 30 == 0


def _against(lab: SlurmLab, version: str, layout: str, asked: list[tuple[str, str]]) -> list[str]:
    """Where Slurm does something else than our rules say."""
    wrong = []
    shape = LAYOUTS[layout].shape()
    for command, options in asked:
        lab.wait_for_nodes()
        ours = expected(command, options, shape, version=RELEASES[version])
        real = granted(lab, command, options, patience=10 if ours in ("waits", "hangs") else 300)
        if ours != real:
            wrong.append(f"{layout}: {command} {options}\n  ours {ours}\n  Slurm {real}")
    return wrong


#: Where each Slurm that was asked for all of them is found.
NAMES = {"22.05.8": "oldest", "24.11.5": "middle"}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("layout", LAYOUTS if SOAK else ("even", "types-mixed"))
@pytest.mark.parametrize("version", RELEASES, ids=NAMES.get)
def test_real_slurm_grants_what_was_explained(version: str, layout: str) -> None:
    with gpu_lab(release(NAMES[version]), LAYOUTS[layout]) as lab:
        asked = [(case.command, case.options) for case in cases(version, layout)]
        assert len(asked) > 3
        assert _against(lab, version, layout, asked) == []


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("version", RELEASES, ids=NAMES.get)
def test_real_slurm_grants_what_is_explained_of_any_request(version: str, layout: str) -> None:
    """Requests that nobody chose: 600 for each release; PODWRIGHT_SEED draws others."""
    seed = int(os.environ.get("PODWRIGHT_SEED", "1"))
    asked = some_requests(seed, 240 if layout == "even" else 30, LAYOUTS[layout].kinds())
    with gpu_lab(release(NAMES[version]), LAYOUTS[layout]) as lab:
        assert _against(lab, version, layout, asked) == []


def test_confined_devices_are_numbered_from_zero() -> None:
    """With ConstrainDevices every task counts its own GPUs from 0."""
    with confined_lab() as lab:
        for options in (
            "--gpus-per-task=1 --ntasks=4",
            "--gpus-per-task=2 --ntasks=2",
            "--gres=gpu:2 --ntasks=2",
        ):
            real = granted(lab, "srun", options)
            assert real == expected("srun", options, replace(SHAPE, confined=True)), options


def confined_lab() -> SlurmLab:
    lab = gpu_lab(
        ProctrackType="proctrack/cgroup",
        TaskPlugin="task/cgroup",
    )
    lab.write("cgroup.conf", "CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n")
    return lab


@pytest.mark.parametrize("version", RELEASES, ids=NAMES.get)
def test_gpus_beside_a_tasks_cores_are_bound_first(version: str) -> None:
    """Where tasks are bound to cores. Two processors are all that a small machine can bind to."""
    lab = SlurmLab(
        nodes=4,
        cpus=2,
        conf={"GresTypes": "gpu", "TaskPlugin": "task/affinity"},
        files={"gres.conf": gres("0", "1")},
        node_extra="Sockets=2 CoresPerSocket=1 ThreadsPerCore=1 Gres=gpu:a100:4",
        release=release(NAMES[version]),
    )
    make_gpus(lab)
    with lab:
        for command, options, older, newer in SEEN:
            seen = newer if version == "24.11.5" else older
            assert granted(lab, command, options) == seen, (command, options)
