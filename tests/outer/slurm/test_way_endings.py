"""Any ending returns the devices, in the documented ways as in native mode: the same cases."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.outer.lab import release
from tests.outer.slurm.native import NativeLab
from tests.outer.slurm.test_endings import CASES, RELEASES, put_through, row
from tests.outer.slurm.ways import MappingLab, SharedLab, StaticLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]

TABLE = Path(__file__).parents[3] / "docs/slurm/crashes-ways.md"
HEAD = """# The crash matrix of the documented ways

Written by `tests/outer/slurm/test_way_endings.py` (all of it under `make soak`), by real jobs on
Slurm 22.05.8 and 26.05.5. The cases are those of [native mode](crashes.md); leaked and given twice
are counted in what the way gives: machines of allocations, partitions, devices of leases. Both are
sums of the two runs.
"""
LABS = {"host-mapping": MappingLab, "static": StaticLab, "shared": SharedLab}
#: Slurm counts nothing there: it has no reservation, and jobs start whether anybody serves or not.
UNCOUNTED = {"service-term", "reservation"}
#: What each mode shows wherever it is tested; the long ring has all.
SHORT = {
    "host-mapping": ["server-running"],
    "static": ["service-running"],
    "shared": ["completing"],
}
SOAK = os.environ.get("PODWRIGHT_SOAK") == "1"


def names(mode: str) -> list[str]:
    if not SOAK:
        return SHORT[mode]
    return [name for name in CASES if mode != "host-mapping" or name not in UNCOUNTED]


#: What happened, leaked, given twice: of each release, mode and case.
rows: dict[tuple[str, str, str], tuple[str, int, int]] = {}
WANTED = [(each, mode, name) for each in RELEASES for mode in LABS for name in names(mode)]


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[tuple[str, str], NativeLab]]:
    made: dict[tuple[str, str], NativeLab] = {}
    yield made
    for lab in made.values():
        lab.stop()
    if SOAK and len(rows) == len(WANTED):
        parts = [HEAD]
        for mode in LABS:
            parts.append(f"\n## {mode}\n\n| what ends | when | what happens to the job ")
            parts.append("| on 26.05.5 | leaked | given twice |\n|---|---|---|---|---|---|\n")
            for name in names(mode):
                parts.append(row(name, [rows[each, mode, name] for each in RELEASES]))
        TABLE.write_text("".join(parts))


@pytest.mark.parametrize(("slurm", "mode", "name"), WANTED)
def test_any_ending_returns_the_devices(
    slurm: str, mode: str, name: str, clusters: dict[tuple[str, str], NativeLab]
) -> None:
    if (slurm, mode) not in clusters:
        for lab in clusters.values():
            lab.stop()  # one at a time
        clusters.clear()
        lab = LABS[mode](nodes=2, cpus=16, patience=20.0, release=release(slurm))
        clusters[slurm, mode] = lab
        lab.start()
    rows[slurm, mode, name] = put_through(clusters[slurm, mode], name)
