"""The figures of house.md's walks are those of today's code."""

from __future__ import annotations

import pytest
from tools import walk


def test_the_page_has_the_counts_of_today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLS", "")  # a walk sets it, and it is put back
    page = walk.PAGE.read_text(encoding="utf-8")
    walks = walk.take_walks()
    assert walk.page_table(page) == walk.table(walks), "python -m tools.walk --write"
    assert all(counted.files > 1 for counted in walks.values())
