"""Lints job scripts at submission: job_submit asks a resident service for its findings."""

from podwright.gpu.submission._compile import LIBRARY, build
from podwright.gpu.submission._lint_service import serve
from podwright.gpu.submission._question import answer
from podwright.gpu.submission._slurmctld_user import slurmctld_uid
from podwright.gpu.submission._submission_setup import (
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
    "slurmctld_uid",
    "take_back",
]
