"""Slurm: functions as its jobs, and the rooms that serve it.

    job = podwright.slurm.submit(train, "config.yaml", ipus=16, tasks=4)
    print(job.results())

`podwright.slurm.attach(job.id)` finds it again from another program.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from podwright.slurm.jobs import SlurmJob, attach, submit

__all__ = ["SlurmJob", "attach", "submit"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'podwright.slurm' has no attribute {name!r}")
    from podwright.slurm import jobs

    return getattr(jobs, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
