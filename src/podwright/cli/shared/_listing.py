"""The common options of every `list`: its format, its order, and watching it.

They are kubectl's: `-o table|wide|json|yaml|name`, `--sort-by`, `--watch`. Without a terminal, a
table is printed completely, byte for byte in the form that V-IPU's scripts cut. On a terminal it is
fitted to the width.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from podwright.cli.shared._noun_grammar import (
    GroupedListOptions,
    ListOptions,
    LocalListOptions,
)
from podwright.errors import InvalidRequest

if TYPE_CHECKING:
    from podwright.ground.tables import Table

#: Seconds between two refreshes of `--watch`.
INTERVAL = 2.0
AnyListOptions = ListOptions | GroupedListOptions
_CLEAR = "\x1b[H\x1b[J"


class ListView(NamedTuple):
    """The content of a list: `values` for programs, `table` for people."""

    values: Sequence[object]
    table: Table


def show_list(arguments: AnyListOptions, read: Callable[[], ListView]) -> int:
    """Print what `read` returns, once or, with --watch, whenever it changes. Returns the exit code.

    Raises InvalidRequest for a column that the table lacks, and whatever `read` raises.
    """
    if not arguments.watch:
        print(rendered(arguments, read()))
        return 0
    import time

    before = ""
    while True:
        text = rendered(arguments, read())
        if text != before:
            if sys.stdout.isatty():
                print(_CLEAR + text, flush=True)
            else:
                print(f"\n{text}" if before else text, flush=True)
            before = text
        time.sleep(INTERVAL)


def rendered(arguments: AnyListOptions | LocalListOptions, listing: ListView) -> str:
    """Return a list in the format, and in the order, that the arguments name."""
    if not isinstance(arguments, GroupedListOptions):
        listing = _sorted(listing, arguments.sort_by)
    form = "json" if arguments.json else arguments.output or "table"
    if form == "json":
        from podwright.cli.shared import _json

        return _json.text(listing.values)
    if form == "yaml":
        return yaml_text(listing.values)
    if form == "name":
        return "\n".join(listing.table.names())
    if form == "wide" or not sys.stdout.isatty():
        return str(listing.table)
    from podwright.cli.shared._arguments import columns

    return str(listing.table.fitted(columns()))


def _sorted(listing: ListView, column: str) -> ListView:
    if not column:
        return listing
    table = listing.table
    heading = next((title for title in table.header if title.casefold() == column.casefold()), None)
    if heading is None:
        raise InvalidRequest(
            f"there is no column {column!r} to sort by",
            would_work=f"--sort-by with one of: {', '.join(table.header)}",
        )
    order = table.order(heading)
    return ListView(
        [listing.values[position] for position in order],
        table._replace(rows=[table.rows[position] for position in order]),
    )


def yaml_text(values: Sequence[object]) -> str:
    """Return the values of the JSON as YAML. Raises InvalidRequest without PyYAML."""
    import json

    from podwright.cli.shared import _json

    try:
        import yaml
    except ImportError:
        raise InvalidRequest(
            "YAML needs PyYAML, which is not installed",
            would_work="pip install PyYAML, or -o json",
        ) from None
    text: str = yaml.safe_dump(json.loads(_json.text(values)), sort_keys=False)
    return text.rstrip("\n")
