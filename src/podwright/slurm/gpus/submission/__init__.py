"""Job scripts read at submission: job_submit asks a resident service what lint finds."""

from podwright.slurm.gpus.submission._compile import LIBRARY, build
from podwright.slurm.gpus.submission._lint_service import serve
from podwright.slurm.gpus.submission._question import answer
from podwright.slurm.gpus.submission._submission_setup import (
    LEVELS,
    MARK,
    Places,
    configure,
    take_back,
)

__all__ = [
    "LEVELS",
    "LIBRARY",
    "MARK",
    "Places",
    "answer",
    "build",
    "configure",
    "serve",
    "take_back",
]
