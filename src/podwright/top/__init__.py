"""The pod in a terminal, live: devices, the queue and events (`podwright top`).

The app itself draws with Textual, and is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from podwright.top._feed import Feed
from podwright.top._picture import Cell, Domain, draw, legend
from podwright.top._rows import TABS, Tab, rows

if TYPE_CHECKING:
    from podwright.top._app import TopApp

__all__ = ["TABS", "Cell", "Domain", "Feed", "Tab", "TopApp", "draw", "legend", "rows"]


def __getattr__(name: str) -> Any:
    if name == "TopApp":
        from podwright.top._app import TopApp

        return TopApp
    raise AttributeError(name)
