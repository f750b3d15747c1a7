"""Where the releases of Slurm differ: a name for each behaviour.

`release_of` chooses by version, once. Code that depends on a behaviour asks the Release for it by
name. How a release treats a request is not written here: Slurm itself is asked (`slurm.twin`). To
add a release, run the labs and the twin's tests on it, and add a field for each difference.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final, NamedTuple

from podwright.errors import InvalidRequest

SlurmVersion = tuple[int, int]

OLDEST_RELEASE: Final[SlurmVersion] = (22, 5)
NEWEST_RELEASE: Final[SlurmVersion] = (26, 5)


class ReleaseRange(NamedTuple):
    """The releases from `first` on, and before `until`."""

    first: tuple[int, ...]
    until: SlurmVersion


def _behaviour_since(*first_version: int, until: SlurmVersion = (99, 0)) -> Any:
    """Return a behaviour of the releases from `first_version` on, and before `until`."""
    return ReleaseRange(first_version, until)


class Release:
    """The behaviours of one release; `version` is (22, 5) for 22.05.

    This is not a dataclass: importing that module took a quarter of the time in which `podwright
    slurm lint` starts.
    """

    def __init__(self, version: SlurmVersion) -> None:
        self.version = version
        for behaviour, release_range in vars(Release).items():
            if isinstance(release_range, ReleaseRange):
                setattr(self, behaviour, release_range.first <= version < release_range.until)

    # What sbatch, salloc and srun make of their options
    last_mail_type_wins: bool = _behaviour_since(25, 5)  # before, all types were joined
    srun_ignores_cpus_per_task: bool = _behaviour_since(22, 5, until=(23, 11))  # that of its job
    never_starts_one_task_of_several: bool = _behaviour_since(26, 5)  # -n1 --ntasks-per-node=2
    refuses_gres_beside_gpus_per_node: bool = _behaviour_since(26, 5)  # an inherited one, too

    # Configuration files
    block_topology: bool = _behaviour_since(24, 11)  # topology/block as `configure` writes it
    has_segments: bool = _behaviour_since(24, 5)  # --segment
    has_large_segments: bool = _behaviour_since(25, 11)  # larger than the smallest BlockSize
    several_topologies: bool = _behaviour_since(25, 5)  # topology.yaml, chosen by partition
    # Whole sockets are right on each release; 24.11 and 26.05 were seen to lose other GPUs.
    gres_cores_are_sockets: bool = _behaviour_since(23, 2)  # Cores= of gres.conf
    imex_switch: bool = _behaviour_since(24, 11)  # SwitchType=switch/nvidia_imex
    can_disable_cgroups: bool = _behaviour_since(23, 11)  # CgroupPlugin=disabled
    needs_task_none: bool = _behaviour_since(
        22, 5, until=(23, 2)
    )  # TaskPlugin=task/none where none is set
    twin_keeps_reserved_cores: bool = _behaviour_since(
        23, 2
    )  # CoreSpecCount of nodes that are absent

    def __str__(self) -> str:
        """Return the release as Slurm writes it, such as 22.05."""
        return f"{self.version[0]}.{self.version[1]:02}"


@cache
def release_of(version: SlurmVersion) -> Release:
    """Return the behaviours of the release with this version, such as (22, 5)."""
    return Release(version)


def parse_version(version_text: str) -> SlurmVersion:
    """Return (22, 5) for "22.05", "22.05.8" or "slurm 22.05.8". Raises InvalidRequest for anything
    else.
    """
    tokens = version_text.strip().split()
    number_texts = tokens[-1].split(".") if tokens else []
    if len(number_texts) < 2 or not all(number_text.isdigit() for number_text in number_texts[:2]):
        raise InvalidRequest(
            f"{version_text!r} is not a version of Slurm", would_work="Write it as 22.05 or 24.11.5"
        )
    return int(number_texts[0]), int(number_texts[1])


def read_version(config_text: str) -> SlurmVersion | None:
    """Return SLURM_VERSION from the output of `scontrol show config`, or None."""
    version_match = re.search(r"^SLURM_VERSION\s*=\s*(\S+)", config_text, re.M)
    return parse_version(version_match[1]) if version_match else None
