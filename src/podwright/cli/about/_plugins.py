"""`podwright plugins`: what other packages add, and whether it can be loaded."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.cli.shared._print_result import show_result
from podwright.errors import Unavailable
from podwright.ground import plugins


def show_plugins(*, as_json: bool) -> None:
    """Print a row for each plug-in of a package: group, name, description, and its error."""
    rows = [
        (group.removeprefix("podwright."), name, *_loaded(group, name))
        for group in plugins.PLUGIN_GROUPS
        for name in plugins.names(group)
    ]
    keys = ("group", "name", "package", "problem")
    show_result(as_json, [dict(zip(keys, row, strict=True)) for row in rows], lambda: _text(rows))


def _text(rows: Sequence[tuple[str, str, str, str]]) -> str:
    if not rows:
        return "No other package adds anything. CONTRIBUTING.md says what can be added."
    from podwright.ground.tables import table

    return table(
        ("Group", "Name", "Package", "State"),
        [(group, name, package, problem or "loads") for group, name, package, problem in rows],
    )


def _loaded(group: str, name: str) -> tuple[str, str]:
    """Return the package of a plug-in, and its error; empty when it loads."""
    package = plugins.package_of(group, name)
    try:
        plugins.load_any(group, name)
    except Unavailable as error:
        return package, error.problem
    return package, ""
