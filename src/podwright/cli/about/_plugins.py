"""`podwright plugins`: what other packages add, and whether it can be loaded."""

from __future__ import annotations

from podwright.cli.shared._arguments import complain
from podwright.cli.shared._listing import ListView, rendered
from podwright.cli.shared._noun_grammar import LocalListOptions
from podwright.errors import Unavailable
from podwright.ground import plugins
from podwright.ground.tables import Table


def show_plugins(arguments: LocalListOptions) -> None:
    """Print a row for each plug-in of a package: group, name, package, and its error."""
    rows = [
        (group.removeprefix("podwright."), name, *_loaded(group, name))
        for group in plugins.PLUGIN_GROUPS
        for name in plugins.names(group)
    ]
    keys = ("group", "name", "package", "problem")
    values = [dict(zip(keys, row, strict=True)) for row in rows]
    cells = [(*row[:3], row[3] or "loads") for row in rows]
    table = Table(("Group", "Name", "Package", "State"), list(cells), "Name")
    print(rendered(arguments, ListView(values, table)))
    if not rows:
        complain("no other package adds anything; CONTRIBUTING.md says what can be added")


def _loaded(group: str, name: str) -> tuple[str, str]:
    """Return the package of a plug-in, and its error; empty when it loads."""
    package = plugins.package_of(group, name)
    try:
        plugins.load_any(group, name)
    except Unavailable as error:
        return package, error.problem
    return package, ""
