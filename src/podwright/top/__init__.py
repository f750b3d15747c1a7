"""The pod in a terminal, live: devices, the queue and events (`podwright top`).

The app itself draws with Textual, and is loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from podwright.ground.lazy_imports import lazy_names
from podwright.top._feed import Feed
from podwright.top._pod_picture import Cell, Domain, draw, legend
from podwright.top._rows import TABS, Tab, rows

if TYPE_CHECKING:
    from podwright.top._app import TopApp

__all__ = ["TABS", "Cell", "Domain", "Feed", "Tab", "TopApp", "draw", "legend", "rows"]

if not TYPE_CHECKING:  # with it, no misspelt name would be found
    __getattr__ = lazy_names(__name__, {"_app": ("TopApp",)})
