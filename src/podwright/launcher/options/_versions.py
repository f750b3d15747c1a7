"""The output of `poprun --version`. Its full forms list everything that a launch is made of.

The wording is our choice: no document shows PopRun's.
"""

from __future__ import annotations

import platform

from podwright._version import __version__


def version_text(version_format: str) -> str:
    """Return the version as `text`, `full-text` or `full-json`."""
    if version_format == "text":
        return f"poprun {__version__} (Podwright)"
    version_by_part = _component_versions()
    if version_format == "full-text":
        return "\n".join(f"{name} {version}" for name, version in version_by_part.items())
    import json

    return json.dumps(version_by_part, indent=2)


def _component_versions() -> dict[str, str]:
    """Return poprun, popdist, Python, and each package that Podwright needs, as installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    version_by_part = {
        "poprun": __version__,
        "popdist": __version__,
        "python": platform.python_version(),
    }
    for requirement in requires("podwright") or ():
        extra_marker = requirement.replace('"', "'").partition("extra == ")[2]
        if extra_marker and not extra_marker.startswith("'pods'"):
            continue
        package_name = requirement.split(";")[0].strip()
        for character in " <>=!~[":
            package_name = package_name.split(character)[0]
        try:
            version_by_part[package_name] = version(package_name)
        except PackageNotFoundError:
            version_by_part[package_name] = "not installed"
    return version_by_part
