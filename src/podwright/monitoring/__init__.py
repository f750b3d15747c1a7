"""What a site's Prometheus and Grafana need to watch Podwright: scrape configuration, alert rules,
a board. Files, ready to copy; the board is made by tools/generate_board.py."""

from __future__ import annotations

from importlib.resources import files

#: Where each is told of in the documentation (docs/admin/monitoring.md).
MONITORING_FILE_NAMES = ("prometheus.yml", "podwright-rules.yml", "podwright-board.json")


def read(name: str) -> str:
    """One of `MONITORING_FILE_NAMES`. Raises KeyError for another."""
    if name not in MONITORING_FILE_NAMES:
        raise KeyError(name)
    return (files(__name__) / name).read_text(encoding="utf-8")
