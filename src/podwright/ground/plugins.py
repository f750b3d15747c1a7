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

PLUGIN_GROUPS: Final = (
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


def names(plugin_group: str) -> tuple[str, ...]:
    """Return the names that packages add to a group, sorted."""
    return tuple(sorted(_entry_points_by_name(plugin_group)))


def load(plugin_group: str, plugin_name: str, plugin_type: type[_T]) -> _T | None:
    """Return the object that a package adds under this name, or None.

    Raises Unavailable if it cannot be loaded or is of another type.
    """
    entry_point = _entry_points_by_name(plugin_group).get(plugin_name)
    if entry_point is None:
        return None
    plugin = _load_entry_point(entry_point)
    if not isinstance(plugin, plugin_type):
        raise _broken_plugin_error(
            entry_point, f"it is a {type(plugin).__name__}, and not a {plugin_type.__name__}"
        )
    return plugin


def load_any(plugin_group: str, plugin_name: str) -> object:
    """Return the object that a package adds under this name, of any type.

    Raises KeyError for an unknown name, and Unavailable if it cannot be loaded.
    """
    return _load_entry_point(_entry_points_by_name(plugin_group)[plugin_name])


def package_of(plugin_group: str, plugin_name: str) -> str:
    """Return the package that adds this name, with its version.

    Raises KeyError for an unknown name.
    """
    distribution = _entry_points_by_name(plugin_group)[plugin_name].dist
    return f"{distribution.name} {distribution.version}" if distribution else "not known"


def load_function(plugin_group: str, plugin_name: str) -> Any:
    """Return the function that a package adds under this name, or None. Raises Unavailable."""
    entry_point = _entry_points_by_name(plugin_group).get(plugin_name)
    if entry_point is None:
        return None
    plugin_function = _load_entry_point(entry_point)
    if not callable(plugin_function):
        raise _broken_plugin_error(
            entry_point, f"it is a {type(plugin_function).__name__}, and cannot be called"
        )
    return plugin_function


def load_all(plugin_group: str, plugin_type: type[_T]) -> dict[str, _T]:
    """Return all that packages add to a group, by name.

    Raises Unavailable if one cannot be loaded.
    """
    named_plugins = ((name, load(plugin_group, name, plugin_type)) for name in names(plugin_group))
    return {name: plugin for name, plugin in named_plugins if plugin is not None}


def _load_entry_point(entry_point: EntryPoint) -> Any:
    try:
        return entry_point.load()
    except Exception as error:  # the import of another package may raise anything
        raise _broken_plugin_error(entry_point, f"{type(error).__name__}: {error}") from error


def _broken_plugin_error(entry_point: EntryPoint, reason: str) -> Unavailable:
    package = entry_point.dist.name if entry_point.dist else "a package"
    return Unavailable(
        f"{entry_point.value} of {package} cannot be used: {reason}",
        operation=f"{entry_point.group} {entry_point.name}",
        would_work=f"mend it, or pip uninstall {package}",
    )


@cache
def _entry_points_by_name(plugin_group: str) -> dict[str, EntryPoint]:
    if not _any_plugin_installed():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=plugin_group)}


@cache
def _any_plugin_installed() -> bool:
    return any(
        b"[podwright." in _read_entry_points_file(dir_entry.path)
        for folder in sys.path
        if os.path.isdir(folder)
        for dir_entry in os.scandir(folder)
        if dir_entry.name.endswith(".dist-info")
    )


def _read_entry_points_file(dist_info_folder: str) -> bytes:
    try:
        with open(os.path.join(dist_info_folder, "entry_points.txt"), "rb") as file:
            return file.read()
    except OSError:
        return b""
