"""Benchmarks: one module each, `run()` yields figures. `python -m bench [NAME …]`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Figure = dict[str, Any]


def figure(
    bench: str, value: float, unit: str, *, limit: float | None = None, **params: Any
) -> Figure:
    """One figure: a measured value with its unit, the limit it is held against, and how it came."""
    out: Figure = {"bench": bench, "value": value, "unit": unit}
    if limit is not None:
        out["limit"] = limit
    return {**out, "params": params}


Figures = Iterator[Figure]
