"""Lints job scripts at submission: job_submit asks a resident service for its findings."""

from ._compile_lua_library import LIBRARY as LIBRARY
from ._compile_lua_library import build as build
from ._job_submit_question import answer as answer
from ._lint_installation import LEVELS as LEVELS
from ._lint_installation import MARK as MARK
from ._lint_installation import Places as Places
from ._lint_installation import configure as configure
from ._lint_installation import take_back as take_back
from ._lint_service import serve as serve
from ._slurmctld_user import slurmctld_uid as slurmctld_uid
