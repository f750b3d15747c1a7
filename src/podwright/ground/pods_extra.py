"""What to type where packages of an extra are missing: `pip` knows the project by its own source.

The project is in no index of packages, so its name finds nothing. pip notes
where it installed a package from: a wheel, an archive or a checkout (PEP 610).
"""

from __future__ import annotations


def install_command(source: str | None = None, *, extra: str = "pods") -> str:
    """Return a command that installs the packages of an extra.

    source: the address from which Podwright was installed; None: what pip has noted.
    """
    address = _noted_source() if source is None else source
    if not address:
        return f"pip install 'WHEEL[{extra}]', where WHEEL is the file of the release"
    return f"pip install 'podwright[{extra}] @ {address}'"


def _noted_source() -> str:
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = distribution("podwright").read_text("direct_url.json")
    except PackageNotFoundError:
        return ""
    try:
        return str(json.loads(noted or "{}").get("url", ""))
    except ValueError:
        return ""
