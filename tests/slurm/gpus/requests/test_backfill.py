"""Where the two schedulers of slurmctld differ, and the first of them starts the job."""

from __future__ import annotations

import pytest

from podwright.slurm.gpus.requests import (
    Grant,
    NodeHardware,
    SlurmCluster,
    SlurmRefusal,
    explain,
    parse_request,
)

GIB = 1 << 30
SMALL = NodeHardware(gpus=2, memory=4 * GIB)
LARGE = NodeHardware(gpus=2, memory=16 * GIB, weight=10)


def started(command: str, options: str, *select: str) -> Grant | SlurmRefusal:
    """What one small node and a large one, of more weight, give to a job."""
    site = SlurmCluster(
        shapes=(SMALL, LARGE),
        nodes=(("n1", 0), ("n2", 1)),
        select=frozenset(select or ("CR_CORE",)),
    )
    return explain(parse_request(options.split(), command), site)


def test_backfill_alone_passes_over_nodes_without_the_memory() -> None:
    found = started("sbatch", "--gpus=1 --cpus-per-task=3 --mem-per-cpu=2000")
    assert isinstance(found, SlurmRefusal)
    assert (found.stage, "backfill" in found.reason) == ("unknown", True)


@pytest.mark.parametrize(
    ("command", "options", "select"),
    [
        ("salloc", "--gpus=1 --cpus-per-task=3 --mem-per-cpu=2000", "CR_CORE"),
        ("sbatch", "--gpus=1 --cpus-per-task=2 --mem-per-cpu=2000", "CR_CORE"),
        ("sbatch", "--gpus=1 --cpus-per-task=3 --mem-per-cpu=2000 --nodelist=n1", "CR_CORE"),
        ("sbatch", "--nodes=2 --gpus=4 --cpus-per-task=3 --mem-per-cpu=2000", "CR_CORE"),
        ("sbatch", "--gpus=1 --cpus-per-task=3 --mem-per-cpu=1000", "CR_CORE_MEMORY"),
    ],
)
def test_the_main_scheduler_starts_the_others(command: str, options: str, select: str) -> None:
    found = started(command, options, select)
    assert isinstance(found, Grant)
    assert found.nodes[0].name == "n1"
