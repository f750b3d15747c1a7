"""Lints job scripts at submission: job_submit asks a resident service for its findings."""

from podwright.gpu.submission._compile_lua_library import LIBRARY, build
from podwright.gpu.submission._job_submit_question import answer
from podwright.gpu.submission._lint_installation import (
    LEVELS,
    MARK,
    Places,
    configure,
    take_back,
)
from podwright.gpu.submission._lint_service import serve
from podwright.gpu.submission._slurmctld_user import slurmctld_uid

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
