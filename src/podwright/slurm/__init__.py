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

if not TYPE_CHECKING:  # with it, no misspelt name would be found

    def __getattr__(name: str) -> object:
        from podwright.lazy_imports import lazy_names  # `import podwright.slurm` loads no other

        return lazy_names(__name__, {"jobs": __all__})(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
