"""What other packages add: families, stores, guards, drivers, launchers, rules, checks, templates.

A package names each thing in its pyproject.toml, under its group:

    [project.entry-points."podwright.lint_rules"]
    no-friday = "acme.rules:NO_FRIDAY"

`CONTRIBUTING.md` says what is expected of each group; `examples/plugin` is such a package.
Packages are looked through without importlib.metadata, which costs a command 20 ms, until one is
there that adds something.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from podwright.errors import Unavailable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

FAMILIES: Final = "podwright.families"
DRIVERS: Final = "podwright.drivers"
GUARDS: Final = "podwright.guards"
STORES: Final = "podwright.stores"
LAUNCHERS: Final = "podwright.launchers"
LINT_RULES: Final = "podwright.lint_rules"
HEALTH_CHECKS: Final = "podwright.health_checks"
TEMPLATES: Final = "podwright.templates"

_T = TypeVar("_T")


def names(group: str) -> tuple[str, ...]:
    """What is added to a group, in order of the names."""
    return tuple(sorted(_points(group)))


def load(group: str, name: str, kind: type[_T]) -> _T | None:
    """What is added under this name; None for nothing. Raises Unavailable if it is broken."""
    point = _points(group).get(name)
    if point is None:
        return None
    loaded = _loaded(point)
    if not isinstance(loaded, kind):
        raise _broken(point, f"it is a {type(loaded).__name__}, and not a {kind.__name__}")
    return loaded


def load_function(group: str, name: str) -> Any:
    """A function that is added under this name; None for none. Raises Unavailable."""
    point = _points(group).get(name)
    if point is None:
        return None
    loaded = _loaded(point)
    if not callable(loaded):
        raise _broken(point, f"it is a {type(loaded).__name__}, and cannot be called")
    return loaded


def load_all(group: str, kind: type[_T]) -> dict[str, _T]:
    """All that is added to a group, by name. Raises Unavailable if one is broken."""
    found = ((name, load(group, name, kind)) for name in names(group))
    return {name: one for name, one in found if one is not None}


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # whatever another package's import does
        raise _broken(point, f"{type(error).__name__}: {error}") from error


def _broken(point: EntryPoint, why: str) -> Unavailable:
    package = point.dist.name if point.dist else "a package"
    return Unavailable(
        f"{point.value} of {package} cannot be used: {why}",
        asked=f"{point.group} {point.name}",
        would_work=f"mend it, or pip uninstall {package}",
    )


@cache
def _points(group: str) -> dict[str, EntryPoint]:
    if not _any_added():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=group)}


@cache
def _any_added() -> bool:
    return any(
        b"[podwright." in _points_file(entry.path)
        for folder in sys.path
        if os.path.isdir(folder)
        for entry in os.scandir(folder)
        if entry.name.endswith(".dist-info")
    )


def _points_file(package: str) -> bytes:
    try:
        with open(os.path.join(package, "entry_points.txt"), "rb") as file:
            return file.read()
    except OSError:
        return b""
