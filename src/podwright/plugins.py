"""What other packages add: families, stores, guards, drivers, fabrics, launchers, rules, checks, …

A package names each thing in its pyproject.toml, under its group:

    [project.entry-points."podwright.lint_rules"]
    no-friday = "acme.rules:NO_FRIDAY"

`CONTRIBUTING.md` says what is expected of each group; `examples/plugin` is such a package.
Importing importlib.metadata costs a command 20 ms. It is therefore imported only when some
installed package names a group of Podwright's, which a search of the entry-point files finds.
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
FABRICS: Final = "podwright.fabrics"
STORES: Final = "podwright.stores"
LAUNCHERS: Final = "podwright.launchers"
LINT_RULES: Final = "podwright.lint_rules"
HEALTH_CHECKS: Final = "podwright.health_checks"
TEMPLATES: Final = "podwright.templates"

GROUPS: Final = (
    FAMILIES,
    DRIVERS,
    GUARDS,
    FABRICS,
    STORES,
    LAUNCHERS,
    LINT_RULES,
    HEALTH_CHECKS,
    TEMPLATES,
)

_T = TypeVar("_T")


def names(group: str) -> tuple[str, ...]:
    """Return the names that packages add to a group, sorted."""
    return tuple(sorted(_points(group)))


def load(group: str, name: str, kind: type[_T]) -> _T | None:
    """Return the object that a package adds under this name, or None.

    Raises Unavailable if it cannot be loaded or is of another type.
    """
    point = _points(group).get(name)
    if point is None:
        return None
    loaded = _loaded(point)
    if not isinstance(loaded, kind):
        raise _broken(point, f"it is a {type(loaded).__name__}, and not a {kind.__name__}")
    return loaded


def load_any(group: str, name: str) -> object:
    """Return the object that a package adds under this name, of any type.

    Raises KeyError for an unknown name, and Unavailable if it cannot be loaded.
    """
    return _loaded(_points(group)[name])


def package_of(group: str, name: str) -> str:
    """Return the package that adds this name, with its version.

    Raises KeyError for an unknown name.
    """
    added_by = _points(group)[name].dist
    return f"{added_by.name} {added_by.version}" if added_by else "not known"


def load_function(group: str, name: str) -> Any:
    """Return the function that a package adds under this name, or None. Raises Unavailable."""
    point = _points(group).get(name)
    if point is None:
        return None
    loaded = _loaded(point)
    if not callable(loaded):
        raise _broken(point, f"it is a {type(loaded).__name__}, and cannot be called")
    return loaded


def load_all(group: str, kind: type[_T]) -> dict[str, _T]:
    """Return all that packages add to a group, by name.

    Raises Unavailable if one cannot be loaded.
    """
    loaded = ((name, load(group, name, kind)) for name in names(group))
    return {name: plugin for name, plugin in loaded if plugin is not None}


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:  # the import of another package may raise anything
        raise _broken(point, f"{type(error).__name__}: {error}") from error


def _broken(point: EntryPoint, reason: str) -> Unavailable:
    package = point.dist.name if point.dist else "a package"
    return Unavailable(
        f"{point.value} of {package} cannot be used: {reason}",
        operation=f"{point.group} {point.name}",
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
