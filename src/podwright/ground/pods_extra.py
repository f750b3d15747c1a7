"""What to type where the packages for pods are missing: `pip` knows the project by its own source.

The project is in no index of packages, so `pip install 'podwright[pods]'` finds nothing. pip notes
where it installed a package from: a wheel, an archive or a checkout (PEP 610).
"""

from __future__ import annotations


def install_command(source: str | None = None) -> str:
    """Return a command that installs the packages for pods.

    source: the address from which Podwright was installed; None: what pip has noted.
    """
    address = _noted_source() if source is None else source
    if not address:
        return "pip install 'podwright[pods]'"
    return f"pip install 'podwright[pods] @ {address}'"


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
