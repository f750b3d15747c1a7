"""The base of all values that are exchanged."""

from __future__ import annotations

import typing

import msgspec


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class Value(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Base of all values: fields by name only, unchangeable, defaults left out on the wire."""
