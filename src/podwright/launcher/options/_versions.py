"""The output of `poprun --version`. Its full forms list everything that a launch is made of.

The wording is our choice: no document shows PopRun's.
"""

from __future__ import annotations

import platform

from podwright._version import __version__

FORMATS = ("text", "full-text", "full-json")


def version_text(form: str) -> str:
    """Return the version in one of FORMATS."""
    if form == "text":
        return f"poprun {__version__} (Podwright)"
    parts = _parts()
    if form == "full-text":
        return "\n".join(f"{name} {version}" for name, version in parts.items())
    import json

    return json.dumps(parts, indent=2)


def _parts() -> dict[str, str]:
    """Return poprun, popdist, Python, and each package that Podwright needs, as installed."""
    from importlib.metadata import PackageNotFoundError, requires, version

    parts = {
        "poprun": __version__,
        "popdist": __version__,
        "python": platform.python_version(),
    }
    for line in requires("podwright") or ():
        extra = line.replace('"', "'").partition("extra == ")[2]
        if extra and not extra.startswith("'pods'"):
            continue
        name = line.split(";")[0].strip()
        for end in " <>=!~[":
            name = name.split(end)[0]
        try:
            parts[name] = version(name)
        except PackageNotFoundError:
            parts[name] = "not installed"
    return parts
