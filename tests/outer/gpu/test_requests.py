"""explain-request against real Slurm: a tenth of the record ordinarily, all of it under soak."""

from __future__ import annotations

import os
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from podwright.slurm.requests import Shape
from tests.outer.gpu.truth import gpu_lab, granted, gres, make_gpus, outcome
from tests.outer.lab import SlurmLab, newer_slurm
from tests.slurm_requests.outcome import SHAPE, expected
from tests.slurm_requests.test_granted import RELEASES, ranked, rows

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))


def cases(release: str) -> list[tuple[str, str]]:
    """What is asked of this release: requests that the rules explain, without those that wait."""
    listed = set(rows(f"{release}-unexplained.txt", 2))
    chosen = []
    for command, options, seen in rows(f"{release}.txt", 3):
        tenth = zlib.crc32(f"{command} {options}".encode()) % 10 == 0
        if seen != "waits" and (command, options) not in listed and (SOAK or tenth):
            chosen.append((command, options))
    return chosen


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("release", RELEASES)
def test_real_slurm_grants_what_was_explained(release: str) -> None:
    newer: Path | None = newer_slurm() if release == "24.11.5" else None
    with gpu_lab(newer) as lab:
        wrong = {}
        for command, options in cases(release):
            lab.wait_for_nodes()
            ours = expected(command, options, version=RELEASES[release])
            real = granted(lab, command, options)
            if ranked(ours) != ranked(real):
                wrong[f"{command} {options}"] = (ours, real)
    assert wrong == {}


def test_sbatch_grants_as_salloc_does() -> None:
    """The record holds srun and salloc; a batch script with a plain srun gets the same."""
    with gpu_lab() as lab:
        for options in (
            "--gres=gpu:4 --nodes=2 --ntasks-per-node=2",
            "--gpus=6 --nodes=2",
            "--gpus-per-task=1 --ntasks=4",
            "--gpus=4 --ntasks-per-gpu=2",
            "--gres=gpu:4 --ntasks=4 --gpu-bind=single:1",
        ):
            job = lab.submit(_SCRIPT, *options.split())
            lab.wait_over(job)
            said = (lab.folder / "out" / f"slurm-{job}.out").read_text()
            assert outcome(said) == expected("sbatch", options), options


_SCRIPT = "srun sh -c 'echo \"@$SLURM_PROCID $SLURMD_NODENAME [${CUDA_VISIBLE_DEVICES-unset}]@\"'"


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


CLOSEST = Shape(
    nodes=4,
    sockets=2,
    cores_per_socket=1,
    gpus=4,
    kinds=("a100",),
    confined=False,
    affinity=True,
)


@pytest.mark.parametrize("release", RELEASES)
def test_the_closest_are_those_of_a_tasks_socket(release: str) -> None:
    """Where tasks are bound to cores. Two processors are all that a small machine can bind to."""
    lab = SlurmLab(
        nodes=4,
        cpus=2,
        conf={"GresTypes": "gpu", "TaskPlugin": "task/affinity"},
        files={"gres.conf": gres("0", "1")},
        node_extra="Sockets=2 CoresPerSocket=1 ThreadsPerCore=1 Gres=gpu:a100:4",
        release=newer_slurm() if release == "24.11.5" else None,
    )
    make_gpus(lab)
    with lab:
        for command in ("srun", "salloc"):
            for options in (
                "--gpus=4 --ntasks=2 --nodes=1 --gpu-bind=closest",
                "--gres=gpu:2 --ntasks=2 --nodes=1 --gpu-bind=closest",
                "--gpus=3 --ntasks=2 --nodes=1 --gpu-bind=closest",
                "--gpus=1 --ntasks=2 --nodes=1 --gpu-bind=closest",
                "--gpus-per-node=4 --nodes=2 --ntasks-per-node=2 --gpu-bind=closest",
                "--gres=gpu:4 --ntasks=1 --cpus-per-task=2 --gpu-bind=closest",
                "--gres=gpu:4 --ntasks=2 --nodes=1",
            ):
                real = granted(lab, command, options)
                ours = expected(command, options, CLOSEST, version=RELEASES[release])
                assert real == ours, (command, options)
