"""The folder in which each instance writes its profile (PopRun guide, section 2.7).

poprun names the folder for all of them in POPDIST_AUTOREPORT_DIRECTORY. Each instance has a folder
below it, named by its index. Poplar makes that folder when it has something to write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from popdist import _environment as environment
from popdist._errors import BadEnvironment

DIRECTORY = "POPDIST_AUTOREPORT_DIRECTORY"
ENGINE_OPTIONS = "POPLAR_ENGINE_OPTIONS"


def setEngineOptions(options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the engine options of this instance: `options`, and the folder of its profile.

    It is for programs that make a Poplar engine themselves. `autoReport.directory` becomes the
    folder of this instance. `autoReport.all` is switched on unless a profiling option is set
    already, in `options` or in POPLAR_ENGINE_OPTIONS. Without `poprun --autoreport-dir`, `options`
    is returned unchanged. (popdist::setEngineOptions of the guide; the Python form is our choice.)

    Raises BadEnvironment where POPLAR_ENGINE_OPTIONS is not JSON, and NotUniform.
    """
    merged = dict(options or {})
    folder = os.environ.get(DIRECTORY)
    if not folder:
        return merged
    profiled = any(name.startswith("autoReport.") for name in {**_of_environment(), **merged})
    merged["autoReport.directory"] = os.path.join(folder, str(environment.getInstanceIndex()))
    if not profiled:
        merged["autoReport.all"] = "true"
    return merged


def set_profiling() -> None:
    """Put the same options into POPLAR_ENGINE_OPTIONS, which frameworks read.

    It may be called twice.
    """
    if os.environ.get(DIRECTORY):
        import json

        given = _of_environment()
        os.environ[ENGINE_OPTIONS] = json.dumps({**given, **setEngineOptions(given)})


def _of_environment() -> dict[str, str]:
    text = os.environ.get(ENGINE_OPTIONS)
    if not text:
        return {}
    import json

    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise BadEnvironment(f"{ENGINE_OPTIONS}={text!r}: {error}") from None
    if not isinstance(parsed, dict):
        raise BadEnvironment(f"{ENGINE_OPTIONS}={text!r}: expected a JSON object")
    return parsed
