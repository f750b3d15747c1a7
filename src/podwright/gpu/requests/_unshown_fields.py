"""Collects the fields that Slurm does not show, so that one answer names all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from podwright.errors import FieldNotKnown

T = TypeVar("T")


class UnshownFields:
    """The required fields that Slurm does not show, each with the first record that lacks it.

    A site with such fields gets no answer, so the values in their place decide nothing.
    """

    def __init__(self) -> None:
        self._records: dict[str, str] = {}

    def of(self, read_field: Callable[[], T], substitute: T) -> T:
        """Return the result of `read_field`; `substitute` if Slurm does not show the field, which
        is then recorded.
        """
        try:
            return read_field()
        except FieldNotKnown as error:
            self._records.setdefault(error.field, error.record)
            return substitute

    @property
    def fields(self) -> tuple[str, ...]:
        """Return each of them in words: `RealMemory (node n1)`."""
        return tuple(
            f"{field_name} ({record_name})" for field_name, record_name in self._records.items()
        )
