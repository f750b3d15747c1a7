"""Where profiles go (PopRun guide, section 2.7): a folder for each instance, made by popdist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podwright.errors import InvalidRequest
from podwright.launcher._environment import given_variables

AUTOREPORT_VARIABLE = "POPDIST_AUTOREPORT_DIRECTORY"
ENGINE_VARIABLE = "POPLAR_ENGINE_OPTIONS"


def check_profiling(environ: Mapping[str, str], arguments: Iterable[Iterable[str]]) -> None:
    """Raises InvalidRequest, in the guide's words, where the user directs the profiles already.

    It is looked for as text: options in broken JSON stand in the way just the same.
    """
    for variables in (environ, *map(given_variables, arguments)):
        if "autoReport.directory" in variables.get(ENGINE_VARIABLE, ""):
            raise InvalidRequest(
                "autoreport-dir command line argument cannot be specified when "
                f"{ENGINE_VARIABLE} contains autoReport.directory setting"
            )
