"""The conditions of an object, also before it has any."""

from __future__ import annotations

import pytest

from tests.kubernetes.lab import Object, is_established, is_ready


@pytest.mark.parametrize("status", [{}, {"status": None}, {"status": {"conditions": None}}])
def test_an_object_that_was_just_made_is_neither_ready_nor_established(status: Object) -> None:
    assert not is_established(status)
    assert not is_ready(status)


def test_a_condition_holds_where_its_status_is_true() -> None:
    def item(word: str) -> Object:
        return {"status": {"conditions": [{"type": "Established", "status": word}]}}

    assert is_established(item("True"))
    assert not is_established(item("False"))
    assert not is_ready(item("True"))
