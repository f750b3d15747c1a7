"""The folder in which each instance writes its profile (PopRun guide, section 2.7).

poprun names the folder for all of them in POPDIST_AUTOREPORT_DIRECTORY. Each instance has a folder
below it, named by its index. Poplar makes that folder when it has something to write.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from popdist import _environment as environment
from popdist._errors import BadEnvironment

AUTOREPORT_VARIABLE = "POPDIST_AUTOREPORT_DIRECTORY"
ENGINE_VARIABLE = "POPLAR_ENGINE_OPTIONS"


def setEngineOptions(options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the engine options of this instance: `options`, and the folder of its profile.

    It is for programs that make a Poplar engine themselves. `autoReport.directory` becomes the
    folder of this instance. `autoReport.all` is switched on unless a profiling option is set
    already, in `options` or in POPLAR_ENGINE_OPTIONS. Without `poprun --autoreport-dir`, `options`
    is returned unchanged. (popdist::setEngineOptions of the guide; the Python form is our choice.)

    Raises BadEnvironment where POPLAR_ENGINE_OPTIONS is not JSON, and NotUniform.

    >>> popdist.setEngineOptions({"debug.trace": "true"})
    {'debug.trace': 'true'}
    """
    merged_options = dict(options or {})
    report_folder = os.environ.get(AUTOREPORT_VARIABLE)
    if not report_folder:
        return merged_options
    has_profiling = any(
        option.startswith("autoReport.") for option in {**_environment_options(), **merged_options}
    )
    merged_options["autoReport.directory"] = os.path.join(
        report_folder, str(environment.getInstanceIndex())
    )
    if not has_profiling:
        merged_options["autoReport.all"] = "true"
    return merged_options


def set_profiling() -> None:
    """Put the same options into POPLAR_ENGINE_OPTIONS, which frameworks read.

    It may be called twice.
    """
    if os.environ.get(AUTOREPORT_VARIABLE):
        import json

        existing_options = _environment_options()
        os.environ[ENGINE_VARIABLE] = json.dumps(
            {**existing_options, **setEngineOptions(existing_options)}
        )


def _environment_options() -> dict[str, str]:
    options_json = os.environ.get(ENGINE_VARIABLE)
    if not options_json:
        return {}
    import json

    try:
        parsed_options = json.loads(options_json)
    except ValueError as error:
        raise BadEnvironment(f"{ENGINE_VARIABLE}={options_json!r}: {error}") from None
    if not isinstance(parsed_options, dict):
        raise BadEnvironment(f"{ENGINE_VARIABLE}={options_json!r}: expected a JSON object")
    return parsed_options
